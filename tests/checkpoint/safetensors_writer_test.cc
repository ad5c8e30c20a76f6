#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "checkpoint/checkpoints.h"

namespace nvfp4::safetensors::safetensors_writer_test {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class SafetensorsWriter : public ::testing::Test {
 protected:
  fs::path partial() const { return path_.native() + ".partial"; }
  TempDir dir_;
  fs::path path_ = dir_ / "m.safetensors";
};

TEST_F(SafetensorsWriter, RoundTripsEveryDtypeInTheOrderGiven) {
  std::vector<TensorSpec> specs;
  std::vector<std::string> contents;
  for (int t = 0; t <= static_cast<int>(DType::c64); ++t) {
    const auto dtype = static_cast<DType>(t);
    specs.push_back({fmt::format("z{}", 100 - t), dtype, {2, t + 1, 4}});
    contents.emplace_back(static_cast<std::size_t>((t + 1) * dtype_bits(dtype)),
                          static_cast<char>('A' + t));
  }
  specs.push_back({"scalar", DType::f32, {}});
  contents.push_back("\1\2\3\4");
  specs.push_back({"none", DType::f64, {3, 0}});
  contents.push_back("");
  specs.push_back({"odd", DType::u8, {3}});
  contents.push_back("odd");
  const Metadata metadata{{"format", "pt"}, {"note", "quote\" line\n \xc3\xa9"}};

  Writer writer(path_, specs, metadata);
  for (std::size_t i = specs.size(); i-- > 0;) writer.write(i, 0, bytes_of(contents[i]));
  writer.commit();

  const File file = File::open(path_);
  EXPECT_EQ(file.file_bytes(), writer.file_bytes());
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    SCOPED_TRACE(specs[i].name);
    const TensorInfo& t = file.tensors()[i];
    EXPECT_EQ(t.name, specs[i].name);
    EXPECT_EQ(t.dtype, specs[i].dtype);
    EXPECT_EQ(t.shape, specs[i].shape);
    EXPECT_EQ(text_of(file.data(t)), contents[i]);
    EXPECT_EQ(file.find(t.name), &t);
  }
}

TEST_F(SafetensorsWriter, AlignsTheDataSection) {
  for (std::size_t name = 1; name < 65; name += 7) {
    Writer writer(path_, {{std::string(name, 'n'), DType::u8, {1}}});
    writer.write(0, 0, bytes_of("x"));
    writer.commit();
    EXPECT_EQ(File::open(path_).tensors()[0].begin % 64, 0u);
  }
}

TEST_F(SafetensorsWriter, WritesAFileWithoutTensors) {
  Writer writer(path_, {});
  writer.commit();
  EXPECT_TRUE(File::open(path_).tensors().empty());
  EXPECT_EQ(fs::file_size(path_), 64u);
}

TEST_F(SafetensorsWriter, RoundTripsNamesThatNeedEscapes) {
  const std::string name = "\"\\\n\x7f\t\xe6\xa8\xa1" + std::string(1, '\0');
  Writer writer(path_, {{name, DType::u8, {0}}});
  writer.commit();
  EXPECT_NE(File::open(path_).find(name), nullptr);
}

TEST_F(SafetensorsWriter, TakesPiecesInAnyOrderFromManyThreads) {
  constexpr std::size_t kBytes = 1'000'003, kPiece = 977;
  std::string a(kBytes, '\0'), b(kBytes, '\0');
  for (std::size_t i = 0; i < kBytes; ++i) {
    a[i] = static_cast<char>(i * 7);
    b[i] = static_cast<char>(i * 13 + 5);
  }
  Writer writer(path_, {{"a", DType::u8, {kBytes}}, {"b", DType::i8, {kBytes}}});
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const std::string& content = t % 2 ? b : a;
      for (std::size_t piece = (kBytes - 1) / kPiece + 1; piece-- > 0;)
        if (piece % 2 == t / 2)
          writer.write(t % 2, piece * kPiece,
                       bytes_of(std::string_view(content).substr(piece * kPiece, kPiece)));
    });
  for (std::thread& thread : threads) thread.join();
  writer.commit();
  const File file = File::open(path_);
  EXPECT_EQ(text_of(file.data(*file.find("a"))), a);
  EXPECT_EQ(text_of(file.data(*file.find("b"))), b);
}

