#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/base/json.h"
#include "checkpoint/formats/logical_tensor.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/safetensors.h"

/// A checkpoint format: names, dtypes and shapes of its tensors, its configuration and its loaders.
/// To add a format, add a file to this folder and a line to registry.cc.
namespace nvfp4::checkpoint {

struct Plan;
struct PlannedShard;
struct ModelFolder;

/// A writer for the tensors of a shard. Indices are those of PlannedShard::specs. All methods
/// except commit() are thread-safe. Without commit() no file remains.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  virtual void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Writes whole rows of an NVFP4 weight: codes and scales at byte offsets of their tensors.
  virtual void write_blocks(std::size_t codes, std::uint64_t code_offset,
                            std::span<const std::byte> code_bytes, std::size_t scales,
                            std::uint64_t scale_offset, std::span<const std::byte> scale_bytes) {
    write(codes, code_offset, code_bytes);
    write(scales, scale_offset, scale_bytes);
  }
  /// Returns the FileHash of the file, all bytes of which are written; 0 where nobody keeps it.
  virtual std::uint64_t hash() { return 0; }
  virtual void commit() = 0;
};

/// Returns the writer of a safetensors file. `shard` must outlive it.
std::unique_ptr<ShardWriter> safetensors_shard(const PlannedShard& shard,
                                               const std::filesystem::path& path);

/// A format whose output is one file and not safetensors.
class Container {
 public:
  virtual ~Container() = default;
  virtual std::unique_ptr<ShardWriter> open(const std::filesystem::path& path) const = 0;
  /// Returns the size of all tensors of the file.
  virtual std::uint64_t tensor_bytes() const = 0;
  /// Returns what is left out of the file, and why.
  virtual const std::vector<std::string>& warnings() const = 0;
};

/// Lays out everything in the plan's only shard before a byte is written. Throws UnsupportedError
/// with the name of a tensor that has no place in the file. Throws FormatError if config.json lacks
/// a required entry. The plan must outlive the container.
using MakeContainer = std::unique_ptr<const Container> (*)(const ModelFolder& model,
                                                           const Plan& plan);

enum class Role : std::uint8_t { codes, scales, weight_global, input_global, marker };

struct OutputTensor {
  Role role = Role::codes;
  safetensors::TensorSpec spec;
};

/// An excluded module, for the lists of exclusions.
struct KeptModule {
  std::string name;
  bool linear = true;  ///< a loader may build the module as a linear layer
};

/// Number of rows and of columns of an FP8 block that has its own scale.
inline constexpr std::int64_t kFp8Block = 128;
/// Number of columns of an MXFP8 block, which has its own scale.
inline constexpr std::int64_t kMxfp8Block = 32;

/// A module in FP8.
struct Fp8Module {
  enum class Scales : std::uint8_t { tensor, channel, block, mx };
  std::string name;
  Scales scales = Scales::tensor;
  bool input = false;  ///< the module has an input scale
};

Fp8Module fp8_module(const LogicalTensor& t);
/// Reports whether an FP8 weight has one scale for the whole matrix.
bool has_one_scale(const LogicalTensor& t);

struct ConfigFacts {
  Scheme scheme = Scheme::w4a4;  ///< scheme of `quantized`, except for `weights_only`
  std::span<const KeptModule> kept;
  std::span<const std::string> quantized;  ///< modules in NVFP4
  std::span<const Fp8Module> fp8 = {};
  /// Sorted modules of `quantized` in W4A16. Empty if all modules have one scheme.
  std::span<const std::string> weights_only = {};
  std::string kv_cache = {};  ///< "FP8" if the checkpoint has scales of the cache
  /// The model_type entries of config.json, outermost first.
  std::span<const std::string> model_types = {};
  /// The "quantization_config" of a DeepSeek-V4 input. It stays, except for the experts.
  const Json* native = nullptr;
  /// Takes a line for each exclusion that also covers a quantized module. May be null.
  std::vector<std::string>* warnings = nullptr;

