// Runs by Gram matrices that are killed while they compute, and go on.
#include <signal.h>

#include "checkpoint/child_process.h"
#include "checkpoint/statistics_file.h"
#include "testing.h"

namespace nvfp4::gptq_resume_test {

namespace fs = std::filesystem;

QuantizeCheckpointOptions gptq_options(const fs::path& folder, const fs::path& out) {
  auto options = quantize_options(folder / "in", out);
  options.method = "gptq";
  options.statistics = folder / "statistics";
  return options;
}

/// Kills itself after some tensors.
TEST(Child, DISABLED_QuantizeByGptq) {
  auto options = gptq_options(child_variable("CHILD_FOLDER"), child_variable("CHILD_OUTPUT"));
  const std::int64_t last = std::stoll(child_variable("CHILD_KILL_AFTER"));
  options.progress = [=](const Progress& p) {
    if (p.tensors_done == last) ::kill(::getpid(), SIGKILL);
  };
  quantize_checkpoint(options);
}

TEST(GptqResume, KilledRunResumesToTheSameBytes) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  write_llama_grams(dir / "statistics");
  const auto run = [&](const fs::path& out, bool resume) {
    auto options = gptq_options(dir.path(), out);
    options.resume = resume;
    return nlohmann::json::parse(to_json(quantize_checkpoint(options))).at("tensors");
  };
  const auto whole = run(dir / "whole", false);
  const auto expected = files_of(dir / "whole");
  for (int tensors = 1; tensors <= 21; tensors += 4) {
    const fs::path out = dir / ("out" + std::to_string(tensors));
    const int status =
        run_child("Child.DISABLED_QuantizeByGptq", {{"CHILD_FOLDER", dir.path().string()},
                                                    {"CHILD_OUTPUT", out.string()},
                                                    {"CHILD_KILL_AFTER", std::to_string(tensors)}});
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << tensors;
    EXPECT_FALSE(fs::exists(out / "config.json"));
    EXPECT_EQ(run(out, true), whole) << tensors;
    EXPECT_EQ(files_of(out), expected) << tensors;
  }
}

}  // namespace nvfp4::gptq_resume_test