TEST_F(SafetensorsWriter, TakesPiecesOneAfterTheOther) {
  Writer writer(path_, {{"a", DType::u8, {6}}});
  for (std::uint64_t at = 0; at < 6; at += 2) writer.write(0, at, bytes_of("xy"));
  writer.commit();
  const File file = File::open(path_);
  EXPECT_EQ(text_of(file.data(file.tensors()[0])), "xyxyxy");
}

TEST_F(SafetensorsWriter, HasNoFinalNameBeforeCommit) {
  Writer writer(path_, {{"a", DType::u8, {4}}});
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(fs::file_size(partial()), writer.file_bytes());
  writer.write(0, 0, bytes_of("1234"));
  EXPECT_FALSE(fs::exists(path_));
  writer.commit();
  EXPECT_TRUE(fs::exists(path_));
  EXPECT_FALSE(fs::exists(partial()));
}

TEST_F(SafetensorsWriter, RemovesThePartialFileWithoutCommit) {
  {
    Writer writer(path_, {{"a", DType::u8, {4}}});
    Writer moved = std::move(writer);
    moved.write(0, 0, bytes_of("1234"));
    EXPECT_TRUE(fs::exists(partial()));
  }
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_F(SafetensorsWriter, ReplacesStalePartialFilesAndLinks) {
  write_text(dir_ / "precious", "keep me");
  fs::create_symlink("precious", partial());
  Writer writer(path_, {});
  writer.commit();
  EXPECT_EQ(read_text(dir_ / "precious"), "keep me");
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path_)));
}

TEST_F(SafetensorsWriter, RefusesAFileThatAnotherOneWrites) {
  {
    Writer first(path_, {{"a", DType::u8, {4}}});
    expect_error<IoError>([&] { Writer(path_, {}); },
                          {"m.safetensors: another process is writing"});
    first.write(0, 0, bytes_of("1234"));
    first.commit();
  }
  const std::string whole = read_text(path_);
  {
    // Even without locks, a file never gets the name of another writer's file.
    Writer first(path_, {{"a", DType::u8, {4}}});
    first.write(0, 0, bytes_of("5678"));
    fs::remove(partial());
    write_text(partial(), "half of the other");
    expect_error<IoError>([&] { first.commit(); }, {"m.safetensors: another process is writing"});
  }
  EXPECT_EQ(read_text(path_), whole);
  EXPECT_EQ(read_text(partial()), "half of the other") << "nor is that removed";
}

TEST_F(SafetensorsWriter, ReplacesTheFinalFileOnlyAtCommit) {
  write_text(path_, "before");
  Writer writer(path_, {});
  EXPECT_EQ(read_text(path_), "before");
  writer.commit();
  EXPECT_EQ(fs::file_size(path_), 64u);
}

TEST_F(SafetensorsWriter, RefusesToCommitWhileBytesAreMissing) {
  {
    Writer writer(path_, {{"first", DType::u8, {4}}, {"second", DType::u8, {6}}});
    expect_error<ValueError>([&] { writer.commit(); },
                             {"m.safetensors", "tensor 'first'", "byte 0"});
    writer.write(0, 0, bytes_of("1234"));
    writer.write(1, 3, bytes_of("456"));
    // The number of bytes is right, but some bytes are written twice.
    writer.write(1, 3, bytes_of("456"));
    expect_error<ValueError>([&] { writer.commit(); },
                             {"m.safetensors", "tensor 'second'", "byte 0"});
    writer.write(1, 0, bytes_of("12"));
    expect_error<ValueError>([&] { writer.commit(); }, {"tensor 'second'", "byte 2 of 6"});
    EXPECT_FALSE(fs::exists(path_));
    writer.write(1, 1, bytes_of("23"));
    writer.commit();
  }
  const File file = File::open(path_);
  EXPECT_EQ(text_of(file.data(*file.find("second"))), "123456");
}

