#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/formats/unread_forms.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/reciprocals.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::DType;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMaxColumns = std::int64_t{1} << 40;  // twice this must not overflow

/// The names of the input scales of FP8, all of them multipliers: those of ModelOpt, transformers,
/// AutoFP8 and ComfyUI.
constexpr std::string_view kInputScales[] = {".input_scale", ".activation_scale", ".act_scale",
                                             ".scale_input"};

/// The sizes of square FP8 blocks, the most likely first: several can fit the same scales.
constexpr std::int64_t kSquareBlocks[] = {128, 64, 256, 32, 16, 512};

std::int64_t product(std::span<const std::int64_t> shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

/// Returns the tensors of a quantized weight beside its codes.
std::vector<StoredTensor> parts_of(const LogicalTensor& t) {
  std::vector<StoredTensor> parts = {t.scales, t.global, t.input};
  if (t.int4)
    for (const StoredTensor& part : {t.int4->zeros, t.int4->column_groups, t.int4->shape})
      parts.push_back(part);
  std::erase_if(parts, [](const StoredTensor& part) { return !part; });
  return parts;
}

/// Combines the tensors of one weight.
class Weight {
 public:
  Weight(const TensorTable& table, const WeightNames& names, const StoredTensor& codes,
         std::string module, std::vector<Defect>& defects, KeptSenses& senses, ReadParts& parts)
      : table_(table),
        names_(names),
        module_(std::move(module)),
        defects_(defects),
        senses_(senses) {
    t_.name = names.model_module ? names.model_module(module_) : module_;
    t_.name += names.weight;
    t_.names = &names;
    t_.data = codes;
    t_.shape = codes.info->shape;
    t_.scales = find(names.scales);
    t_.global = find(names.global);
    t_.input = find(names.input);
    denominator_ = find(names.denominator);
    if (denominator_) parts.insert(denominator_.info);
    if (names.encoding == Encoding::fp8 && !names.is_native)
      for (const std::string_view input : kInputScales)
        if (!t_.input) t_.input = find(input);
    if (names.encoding == Encoding::int4)
      t_.int4 = std::make_shared<Int4Parts>(
          Int4Parts{find(names.zeros), find(names.column_groups), find(names.shape)});
    else if (const StoredTensor shape = find(names.shape))
      parts.insert(shape.info);
    for (const StoredTensor& part : parts_of(t_)) t_.bytes += part.info->bytes;
    t_.bytes += t_.data.info->bytes;
  }

  LogicalTensor take() {
    if (names_.encoding != Encoding::int4 && has_all_parts()) {
      switch (names_.encoding) {
        case Encoding::nvfp4:
          check_nvfp4();
          break;
        case Encoding::mxfp4:
          check_mxfp4();
          break;
        default:
          check_eight_bits();
      }
    }
    return std::move(t_);
  }

 private:
  StoredTensor find(std::string_view suffix) const {
    return suffix.empty() ? StoredTensor{} : table_.find(module_ + std::string(suffix));
  }

  void defect(const char* code, std::string text) {
    defects_.push_back({code, t_.name, std::move(text)});
  }

  bool has_all_parts() {
    const auto need = [&](const StoredTensor& part, std::string_view suffix, const char* code) {
      if (part || suffix.empty()) return true;
      defect(code, fmt::format("{}: no '{}{}' beside it", t_.data.describe(), printable(module_),
                               suffix));
      return false;
    };
    const bool scales = need(t_.scales, names_.scales, "missing-scale"),
               below = need(denominator_, names_.denominator, "missing-global-scale");
    return need(t_.global, names_.global, "missing-global-scale") && scales && below;
  }

  void check_nvfp4() {
    const DType dtype = names_.words ? DType::u32 : DType::u8, stored = t_.data.info->dtype;
    if (stored != dtype || t_.shape.size() < 2 || t_.shape.back() <= 0 ||
        t_.shape.back() > kMaxColumns)
      return defect(
          stored != dtype ? "wrong-dtype" : "wrong-shape",
          fmt::format("{}: {}, NVFP4 codes must be {} with two dimensions or more",
                      t_.data.describe(), form_of(t_.data), safetensors::dtype_name(dtype)));
    if (t_.name != t_.data.info->name && table_.find(t_.name))
      return defect("stored-twice",
                    fmt::format("{}: '{}' is there too", t_.data.describe(), printable(t_.name)));
    t_.transposed = names_.stacks && is_transposed();
    (t_.transposed ? t_.shape[1] : t_.shape.back()) *= names_.words ? 8 : 2;
    check_nvfp4_scales();
    if (t_.shape.size() > 2 && t_.elements() == 0)
      return defect("wrong-shape", fmt::format("{}: {}, a stack must not be empty",
                                               t_.data.describe(), form_of(t_.data)));
    const std::int64_t rows = t_.transposed || denominator_ ? 0 : t_.elements() / t_.cols();
    if (t_.global)
      t_.globals = read_globals(t_.global, "weight", rows);
    else
      t_.globals = {GlobalScale{}};  // the form has no global scale
    if (t_.input) t_.inputs = read_globals(t_.input, "input", 0);
  }

  /// Reports whether the stack has codes [E, K / 2, N] and scales [E, K / 16, N].
  bool is_transposed() const {
    const Shape &codes = t_.shape, &scales = t_.scales.info->shape;
    return scales.size() == 3 && codes[1] > 0 && codes[1] <= kMaxColumns &&
           codes[1] % (kBlock / 2) == 0 &&
           scales == Shape{codes[0], codes[1] / (kBlock / 2), codes[2]};
  }

  void check_nvfp4_scales() {
    if (t_.depth() % kBlock != 0)
      return defect("wrong-shape", fmt::format("{}: {}, holds {} codes in a row, NVFP4 has blocks "
                                               "of 16: must be a multiple of 16",
                                               t_.data.describe(), form_of(t_.data), t_.depth()));
    Shape shape = t_.shape;
    const std::int64_t blocks = t_.depth() / kBlock;
    (t_.transposed ? shape[1] : shape.back()) = blocks;
    const ScaleLayout layout = names_.arrangement.scales;
    const std::int64_t tiled =
        t_.matrices() * scale_bytes(ScaleLayout::tiled_128x4, t_.outputs(), blocks);
    const safetensors::TensorInfo& info = *t_.scales.info;
    const DType dtype = names_.words ? DType::u8 : DType::f8_e4m3;
    const bool linear = layout == ScaleLayout::linear, as_tiles = product(info.shape) == tiled;
    if (info.dtype == dtype && (linear ? info.shape == shape : as_tiles)) return;
    const bool swizzled = linear && as_tiles && info.dtype == DType::f8_e4m3;
    defect(swizzled              ? "swizzled-scales"
           : info.dtype != dtype ? "wrong-dtype"
                                 : "wrong-shape",
           fmt::format("{}: {}, must be {} [{}], one for each 16 codes of '{}'{}",
                       t_.scales.describe(), form_of(t_.scales), safetensors::dtype_name(dtype),
                       fmt::join(shape, ", "), printable(t_.data.info->name),
                       swizzled ? "; the size is that of 128x4 tiles" : ""));
  }

  /// Returns one FP32 number, one for each matrix of a stack, or one for each of `rows` rows.
  std::vector<float> read_numbers(const StoredTensor& t, const char* which, std::int64_t rows) {
    const std::int64_t matrices = t_.matrices(), count = product(t.info->shape);
    const bool dtype =
        t.info->dtype == DType::f32 || (names_.bf16_globals && t.info->dtype == DType::bf16);
    if (!dtype || (count != 1 && count != matrices && (rows == 0 || count != rows))) {
      defect(
          dtype ? "wrong-shape" : "wrong-dtype",
          fmt::format("{}: {}, the {} scale must be F32 with {} element(s)", t.describe(),
                      form_of(t), which, matrices == 1 ? "1" : fmt::format("1 or {}", matrices)));
      return {};
    }
    std::vector<std::byte> bytes(t.info->bytes);
    std::vector<float> values(static_cast<std::size_t>(count));
    t.file->read(*t.info, 0, bytes);
    to_floats(t.info->dtype, bytes, values);
    return values;
  }

  std::vector<GlobalScale> read_globals(const StoredTensor& t, const char* which,
                                        std::int64_t rows) {
    const std::vector<float> values = read_numbers(t, which, rows);
    std::vector<float> below = {&t == &t_.input && names_.input.ends_with("_amax") ? 2688.f : 1};
    if (denominator_ && &t == &t_.global) below = read_numbers(denominator_, which, 0);
    if (values.empty() || below.empty()) return {};
    if (std::ranges::find(below, 0.0f) != below.end()) {
      defect("global-scale-invalid", fmt::format("{}: has a 0, must not: '{}' is divided by it",
                                                 denominator_.describe(), printable(t.info->name)));
      return {};
    }
    std::vector<GlobalScale> globals;
    for (std::size_t i = 0; i < std::max(values.size(), below.size()); ++i)
      globals.push_back(
          senses_.both(t, i, values[values.size() == 1 ? 0 : i] / below[below.size() == 1 ? 0 : i],
                       names_.divisors));
    return globals;
  }

  void check_mxfp4() {
    const Shape scales = t_.scales.info->shape;
    const DType dtype = t_.data.info->dtype, exponents = t_.scales.info->dtype;
    const bool blocks = names_.codes == "_blocks";  // blocks of 16 bytes
    if (dtype != DType::u8 && (blocks || (dtype != DType::i8 && dtype != DType::f4)))
      return defect("wrong-dtype", fmt::format("{}: {}, must be U8{}", t_.data.describe(),
                                               form_of(t_.data), blocks ? "" : ", I8 or F4"));
    if (exponents != DType::u8 && exponents != DType::f8_e8m0)
      return defect("wrong-dtype", fmt::format("{}: {}, must be U8 or F8_E8M0",
                                               t_.scales.describe(), form_of(t_.scales)));
    if (blocks && (t_.shape.size() != 4 || t_.shape[3] != 16))
      return defect("wrong-shape", fmt::format("{}: {}, must be [experts, rows, blocks, 16]",
                                               t_.data.describe(), form_of(t_.data)));
    const bool packed = dtype != DType::f4;
    if (t_.shape.size() == 4)  // [experts, rows, blocks, 16]
      t_.shape = {t_.shape[0], t_.shape[1], t_.shape[2] * t_.shape[3]};
    if (packed && !t_.shape.empty() && t_.shape.back() <= kMaxColumns) t_.shape.back() *= 2;
    Shape expected = t_.shape;
    const bool empty = std::ranges::find(expected, 0) != expected.end();
    if (expected.size() < 2 || expected.back() % 32 != 0 || empty)
      return defect("wrong-shape",
                    fmt::format("{}: {}, MXFP4 codes must have 32 n columns and not be empty",
                                t_.data.describe(), form_of(t_.data)));
    expected.back() /= 32;
    if (scales == expected) return;
    defect("wrong-shape", fmt::format("{}: {}, must be [{}], one for each 32 codes of '{}'",
                                      t_.scales.describe(), form_of(t_.scales),
                                      fmt::join(expected, ", "), printable(t_.data.info->name)));
  }

  void check_eight_bits() {
    const DType dtype = t_.scales.info->dtype;
    const bool is_fp8 = names_.encoding == Encoding::fp8;
    if (is_fp8 && dtype == DType::u8) return check_mxfp8();
    if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16 &&
        !(is_fp8 && dtype == DType::f8_e8m0))
      return defect(
          "wrong-dtype",
          fmt::format("{}: {}, must be F32, BF16{}", t_.scales.describe(), form_of(t_.scales),
                      is_fp8 ? ", F16 or F8_E8M0, or U8 of MXFP8" : " or F16"));
    if (find_blocks() && (is_fp8 || t_.block_cols == t_.cols())) return;
    defect("wrong-shape",
           fmt::format("{}: {}, must be one scale for '{}'{} for each of its rows{}",
                       t_.scales.describe(), form_of(t_.scales), printable(t_.data.info->name),
                       is_fp8 ? "," : " or", is_fp8 ? " or for each square block" : ""));
  }

  void check_mxfp8() {
    const std::int64_t rows = t_.rows(), cols = t_.cols();
    t_.block_rows = 1;
    t_.block_cols = kMxfp8Block;
    if (rows > 0 && cols > 0 && cols % kMxfp8Block == 0 &&
        t_.scales.info->shape == Shape{rows, cols / kMxfp8Block})
      return;
    defect("wrong-shape", fmt::format("{}: {}, must be one exponent for each {} columns of '{}'",
                                      t_.scales.describe(), form_of(t_.scales), kMxfp8Block,
                                      printable(t_.data.info->name)));
  }

  bool find_blocks() {
    const Shape& s = t_.scales.info->shape;
    const std::int64_t rows = t_.rows(), cols = t_.cols(), count = product(s);
    if (rows == 0 || cols == 0) return false;
    if (t_.shape.size() > 2) return find_blocks_of_stack();
    t_.block_rows = rows;
    t_.block_cols = cols;
    if (count == 1) return true;
    t_.block_rows = 1;
    if ((s.size() == 1 && s[0] == rows) || (s.size() == 2 && s[0] == rows && s[1] == 1))
      return true;
    if (s.size() != 2) return false;
    for (const std::int64_t block : kSquareBlocks)
      if (s[0] == ceil_div(rows, block) && s[1] == ceil_div(cols, block)) {
        t_.block_rows = t_.block_cols = block;
        return true;
      }
    return false;
  }

  /// Finds the blocks of a stack: an expert, each of its rows, or square blocks have a scale.
  bool find_blocks_of_stack() {
    const Shape& s = t_.scales.info->shape;
    const std::int64_t experts = t_.matrices(), rows = t_.rows(), cols = t_.cols();
    t_.block_rows = rows;
    t_.block_cols = cols;
    if (experts > 0 && !s.empty() && s[0] == experts && product(s) == experts) return true;
    if (s.size() != 3 || s[0] != experts) return false;
    t_.block_rows = 1;
    if (s[1] == rows && s[2] == 1) return true;
    for (const std::int64_t block : kSquareBlocks)
      if (rows % block == 0 && s[1] == rows / block && s[2] == ceil_div(cols, block)) {
        t_.block_rows = t_.block_cols = block;
        return true;
      }
    return false;
  }

  const TensorTable& table_;
  const WeightNames& names_;
  std::string module_;
  std::vector<Defect>& defects_;
  KeptSenses& senses_;
  StoredTensor denominator_;
  LogicalTensor t_;
};

