#pragma once

#include "checkpoint/converted.h"
#include "checkpoint/expect_quantized.h"
#include "checkpoint/findings.h"
#include "checkpoint/loaded_folder.h"
#include "checkpoint/packed_models.h"
#include "checkpoint/stored_tensors.h"
#include "checkpoint/temp_dir.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/load_layers.h"
#include "nvfp4/checkpoint/repair.h"
#include "nvfp4/checkpoint/run_options.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/format.h"
#include "nvfp4/quantize.h"
#include "testing.h"

/// The headers and helpers of nearly every test of checkpoints.
namespace nvfp4 {

/// A test with a folder of its own.
struct FolderTest : testing::Test {
  const TempDir dir;
};

/// A test with a tiny llama in a folder "in" of its own folder.
struct LlamaTest : FolderTest {
  LlamaTest() { write_tiny_llama(dir / "in"); }
};

inline ConvertOptions convert_options(const std::filesystem::path& input,
                                      const std::filesystem::path& output,
                                      const std::string& to = "") {
  ConvertOptions options;
  options.input = input;
  options.output = output;
  options.to = to;
  return options;
}

inline RepairOptions repair_options(const std::filesystem::path& input,
                                    const std::filesystem::path& output,
                                    std::optional<std::filesystem::path> source = {}) {
  RepairOptions options;
  options.input = input;
  options.output = output;
  options.source = std::move(source);
  return options;
}

inline VerifyOptions verify_options(const std::filesystem::path& path,
                                    std::optional<std::filesystem::path> source = {},
                                    const std::string& loader = "") {
  VerifyOptions options;
  options.path = path;
  options.source = std::move(source);
  options.loader = loader;
  return options;
}

/// Reports whether a text is in any of the lines.
inline bool says(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::any_of(lines, [&](const std::string& l) { return l.find(text) != l.npos; });
}

}  // namespace nvfp4
