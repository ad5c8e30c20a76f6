#include <fcntl.h>
#include <sys/stat.h>

#include "checkpoint/checkpoints.h"

namespace nvfp4::safetensors::safetensors_file_test {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Two tensors, "a" = "hello" and "b" = "wide" + 1 MiB of 'x'.
std::string sample_content() {
  std::string json = R"({"b":{"dtype":"U8","shape":[1048580],"data_offsets":[5,1048585]},)"
                     R"("a":{"dtype":"I8","shape":[5],"data_offsets":[0,5]},)"
                     R"("__metadata__":{"format":"pt"}})";
  std::string out(1, static_cast<char>(json.size()));
  out.resize(8);
  return out + json + "hello" + "wide" + std::string(1 << 20, 'x');
}

class SafetensorsFile : public ::testing::Test {
 protected:
  SafetensorsFile() { write_text(path_, sample_content()); }
  TempDir dir_;
  fs::path path_ = dir_ / "m.safetensors";
};

TEST_F(SafetensorsFile, GivesDataByName) {
  const File file = File::open(path_);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.file_bytes(), fs::file_size(path_));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.find("a"), &file.tensors()[0]);
  EXPECT_EQ(file.find("b"), &file.tensors()[1]);
  for (const char* absent : {"", "c", "A", "ab", "__metadata__"})
    EXPECT_EQ(file.find(absent), nullptr) << absent;
  EXPECT_EQ(text_of(file.data(*file.find("a"))), "hello");
  EXPECT_EQ(text_of(file.data(*file.find("b"))).substr(0, 5), "widex");
}

TEST_F(SafetensorsFile, ReadsAnyRangeAtOddOffsets) {
  const File file = File::open(path_);
  const TensorInfo& b = *file.find("b");
  std::vector<std::byte> out(3);
  file.read(b, 1, out);
  EXPECT_EQ(text_of(out), "ide");
  out.resize(b.bytes);
  file.read(b, 0, out);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), file.data(b).begin()));
  file.read(b, b.bytes, {});
  file.read(*file.find("a"), 4, std::span(out).first(1));
  EXPECT_EQ(text_of(std::span(out).first(1)), "o");
}

TEST_F(SafetensorsFile, RefusesRangesOutsideTheTensor) {
  const File file = File::open(path_);
  const TensorInfo& a = *file.find("a");
  std::vector<std::byte> out(6);
  expect_error<ValueError>([&] { file.read(a, 0, out); }, {"m.safetensors", "tensor 'a'", "6"});
  EXPECT_THROW(file.read(a, 5, std::span(out).first(1)), ValueError);
  EXPECT_THROW(file.read(a, ~std::uint64_t{0}, std::span(out).first(1)), ValueError);
  TensorInfo foreign = a;
  foreign.begin = file.file_bytes() - 1;
  EXPECT_THROW(file.data(foreign), ValueError);
  foreign.begin = ~std::uint64_t{0};
  EXPECT_THROW(file.data(foreign), ValueError);
  foreign.begin = 0;
  EXPECT_THROW(file.data(foreign), ValueError);
}

TEST_F(SafetensorsFile, ReadsFromManyThreadsAtOnce) {
  const File file = File::open(path_);
  const TensorInfo& b = *file.find("b");
  std::vector<std::byte> out(b.bytes);
  constexpr std::size_t kPiece = 4099;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t at = t * kPiece; at < out.size(); at += 4 * kPiece)
        file.read(b, at, std::span(out).subspan(at, std::min(kPiece, out.size() - at)));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::equal(out.begin(), out.end(), file.data(b).begin()));
}

TEST_F(SafetensorsFile, MovesWithItsViews) {
  File first = File::open(path_);
  const auto view = first.data(*first.find("a"));
  File second = std::move(first);
  EXPECT_EQ(text_of(view), "hello");
  first = File::open(path_);
  first = std::move(second);
  EXPECT_EQ(text_of(view), "hello");
  EXPECT_EQ(text_of(first.data(*first.find("a"))), "hello");
}

