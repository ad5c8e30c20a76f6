#include "checkpoint/io/text_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/expect_error.h"
#include "checkpoint/temp_dir.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint::text_file_test {
namespace {

namespace fs = std::filesystem;

/// Each wait for a disk takes milliseconds.
TEST(TextFiles, ManyAreMadeDurableAtOnce) {
  const TempDir dir;
  fs::create_directories(dir / "a");
  std::vector<fs::path> files;
  for (int i = 0; i < 1000; ++i) {
    files.push_back(fs::path("a") / fmt::format("{}.txt", i));
    write_text(dir.path() / files.back(), "x");
  }
  EXPECT_EQ(sync_files(dir.path(), files), 1u);
  files.resize(3);
  EXPECT_EQ(sync_files(dir.path(), files), 3u);
  EXPECT_EQ(sync_files(dir.path(), {}), 0u);
}

TEST(TextFiles, AFileThatIsGoneIsAnErrorThatNamesIt) {
  const TempDir dir;
  for (const std::size_t count : {1u, 1000u})
    expect_error<IoError>([&] { sync_files(dir.path(), std::vector<fs::path>(count, "gone.txt")); },
                          {"gone.txt"});
}

}  // namespace
}  // namespace nvfp4::checkpoint::text_file_test
