#include <fcntl.h>
#include <unistd.h>

#include "../cli/terminal.h"
#include "testing.h"

namespace nvfp4::progress_bar_test {

/// stderr goes to a file.
class ProgressLines : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(testing::TempDir()) /
            ("progress_lines_" + std::to_string(::getpid()));
    const int fd = ::open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    ASSERT_NE(fd, -1);
    stderr_ = ::dup(STDERR_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::close(fd);
  }
  void TearDown() override {
    ::dup2(stderr_, STDERR_FILENO);
    ::close(stderr_);
    std::filesystem::remove(path_);
  }

  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }
  /// The line that is being written when `wanted` is.
  std::string line_with(const std::string& wanted) const {
    for (std::string found;; std::this_thread::yield())
      if (found = text(); found.find(wanted) != found.npos && found.ends_with('\n')) {
        const std::size_t at = found.find(wanted), start = found.rfind('\n', at) + 1;
        return found.substr(start, found.find('\n', at) - start);
      }
  }

 private:
  std::filesystem::path path_;
  int stderr_ = -1;
};

TEST_F(ProgressLines, AreWrittenEvenWhileTheWorkSaysNothing) {
  cli::ProgressBar bar("quantize", false, std::chrono::milliseconds(1));
  EXPECT_EQ(line_with("reading"), "quantize: reading the input");
  Progress progress;
  progress.tensors_done = 3;
  progress.tensors_total = 12;
  progress.bytes_done = 25;
  progress.bytes_total = 100;
  progress.tensor = "model.layers.7.mlp.up_proj.weight";
  bar.update(progress);
  const std::string line = line_with("up_proj");
  EXPECT_TRUE(line.starts_with("quantize: 25 %  3/12 tensors  ")) << line;
  EXPECT_TRUE(line.ends_with("  model.layers.7.mlp.up_proj")) << line;
  EXPECT_EQ(text().find('\x1b'), std::string::npos);
}

/// Not after the time between two lines: the test would not end.
TEST_F(ProgressLines, DoNotDelayTheEnd) {
  { const cli::ProgressBar bar("quantize", false, std::chrono::hours(24)); }
  EXPECT_EQ(text(), "");
}

TEST_F(ProgressLines, AreAMinuteApart) {
  {
    cli::ProgressBar bar("quantize", false);
    for (std::uint64_t i = 0; i <= 100; ++i) {
      Progress progress;
      progress.bytes_done = i;
      progress.bytes_total = 100;
      bar.update(progress);
    }
  }
  EXPECT_EQ(text(), "");
}

TEST_F(ProgressLines, AreNotThereWhenQuiet) {
  cli::ProgressBar bar("quantize", true, std::chrono::milliseconds(0));
  EXPECT_FALSE(bar.callback());
  EXPECT_EQ(text(), "");
}

}  // namespace nvfp4::progress_bar_test