TEST_F(SafetensorsWriter, RefusesRangesOutsideTheTensor) {
  Writer writer(path_, {{"a", DType::u8, {4}}, {"b", DType::u8, {4}}});
  expect_error<ValueError>([&] { writer.write(0, 1, bytes_of("1234")); },
                           {"m.safetensors", "tensor 'a'", "4 bytes at 1"});
  EXPECT_THROW(writer.write(0, 5, {}), ValueError);
  EXPECT_THROW(writer.write(0, ~std::uint64_t{0}, bytes_of("12")), ValueError);
  expect_error<ValueError>([&] { writer.write(2, 0, {}); }, {"m.safetensors", "tensor 2"});
  EXPECT_NO_THROW(writer.write(1, 4, {}));
}

TEST_F(SafetensorsWriter, RefusesToGoOnAfterCommit) {
  Writer writer(path_, {{"a", DType::u8, {1}}});
  writer.write(0, 0, bytes_of("x"));
  writer.commit();
  EXPECT_THROW(writer.write(0, 0, bytes_of("y")), ValueError);
  EXPECT_THROW(writer.commit(), ValueError);
  EXPECT_TRUE(fs::exists(path_));
}

TEST_F(SafetensorsWriter, RefusesTensorsThatNoHeaderCanHold) {
  const auto refused = [&](const std::vector<TensorSpec>& specs,
                           std::initializer_list<std::string_view> parts) {
    expect_error<ValueError>([&] { Writer(path_, specs); }, {"m.safetensors"});
    expect_error<ValueError>([&] { Writer(path_, specs); }, parts);
    EXPECT_TRUE(fs::is_empty(dir_.path()));
  };
  refused({{"a", DType::u8, {1}}, {"b", DType::u8, {1}}, {"a", DType::u8, {1}}},
          {"tensor 'a'", "appears twice"});
  refused({{"__metadata__", DType::u8, {1}}}, {"tensor '__metadata__'", "reserved"});
  refused({{"a", DType::u8, {3, -1}}}, {"tensor 'a'", "[3, -1]", "negative"});
  refused({{"a", DType::f64, {1ll << 40, 1ll << 40}}}, {"tensor 'a'", "overflows"});
  refused({{"a", DType::f4, {3}}}, {"tensor 'a'", "whole bytes"});
  refused({{"\xff", DType::u8, {1}}}, {"\\xff", "UTF-8"});
  std::vector<TensorSpec> huge;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"})
    huge.push_back({name, DType::u8, {1ll << 59}});
  refused(huge, {"tensor 'h'", "must fit into a file"});
  expect_error<ValueError>(
      [&] {
        Writer(path_, {{std::string(kMaxHeaderBytes, 'x'), DType::u8, {0}}});
      },
      {"m.safetensors", "header length", "at most 100000000"});
  EXPECT_THROW(Writer(path_, {}, {{"a", "\xff"}}), ValueError);
}

TEST_F(SafetensorsWriter, SaysWhyAFileCannotBeMade) {
  expect_error<IoError>([&] { Writer(dir_ / "absent/m.safetensors", {}); },
                        {"absent/m.safetensors.partial", "create", "No such file or directory"});
  fs::create_directory(path_);
  write_text(path_ / "content", "");
  Writer writer(path_, {});
  expect_error<IoError>([&] { writer.commit(); }, {"m.safetensors.partial", "rename"});
}

TEST_F(SafetensorsWriter, WritesSmallFilesAtomically) {
  const fs::path path = dir_ / "config.json";
  write_file_atomically(path, "{}");
  EXPECT_EQ(read_text(path), "{}");
  write_file_atomically(path, "");
  EXPECT_EQ(read_text(path), "");
  const std::string binary("a\0b", 3);
  write_file_atomically(path, binary);
  EXPECT_EQ(read_text(path), binary);
  EXPECT_THROW(write_file_atomically(dir_ / "absent/a", "x"), IoError);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), {}), 1);
}

