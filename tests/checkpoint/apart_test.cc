#include "checkpoint/safetensors/apart.h"

#include "checkpoint/base/error_codes.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/compare/shared_work.h"
#include "checkpoint/statistics_file.h"

/// Tests that what a command reads lies apart from what it writes or removes, whatever the names.
namespace nvfp4::apart_test {

class Apart : public ::testing::Test {
 protected:
  Apart() {
    write_tiny_llama(dir_ / "in");
    quantize_checkpoint(dir_ / "in", dir_ / "out");
    fs::copy(dir_ / "in", dir_ / "copy", fs::copy_options::recursive);
    write_text(dir_ / "out" / "file", "read");
  }

  /// Expects an OptionsError with these parts, before anything has changed.
  template <class Call>
  void expect_refused(Call call, std::initializer_list<std::string_view> parts) {
    const auto before = files_of(dir_.path());
    expect_error<OptionsError>(call, parts);
    EXPECT_EQ(files_of(dir_.path()), before);
  }

  QuantizeCheckpointOptions over() const {
    return quantize_options(dir_ / "in", dir_ / "out", {"--overwrite"});
  }

  TempDir dir_;
};

TEST_F(Apart, LinkedInputInOutput) {
  fs::create_symlink(dir_ / "copy" / "model-00001-of-00003.safetensors", dir_ / "link.safetensors");
  auto options = over();
  options.input = dir_ / "link.safetensors";
  options.output = dir_ / "copy";
  expect_refused([&] { quantize_checkpoint(options); }, {"link.safetensors", "inside output"});
}

TEST_F(Apart, LinkedShardInOutput) {
  fs::create_directory(dir_ / "links");
  for (const auto& entry : fs::directory_iterator(dir_ / "copy"))
    fs::create_symlink(entry.path(), dir_ / "links" / entry.path().filename());
  auto options = over();
  options.input = dir_ / "links";
  options.output = dir_ / "copy";
  expect_refused([&] { quantize_checkpoint(options); }, {"input", "inside output"});
}

TEST_F(Apart, RepairSource) {
  expect_refused(
      [&] {
        repair_checkpoint(
            repair_options(dir_ / "out", dir_ / "copy", dir_ / "copy", {"--overwrite"}));
      },
      {"output", "is source"});
}

TEST_F(Apart, FilesOfOptionsInOutput) {
  for (int i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    auto options = over();
    const fs::path read = dir_ / "out" / "file";
    if (i == 0) options.statistics = read;
    if (i == 1) options.input_amax = read;
    if (i == 2) options.recipe = read;
    if (i == 3) options.merge = {(dir_ / "out").string() + "=0.5"};
    expect_refused([&] { quantize_checkpoint(options); }, {"output"});
  }
}

TEST_F(Apart, ReportOverWhatIsReadOrWritten) {
  write_text(dir_ / "recipe.yaml", "rules: []\n");
  auto options = over();
  options.recipe = dir_ / "recipe.yaml";
  fs::create_hard_link(dir_ / "recipe.yaml", dir_ / "second.yaml");
  for (const char* report : {"recipe.yaml", "second.yaml", "in/new.json", "out/new.json"}) {
    options.report = dir_ / report;
    expect_refused([&] { quantize_checkpoint(options); }, {"--report"});
  }
  options.output = options.report = dir_ / "m.gguf";
  expect_refused([&] { quantize_checkpoint(options); }, {"both are written"});
  fs::rename(dir_ / "recipe.yaml", dir_ / "report.json.partial");
  options.recipe = dir_ / "report.json.partial";
  options.report = dir_ / "report.json";
  expect_refused([&] { quantize_checkpoint(options); }, {"report.json.partial"});
}

TEST_F(Apart, ConfigurationBesideSingleFile) {
  auto options = quantize_options(dir_ / "copy" / "model.safetensors", dir_ / "new");
  fs::rename(dir_ / "copy" / "model-00001-of-00003.safetensors", options.input);
  options.report = dir_ / "copy" / "config.json";
  expect_refused([&] { quantize_checkpoint(options); }, {"--report", "config.json"});
}

TEST_F(Apart, PartsInModel) {
  expect_refused(
      [&] {
        compare_share(dir_ / "in", dir_ / "out", {0, 2, dir_ / "in" / "parts"});
      },
      {"parts", "inside a"});
  auto verify = verify_options(dir_ / "out");
  expect_refused([&] { verify_share(verify, {0, 2, dir_ / "out"}); }, {"parts", "is path"});
}

TEST_F(Apart, PathsThatDoNotExistYet) {
  const auto refused = [&](const fs::path& read, const fs::path& write) {
    try {
      require_apart({{"a", read}}, {{"b", write}});
      return false;
    } catch (const OptionsError&) {
      return true;
    }
  };
  EXPECT_TRUE(refused(dir_ / "in", dir_ / "in" / "new" / "deep"));
  EXPECT_TRUE(refused(dir_ / "in", dir_ / "new" / ".." / "in"));
  EXPECT_FALSE(refused(dir_ / "in", dir_ / "new" / "in"));
  EXPECT_FALSE(refused(dir_ / "in", dir_ / "in2"));
  EXPECT_FALSE(refused(dir_ / "absent", dir_ / "absent"));
  const std::vector<UsedPath> both = {{"a", dir_ / "new" / "x"}, {"b", dir_ / "new"}};
  EXPECT_THROW(require_apart({}, both), OptionsError);
}

}  // namespace nvfp4::apart_test
