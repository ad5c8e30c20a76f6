#include "checkpoint/quantized_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "checkpoint/journal.h"
#include "checkpoint/printable.h"
#include "checkpoint/text_file.h"
#include "core/require.h"
#include "nvfp4/quantize.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;
using StoredType = safetensors::DType;
using safetensors::TensorInfo;
using Form = LogicalTensor::Form;

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMaxColumns = std::int64_t{1} << 40;  // twice this must not overflow

std::string describe(const StoredTensor& t) {
  return fmt::format("{}: tensor '{}'", t.file->path().string(), printable(t.info->name));
}

std::int64_t product(std::span<const std::int64_t> shape) {
  std::int64_t n = 1;
  for (const std::int64_t d : shape) n *= d;
  return n;
}

/// "a.b.weight", ".weight" -> "a.b"
std::optional<std::string> without_suffix(std::string_view name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return std::nullopt;
  return std::string(name.substr(0, name.size() - suffix.size()));
}

/// The FP32 values of a scalar, or of one scalar for each matrix of a stack.
std::vector<float> read_scalars(const StoredTensor& t, std::int64_t matrices) {
  const std::int64_t count = product(t.info->shape);
  require<FormatError>(t.info->dtype == StoredType::f32 && (count == 1 || count == matrices),
                       "{}: {} [{}], must be F32 with {} element(s)", describe(t),
                       safetensors::dtype_name(t.info->dtype), fmt::join(t.info->shape, ", "),
                       matrices == 1 ? "1" : fmt::format("1 or {}", matrices));
  std::vector<float> values(static_cast<std::size_t>(count));
  t.file->read(*t.info, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

float element_to_float(StoredType dtype, const std::byte* p) {
  const auto as = [p]<class T>(T value) {
    std::memcpy(&value, p, sizeof value);
    return value;
  };
  switch (dtype) {
    case StoredType::boolean:
    case StoredType::u8:
      return static_cast<float>(as(std::uint8_t{}));
    case StoredType::i8:
      return static_cast<float>(as(std::int8_t{}));
    case StoredType::f8_e5m2:  // the upper half of an FP16
      return FP16{static_cast<std::uint16_t>(as(std::uint8_t{}) << 8)}.to_float();
    case StoredType::f8_e4m3:
      return E4M3{as(std::uint8_t{})}.to_float();
    case StoredType::f8_e8m0: {
      const int exponent = as(std::uint8_t{});
      return exponent == 255 ? std::nanf("") : std::ldexp(1.0f, exponent - 127);
    }
    case StoredType::i16:
      return static_cast<float>(as(std::int16_t{}));
    case StoredType::u16:
      return static_cast<float>(as(std::uint16_t{}));
    case StoredType::f16:
      return FP16{as(std::uint16_t{})}.to_float();
    case StoredType::bf16:
      return BF16{as(std::uint16_t{})}.to_float();
    case StoredType::i32:
      return static_cast<float>(as(std::int32_t{}));
    case StoredType::u32:
      return static_cast<float>(as(std::uint32_t{}));
    case StoredType::f32:
      return as(float{});
    case StoredType::f64:
      return static_cast<float>(as(double{}));
    case StoredType::i64:
      return static_cast<float>(as(std::int64_t{}));
    case StoredType::u64:
      return static_cast<float>(as(std::uint64_t{}));
    default:
      break;
  }
  throw UnsupportedError(fmt::format("elements of dtype {} cannot be read as numbers",
                                     safetensors::dtype_name(dtype)));
}

}  // namespace

std::string LogicalTensor::form_name() const {
  return is_nvfp4() ? "NVFP4" : std::string(safetensors::dtype_name(data.info->dtype));
}

std::int64_t LogicalTensor::elements() const { return product(shape); }

bool LogicalTensor::readable() const {
  switch (data.info->dtype) {
    case StoredType::f4:
    case StoredType::f6_e2m3:
    case StoredType::f6_e3m2:
    case StoredType::f8_e4m3fnuz:
    case StoredType::f8_e5m2fnuz:
    case StoredType::c64:
      return false;
    default:
      return true;
  }
}

bool LogicalTensor::exact_as_float() const {
  const StoredType dtype = data.info->dtype;
  return is_nvfp4() || dtype == StoredType::f32 || safetensors::dtype_bits(dtype) < 32;
}

void LogicalTensor::read_bytes(std::int64_t first, std::span<std::byte> out) const {
  const auto bits = static_cast<std::uint64_t>(safetensors::dtype_bits(data.info->dtype));
  data.file->read(*data.info, static_cast<std::uint64_t>(first) * bits / 8, out);
}

void LogicalTensor::read(std::int64_t first, std::span<float> out) const {
  if (out.empty()) return;
  thread_local std::vector<std::byte> buffer, scale_buffer;
  if (!is_nvfp4()) {
    const auto size = static_cast<std::size_t>(safetensors::dtype_bits(data.info->dtype)) / 8;
    buffer.resize(out.size() * size);
    read_bytes(first, buffer);
    if (data.info->dtype == StoredType::bf16) {  // by far the most common
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, buffer.data() + 2 * i, 2);
        out[i] = BF16{bits}.to_float();
      }
      return;
    }
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = element_to_float(data.info->dtype, buffer.data() + i * size);
    return;
  }
  const std::int64_t matrix = elements() / static_cast<std::int64_t>(global_scales.size());
  while (!out.empty()) {  // a row-major run of blocks inside one matrix is itself a one-row matrix
    const std::int64_t left = matrix - first % matrix;
    const std::int64_t n = std::min<std::int64_t>(left, static_cast<std::int64_t>(out.size()));
    buffer.resize(static_cast<std::size_t>(n / 2));
    scale_buffer.resize(static_cast<std::size_t>(n / kBlock));
    data.file->read(*data.info, static_cast<std::uint64_t>(first / 2), buffer);
    scales.file->read(*scales.info, static_cast<std::uint64_t>(first / kBlock), scale_buffer);
    const QuantizedView view({.rows = 1, .cols = n},
                             reinterpret_cast<const std::uint8_t*>(buffer.data()),
                             reinterpret_cast<const std::uint8_t*>(scale_buffer.data()),
                             &global_scales[static_cast<std::size_t>(first / matrix)]);
    dequantize_into(view, {out.data(), DType::f32, 1, n});
    out = out.subspan(static_cast<std::size_t>(n));
    first += n;
  }
}

