#include "fuzz/check_gguf.h"
#include "fuzz/check_gguf_view.h"
#include "fuzz/check_safetensors.h"
#include "testing.h"

namespace nvfp4::safetensors::corpus_test {
namespace {

TEST(SafetensorsCorpus, HoldsEveryInvariant) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NVFP4_FUZZ_CORPUS "/safetensors")) {
    SCOPED_TRACE(entry.path().filename().native());
    const std::string content = read_text(entry.path());
    const Verdict verdict = check_safetensors(std::as_bytes(std::span(content)));
    const std::string name = entry.path().filename();
    // Hand-made files say in their names what they are; those that the fuzzer found do not.
    const bool any = verdict.is_file || verdict.is_start || verdict.is_index;
    EXPECT_TRUE(!name.starts_with("file_") || verdict.is_file);
    EXPECT_TRUE(!name.starts_with("start_") || verdict.is_start);
    EXPECT_TRUE(!name.starts_with("index_") || verdict.is_index);
    EXPECT_TRUE(!name.starts_with("bad_") || !any);
    ++files;
  }
  EXPECT_GE(files, 20);
}

}  // namespace
}  // namespace nvfp4::safetensors::corpus_test

namespace nvfp4::gguf::corpus_test {
namespace {

TEST(GgufCorpus, HoldsEveryInvariant) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NVFP4_FUZZ_CORPUS "/gguf")) {
    SCOPED_TRACE(entry.path().filename().native());
    const std::string content = read_text(entry.path());
    const bool valid = check_gguf(std::as_bytes(std::span(content)));
    if (valid) check_gguf_views(std::as_bytes(std::span(content)));
    const std::string name = entry.path().filename();
    EXPECT_TRUE(!name.starts_with("file_") || valid);
    EXPECT_TRUE(!name.starts_with("bad_") || !valid);
    ++files;
  }
  EXPECT_GE(files, 20);
}

}  // namespace
}  // namespace nvfp4::gguf::corpus_test