/// A list of weights in forms that are not supported. Each module has one entry, its largest
/// tensor.
class UnreadWeights {
 public:
  explicit UnreadWeights(std::vector<Defect>& defects) : defects_(defects) {}

  void add(const StoredTensor& t, Defect defect) {
    const std::string_view name = t.info->name;
    const auto [it, fresh] =
        places_.try_emplace(name.substr(0, name.rfind('.')), defects_.size(), t.info->bytes);
    auto& [place, bytes] = it->second;
    if (fresh) return defects_.push_back(std::move(defect));
    if (t.info->bytes <= bytes) return;
    bytes = t.info->bytes;
    defects_[place] = std::move(defect);
  }

 private:
  std::vector<Defect>& defects_;
  std::unordered_map<std::string_view, std::pair<std::size_t, std::uint64_t>> places_;
};

/// An INT4 weight that cannot be read.
struct FaultyInt4 {
  StoredTensor stored;
  LogicalTensor weight;
  Int4Fault fault;

  /// Reports damage if other weights with such names are whole, and otherwise an unknown form.
  void report(const std::set<std::string_view>& whole, std::vector<Defect>& defects,
              UnreadWeights& unread, ReadParts& parts) const {
    Defect defect = unread_weight(stored, {}, int4_name(*weight.names));
    defect.text += ": " + fault.text;
    if (fault.code == kAnotherForm || !whole.contains(weight.names->codes))
      return unread.add(stored, std::move(defect));
    defects.push_back(
        {std::string(fault.code), weight.name,
         fmt::format("{}: {}, INT4: {}", stored.describe(), form_of(stored), fault.text)});
    parts.insert(stored.info);
    for (const StoredTensor& part : parts_of(weight)) parts.insert(part.info);
  }
};

