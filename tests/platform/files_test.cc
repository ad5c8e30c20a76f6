// Tests of the functions that every operating system implements in src/platform, with paths of
// every kind.
#include "platform/files.h"

#include "platform/process.h"
#include "testing.h"

namespace nvfp4::platform::files_test {

/// Outside of ASCII, of every code page of Windows, of the first 65536 characters of Unicode.
const std::string kName = "ü-模型-😀";

/// A folder whose path has the form that the parameter names.
class PlatformFiles : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    root_ = fs::temp_directory_path() /
            fmt::format("nvfp4-platform-{}-{:x}", process_id(), std::hash<std::string>()(test));
    fs::remove_all(root_);
    folder_ = root_;
    if (GetParam() == "unicode") folder_ /= kName;
    if (GetParam() == "long")
      for (int i = 0; i < 12; ++i) folder_ /= "a-folder-with-a-long-name-" + std::to_string(i);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path file(const std::string& text, const std::string& name = "file.txt") const {
    const Descriptor fd = open(folder_ / name, Open::create);
    EXPECT_GE(fd.get(), 0) << std::strerror(errno);
    EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<std::ptrdiff_t>(text.size()));
    return folder_ / name;
  }
  static std::string text_of(const fs::path& path) {
    const Descriptor fd = open(path, Open::read_promptly);
    std::string text(1000, '\0');
    text.resize(static_cast<std::size_t>(
        std::max<std::ptrdiff_t>(0, read_at(fd.get(), text.data(), text.size(), 0))));
    return text;
  }

  fs::path root_, folder_;
};

TEST_P(PlatformFiles, CreatesWhatIsNotThere) {
  const fs::path path = file("a\nb\n", kName + ".txt");
  EXPECT_EQ(text_of(path), "a\nb\n") << "a line ends in one byte";
  EXPECT_LT(open(path, Open::create).get(), 0);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(fs::file_size(path), 4u);
  EXPECT_LT(open(folder_ / "none", Open::read).get(), 0);
  EXPECT_EQ(errno, ENOENT);
}

TEST_P(PlatformFiles, ReadsAndWritesAtOffsets) {
  Descriptor fd = open(folder_ / "at", Open::create);
  ASSERT_TRUE(reserve(fd.get(), 100)) << std::strerror(errno);
  EXPECT_EQ(write_at(fd.get(), "hello", 5, 50), 5);
  EXPECT_TRUE(sync(fd.get())) << std::strerror(errno);
  EXPECT_TRUE(close(fd.release()));
  fd = open(folder_ / "at", Open::read);
  std::string text(200, 'x');
  EXPECT_EQ(read_at(fd.get(), text.data(), text.size(), 50), 50);
  EXPECT_EQ(text.substr(0, 5), "hello");
  EXPECT_EQ(text.substr(5, 45), std::string(45, '\0'));
  EXPECT_EQ(read_at(fd.get(), text.data(), text.size(), 100), 0) << "the end";
  const std::byte* const pages = map(fd.get(), 100);
  ASSERT_NE(pages, nullptr) << std::strerror(errno);
  EXPECT_EQ(std::memcmp(pages + 50, "hello", 5), 0);
  unmap(pages, 100);
}

TEST_P(PlatformFiles, OffsetsHave64Bits) {
  constexpr std::uint64_t kFar = (std::uint64_t{5} << 30) + 7;
  Descriptor fd = open(folder_ / "far", Open::create);
  if (write_at(fd.get(), "x", 1, kFar) != 1) GTEST_SKIP() << std::strerror(errno);
  EXPECT_EQ(status_of(fd.get())->bytes, kFar + 1);
  EXPECT_EQ(fs::file_size(folder_ / "far"), kFar + 1);
}

