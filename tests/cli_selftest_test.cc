#ifdef NVFP4_CLI_PATH

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "run_cli.h"

/// nvfp4 selftest: what it prints and writes, and its exit status.
namespace nvfp4::cli_selftest_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

const Words kCpu = {"selftest", "--device", "cpu", "--no-rates"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(Cli, SelftestWritesTheReportThatItPrints) {
  const Result r = run(with(kCpu, {"--out", "report.txt"}), {"COLUMNS=40"});
  EXPECT_EQ(r.status, 0) << r.out << r.err;
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 40u) << line;
  EXPECT_THAT(r.out, HasSubstr("selftest: passed"));
  EXPECT_THAT(r.out, HasSubstr("Not proven:"));
  const std::string report = read_text(dir_ / "report.txt");
  EXPECT_THAT(report, StartsWith(r.out)) << "text first";
  const Json json = Json::parse(report.substr(r.out.size()));
  EXPECT_EQ(json.at("passed"), true);
  EXPECT_FALSE(json.at("checks").empty());
}

TEST_F(Cli, SelftestFailureExitsWith3) {
  const Result r = run(with(kCpu, {"--inject-fault", "w4a4", "--json", "--out", "report.json"}));
  EXPECT_EQ(r.status, 3) << r.err;
  const Json json = Json::parse(r.out);
  EXPECT_EQ(Json::parse(read_text(dir_ / "report.json")), json) << "a .json file is JSON alone";
  EXPECT_EQ(json.at("passed"), false);
  for (const Json& check : json.at("checks")) {
    EXPECT_EQ(check.at("wrong") > 0, check.at("name") == "w4a4") << check;
    EXPECT_EQ(check.at("fault") != "", check.at("name") == "w4a4") << check;
  }
}

TEST_F(Cli, SelftestRefusesImpossibleOptionsFirst) {
  EXPECT_EQ(run(with(kCpu, {"--out", "nowhere/report.txt"})).status, 1);
  EXPECT_EQ(run(with(kCpu, {"--inject-fault", "w4a8"})).status, 2);
  EXPECT_EQ(run({"selftest", "--device", "gpu"}).status, 2);
  const Result r = run({"selftest", "--device", "cuda:999"});
  EXPECT_EQ(r.status, 1);
  EXPECT_THAT(r.err, HasSubstr("--device cuda:999"));
}

}  // namespace nvfp4::cli_selftest_test

#endif