/// Returns the form in ComfyUI's marker of a weight, or "" if the weight was read in that form.
std::string other_form(const WeightNames& names, const StoredTensor& marker) {
  if (!marker || marker.info->bytes > 4096) return {};
  std::string text(marker.info->bytes, '\0');
  marker.read(0, std::as_writable_bytes(std::span(text)));
  const auto json = parse_json_or_null(text);
  if (!json.is_object() || !json.contains("format") || !json["format"].is_string()) return {};
  std::string form = json["format"].get<std::string>();
  const bool same =
      names.encoding == Encoding::fp8 ? form.starts_with("float8_e4m3fn") : form == "nvfp4";
  return same ? std::string() : form;
}

/// Quantized weights with their codes, in the order of the codes.
using QuantizedTensors = std::vector<std::pair<const safetensors::TensorInfo*, LogicalTensor>>;

bool has_only_zeros(const StoredTensor& t) {
  constexpr std::uint64_t kPiece = 1 << 20;
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < t.info->bytes; at += kPiece) {
    piece.resize(std::min(kPiece, t.info->bytes - at));
    t.file->read(*t.info, at, piece);
    if (std::ranges::any_of(piece, [](std::byte b) { return b != std::byte{0}; })) return false;
  }
  return true;
}

/// Gives FP8 and MXFP4 weights the scales and zero points beside them that their form does not
/// have. NVFP4 keeps its own. Zero points must be zero: no form here has others.
void take_companions(const TensorTable& table, QuantizedTensors& quantized, ReadParts& parts,
                     UnreadWeights& unread) {
  std::unordered_map<std::string_view, LogicalTensor*> weights;
  for (auto& [codes, t] : quantized)
    if (t.names->codes.starts_with('.')) weights.emplace(owner_of(codes->name), &t);
  for (const StoredTensor& stored : table.all()) {
    const std::string_view name = stored.info->name;
    if (parts.contains(stored.info) || !is_companion(name) || cache_scale(name)) continue;
    const auto weight = weights.find(owner_of(name));
    if (weight == weights.end() || stored.file->container() != "safetensors") continue;
    if (is_zero_point(name) && !has_only_zeros(stored)) {
      unread.add(stored, unread_weight(stored, weight->second->data, "codes with zero points"));
    } else if (!weight->second->is_nvfp4()) {
      weight->second->left_out.push_back(stored);
      parts.insert(stored.info);
    }
  }
}

}  // namespace

