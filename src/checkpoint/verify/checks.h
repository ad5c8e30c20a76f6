#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/compare/measured.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/formats/declared.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/formats/logical_tensor.h"
#include "checkpoint/source/cache.h"
#include "nvfp4/verify.h"

/// The checks of `nvfp4 verify`, each on its own file.
namespace nvfp4::checkpoint {

/// What is checked, as far as it could be read.
struct Subject {
  std::filesystem::path path;
  bool folder = true;
  bool complete = true;  ///< no file is missing, none is unreadable
  std::vector<TensorFile> files;
  std::vector<std::string> file_names;  ///< sorted
  std::optional<safetensors::Index> index;
  TensorTable table;
  std::vector<LogicalTensor> tensors;
  std::set<std::string> defective;  ///< names of tensors that must not be read
  std::set<std::string> unknown;    ///< modules quantized in a way that is not known
  std::string config_file, model_type;
  Json config;  ///< null if there is none that can be read
  std::optional<Declared> in_config, in_hf_quant;
  std::optional<std::string> method_in_params;  ///< "" if params.json of Mistral says none

  /// What loaders go by: ModelOpt's own file comes first.
  const Declared* declared() const {
    return in_hf_quant ? &*in_hf_quant : in_config ? &*in_config : nullptr;
  }
  /// Leaves what is known of the folder: its tensors take memory, and check_source() reads them
  /// anew.
  void close_files() {
    tensors = {};
    table = {};
    index.reset();
    files.clear();
  }
  /// NVFP4 weights that can be read.
  std::vector<const LogicalTensor*> nvfp4() const;
};

/// Names of the loaders that are judged for.
inline constexpr std::string_view kVllm = "vllm", kSglang = "sglang", kTensorRt = "tensorrt-llm",
                                  kTransformers = "transformers", kLlamaCpp = "llama.cpp";

/// What a fault makes of the checkpoint in a loader: verdicts.cc.
Verdict verdict_of(std::string_view code, Severity severity, std::string_view loader);
/// Whether it is any matter there.
bool concerns(std::string_view code, std::string_view loader);

/// Collects findings, and knows which loader they are for.
class Findings {
 public:
  explicit Findings(std::string loader) : loader_(std::move(loader)) {}
  /// `code` is one of finding_kinds(). The extra effect replaces that of the kind.
  void add(std::string_view code, std::string tensor, std::string text, std::string effect = {});
  /// What a loader cannot take though the files are right: a finding if it was asked for, else only
  /// its verdict.
  void add_for(std::string_view loader, Verdict verdict, std::string_view code, std::string tensor,
               std::string text);
  /// What was a guess, and is wrong.
  void withdraw_if(const std::function<bool(const Finding&)>& wrong);
  bool has_errors() const;
  /// Of every loader, or of the one asked for.
  std::vector<LoaderVerdict> verdicts() const;
  std::vector<Finding> take();

 private:
  struct Limit {
    std::string_view loader;
    Verdict verdict;
    Finding finding;  ///< the first
    std::int64_t count = 1;
  };

  std::string loader_;
  std::vector<Finding> findings_;
  std::vector<Limit> limits_;
};

/// What the names of layers for multi-token prediction have in them; last what follows from
/// config.json's count of the others, if there is one.
std::vector<std::string> prediction_layer_marks(const Subject& subject);

/// Whether one of two codes in a byte is neither 0 nor -0.
inline bool is_not_zero(std::byte pair) { return (pair & std::byte{0x77}) != std::byte{0}; }

/// Which global scales of a weight look like reciprocals of what they should be.
std::vector<std::size_t> wrong_senses(const LogicalTensor& t);

using OnProgress = std::function<void(const Progress&)>;

/// Opens everything that can be opened.
Subject open_subject(const std::filesystem::path& path, Findings& findings);
/// The same for a GGUF file, under the file's own names; checks its header too.
Subject open_gguf_subject(const std::filesystem::path& path, Findings& findings);
/// Whether layers, or weights of a layer, are missing. Only of a complete subject.
void check_layers(const Subject& subject, Findings& findings);
void check_config(const Subject& subject, Findings& findings);
/// Global and input scales, and whether fused partners agree on them.
void check_globals(const Subject& subject, Findings& findings);
/// Whether every attention has the scales of its cache that the configuration asks for.
void check_caches(const Subject& subject, Findings& findings);
void check_loaders(const Subject& subject, Findings& findings);
/// What transformers makes of a compressed-tensors checkpoint.
void check_transformers(const Subject& subject, Findings& findings);
/// Whether the configuration's lists fit the names that it gives to modules.
void check_transformers_lists(const Subject& subject, Findings& findings);
/// The global and input scales of one weight; counts input scales of exactly 1.
void check_global(const LogicalTensor& t, Findings& findings, std::int64_t& defaults);
/// Reads every block scale but those of `defective` tensors, and the scales of caches.
/// `look_for_tiles`: whether they look stored in another order, too.
void check_scales(std::span<const LogicalTensor> tensors, const std::set<std::string>& defective,
                  const CacheScales& caches, Findings& findings, Measured& measured,
                  const OnProgress& progress, bool look_for_tiles = true);
/// Whether the NVFP4 weights that loaders fuse agree on their scales.
void check_fused(std::span<const LogicalTensor> tensors, const FuseRules& rules,
                 Findings& findings);
/// What of these findings no one should quantize or convert as if it were right, or unawares.
struct ValueFaults {
  std::vector<Finding> refused, told;
};
ValueFaults value_faults(std::span<const LogicalTensor> tensors, const FuseRules& rules,
                         const CacheScales& caches);
/// Reads every weight of both, unless errors of the subject stand in the way. Throws if the source
/// cannot be read.
void check_source(const Subject& subject, const std::filesystem::path& source, Findings& findings,
                  Measured& measured, const OnProgress& progress);

}  // namespace nvfp4::checkpoint