CheckpointReader::CheckpointReader(const fs::path& path) try {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  require<IoError>(fs::exists(status), "{}: cannot open: {}", path.string(),
                   error ? error.message() : "no such file or folder");
  if (fs::is_directory(status))
    open_folder(path);
  else
    files_.push_back(safetensors::File::open(path));
  add_tensors();
} catch (const fs::filesystem_error& e) {
  throw IoError(e.what());
}

void CheckpointReader::open_folder(const fs::path& folder) {
  complete_ = !fs::exists(folder / kJournalName);
  std::vector<std::string> names;
  safetensors::Index index;
  if (complete_ && fs::exists(folder / kIndex)) {
    const fs::path path = folder / kIndex;
    index = safetensors::parse_index(read_model_text(path), path.string());
    for (const auto& [tensor, file] : index.weight_map) names.push_back(file);
  } else if (complete_ && fs::exists(folder / "model.safetensors")) {
    names.push_back("model.safetensors");
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors")
        names.push_back(entry.path().filename().string());
    require<IoError>(!names.empty() || !complete_, "{}: holds no .safetensors file",
                     folder.string());
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) files_.push_back(safetensors::File::open(folder / name));
  for (const auto& [tensor, file] : index.weight_map) {
    const auto at = static_cast<std::size_t>(std::ranges::lower_bound(names, file) - names.begin());
    require<FormatError>(files_[at].find(tensor) != nullptr,
                         "{}: tensor '{}' is not in {}, where the index says it is",
                         (folder / kIndex).string(), printable(tensor), file);
  }

  const fs::path config = folder / "config.json";
  if (!fs::exists(config)) return;
  config_file_ = config.string();
  config_text_ = read_model_text(config);
  const auto json = nlohmann::json::parse(config_text_, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;  // Python writes Infinity, which is no JSON
  const auto type = json.find("model_type");
  if (type != json.end() && type->is_string()) model_type_ = type->get<std::string>();
}

StoredTensor CheckpointReader::stored(const std::string& name) const {
  const auto it = stored_.find(name);
  return it == stored_.end() ? StoredTensor{} : it->second;
}

LogicalTensor CheckpointReader::nvfp4_tensor(const StoredTensor& codes, const std::string& module,
                                             Form form) const {
  const bool modelopt = form == Form::modelopt;
  LogicalTensor t;
  t.name = module + ".weight";
  t.form = form;
  t.data = codes;
  t.shape = codes.info->shape;
  t.scales = stored(module + ".weight_scale");
  const std::string global_name = module + (modelopt ? ".weight_scale_2" : ".weight_global_scale");
  const StoredTensor global = stored(global_name);
  require<FormatError>(static_cast<bool>(t.scales), "{}: no '{}.weight_scale' beside it",
                       describe(codes), printable(module));
  require<FormatError>(static_cast<bool>(global), "{}: no '{}' beside it", describe(codes),
                       printable(global_name));
  require<FormatError>(codes.info->dtype == StoredType::u8 && t.shape.size() >= 2 &&
                           t.shape.back() > 0 && t.shape.back() <= kMaxColumns,
                       "{}: {} [{}], NVFP4 codes must be U8 with two dimensions or more",
                       describe(codes), safetensors::dtype_name(codes.info->dtype),
                       fmt::join(t.shape, ", "));
  require<FormatError>(modelopt || !stored(t.name), "{}: '{}' is there too", describe(codes),
                       printable(t.name));
  t.shape.back() *= 2;
  std::vector<std::int64_t> scale_shape = t.shape;
  scale_shape.back() /= kBlock;
  require<FormatError>(
      t.shape.back() % kBlock == 0 && t.scales.info->dtype == StoredType::f8_e4m3 &&
          t.scales.info->shape == scale_shape,
      "{}: {} [{}], must be F8_E4M3 [{}], one for each 16 codes of '{}'", describe(t.scales),
      safetensors::dtype_name(t.scales.info->dtype), fmt::join(t.scales.info->shape, ", "),
      fmt::join(scale_shape, ", "), codes.info->name);
  const std::int64_t matrices = t.shape.size() > 2 ? t.shape[0] : 1;
  t.global_scales = read_scalars(global, matrices);
  t.bytes = codes.info->bytes + t.scales.info->bytes + global.info->bytes;
  std::vector<float> input;
  if (const auto s = stored(module + (modelopt ? ".input_scale" : ".input_global_scale"))) {
    input = read_scalars(s, matrices);
    t.bytes += s.info->bytes;
  }
  if (!modelopt) {
    for (float& g : t.global_scales) g = 1.0f / g;
    for (float& g : input) g = 1.0f / g;
  }
  if (!input.empty()) t.input_scale = *std::ranges::max_element(input);
  return t;
}

void CheckpointReader::add_tensors() {
  for (const safetensors::File& file : files_)
    for (const TensorInfo& info : file.tensors()) {
      const auto [it, fresh] = stored_.try_emplace(info.name, StoredTensor{&file, &info});
      require<FormatError>(fresh, "{}: tensor '{}' is in {} too", file.path().string(),
                           printable(info.name), it->second.file->path().string());
    }

  // Codes first: only then is known which tensors are parts of another one.
  std::unordered_map<std::string_view, LogicalTensor> quantized;
  std::unordered_set<std::string> parts;
  for (const auto& [name, tensor] : stored_) {
    if (const auto module = without_suffix(name, ".weight_packed")) {
      // Other compressed-tensors formats pack integers under the same name, without a global scale.
      if (!stored(*module + ".weight_global_scale")) continue;
      quantized.emplace(name, nvfp4_tensor(tensor, *module, Form::compressed_tensors));
      for (const char* part : {".weight_scale", ".weight_global_scale", ".input_global_scale"})
        parts.insert(*module + part);
    } else if (const auto plain = without_suffix(name, ".weight");
               plain && tensor.info->dtype == StoredType::u8) {
      const StoredTensor scale = stored(*plain + ".weight_scale");
      const bool nvfp4 = scale && scale.info->dtype == StoredType::f8_e4m3;
      if (!nvfp4 && !stored(*plain + ".weight_scale_2")) continue;
      quantized.emplace(name, nvfp4_tensor(tensor, *plain, Form::modelopt));
      for (const char* part : {".weight_scale", ".weight_scale_2", ".input_scale"})
        parts.insert(*plain + part);
    }
  }

  for (const safetensors::File& file : files_)
    for (const TensorInfo& info : file.tensors()) {
      if (parts.contains(info.name)) continue;
      LogicalTensor t;
      if (const auto it = quantized.find(info.name); it != quantized.end()) {
        t = std::move(it->second);
      } else {
        t.name = info.name;
        t.shape = info.shape;
        t.data = {&file, &info};
        t.bytes = info.bytes;
      }
      by_name_.try_emplace(t.name, tensors_.size());
      tensors_.push_back(std::move(t));
    }
}

const LogicalTensor* CheckpointReader::find(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace nvfp4::checkpoint
