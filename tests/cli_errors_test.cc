#ifdef NVFP4_CLI_PATH

#include <nlohmann/json.hpp>

#include "nvfp4/error_codes.h"
#include "run_cli.h"

/// The codes of errors, as the command shows them.
namespace nvfp4::cli_errors_test {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

TEST_F(Cli, ErrorsHaveTheirCodeInTheMessageAndInJson) {
  Result r = run({"inspect", "nowhere"});
  EXPECT_TRUE(r.err.ends_with(" [NV0102]\n")) << r.err;
  EXPECT_EQ(r.out, "");
  r = run({"inspect", "nowhere", "--json"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(nlohmann::json::parse(r.out).at("error").at("code"), "NV0102");
  r = run({"inspect", "--jsno", "nowhere"});
  EXPECT_TRUE(has(r.err, "[NV0901]")) << r.err;
}

TEST_F(Cli, HelpOfACodeHasItsFix) {
  for (const ErrorCode& code : error_codes()) {
    const Result r = run({"help", std::string(code.code)});
    EXPECT_EQ(r.status, 0);
    EXPECT_TRUE(has(r.out, code.fix)) << r.out;
  }
}

/// nvfp4 help errors > docs/errors.md
TEST_F(Cli, ThePageOfErrorsIsThatOfTheTable) {
  const std::filesystem::path page = std::filesystem::path(NVFP4_SOURCE_DIR) / "docs" / "errors.md";
  EXPECT_EQ(run({"help", "errors"}).out, read_text(page));
}

}  // namespace
}  // namespace nvfp4::cli_errors_test

#endif