TEST_F(SafetensorsFile, FollowsSymlinks) {
  fs::create_symlink("m.safetensors", dir_ / "link");
  fs::create_symlink("link", dir_ / "link_to_link");
  const File file = File::open(dir_ / "link_to_link");
  EXPECT_EQ(text_of(file.data(*file.find("a"))), "hello");
  file.check_unchanged();
}

TEST_F(SafetensorsFile, RefusesWhatIsNoReadableRegularFile) {
  expect_error<IoError>([&] { File::open(dir_ / "absent"); }, {"absent", "open", "No such file"});
  expect_error<IoError>([&] { File::open(dir_.path()); }, {dir_.path().native(), "a folder"});
  expect_error<IoError>([&] { File::open("/dev/null"); }, {"/dev/null", "regular file"});
  fs::create_symlink("nowhere", dir_ / "dangling");
  expect_error<IoError>([&] { File::open(dir_ / "dangling"); }, {"dangling", "No such file"});
  fs::create_symlink("loop", dir_ / "loop");
  EXPECT_THROW(File::open(dir_ / "loop"), IoError);
  const fs::path pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error<IoError>([&] { File::open(pipe); }, {"pipe", "regular file"});
}

TEST_F(SafetensorsFile, RefusesAnEmptyFile) {
  write_text(path_, "");
  expect_error<FormatError>([&] { File::open(path_); }, {path_.native(), "0 bytes"});
}

TEST_F(SafetensorsFile, RefusesEveryTruncation) {
  fs::resize_file(path_, fs::file_size(path_) - 1);
  expect_error<FormatError>([&] { File::open(path_); }, {path_.native(), "tensor 'b'"});
  for (std::size_t bytes = 400; bytes-- > 0;) {
    fs::resize_file(path_, bytes);
    expect_error<FormatError>([&] { File::open(path_); }, {path_.native()});
  }
}

TEST_F(SafetensorsFile, SaysWhenTheFileBecomesShorter) {
  const File file = File::open(path_);
  const TensorInfo& b = *file.find("b");
  fs::resize_file(path_, b.begin + 100);
  std::vector<std::byte> out(101);
  expect_error<IoError>([&] { file.read(b, 0, out); },
                        {path_.native(), "tensor 'b'", "became shorter"});
  EXPECT_NO_THROW(file.read(b, 0, std::span(out).first(100)));
  expect_error<IoError>([&] { file.check_unchanged(); }, {path_.native(), "bytes"});
}

TEST_F(SafetensorsFile, ChecksThatTheFileIsUnchanged) {
  const File file = File::open(path_);
  EXPECT_NO_THROW(file.check_unchanged());
  EXPECT_GT(file.modified_ns(), 0);
  fs::last_write_time(path_, fs::last_write_time(path_) + std::chrono::nanoseconds(1));
  expect_error<IoError>([&] { file.check_unchanged(); }, {path_.native(), "was modified"});
}

TEST_F(SafetensorsFile, ReportsTheModificationTimeInNanoseconds) {
  const timespec times[2] = {{1, 0}, {1'234'567'890, 123'456'789}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  EXPECT_EQ(File::open(path_).modified_ns(), 1'234'567'890'123'456'789);
}

TEST_F(SafetensorsFile, NoticesThatAnotherFileTookItsPlace) {
  const File file = File::open(path_);
  write_text(dir_ / "other", sample_content());
  fs::last_write_time(dir_ / "other", fs::last_write_time(path_));
  fs::rename(dir_ / "other", path_);
  expect_error<IoError>([&] { file.check_unchanged(); }, {path_.native(), "replaced"});
  EXPECT_EQ(text_of(file.data(*file.find("a"))), "hello");
  fs::remove(path_);
  expect_error<IoError>([&] { file.check_unchanged(); }, {path_.native(), "No such file"});
}

}  // namespace nvfp4::safetensors::safetensors_file_test
