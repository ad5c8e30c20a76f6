#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/compare/measured.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/gguf_names.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/source/cache.h"
#include "checkpoint/source/quantized_tensors.h"
#include "nvfp4/checkpoint/verify.h"

/// The checks of `nvfp4 verify`, with one file for each.
namespace nvfp4::checkpoint {

/// The checkpoint that is checked, as far as it could be read.
struct Subject {
  std::filesystem::path path;
  bool folder = true;
  bool complete = true;  ///< no file is missing or unreadable
  std::vector<TensorFile> files;
  std::vector<std::string> file_names;  ///< sorted
  std::optional<safetensors::Index> index;
  TensorTable table;
  std::vector<LogicalTensor> tensors;
  std::set<std::string> defective;  ///< names of tensors that must not be read
  std::set<std::string> unknown;    ///< modules in an unknown form of quantization
  std::string config_file, model_type;
  Json config;  ///< null if there is none or it is unreadable
  std::optional<Declared> in_config, in_hf_quant;
  const gguf::Architecture* gguf_family = nullptr;  ///< of a .gguf file; null if it is not known
  std::optional<std::string> method_in_params;      ///< "" if params.json of Mistral declares none

  /// Returns the configuration that loaders use: hf_quant_config.json takes precedence.
  const Declared* declared() const {
    return in_hf_quant ? &*in_hf_quant : in_config ? &*in_config : nullptr;
  }
  /// Reports whether the checkpoint is a part of a diffusers pipeline.
  bool is_diffusers() const { return config.is_object() && config.contains("_class_name"); }
  /// Closes the files and releases the memory of their tensors. check_source() opens them again.
  void close_files() {
    tensors = {};
    table = {};
    index.reset();
    files.clear();
  }
  /// Returns the NVFP4 weights that can be read.
  std::vector<const LogicalTensor*> nvfp4() const;
};

/// The names of the loaders with verdicts.
inline constexpr std::string_view kVllm = "vllm", kSglang = "sglang", kTensorRt = "tensorrt-llm",
                                  kTransformers = "transformers", kWithNvfp4 = "transformers+nvfp4",
                                  kDiffusers = "diffusers", kLlamaCpp = "llama.cpp";

/// Returns the effect of a fault in a loader, from the table of verdicts.cc.
Verdict verdict_of(std::string_view code, Severity severity, std::string_view loader);
/// Reports whether a fault matters to a loader.
bool concerns(std::string_view code, std::string_view loader);

/// Reads VerifyOptions::answers. Throws FormatError for another form.
std::vector<LoaderVerdict> answers_of(const std::string& json);

/// A collector of findings and verdicts, for one loader or for all.
class Findings {
 public:
  explicit Findings(std::string loader) : loader_(std::move(loader)) {}
  /// Adds a finding. `code` is a code of finding_kinds().
  void add(std::string_view code, std::string tensor, std::string text);
  template <class First, class... Rest>
  void add(std::string_view code, std::string tensor, fmt::format_string<First, Rest...> text,
           First&& first, Rest&&... rest) {
    add(code, std::move(tensor),
        fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
  }
  /// Adds a finding with another effect than that of its kind.
  void add_with_effect(std::string effect, std::string_view code, std::string tensor,
                       std::string text);
  /// Adds a limit of one loader in a correct checkpoint. It is a finding if that loader was
  /// requested, otherwise only a verdict.
  void add_for(std::string_view loader, Verdict verdict, std::string_view code, std::string tensor,
               std::string text);
  /// Sets the verdict of a loader that no finding contradicts.
  void judge(LoaderVerdict verdict);
  /// Removes findings that were guesses and are wrong.
  void withdraw_if(const std::function<bool(const Finding&)>& wrong);
  /// Removes the advice to compare with a source.
  void mark_compared();
  bool has_errors() const;
  /// Returns the verdicts of all loaders, or of the requested one.
  std::vector<LoaderVerdict> verdicts() const;
  std::vector<Finding> take();

 private:
  struct Limit {
    std::string_view loader;
    Verdict verdict;
    Finding finding;  ///< the first finding
    std::int64_t count = 1;
  };

  std::string loader_;
  std::vector<Finding> findings_;
  std::vector<Limit> limits_;
  std::vector<LoaderVerdict> judged_;
};

/// The layers for multi-token prediction. They have a name of their own, or follow the layers that
/// config.json counts.
class PredictionLayers {
 public:
  explicit PredictionLayers(const Subject& subject);
  bool hold(std::string_view module) const;
  /// Number of the first one, and their number as declared. -1: config.json does not say.
  std::int64_t first() const { return first_; }
  std::int64_t wanted() const { return wanted_; }

