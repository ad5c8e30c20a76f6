#include "checkpoint/io/text_file.h"

#include "checkpoint/checkpoints.h"
#include "platform/files.h"

namespace nvfp4::checkpoint::text_file_test {

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

TEST(TextFiles, HolesOfACarriedFileStayHoles) {
  const TempDir dir;
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
  const fs::path from = dir / "from", to = dir / "to";
  write_text(from, "begin");
  fs::resize_file(from, kBytes / 2);
  std::ofstream(from, std::ios::binary | std::ios::app) << "middle";
  fs::resize_file(from, kBytes);
  EXPECT_EQ(carry_file(from, to), kBytes);
  const auto status = platform::status_of(to);
  ASSERT_TRUE(status);
  EXPECT_EQ(status->bytes, kBytes);
  EXPECT_LT(status->allocated, kBytes / 64);
  std::ifstream file(to, std::ios::binary);
  std::string text(11, 'x');
  file.read(text.data(), 5);
  file.seekg(kBytes / 2 - 1);
  file.read(text.data() + 5, 6);
  EXPECT_EQ(text, std::string("begin\0middl", 11));
  write_text(from, "");
  EXPECT_EQ(carry_file(from, to), 0u);
  EXPECT_EQ(read_text(to), "");
}

TEST(TextFiles, MissingFileIsNamed) {
  const TempDir dir;
  for (const std::size_t count : {1u, 1000u})
    expect_error<IoError>([&] { sync_files(dir.path(), std::vector<fs::path>(count, "gone.txt")); },
                          {"gone.txt"});
}

}  // namespace nvfp4::checkpoint::text_file_test
