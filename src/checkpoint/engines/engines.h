#pragma once

#include <string_view>

namespace nvfp4::checkpoint {

/// The text of data/engines.txt.
extern const std::string_view kEngines;

/// A release of an inference engine, and the models that it declares and that were loaded with it.
/// Lists are words with spaces between them.
struct Engine {
  std::string_view loader;    ///< the name from known_loaders()
  std::string_view version;   ///< such as "vLLM 0.32.0"
  std::string_view declared;  ///< entries of "architectures" that the release lists
  /// Models that tests load with the release, quantized: "model_type/architecture".
  /// The tests are vllm_cases.py and sglang_cases.py of tests/python/engines, and
  /// tests/python/test_loader_verdicts.py for transformers.
  std::string_view loaded;
  /// Values of ModelOpt's "quant_algo" that the release accepts. Empty if they are not known.
  /// Source: quantization/modelopt.py of vLLM, modelopt_quant.py of SGLang.
  std::string_view algorithms;
  /// The reason why no test loads NVFP4 experts. Empty if tests load them.
  std::string_view no_experts;

  bool declares(std::string_view architecture) const;
  bool was_loaded(std::string_view model_type, std::string_view architecture) const;
  bool accepts(std::string_view algorithm) const;
};

/// Returns the release of a loader that the data describe, or null if there is none.
const Engine* find_engine(std::string_view loader);

}  // namespace nvfp4::checkpoint
