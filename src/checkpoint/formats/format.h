#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/formats/shard_writer.h"
#include "checkpoint/formats/weight_names.h"
#include "core/json.h"
#include "nvfp4/checkpoint.h"
#include "nvfp4/safetensors.h"

/// How a quantized model is stored: names, dtypes and shapes of its tensors, its configuration, who
/// reads it. To add a format: a file in this folder, and a line in registry.cc.
namespace nvfp4::checkpoint {

enum class Role : std::uint8_t { codes, scales, weight_global, input_global, marker };

struct OutputTensor {
  Role role = Role::codes;
  safetensors::TensorSpec spec;
};

/// A module that stays as it is, for the lists of exclusions.
struct KeptModule {
  std::string name;
  bool linear = true;  ///< a loader may take it for a linear layer
};

/// Rows and columns of an FP8 block that has a scale of its own.
inline constexpr std::int64_t kFp8Block = 128;
/// Columns of MXFP8 that do.
inline constexpr std::int64_t kMxfp8Block = 32;

/// A module in FP8.
struct Fp8Module {
  enum class Scales : std::uint8_t { tensor, channel, block, mx };
  std::string name;
  Scales scales = Scales::tensor;
  bool input = false;  ///< it has an input scale
};

Fp8Module fp8_module(const LogicalTensor& t);
/// Whether all of an FP8 weight has one scale.
bool has_one_scale(const LogicalTensor& t);

struct ConfigFacts {
  Scheme scheme = Scheme::nvfp4;
  std::span<const KeptModule> kept;
  std::span<const std::string> quantized;  ///< modules in NVFP4
  std::span<const Fp8Module> fp8 = {};
  std::string kv_cache = {};  ///< "FP8" if the checkpoint has scales for it
  /// config.json's, outermost first.
  std::span<const std::string> model_types = {};
  /// The input's own "quantization_config", which stays but for the experts: DeepSeek-V4.
  const Json* native = nullptr;
};

struct ModelConfig;
/// Why a module stays as it is; empty if nothing is against its quantization.
using KeptReason = std::function<std::string(const std::string& module)>;

/// What a format calls the scales of an attention's cache, after the name of the attention.
struct CacheScaleNames {
  std::string_view key, value;
  bool vector = false;  ///< of shape [1], not []
};

/// A checkpoint format is a table of facts and functions. Whoever must know something about one
/// asks it here, and asks for none by name.
struct CheckpointFormat {
  std::string_view name;

  // To read it.
  /// Its weights, in the order in which they are tried; special cases before general ones.
  std::span<const WeightNames* const> reads = {};
  /// Whether "quant_method" of config.json says so; null: if it is the name.
  bool (*is_method)(std::string_view method) = nullptr;
  /// Whether an entry of a file's metadata is about how weights are stored in it, and must not come
  /// into a file of another format; null: none is.
  bool (*own_metadata)(std::string_view key, std::string_view value) = nullptr;
  /// Of known_loaders(): which of them read it.
  std::span<const std::string_view> loaders = {};
  /// Block scales are bytes up to 0x7E; a weight without a global scale has 1.
  bool unsigned_scales = false, global_is_optional = false;
  /// repair_checkpoint() writes what it mended in this format.
  bool is_repaired = false;