 private:
  std::int64_t first_ = -1, wanted_ = -1;
};

/// Reports whether one of the two codes in a byte is neither 0 nor -0.
inline bool is_not_zero(std::byte pair) { return (pair & std::byte{0x77}) != std::byte{0}; }

/// Returns the indices of a weight's global scales that look like reciprocals.
std::vector<std::size_t> wrong_senses(const LogicalTensor& t);

using OnProgress = std::function<void(const Progress&)>;

/// Opens all files that can be opened.
Subject open_subject(const std::filesystem::path& path, Findings& findings);
/// Opens a GGUF file with the names in the file, and checks its header.
Subject open_gguf_subject(const std::filesystem::path& path, Findings& findings);
/// Compares every file with its hash in the folder's list, which must have one of each shard.
/// Throws UnsupportedError if there is no list. Throws FormatError.
void check_hashes(const std::filesystem::path& folder, const std::vector<std::string>& shards,
                  Findings& findings, Measured& measured, const OnProgress& progress);
/// Checks that no layer and no weight of a layer is missing. The subject must be complete.
void check_layers(const Subject& subject, Findings& findings);

/// The layer of a text model that a tensor belongs to.
struct LayerPlace {
  std::int64_t number = 0;
  std::string_view rest;  ///< the name behind "model.layers.7."
};
/// Returns the layer of a tensor, or null for tensors outside the layers and for other towers.
std::optional<LayerPlace> layer_place(std::string_view name);
/// Reports whether a tensor outside the layers belongs to the text model.
bool is_beside_layers(std::string_view name);

/// Checks embedding, head and norms: that they exist (in a complete folder), their sizes and their
/// values. `full`: it reads all rows instead of some.
void check_outside(const Subject& subject, bool full, Findings& findings);
/// Returns the numbers of GPUs, up to 64, that can share every layer. `wanted`: it adds a finding
/// for each layer that so many cannot share.
std::vector<int> check_tensor_parallel(const Subject& subject, std::optional<int> wanted,
                                       Findings& findings);
/// Looks for NVFP4 matrices of which every code is zero.
void check_zero_codes(const Subject& subject, Findings& findings);
void check_config(const Subject& subject, Findings& findings);
/// Checks global and input scales, and that fused layers have equal ones.
void check_globals(const Subject& subject, Findings& findings);
/// Checks that every attention has the cache scales that the configuration declares.
void check_caches(const Subject& subject, Findings& findings);
/// Checks limits of single loaders, and sets their verdicts from the tables of engines.
void check_loaders(const Subject& subject, Findings& findings);
/// Checks the global and input scales of one weight. Adds the number of input scales of exactly 1
/// to `defaults`.
void check_global(const LogicalTensor& t, Findings& findings, std::int64_t& defaults);
/// Reads all block scales except those of `defective` tensors, and all cache scales.
/// `look_for_tiles`: it also looks for scales stored in tiles.
void check_scales(std::span<const LogicalTensor> tensors, const std::set<std::string>& defective,
                  const CacheScales& caches, Findings& findings, Measured& measured,
                  const OnProgress& progress, bool look_for_tiles = true);
/// Checks that NVFP4 weights which loaders fuse have equal scales.
void check_fused(std::span<const LogicalTensor> tensors, const FuseRules& rules,
                 Findings& findings);
/// Findings about values in a source. `refused`: findings that stop quantize and convert. `told`:
/// findings that they print as warnings.
struct ValueFaults {
  std::vector<Finding> refused, told;
};
ValueFaults value_faults(std::span<const LogicalTensor> tensors, const FuseRules& rules,
                         const CacheScales& caches);
/// Compares every weight with the source, unless errors of the subject prevent it. Throws if the
/// source cannot be read.
void check_source(const Subject& subject, const std::filesystem::path& source, Findings& findings,
                  Measured& measured, const OnProgress& progress);

/// Tensors of the source that a checkpoint may lack. They are computed buffers, copies of other
/// weights (tied), and cache scales that the checkpoint does not declare.
class DerivedTensors {
 public:
  DerivedTensors(const CheckpointReader& source, const CheckpointReader& made,
                 const Subject& subject);

  bool contains(const std::string& name) const;

 private:
  bool is_tied(const LogicalTensor& t) const;

  const CheckpointReader& source_;
  bool may_be_tied_ = true;
  CacheScales undeclared_;
  std::vector<const LogicalTensor*> tables_;  ///< vocabulary tables of the source that are in both
};

/// The exclusions of a configuration, for many queries. Their number may be as large as that of the
/// modules.
class Exclusions {
 public:
  /// Indexes the exclusions. `declared` must outlive the object. Throws FormatError for an invalid
  /// expression.
  explicit Exclusions(const Declared& declared);

  enum class Match : std::uint8_t { none, substring, whole };
  struct Found {
    Match match = Match::none;
    std::string_view entry;  ///< the entry that matches, for messages
  };
  /// Returns how the entries match a module; some loaders search for substrings. Throws FormatError
  /// for an expression that takes too long.
  Found find(std::string_view module) const;

  const EntryList& list() const { return list_; }

 private:
  const std::vector<std::string>& entries_;
  EntryList list_;
  /// The entries to search as substrings, sorted. None starts with another.
  std::vector<std::string_view> pieces_;
};

}  // namespace nvfp4::checkpoint