  Scheme scheme_of(const std::string& module) const {
    return std::ranges::binary_search(weights_only, module) ? Scheme::w4a16 : scheme;
  }
  /// Reports whether the checkpoint has quantized weights of several kinds.
  bool is_mixed() const { return !fp8.empty() || !weights_only.empty(); }
};

struct ModelConfig;
/// A function that returns why loaders cannot read a module quantized, or "" if they can.
using KeptReason = std::function<std::string(const std::string& module)>;

/// The place of an expert's matrix in the stack of its layer.
struct ExpertPlace {
  std::string stack;  ///< name of the module that the stack belongs to
  std::int64_t expert = 0;
};

/// The suffixes of the scales of an attention's cache, which follow the name of the attention.
struct CacheScaleNames {
  std::string_view key, value;
  bool vector = false;  ///< shape [1] instead of []
};

/// A checkpoint format as a table of facts and functions. Code that needs a fact about a format
/// reads it here and does not compare names.
struct CheckpointFormat {
  std::string_view name;

  // Members for reading.
  /// The weights of the format in the order in which they are tried, special cases before general
  /// ones.
  std::span<const WeightNames* const> reads = {};
  /// Reports whether "quant_method" of config.json means this format. Null: the method is the name.
  bool (*is_method)(std::string_view method) = nullptr;
  /// Reports whether an entry of a file's metadata describes how weights are stored. Such an entry
  /// is not copied into another format. Null: there are none.
  bool (*own_metadata)(std::string_view key, std::string_view value) = nullptr;
  /// The names from known_loaders() that read the format.
  std::span<const std::string_view> loaders = {};
  /// `unsigned_scales`: block scales are bytes up to 0x7E. `global_is_optional`: a weight without a
  /// global scale has the global scale 1.
  bool unsigned_scales = false, global_is_optional = false;
  /// repair_checkpoint() can write repaired weights in this format.
  bool is_repaired = false;

  // Members for writing. All are null for a format that is only read.
  const WeightNames* names = nullptr;
  std::string_view note = {};  ///< text for users who choose a format; may be empty
  /// The names of stacks of experts. Null: each expert becomes a weight of its own.
  const WeightNames* stack_names = nullptr;
  /// Returns the tensors of an FP8 weight, or none if the format cannot hold its scales.
  /// `module.input`: the input scale is known. Null: the format is not written with FP8.
  std::vector<OutputTensor> (*fp8_tensors)(const Fp8Module& module, std::int64_t rows,
                                           std::int64_t cols) = nullptr;
  /// Returns "quantization_config" of config.json, and of `config_alias` if that is a key.
  Json (*quantization_config)(const ConfigFacts& facts) = nullptr;
  std::string_view config_alias = {};
  /// Returns hf_quant_config.json. `config`: what quantization_config() returned. Null: the format
  /// has none.
  Json (*hf_quant_config)(const ConfigFacts& facts, const Json& config) = nullptr;
  /// The format can hold DeepSeek-V4: quantized experts beside its FP8 modules and their
  /// configuration.
  bool keeps_native = false;
  /// Reports whether the format can hold an FP8 weight unchanged. Null: it can hold none.
  bool (*keeps_fp8)(const LogicalTensor& tensor) = nullptr;
  /// Reports whether the configuration can declare a key and value cache of type "FP8" or "NVFP4".
  /// Null: it cannot.
  bool (*declares_kv_cache)(std::string_view type) = nullptr;
  /// The names of the cache's scales. Null: the format has none.
  const CacheScaleNames* cache_scales = nullptr;
  /// Returns what the tensor belongs to, for the message, if the format cannot hold it. With
  /// `--allow drop` such a tensor is skipped, otherwise it is an error. "": the format can hold it.
  /// Null: the format can hold every tensor.
  std::string_view (*left_out)(std::string_view tensor, const ModelConfig& config) = nullptr;
  /// Returns the function that gives the reason why loaders cannot read a module quantized. It
  /// depends on the model. Null: loaders read all.
  KeptReason (*keeper)(const ModelConfig& config) = nullptr;
  /// Content of the marker tensor of a weight: NVFP4, or FP8 that is copied.
  std::string_view marker_text = {}, fp8_marker_text = {};
  /// Name of the one file that holds all tensors.
  std::string_view single_file = {};
  /// File extension of the output if it is one file and not a folder.
  std::string_view extension = {};
  /// The number of columns of a weight must be a multiple of this.
  std::int64_t columns = kBlock;
  /// A conversion dequantizes the weights that the format cannot hold. Otherwise they are an error.
  bool dequantizes_rest = false;
  /// Makes the writer of an output that is one file of another kind. Null: safetensors.
  MakeContainer container = nullptr;
  /// Returns the place of an expert's matrix in a stack [experts, N, K], or null for other modules
  /// and families. Null: there are no such stacks.
  std::optional<ExpertPlace> (*expert_place)(const std::string& module,
                                             std::span<const std::string> model_types) = nullptr;