FoundTensors find_tensors(const TensorTable& table, const Declared* declared) {
  FoundTensors found;
  KeptSenses senses;
  // Codes come first, because they identify the tensors that are parts of a weight.
  QuantizedTensors quantized;
  ReadParts parts;
  bool native = false;  // the model has DeepSeek-V4's MXFP4
  UnreadWeights unread(found.unknown);
  std::vector<FaultyInt4> faulty;
  std::set<std::string_view> whole;  // names of the codes of INT4 weights that can be read
  std::set<const WeightNames*> with_groups;
  std::vector<const WeightNames*> known;
  for (const CheckpointFormat* format : all_formats())
    known.insert(known.end(), format->reads.begin(), format->reads.end());
  for (const StoredTensor& stored : table.all()) {
    const std::string& name = stored.info->name;
    for (const WeightNames* names : known) {
      if (!name.ends_with(names->codes)) continue;
      const std::string module = name.substr(0, name.size() - names->codes.size());
      if (!names->claims(table, stored, module)) continue;
      LogicalTensor& t =
          quantized
              .emplace_back(
                  stored.info,
                  Weight(table, *names, stored, module, found.defects, senses, parts).take())
              .second;
      if (t.encoding() == Encoding::int4) {
        Int4Fault fault = check_int4(t, declared);
        if (!fault.text.empty()) {
          faulty.push_back({stored, std::move(t), std::move(fault)});
          quantized.pop_back();
          break;
        }
        whole.insert(names->codes);
        if (t.int4->column_groups) with_groups.insert(names);
      }
      native |= names->is_native && names->encoding == Encoding::mxfp4;
      for (const StoredTensor& part : parts_of(t)) parts.insert(part.info);
      if (!names->marker.empty()) {
        const StoredTensor marker = table.find(module + std::string(names->marker));
        parts.insert(marker.info);
        if (const std::string form = other_form(*names, marker); !form.empty())
          unread.add(stored, unread_weight(stored, marker, printable(form) + " of ComfyUI"));
      }
      break;
    }
  }
  for (const auto& [codes, t] : quantized)
    if (t.encoding() == Encoding::int4 && !t.int4->column_groups && with_groups.contains(t.names))
      found.defects.push_back({"missing-scale", t.name,
                               fmt::format("{}: INT4 without '{}', which others have",
                                           t.data.describe(), t.names->column_groups)});
  for (const FaultyInt4& weight : faulty) weight.report(whole, found.defects, unread, parts);
  take_companions(table, quantized, parts, unread);
  found.tensors.reserve(table.all().size() - std::min(table.all().size(), parts.size()));
  const ModuleScales module_scales = unread_scales(table, parts);
  auto next = quantized.begin();
  for (const StoredTensor& stored : table.all()) {
    const bool is_weight = next != quantized.end() && next->first == stored.info;
    const auto weight = is_weight ? next++ : next;
    if (parts.contains(stored.info)) continue;
    if (is_weight) {
      found.tensors.push_back(std::move(weight->second));
      continue;
    }
    if (const std::string scales = lost_scales_of(table, stored); !scales.empty())
      found.defects.push_back({"missing-scale", stored.info->name,
                               fmt::format("{}: {} and no '{}' beside it", stored.describe(),
                                           form_of(stored), printable(scales))});
    else if (auto defect = native && is_lost_native(stored)
                               ? std::nullopt
                               : find_unread_weight(table, stored, module_scales))
      unread.add(stored, std::move(*defect));
    else if (is_unknown_integer(stored))
      found.integers.push_back(stored.info->name);
    LogicalTensor& t = found.tensors.emplace_back();
    t.name = stored.info->name;
    t.shape = stored.info->shape;
    t.data = stored;
    t.bytes = stored.info->bytes;
  }
  return found;
}

}  // namespace nvfp4::checkpoint
