#ifdef NVFP4_CLI_PATH

#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_cli.h"

namespace nvfp4 {
namespace {

namespace fs = std::filesystem;

TEST_F(Cli, VerifyTellsAHealthyCheckpointFromABrokenOne) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  const Result good = run({"verify", "out", "--source", "m", "-q"});
  EXPECT_EQ(good.status, 0) << good.out << good.err;
  EXPECT_TRUE(has(good.out, "not broken: 0 errors")) << good.out;
  EXPECT_LE(longest_line(good.out), 80u);

  fs::remove(dir_ / "out" / "hf_quant_config.json");
  fs::copy_file(dir_ / "m" / "config.json", dir_ / "out" / "config.json",
                fs::copy_options::overwrite_existing);
  const Result bad = run({"verify", "out", "-q"});
  EXPECT_EQ(bad.status, 3);
  EXPECT_EQ(bad.err, "") << "a finding is no failure of the command";
  EXPECT_TRUE(has(bad.out, "undeclared")) << bad.out;
  const Result json = run({"verify", "out", "--json", "-q"});
  EXPECT_EQ(json.status, 3);
  EXPECT_EQ(nlohmann::json::parse(json.out).at("findings").at(0).at("code"), "undeclared");
  expect_one_line_error(run({"verify", "nowhere"}), 1, {"nowhere"});
  expect_one_line_error(run({"verify", "out", "--for", "ollama"}), 2, {"--for", "vllm"});
}

}  // namespace
}  // namespace nvfp4

#endif  // NVFP4_CLI_PATH