TEST_P(PlatformFiles, StatusTellsWhatAndWhich) {
  const fs::path path = file("12345"), other = file("12345", "other");
  const auto of_path = status_of(path), of_other = status_of(other);
  const Descriptor fd = open(path, Open::read);
  const auto of_file = status_of(fd.get());
  ASSERT_TRUE(of_path && of_file && of_other);
  EXPECT_EQ(of_path->kind, FileStatus::Kind::file);
  EXPECT_EQ(of_path->bytes, 5u);
  EXPECT_EQ(of_path->number, of_file->number);
  EXPECT_EQ(of_path->volume, of_file->volume);
  EXPECT_EQ(of_path->modified_ns, of_file->modified_ns);
  EXPECT_NE(of_path->number, of_other->number);
  EXPECT_GT(of_path->modified_ns, std::int64_t{1'600'000'000} * 1'000'000'000) << "since 1970";
  EXPECT_EQ(status_of(folder_)->kind, FileStatus::Kind::folder);
  EXPECT_FALSE(status_of(folder_ / "none"));
  EXPECT_EQ(errno, ENOENT);
  constexpr unsigned kOwner = 0200;  // may write
  EXPECT_NE(of_path->mode & kOwner, 0u);
  ASSERT_TRUE(set_mode(path, 0444));
  EXPECT_EQ(status_of(path)->mode & kOwner, 0u);
  ASSERT_TRUE(set_mode(path, 0644));
  EXPECT_NE(status_of(path)->mode & kOwner, 0u);
}

TEST_P(PlatformFiles, RenamesLinksAndRemoves) {
  const fs::path path = file("old"), link = folder_ / "link";
  ASSERT_TRUE(link_file(path, link)) << std::strerror(errno);
  EXPECT_EQ(text_of(link), "old");
  EXPECT_FALSE(link_file(path, link));
  EXPECT_EQ(errno, EEXIST);
  ASSERT_TRUE(replace_file(file("new", "draft"), path)) << std::strerror(errno);
  EXPECT_EQ(text_of(path), "new");
  EXPECT_FALSE(fs::exists(folder_ / "draft"));
  EXPECT_TRUE(remove_file(link));
  EXPECT_FALSE(remove_file(link));
  EXPECT_EQ(errno, ENOENT);
}

TEST_P(PlatformFiles, OpensFolders) {
  EXPECT_TRUE(may_write_in(folder_)) << std::strerror(errno);
  EXPECT_FALSE(may_write_in(folder_ / "none"));
  const Descriptor fd = open(folder_, Open::folder);
  ASSERT_GE(fd.get(), 0) << std::strerror(errno);
  EXPECT_TRUE(sync_folder(fd.get())) << std::strerror(errno);
  EXPECT_LT(open(file("x"), Open::folder).get(), 0);
  EXPECT_EQ(errno, ENOTDIR);
  EXPECT_EQ(status_of(open(folder_, Open::read_promptly).get())->kind, FileStatus::Kind::folder);
}

TEST_P(PlatformFiles, FolderHasOneOwnerOrManyWhoShare) {
  Descriptor first = open(folder_, Open::folder), second = open(folder_, Open::folder);
  ASSERT_TRUE(lock_folder(first.get(), /*shared=*/false)) << std::strerror(errno);
  EXPECT_FALSE(lock_folder(second.get(), /*shared=*/false));
  EXPECT_EQ(errno, EWOULDBLOCK);
  EXPECT_FALSE(lock_folder(second.get(), /*shared=*/true));
  file("files can be made", "in-it");
  ASSERT_TRUE(close(first.release()));
  ASSERT_TRUE(lock_folder(second.get(), /*shared=*/true)) << std::strerror(errno);
  first = open(folder_, Open::folder);
  ASSERT_TRUE(lock_folder(first.get(), /*shared=*/true)) << std::strerror(errno);
  Descriptor third = open(folder_, Open::folder);
  EXPECT_FALSE(lock_folder(third.get(), /*shared=*/false));
  { const Descriptor gone = std::move(first), gone_too = std::move(second); }
  EXPECT_TRUE(lock_folder(third.get(), /*shared=*/false)) << std::strerror(errno);
}

TEST_P(PlatformFiles, LockOfAFileIsForOne) {
  Descriptor first = open(folder_ / "lock", Open::lock),
             second = open(folder_ / "lock", Open::lock);
  ASSERT_TRUE(lock(first.get())) << std::strerror(errno);
  EXPECT_FALSE(lock(second.get()));
  EXPECT_EQ(errno, EWOULDBLOCK);
  ASSERT_TRUE(close(first.release()));
  EXPECT_TRUE(lock(second.get())) << std::strerror(errno);
}

// The functions of the standard library on the same paths.
TEST_P(PlatformFiles, StandardLibraryTakesThePaths) {
  const fs::path path = file("x", kName);
  EXPECT_EQ(fs::path(path.string()), path) << "narrow text is UTF-8";
  EXPECT_TRUE(path.string().ends_with(kName));
  EXPECT_TRUE(fs::is_directory(folder_));
  EXPECT_TRUE(fs::is_regular_file(path));
  EXPECT_FALSE(fs::exists(folder_ / "none"));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, std::set<std::string>{kName});
  EXPECT_EQ(fs::weakly_canonical(folder_ / "x" / ".." / "y"), fs::canonical(folder_) / "y");
  { std::ofstream(folder_ / "stream", std::ios::binary) << "a\nb"; }
  EXPECT_EQ(text_of(folder_ / "stream"), "a\nb");
  fs::copy_file(path, folder_ / "copy");
  fs::rename(folder_ / "copy", folder_ / "renamed");
  EXPECT_TRUE(fs::remove(folder_ / "renamed"));
}

INSTANTIATE_TEST_SUITE_P(Paths, PlatformFiles, testing::Values("short", "unicode", "long"),
                         [](const auto& info) { return info.param; });

#ifdef _WIN32
TEST(PlatformPath, InvalidUtf8IsAnError) {
  for (const char* text : {"\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                           "\xe2\x82", "\xf0\x9f\x98", "a\x80"})
    EXPECT_THROW(fs::path(std::string(text)), fs::filesystem_error) << text;
}
#endif

}  // namespace nvfp4::platform::files_test