  // To write it. Null, all of it, of a format that is only read.
  const WeightNames* names = nullptr;
  std::string_view note = {};  ///< for who chooses one; may be empty
  /// The tensors of a quantized [rows, cols] weight.
  std::vector<OutputTensor> (*tensors)(Scheme scheme, const std::string& module, std::int64_t rows,
                                       std::int64_t cols) = nullptr;
  /// Those of a stack of experts, which stays one: codes [experts, K / 2, N], scales
  /// [experts, K / 16, N]. Null: its experts become weights of their own.
  std::vector<OutputTensor> (*stack_tensors)(Scheme scheme, const std::string& stack,
                                             std::int64_t experts, std::int64_t rows,
                                             std::int64_t cols) = nullptr;
  /// Those of one in FP8; none if the format has no such scales. `module.input`: its activations
  /// were measured. Null: it is not written with FP8.
  std::vector<OutputTensor> (*fp8_tensors)(const Fp8Module& module, std::int64_t rows,
                                           std::int64_t cols) = nullptr;
  /// The number that is stored for a global scale.
  float (*stored_global)(const GlobalScale& scale) = nullptr;
  /// config.json's "quantization_config".
  Json (*quantization_config)(const ConfigFacts& facts) = nullptr;
  /// hf_quant_config.json; null if the format has none.
  Json (*hf_quant_config)(const ConfigFacts& facts) = nullptr;
  /// The experts of DeepSeek-V4 change, and what is FP8 beside them stays with its configuration.
  bool keeps_native = false;
  /// Whether the format has such FP8 weights; null: it has none.
  bool (*keeps_fp8)(const LogicalTensor& tensor) = nullptr;
  /// Whether its configuration can say that the key and value cache is "FP8", "NVFP4"; null: no.
  bool (*declares_kv_cache)(std::string_view type) = nullptr;
  /// Null: it has no scales of the cache.
  const CacheScaleNames* cache_scales = nullptr;
  /// What a tensor is of that has no place in the format, and is left out if that was asked for;
  /// empty: it has one. Null: all have one.
  std::string_view (*left_out)(std::string_view tensor, const ModelConfig& config) = nullptr;
  /// What loaders of the format cannot read quantized in such a model; null: nothing.
  KeptReason (*keeper)(const ModelConfig& config) = nullptr;
  /// Content of the tensor that says how a weight is stored: NVFP4, or FP8 that stays.
  std::string_view marker_text = {}, fp8_marker_text = {};
  /// All tensors go into one file of this name.
  std::string_view single_file = {};
  /// The output is not a folder but one file, whose name ends so.
  std::string_view extension = {};
  /// A weight must have a multiple of so many columns.
  std::int64_t columns = kBlock;
  /// The output is a file of another kind, and no folder; null: safetensors.
  MakeContainer container = nullptr;
};

/// The tensors of a [rows, cols] weight by the names and the arrangement of a scheme.
std::vector<OutputTensor> nvfp4_tensors(const WeightNames& names, Scheme scheme,
                                        const std::string& module, std::int64_t rows,
                                        std::int64_t cols);

/// Codes and FP32 scales of that shape under the names that ModelOpt and compressed-tensors share,
/// and with `input` the scale of the activations, of the same shape.
std::vector<OutputTensor> fp8_tensors(const std::string& module, std::int64_t rows,
                                      std::int64_t cols, std::vector<std::int64_t> scales,
                                      bool input);
/// The same of MXFP8, whose scales are the exponents of powers of two, E8M0, in U8.
std::vector<OutputTensor> mxfp8_tensors(const std::string& module, std::int64_t rows,
                                        std::int64_t cols);

/// Other formats store weights as ModelOpt does, with something beside them.
extern const WeightNames kModelOptNames;

/// All, in the order in which their weights are tried.
const std::vector<const CheckpointFormat*>& all_formats();
/// Those that are written, in the order of help.
std::vector<const CheckpointFormat*> checkpoint_formats();
/// One of those. Throws ValueError that lists the known names.
const CheckpointFormat& checkpoint_format(std::string_view name);
/// The one whose output is a file of that name; else ModelOpt's.
const CheckpointFormat& default_checkpoint_format(const std::filesystem::path& output);

/// Adds a format, before all others, for as long as it lives; not while another thread works.
class AddedFormat {
 public:
  explicit AddedFormat(const CheckpointFormat& format);
  ~AddedFormat();
  AddedFormat(const AddedFormat&) = delete;
  AddedFormat& operator=(const AddedFormat&) = delete;
};

}  // namespace nvfp4::checkpoint
