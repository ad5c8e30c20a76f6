#ifdef NVFP4_CLI_PATH

#include <nlohmann/json.hpp>

#include "checkpoint/base/error_codes.h"
#include "checkpoint/models.h"
#include "nvfp4/checkpoint/verify.h"
#include "run_cli.h"

/// The codes of errors, as the command shows them.
namespace nvfp4::cli_errors_test {

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

TEST_F(Cli, ErrorsHaveTheirCodeAndJson) {
  Result r = run({"inspect", "nowhere"});
  EXPECT_TRUE(has(r.err, " [NV0102]\nhint: check the path")) << r.err;
  EXPECT_EQ(r.out, "");
  r = run({"inspect", "nowhere", "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(nlohmann::json::parse(r.out).at("error").at("code"), "NV0102");
  r = run({"inspect", "--jsno", "nowhere"});
  EXPECT_TRUE(has(r.err, "[NV0901]")) << r.err;
}

TEST_F(Cli, ErrorsHaveOneCodeWhateverTheTextQuotes) {
  const auto code = [&](const Words& words) {
    const Result r = run(words);
    EXPECT_NE(r.status, 0);
    const std::size_t at = r.err.rfind('[');
    return at == r.err.npos ? r.err : r.err.substr(at + 1, 6);
  };
  EXPECT_EQ(code({"inspect", "disk full"}), "NV0102");
  EXPECT_EQ(code({"inspect", "holds no tensor"}), "NV0102");

  EXPECT_EQ(run({"sample", "m"}).status, 0);
  for (const std::string folder : {"plain", "statistics", "weight_map"}) {
    std::filesystem::create_directory(dir_ / folder);
    EXPECT_EQ(code({"inspect", folder}), "NV0114");
    EXPECT_EQ(code({"verify", folder}), "NV0114");
    EXPECT_EQ(code({"quantize", folder, "q"}), "NV0114");
    EXPECT_EQ(code({"repair", folder, "q"}), "NV0114");
    std::filesystem::copy(dir_ / "m", dir_ / folder);
    write_text(dir_ / folder / "config.json", "{");
    EXPECT_EQ(code({"quantize", folder, "q"}), "NV0209");
    std::filesystem::remove(dir_ / folder / "config.json");
    const auto shard = dir_ / folder / "model.safetensors";
    std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
    for (const char* command : {"quantize", "repair"})
      EXPECT_EQ(code({command, folder, "q"}), "NV0205");
    EXPECT_EQ(code({"inspect", folder}), "NV0205");
    write_text(dir_ / folder / "nvfp4.partial.json", "{}");
    for (const Words& words : {Words{"quantize", folder, "q"}, Words{"repair", folder, "q"},
                               Words{"convert", folder, "q", "--to", "bf16"}})
      EXPECT_EQ(code(words), "NV0201");
  }
}

TEST_F(Cli, HelpHasTheFixOfEachCode) {
  const std::string errors = run({"help", "errors"}).out, findings = run({"help", "findings"}).out;
  const auto expect = [&](const std::string& code, const std::string& list,
                          std::string_view meaning, std::string_view fix) {
    EXPECT_TRUE(has(list, code) && has(list, meaning)) << code;
    EXPECT_TRUE(has(run({"help", code}).out, fix)) << code;
  };
  for (const ErrorInfo& c : error_codes()) expect(c.name(), errors, c.meaning, c.fix);
  for (const FindingKind& k : finding_kinds())
    expect(std::string(k.code), findings, k.meaning, k.fix);
}

TEST_F(Cli, PartsOtherThanFoldersAreAnError) {
  write_tiny_llama(dir_ / "m");
  write_text(dir_ / "file", "x");
  const Result r = run({"compare", "m", "m", "--parts", "file", "--rank", "0", "--ranks", "2"});
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r.err, "file: cannot create directories") && has(r.err, "[NV01")) << r.err;
}

}  // namespace nvfp4::cli_errors_test

#endif
