#include "checkpoint/gguf/view.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "checkpoint/gguf/blocks.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/io/grow.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/reciprocals.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

/// Limits above those of real models. A sparse file can claim any size without using disk space.
constexpr std::int64_t kMostExperts = 4096, kMostTensors = 1 << 19;

using safetensors::DType;
using Shape = std::vector<std::int64_t>;
using ModelInfo = safetensors::TensorInfo;

/// Number of blocks or elements that are read at a time.
constexpr std::uint64_t kUnitsAtATime = 1 << 15;

bool is_packed(const TensorInfo& t) { return t.type->id == kNvfp4 || t.type->id == kMxfp4; }

class View final : public checkpoint::TensorSource {
 public:
  View(File file, Naming naming) : file_(std::move(file)), naming_(naming) {
    name_ = printable(path().string(), 4096);
    if (naming_ == Naming::model) find_architecture_of_file();
    for (const char* key : {kBf16Key, kF16Key})
      for (std::string& name : file_.strings(key, header().tensors.size()))
        narrowed_[std::move(name)] = key == kBf16Key ? Origin::Kind::bf16 : Origin::Kind::f16;
    read_metadata();
    for (const TensorInfo& t : header().tensors) note_scale(t);
    for (const TensorInfo& t : header().tensors)
      if (!parts_.contains(t.name)) add(t);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const bool fresh = by_name_.emplace(tensors_[i].name, i).second;
      require<FormatError>(fresh, "{}: tensor '{}': two tensors become '{}'", name_,
                           printable(origins_[i].stored->name), printable(tensors_[i].name));
    }
    if (naming_ == Naming::model) require_whole(header(), *architecture_, name_);
  }

  const std::filesystem::path& path() const override { return file_.path(); }
  const safetensors::Metadata& metadata() const override { return metadata_; }
  const std::vector<ModelInfo>& tensors() const override { return tensors_; }
  const ModelInfo* find(std::string_view name) const override {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
  }
  void will_read(const ModelInfo& tensor, std::uint64_t offset,
                 std::uint64_t bytes) const override {
    const Origin& origin = origins_[index_of(tensor)];
    if (origin.kind == Origin::Kind::one || !origin.run.is_whole()) return;
    // Rows and columns in another order are at most a few megabytes away in the file.
    file_.input().will_read(
        origin.stored->begin + origin.begin + offset / origin.out() * origin.in(),
        bytes / origin.out() * origin.in());
  }
  std::span<const std::byte> data(const ModelInfo& /*tensor*/) const override { return {}; }
  void check_unchanged() const override { file_.input().check_unchanged(); }
  std::uint64_t file_bytes() const override { return file_.input().bytes(); }
  std::int64_t modified_ns() const override { return file_.input().modified_ns(); }
  std::string_view container() const override { return "gguf"; }
  checkpoint::StoredForm stored_form(const ModelInfo& tensor) const override {
    const TensorInfo& t = *origins_[index_of(tensor)].stored;
    // One expert of a stack has its own shape.
    const bool whole = naming_ == Naming::stored && t.name == tensor.name;
    return {std::string(t.type->name), whole ? t.shape : tensor.shape};
  }
  std::string architecture() const override {
    const std::string* name = header().text(kArchitectureKey);
    return name == nullptr ? std::string() : *name;
  }
  std::string config_text() const override { return config_.text; }
  void require_config() const override {
    if (!config_.obstacle.empty()) throw UnsupportedError(config_.obstacle);
  }
  std::vector<std::string> warnings() const override { return warnings_; }

  void read(const ModelInfo& tensor, std::uint64_t offset,
            std::span<std::byte> out) const override {
    const auto index = static_cast<std::size_t>(&tensor - tensors_.data());
    require<ValueError>(
        index < tensors_.size() && offset <= tensor.bytes && out.size() <= tensor.bytes - offset,
        "{}: tensor '{}': {} bytes at {}, must lie within its {} bytes", name_,
        printable(tensor.name), out.size(), offset, tensor.bytes);
    const std::uint64_t step = origins_[index].out();
    thread_local std::vector<std::byte> converted;
    while (!out.empty()) {
      const Origin& origin = part_of(index, offset / step);
      // Reads whole blocks that contain the next bytes and are together in the file.
      const std::uint64_t first = offset / step;
      std::uint64_t count = std::min(kUnitsAtATime * (origin.in() == 1 ? 32 : 1),
                                     (offset + out.size() + step - 1) / step - first);
      std::uint64_t source = first;
      if (!origin.run.is_whole()) {
        const std::uint64_t row = first / origin.row_units, inside = first % origin.row_units;
        const auto at = static_cast<std::int64_t>(row);
        count = std::min(
            count, static_cast<std::uint64_t>(origin.run.left(at)) * origin.row_units - inside);
        source = static_cast<std::uint64_t>(*origin.run.to_file(at)) * origin.row_units + inside;
      } else if (origin.rows.moves() || origin.columns.moves()) {
        const std::uint64_t row = first / origin.row_units, inside = first % origin.row_units;
        const auto run = origin.columns.moves() ? static_cast<std::uint64_t>(origin.columns.d)
                                                : origin.row_units;
        count = std::min(count, run - inside % run);
        source = to_file(origin.rows, row) * origin.row_units + to_file(origin.columns, inside);
      }
      const std::uint64_t skipped = offset - first * step;
      const std::uint64_t n = std::min<std::uint64_t>(count * step - skipped, out.size());
      const bool direct = skipped == 0 && n == count * step;
      const auto target =
          direct ? out.first(n)
                 : checkpoint::grow(converted, static_cast<std::int64_t>(count * step));
      convert(tensor, origin, source, count, target);
      if (!direct) std::copy_n(converted.data() + skipped, n, out.data());
      out = out.subspan(n);
      offset += n;
    }
  }

 private:
  static std::uint64_t to_file(const Order& order, std::uint64_t index) {
    return static_cast<std::uint64_t>(order.to_file(static_cast<std::int64_t>(index)));
  }
  std::size_t index_of(const ModelInfo& tensor) const {
    const auto index = static_cast<std::size_t>(&tensor - tensors_.data());
    require<ValueError>(index < tensors_.size(), "{}: tensor '{}' is of another file", name_,
                        printable(tensor.name));
    return index;
  }
  /// Returns the origin of a unit of a tensor, which several tensors of the file may hold.
  const Origin& part_of(std::size_t index, std::uint64_t unit) const {
    const Origin* origin = &origins_[index];
    if (origin->run.is_whole()) return *origin;
    const auto row = static_cast<std::int64_t>(unit / origin->row_units);
    if (origin->run.to_file(row)) return *origin;
    const std::vector<Origin>& others = split_.at(index);
    const auto part = std::ranges::find_if(
        others, [&](const Origin& o) { return o.run.to_file(row).has_value(); });
    require<FormatError>(part != others.end(), "{}: tensor '{}': has no row {}", name_,
                         printable(tensors_[index].name), row);
    return *part;
  }
  const Header& header() const { return file_.header(); }

  void find_architecture_of_file() {
    require_model(header(), name_);
    const std::string* name = header().text(kArchitectureKey);
    require<UnsupportedError>(name != nullptr, "{}: has no '{}'", name_, kArchitectureKey);
    const auto parts = header().integer("split.count").value_or(1);
    require<UnsupportedError>(parts <= 1, ErrorCode::gguf_part,
                              "{}: one of {} files of a model: merge them with llama-gguf-split "
                              "--merge",
                              name_, parts);
    architecture_ = architecture_of(file_);
    std::string known;
    for (const Architecture* a : architectures()) {
      require<UnsupportedError>(architecture_ != nullptr || a->name != *name,
                                "{}: '{}.expert_count' = {}, must be {} in {} models", name_,
                                a->name, header().integer(*name + ".expert_count").value_or(0),
                                a->experts ? "the number of experts" : "0", a->model_type);
      if (known.find(a->name) == std::string::npos)
        known += (known.empty() ? "" : ", ") + std::string(a->name);
    }
    require<UnsupportedError>(architecture_ != nullptr,
                              "{}: architecture '{}', must be one of {} to get names back", name_,
                              printable(*name), known);
    require_few_experts();
    const auto layers = [&](const char* key) {  // a wrong number is another error
      return std::clamp<std::int64_t>(header().integer(*name + key).value_or(0), 0, kMostTensors);
    };
    layers_ = layers(".block_count") - layers(".nextn_predict_layers");
    config_ = config_of(file_, *architecture_);
    if (header().find("tokenizer.ggml.model") != nullptr)
      warnings_.push_back("the tokenizer is not copied: take its files from the original model");
    if (header().find(kConfigKey) == nullptr)
      warnings_.push_back(
          "config.json is made of the file's keys: compare it with that of the original model");
  }

  void require_few_experts() const {
    std::int64_t experts = 0;
    for (const TensorInfo& t : header().tensors) {
      if (!stacks_experts(*architecture_, t.name) || t.shape.empty()) continue;
      experts += std::min(t.shape[0], kMostExperts);
      require<FormatError>(experts <= kMostTensors,
                           "{}: tensor '{}': its experts make more than {} tensors", name_,
                           printable(t.name), kMostTensors);
    }
  }

  void read_metadata() {
    if (const std::string* text = header().text(kMetadataKey)) {
      const auto json = checkpoint::parse_json_or_null<nlohmann::json>(*text);
      if (json.is_object())
        for (const auto& [key, value] : json.items())
          if (value.is_string()) metadata_[key] = value.get<std::string>();
    }
    if (const std::string* bits = header().text(checkpoint::kReciprocalsKey))
      metadata_[checkpoint::kReciprocalsKey] = *bits;
  }

  const TensorInfo* part_of(const TensorInfo& weight, std::string_view suffix) const {
    if (!weight.name.ends_with(".weight")) return nullptr;
    const std::string module = weight.name.substr(0, weight.name.size() - 7);
    if (const TensorInfo* part = file_.find(module + std::string(suffix))) return part;
    return file_.find(weight.name + std::string(suffix));  // the name from some converters
  }

  void note_scale(const TensorInfo& t) {
    if (*t.type != *find_type(kNvfp4)) return;
    for (const char* suffix : {".scale", ".input_scale"})
      if (const TensorInfo* part = part_of(t, suffix)) parts_.insert(part->name);
  }

  void push(std::string name, DType dtype, Shape shape, Origin origin) {
    ModelInfo& info = tensors_.emplace_back();
    info.name = naming_ == Naming::model ? as_module(*architecture_, name, layers_) : name;
    info.dtype = dtype;
    info.bytes = static_cast<std::uint64_t>(safetensors::dtype_bits(dtype)) / 8;
    for (const std::int64_t d : shape) info.bytes *= static_cast<std::uint64_t>(d);
    info.shape = std::move(shape);
    info.begin = next_;
    next_ += info.bytes;
    origins_.push_back(origin);
  }

  void add(const TensorInfo& t) {
    if (naming_ == Naming::stored) return add_as(t, t.name, t.shape, 0, t.bytes, {});
    if (std::ranges::find(kRopeTensors, t.name) != std::end(kRopeTensors))
      return;  // config.json has the same values
    const auto place = model_name_of(*architecture_, t.name);
    require<UnsupportedError>(place.has_value(), ErrorCode::no_gguf_name,
                              "{}: tensor '{}': has no name in {} models", name_, printable(t.name),
                              architecture_->model_type);
    require<UnsupportedError>(
        is_packed(t) || t.type->id == kQ8_0 || dtype_of(*t.type),
        "{}: tensor '{}': {}, must be NVFP4, Q8_0, MXFP4, F32, F16, BF16 or integers", name_,
        printable(t.name), t.type->name);
    require<FormatError>(!is_packed(t) || t.shape.size() >= 2,
                         "{}: tensor '{}': {} with {} dimensions, must have 2 or 3", name_,
                         printable(t.name), t.type->name, t.shape.size());
    if (const auto split = split_of(header(), *architecture_, t, *place, name_))
      return add_runs(t, *place, *split);
    if (!stacks_experts(*architecture_, t.name)) {
      Shape shape = t.shape;  // other programs leave out the one row of this gate
      if (t.name.ends_with(".ffn_gate_inp_shexp.weight") && shape.size() == 1)
        shape.insert(shape.begin(), 1);
      shape = model_shape(place_of(*architecture_, *place)->form, std::move(shape));
      return add_as(t, *place, std::move(shape), 0, t.bytes,
                    origin_of(header(), *architecture_, t, *place, name_));
    }
    require<FormatError>(t.shape.size() >= 2, "{}: tensor '{}': {} dimensions, must have 2 or 3",
                         name_, printable(t.name), t.shape.size());
    // A stack without bytes could claim any number of experts, so it must not be empty.
    const std::int64_t experts = t.shape[0];
    require<FormatError>(t.bytes > 0 && experts <= kMostExperts,
                         "{}: tensor '{}': [{}], must be 1 to {} experts that are not empty", name_,
                         printable(t.name), fmt::join(t.shape, ", "), kMostExperts);
    for (std::int64_t e = 0; e < experts; ++e)
      add_as(t, *model_name_of(*architecture_, t.name, e),
             Shape(t.shape.begin() + 1, t.shape.end()),
             t.bytes / static_cast<std::uint64_t>(experts) * static_cast<std::uint64_t>(e),
             t.bytes / static_cast<std::uint64_t>(experts), {}, e);
  }

  void add_as(const TensorInfo& t, std::string name, Shape shape, std::uint64_t begin,
              std::uint64_t bytes, Origin origin, std::int64_t expert = -1) {
    using Kind = Origin::Kind;
    origin.stored = &t;
    origin.begin = begin;
    const auto rows = static_cast<std::uint64_t>(shape.empty() ? 1 : shape[0]);
    if (t.type->id == kNvfp4 && name.ends_with(".weight") && shape.size() >= 2)
      return add_nvfp4(t, name.substr(0, name.size() - 7), std::move(shape), origin, expert);
    if (t.type->id == kMxfp4 && naming_ == Naming::model && name.ends_with(".weight") &&
        shape.size() >= 2) {
      origin.row_units = static_cast<std::uint64_t>(shape.back() / kMxBlock);
      count_columns(t, origin, name_);
      name.resize(name.rfind('.'));
      for (const Kind kind : {Kind::mx_codes, Kind::mx_exponents}) {
        origin.kind = kind;
        const bool codes = kind == Kind::mx_codes;
        Shape part = shape;
        part.back() /= codes ? 2 : kMxBlock;
        push(name + (codes ? ".weight_packed" : ".weight_scale"), DType::u8, std::move(part),
             origin);
      }
      return;
    }
    if (t.type->id == kQ8_0 && naming_ == Naming::model) {
      origin.kind = Kind::q8_0;
      if (rows != 0) origin.row_units = bytes / kQ8BlockBytes / rows;
      count_columns(t, origin, name_);
      return push(std::move(name), DType::f32, std::move(shape), origin);
    }
    const auto dtype = dtype_of(*t.type);
    if (!dtype || t.type->id == kNvfp4)
      return push(std::move(name), DType::u8, {static_cast<std::int64_t>(bytes)}, origin);
    if (*dtype == DType::f32 && naming_ == Naming::model) {
      const auto it = narrowed_.find(t.name);
      origin.kind = it == narrowed_.end() ? Kind::f32 : it->second;
      if (rows != 0) origin.row_units = bytes / 4 / rows;
      count_columns(t, origin, name_);
      return push(std::move(name),
                  origin.kind == Kind::f32    ? DType::f32
                  : origin.kind == Kind::bf16 ? DType::bf16
                                              : DType::f16,
                  std::move(shape), origin);
    }
    require<UnsupportedError>(origin.change == Change::none, "{}: tensor '{}': {}, must be F32",
                              name_, printable(t.name), t.type->name);
    if (rows != 0) origin.row_units = bytes / rows;
    count_columns(t, origin, name_);
    push(std::move(name), *dtype, std::move(shape), origin);
  }

  /// Adds the rows of a tensor that is a part of one of the model.
  void add_runs(const TensorInfo& t, const std::string& name, const Split& split) {
    const std::int64_t cols = split.transposed ? t.shape[1] : t.shape.back();
    const auto [it, fresh] = merged_.emplace(name, tensors_.size());
    const std::size_t index = it->second;
    if (fresh) add_as(t, name, {split.model_rows(), cols}, 0, t.bytes, {});
    Origin part = origins_[index];
    require<UnsupportedError>(
        *t.type == *part.stored->type, "{}: tensor '{}': {}, must be {} as '{}' is", name_,
        printable(t.name), t.type->name, part.stored->type->name, printable(part.stored->name));
    part.stored = &t;
    part.row_units = t.bytes / part.in() / static_cast<std::uint64_t>(split.rows());
    part.transposed_columns = split.transposed ? static_cast<std::uint64_t>(cols) : 0;
    for (const Run& run : split.runs) {
      part.run = run;
      if (fresh && &run == split.runs.data())
        origins_[index] = part;
      else
        split_[index].push_back(part);
    }
  }

  void add_nvfp4(const TensorInfo& t, const std::string& module, Shape shape, Origin origin,
                 std::int64_t expert) {
    using Kind = Origin::Kind;
    origin.row_units = static_cast<std::uint64_t>(shape.back() / kBlockElements);
    count_columns(t, origin, name_);
    Shape codes = shape, scales = shape;
    codes.back() /= 2;
    scales.back() /= 16;
    origin.kind = Kind::codes;
    push(module + ".weight", DType::u8, std::move(codes), origin);
    origin.kind = Kind::scales;
    push(module + ".weight_scale", DType::f8_e4m3, std::move(scales), origin);
    const std::int64_t matrices = t.shape.size() > 2 ? t.shape[0] : 1;
    add_scale(t, part_of(t, ".scale"), module + ".weight_scale_2", matrices, expert, true);
    add_scale(t, part_of(t, ".input_scale"), module + ".input_scale", matrices, expert, false);
  }

  void add_scale(const TensorInfo& weight, const TensorInfo* part, std::string name,
                 std::int64_t matrices, std::int64_t expert, bool needed) {
    using Kind = Origin::Kind;
    if (part == nullptr) {  // llama.cpp's converter leaves out a scale of 1
      if (needed) push(std::move(name), DType::f32, {}, {.kind = Kind::one, .stored = &weight});
      return;
    }
    require<FormatError>(part->type->id == kF32 && part->elements() == matrices,
                         "{}: tensor '{}': {} [{}], must be F32 with {} element(s)", name_,
                         printable(part->name), part->type->name, fmt::join(part->shape, ", "),
                         matrices);
    const bool stack = expert < 0 && matrices > 1;
    const auto begin = static_cast<std::uint64_t>(std::max<std::int64_t>(expert, 0)) * 4;
    push(std::move(name), DType::f32, stack ? Shape{matrices} : Shape{},
         {.kind = Kind::copy, .stored = part, .begin = begin});
  }

  /// Converts units [first, first + count) in the file's order, counted from the origin's begin.
  void convert(const ModelInfo& tensor, const Origin& origin, std::uint64_t first,
               std::uint64_t count, std::span<std::byte> out) const {
    using Kind = Origin::Kind;
    thread_local std::vector<std::byte> buffer;
    if (origin.kind == Kind::one) {
      const float one = 1;
      std::ranges::copy(std::as_bytes(std::span(&one, 1)), out.begin());
      return;
    }
    const std::uint64_t at = origin.begin + first * origin.in();
    if (origin.transposed_columns != 0) return read_transposed(origin, at, out);
    if (origin.kind == Kind::copy) return file_.read(*origin.stored, at, out);
    const auto bytes = checkpoint::grow(buffer, static_cast<std::int64_t>(count * origin.in()));
    file_.read(*origin.stored, at, bytes);
    if (origin.kind == Kind::codes) return unpack_codes(bytes, out);
    if (origin.kind == Kind::mx_codes) return unpack_mxfp4_codes(bytes, out);
    if (origin.kind == Kind::mx_exponents) return unpack_exponents(bytes, out);
    if (origin.kind == Kind::scales) {
      unpack_scales(bytes, out);
      if (naming_ == Naming::model) check_scales(origin, first, out);
      return;
    }
    if (origin.kind == Kind::q8_0) return unpack_q8_0(bytes, out);
    for (std::uint64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, bytes.data() + 4 * i, 4);
      value = reverted(value, origin.change);
      if (origin.kind == Kind::f32) {
        std::memcpy(out.data() + 4 * i, &value, 4);
        continue;
      }
      const bool bf16 = origin.kind == Kind::bf16;
      const std::uint16_t bits = bf16 ? BF16::from_float(value).bits : FP16::from_float(value).bits;
      const float back = bf16 ? BF16{bits}.to_float() : FP16{bits}.to_float();
      require<FormatError>(float_bits(back) == float_bits(value) || value != value ||
                               origin.change == Change::minus_exp,
                           "{}: tensor '{}': {} is no {}, as '{}' says of '{}'", name_,
                           printable(tensor.name), value, bf16 ? "BF16" : "F16",
                           bf16 ? kBf16Key : kF16Key, printable(origin.stored->name));
      std::memcpy(out.data() + 2 * i, &bits, 2);
    }
  }

  /// Reads rows of a head, from byte `first` of all rows on. The file has them as columns.
  void read_transposed(const Origin& origin, std::uint64_t first, std::span<std::byte> out) const {
    const std::uint64_t row_bytes = origin.row_units * origin.in(),
                        element = row_bytes / origin.transposed_columns;
    const auto rows = static_cast<std::uint64_t>(origin.run.size);
    thread_local std::vector<std::byte> buffer;
    const auto head = checkpoint::grow(buffer, static_cast<std::int64_t>(rows * row_bytes));
    std::uint64_t at = first % head.size();
    file_.read(*origin.stored, first - at, head);
    for (std::byte& byte : out) {
      byte = head[(at % row_bytes / element * rows + at / row_bytes) * element + at % element];
      ++at;
    }
  }

  void check_scales(const Origin& origin, std::uint64_t first,
                    std::span<const std::byte> scales) const {
    const auto bad = std::ranges::find_if_not(scales, is_scale);
    if (bad == scales.end()) [[likely]]
      return;
    throw FormatError(fmt::format(
        "{}: tensor '{}': scale {} is 0x{:02x}, must be at most 0x7e; hint: nvfp4 verify says more",
        name_, printable(origin.stored->name),
        (origin.begin / kBlockBytes + first) * 4 + static_cast<std::uint64_t>(bad - scales.begin()),
        std::to_integer<int>(*bad)));
  }

  File file_;
  Naming naming_;
  std::string name_;
  const Architecture* architecture_ = nullptr;
  std::int64_t layers_ = 0;  ///< those before layers for multi-token prediction
  FileConfig config_;
  safetensors::Metadata metadata_;
  std::vector<std::string> warnings_;
  std::set<std::string_view> parts_;
  std::unordered_map<std::string, Origin::Kind> narrowed_;
  std::vector<ModelInfo> tensors_;
  std::vector<Origin> origins_;                          // parallel to tensors_
  std::unordered_map<std::string, std::size_t> merged_;  ///< tensors made of several of the file
  std::unordered_map<std::size_t, std::vector<Origin>> split_;  ///< their further origins
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::uint64_t next_ = 0;
};

}  // namespace

std::unique_ptr<const checkpoint::TensorSource> open_view(const std::filesystem::path& path,
                                                          Naming naming) {
  return std::make_unique<View>(File::open(path), naming);
}

}  // namespace nvfp4::gguf