TEST_F(SafetensorsWriter, WritesIntoTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(dir_.path());
  EXPECT_NO_THROW(write_file_atomically("bare_name", "x"));
  fs::current_path(before);
  EXPECT_EQ(read_text(dir_ / "bare_name"), "x");
}

/// Lowers the size that files of this process may have.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lower{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &lower);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(SafetensorsWriter, LeavesNothingWhenTheFileMayNotGrow) {
  {
    const FileSizeLimit limit(1 << 20);
    expect_error<IoError>(
        [&] {
          Writer(path_, {{"a", DType::u8, {1 << 20}}});
        },
        {"m.safetensors.partial", "File too large"});
    expect_error<IoError>([&] { write_file_atomically(path_, std::string(2 << 20, 'x')); },
                          {"m.safetensors.partial", "File too large"});
  }
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

TEST_F(SafetensorsWriter, LeavesNothingWhenAWriteFails) {
  {
    Writer writer(path_, {{"a", DType::u8, {1 << 20}}});
    const FileSizeLimit limit(1 << 16);
    const std::string content(1 << 20, 'x');
    expect_error<IoError>([&] { writer.write(0, 0, bytes_of(content)); },
                          {"m.safetensors.partial", "write", "File too large"});
    EXPECT_THROW(writer.commit(), ValueError);
  }
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

/// A file system of 1 MiB, where the process may mount one.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& where) : where_(where) {
    fs::create_directory(where_);
    mounted_ = ::mount("tmpfs", where_.c_str(), "tmpfs", 0, "size=1m") == 0;
    error_ = errno;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(where_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string reason() const { return std::string("mount of a tmpfs: ") + std::strerror(error_); }

 private:
  fs::path where_;
  bool mounted_ = false;
  int error_ = 0;
};

TEST_F(SafetensorsWriter, FullDiskIsAnErrorBeforeAnyWork) {
  const fs::path folder = dir_ / "disk";
  const SmallDisk disk(folder);
  if (!disk.mounted()) GTEST_SKIP() << disk.reason();
  expect_error<IoError>(
      [&] {
        Writer(folder / "m.safetensors", {{"a", DType::u8, {2 << 20}}});
      },
      {"m.safetensors.partial", "disk full", "No space left on device"});
  EXPECT_TRUE(fs::is_empty(folder));
  const std::string large(2 << 20, 'x');
  expect_error<IoError>([&] { write_file_atomically(folder / "a.json", large); },
                        {"a.json.partial", "disk full"});
  EXPECT_TRUE(fs::is_empty(folder));

  Writer fits(folder / "m.safetensors", {{"a", DType::u8, {1 << 19}}});
  // Reserved space stays reserved when another program fills the disk.
  expect_error<IoError>(
      [&] {
        Writer(folder / "n.safetensors", {{"a", DType::u8, {1 << 19}}});
      },
      {"n.safetensors.partial", "disk full"});
  fits.write(0, 0, bytes_of(std::string_view(large).substr(0, 1 << 19)));
  fits.commit();
  EXPECT_EQ(File::open(folder / "m.safetensors").tensors()[0].bytes, 1u << 19);
}

TEST_F(SafetensorsWriter, IsNeverMistakenForCompleteAfterKill) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Writer writer(path_, {{"a", DType::u8, {4}}});
    writer.write(0, 0, bytes_of("1234"));
    ::raise(SIGKILL);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_TRUE(fs::exists(partial()));
  Writer again(path_, {{"a", DType::u8, {4}}});
  again.write(0, 0, bytes_of("5678"));
  again.commit();
  const File file = File::open(path_);
  EXPECT_EQ(text_of(file.data(file.tensors()[0])), "5678");
  EXPECT_FALSE(fs::exists(partial()));
}

}  // namespace nvfp4::safetensors::safetensors_writer_test