  /// Reports whether weights have a global scale. Without one it is 1, and block scales are all.
  bool has_global() const { return !names->global.empty(); }
  /// Returns the number that is stored for a global scale.
  float stored_global(const GlobalScale& scale) const {
    return names->divisors ? scale.divisor : scale.multiplier;
  }
  /// Returns the tensors of a quantized [rows, cols] weight.
  std::vector<OutputTensor> tensors(Scheme scheme, const std::string& module, std::int64_t rows,
                                    std::int64_t cols) const;
  /// Returns the tensors of a stack of experts: codes [experts, K / 2, N] and scales [experts, K /
  /// 16, N], with one global scale for all.
  std::vector<OutputTensor> stack_tensors(Scheme scheme, const std::string& stack,
                                          std::int64_t experts, std::int64_t rows,
                                          std::int64_t cols) const;
};

/// Returns the codes, and FP32 scales of shape `scales`, with the names of ModelOpt and
/// compressed-tensors. With `input` it adds the input scale, of the same shape.
std::vector<OutputTensor> fp8_tensors(const std::string& module, std::int64_t rows,
                                      std::int64_t cols, std::vector<std::int64_t> scales,
                                      bool input);
/// Returns the tensors of an MXFP8 weight. Its scales are powers of two, stored as E8M0 exponents
/// in U8.
std::vector<OutputTensor> mxfp8_tensors(const std::string& module, std::int64_t rows,
                                        std::int64_t cols);

/// The tensor names of ModelOpt. Other formats use them, with more tensors beside them.
extern const WeightNames kModelOptNames;

/// Returns all formats, in the order in which their weights are tried.
const std::vector<const CheckpointFormat*>& all_formats();
/// Returns the formats that can be written, in the order of --help.
std::vector<const CheckpointFormat*> checkpoint_formats();
/// Returns a format that can be written. Throws ValueError that lists the known names.
const CheckpointFormat& checkpoint_format(std::string_view name);
/// Returns the format whose output file has this extension, or ModelOpt.
const CheckpointFormat& default_checkpoint_format(const std::filesystem::path& output);

/// Adds a format before all others during its lifetime. No other thread may use the formats
/// meanwhile.
class AddedFormat {
 public:
  explicit AddedFormat(const CheckpointFormat& format);
  ~AddedFormat();
  AddedFormat(const AddedFormat&) = delete;
  AddedFormat& operator=(const AddedFormat&) = delete;
};

/// The attention and the kind of a scale of cached keys or values.
struct CacheScale {
  std::string attention;  ///< "model.layers.0.self_attn"
  bool key = true;        ///< false: the scale of values
};

/// Returns the attention of a cache scale of any format, or null if the name is not that of one.
inline std::optional<CacheScale> cache_scale(std::string_view tensor) {
  // The last ones are those of Quark and of older versions of compressed-tensors.
  for (const std::string_view key : {".k_proj.k_scale", ".k_scale", ".k_proj.output_scale"})
    if (tensor.ends_with(key))
      return CacheScale{std::string(tensor.substr(0, tensor.size() - key.size())), true};
  for (const std::string_view value : {".v_proj.v_scale", ".v_scale", ".v_proj.output_scale"})
    if (tensor.ends_with(value))
      return CacheScale{std::string(tensor.substr(0, tensor.size() - value.size())), false};
  return std::nullopt;
}

}  // namespace nvfp4::checkpoint
