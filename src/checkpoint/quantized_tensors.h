#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nvfp4/safetensors.h"

namespace nvfp4::checkpoint {

struct StoredTensor {
  const safetensors::File* file = nullptr;
  const safetensors::TensorInfo* info = nullptr;

  explicit operator bool() const { return info != nullptr; }
};

/// A tensor as the model sees it: stored as it is, or as NVFP4 codes with their scales.
struct LogicalTensor {
  enum class Form : std::uint8_t { plain, modelopt, compressed_tensors };

  std::string name;                 ///< "<module>.weight" for NVFP4, whatever the codes are called
  std::vector<std::int64_t> shape;  ///< of the values, not of the codes
  Form form = Form::plain;
  StoredTensor data;                 ///< values or codes
  StoredTensor scales;               ///< NVFP4 only
  std::vector<float> global_scales;  ///< multipliers: one, or one for each matrix of a stack
  std::optional<float> input_scale;  ///< multiplier
  std::uint64_t bytes = 0;           ///< with its scales

  bool is_nvfp4() const { return form != Form::plain; }
  std::string form_name() const;  ///< "NVFP4" or the dtype
  std::int64_t elements() const;
  /// False for dtypes whose elements are not read as numbers: F4, F6_*, F8_*FNUZ, C64.
  bool readable() const;
  /// False for dtypes that FP32 rounds (64 bits, 32-bit integers).
  bool exact_as_float() const;
  /// Elements [first, first + out.size()) in row-major order as FP32. For NVFP4 both ends are
  /// multiples of 16. Thread-safe. Throws IoError.
  void read(std::int64_t first, std::span<float> out) const;
  /// The bytes that start at element `first`, a multiple of 8, of a plain tensor.
  void read_bytes(std::int64_t first, std::span<std::byte> out) const;
};

/// Every tensor of a model folder, or of one .safetensors file.
class CheckpointReader {
 public:
  /// Follows the index if there is one; else takes model.safetensors, else every .safetensors
  /// file. Throws IoError, and FormatError that names the tensor for incomplete or ill-shaped
  /// NVFP4 triples.
  explicit CheckpointReader(const std::filesystem::path& path);

  const std::vector<LogicalTensor>& tensors() const { return tensors_; }
  /// Null if there is none of that name.
  const LogicalTensor* find(std::string_view name) const;
  /// False if an interrupted quantization left this folder.
  bool complete() const { return complete_; }
  const std::string& model_type() const { return model_type_; }
  /// config.json; empty if there is none.
  const std::string& config_text() const { return config_text_; }
  const std::string& config_file() const { return config_file_; }

 private:
  void open_folder(const std::filesystem::path& folder);
  void add_tensors();
  LogicalTensor nvfp4_tensor(const StoredTensor& codes, const std::string& module,
                             LogicalTensor::Form form) const;
  StoredTensor stored(const std::string& name) const;

  std::vector<safetensors::File> files_;
  std::unordered_map<std::string, StoredTensor> stored_;
  std::vector<LogicalTensor> tensors_;
  std::unordered_map<std::string, std::size_t> by_name_;
  bool complete_ = true;
  std::string model_type_, config_text_, config_file_;
};

}  // namespace nvfp4::checkpoint
