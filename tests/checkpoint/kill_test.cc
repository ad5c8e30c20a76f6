#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"
#include "checkpoint/statistics_file.h"

/// Runs that are killed before each change to the names in the output: they go through rename(),
/// unlink() and remove(), which this file puts in the place of the C library's. And fsync(), to see
/// when it is called.
namespace nvfp4::kill_test {
namespace {

/// Changes until this process kills itself; negative: it does not.
std::atomic<int> changes_left{-1};

void before_change() {
  if (changes_left >= 0 && changes_left.fetch_sub(1) == 0) ::kill(::getpid(), SIGKILL);
}

/// If not null, gets the calls of rename() and fsync(), of one thread.
std::vector<std::string>* calls = nullptr;

std::string name_of(const std::filesystem::path& path) { return path.filename().string(); }

}  // namespace
}  // namespace nvfp4::kill_test

extern "C" int fsync(int fd) {
  if (nvfp4::kill_test::calls != nullptr) {
    const auto file = "/proc/self/fd/" + std::to_string(fd);
    nvfp4::kill_test::calls->push_back(
        "fsync " + nvfp4::kill_test::name_of(std::filesystem::read_symlink(file)));
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  nvfp4::kill_test::before_change();
  if (nvfp4::kill_test::calls != nullptr)
    nvfp4::kill_test::calls->push_back("rename " + nvfp4::kill_test::name_of(from) + " " +
                                       nvfp4::kill_test::name_of(to));
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

extern "C" int link(const char* from, const char* to) noexcept {
  nvfp4::kill_test::before_change();
  return ::linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

extern "C" int unlink(const char* path) noexcept {
  nvfp4::kill_test::before_change();
  return ::unlinkat(AT_FDCWD, path, 0);
}

extern "C" int remove(const char* path) noexcept {
  nvfp4::kill_test::before_change();
  if (::unlinkat(AT_FDCWD, path, 0) == 0) return 0;
  return errno == EISDIR ? ::unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : -1;
}

namespace nvfp4::kill_test {
namespace {

constexpr const char* kJournal = "nvfp4.partial.json";

/// With statistics: by gptq.
QuantizeCheckpointOptions options_of(const fs::path& in, const fs::path& out,
                                     const fs::path& statistics) {
  auto options = quantize_options(in, out);
  if (statistics.empty()) return options;
  options.method = "gptq";
  options.statistics = statistics;
  return options;
}

TEST(Child, DISABLED_QuantizeUntilAChange) {
  auto options = options_of(child_variable("CHILD_INPUT"), child_variable("CHILD_OUTPUT"),
                            child_variable("CHILD_STATISTICS"));
  if (const std::string rank = child_variable("CHILD_RANK"); !rank.empty()) {
    options.rank = std::stoi(rank);
    options.ranks = 3;
  } else {
    options.overwrite = fs::exists(options.output);
  }
  changes_left = std::stoi(child_variable("CHILD_CHANGES"));
  quantize_checkpoint(options);
  changes_left = -1;
}

/// Returns true if the run was killed.
bool quantize_until(int changes, const fs::path& in, const fs::path& out,
                    const fs::path& statistics = {}, const std::string& rank = "") {
  const int status = run_child("Child.DISABLED_QuantizeUntilAChange",
                               {{"CHILD_INPUT", in.string()},
                                {"CHILD_OUTPUT", out.string()},
                                {"CHILD_STATISTICS", statistics.string()},
                                {"CHILD_RANK", rank},
                                {"CHILD_CHANGES", std::to_string(changes)}});
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  return true;
}

std::map<std::string, std::string> whole_files_of(const fs::path& folder) {
  auto files = files_of(folder);
  std::erase_if(files, [](const auto& file) { return file.first.ends_with(".partial"); });
  return files;
}

QuantizeCheckpointOptions resume(const fs::path& in, const fs::path& out,
                                 const fs::path& statistics = {}) {
  auto options = options_of(in, out, statistics);
  options.resume = true;
  return options;
}

TEST(Commit, FileIsSyncedBeforeItsNameThenFolder) {
  const TempDir dir;
  const auto expect_in_order = [&](const std::string& name, auto&& write) {
    std::vector<std::string> recorded;
    calls = &recorded;
    write(dir / name);
    calls = nullptr;
    const std::vector<std::string> want = {"fsync " + name + ".partial",
                                           "rename " + name + ".partial " + name,
                                           "fsync " + name_of(dir.path())};
    EXPECT_EQ(recorded, want);
  };
  expect_in_order("config.json",
                  [](const fs::path& path) { safetensors::write_file_atomically(path, "{}"); });
  expect_in_order("m.safetensors", [](const fs::path& path) {
    safetensors::Writer(path, {{"a", safetensors::DType::u8, {0}}}).commit();
  });
}

class Kill : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tiny_llama(in_);
    quantize_checkpoint(in_, dir_ / "whole");
    expected_ = files_of(dir_ / "whole");
    auto other = quantize_options(in_, dir_ / "other", {"--method", "max"});
    quantize_checkpoint(other);
    other_ = files_of(dir_ / "other");
  }
  const TempDir dir_;
  const fs::path in_ = dir_ / "in";
  std::map<std::string, std::string> expected_, other_;  ///< by other options, under the same names
};

TEST_F(Kill, BeforeAnyChangeOfANewOutput) {
  const fs::path out = dir_ / "out";
  int changes = 0, complete = 0;
  for (; quantize_until(changes, in_, out); ++changes) {
    SCOPED_TRACE(changes);
    const bool done = fs::exists(out / "config.json") && !fs::exists(out / kJournal);
    complete += done;
    if (done) {
      EXPECT_EQ(whole_files_of(out), expected_);
    }
    quantize_checkpoint(resume(in_, out));
    EXPECT_EQ(files_of(out), expected_);
    fs::remove_all(out);
  }
  EXPECT_EQ(files_of(out), expected_);
  EXPECT_EQ(changes, 25) << "two for each of 12 files, one for the journal that goes";
  EXPECT_EQ(complete, 0) << "removing the journal is the last change";
}

/// The journal has the methods of the rows and their output errors.
TEST_F(Kill, BeforeAnyChangeOfAnOutputByGptq) {
  const fs::path out = dir_ / "out", statistics = dir_ / "statistics";
  write_llama_grams(statistics);
  const auto tensors_of = [](const QuantizeReport& report) {
    return nlohmann::json::parse(to_json(report)).at("tensors");
  };
  const auto whole = tensors_of(quantize_checkpoint(options_of(in_, dir_ / "gptq", statistics)));
  const auto expected = files_of(dir_ / "gptq");
  EXPECT_NE(expected, expected_);
  int changes = 0, reused = 0;
  for (; quantize_until(changes, in_, out, statistics); ++changes) {
    SCOPED_TRACE(changes);
    const QuantizeReport report = quantize_checkpoint(resume(in_, out, statistics));
    EXPECT_EQ(files_of(out), expected);
    EXPECT_EQ(tensors_of(report), whole);
    reused += report.shards_reused > 0;
    fs::remove_all(out);
  }
  EXPECT_EQ(files_of(out), expected);
  EXPECT_EQ(changes, 25) << "as without statistics";
  EXPECT_GT(reused, 10);
}

TEST_F(Kill, ResumeRejectsOtherStatistics) {
  const fs::path out = dir_ / "out", statistics = dir_ / "statistics";
  write_llama_grams(statistics);
  ASSERT_TRUE(quantize_until(12, in_, out, statistics));
  const auto before = files_of(out);
  auto others = llama_statistics();
  for (auto& [module, s] : others) s = gram_statistics(module, s.diagonal.size(), 201);
  write_statistics(statistics, others);
  expect_error<ValueError>([&] { quantize_checkpoint(resume(in_, out, statistics)); },
                           {"--resume", "statistics was"});
  expect_error<ValueError>([&] { quantize_checkpoint(resume(in_, out)); },
                           {"--resume", "method was \"gptq:4\""});
  EXPECT_EQ(files_of(out), before);
}

/// The old shards have the names of the new ones, and the same tensors.
TEST_F(Kill, WhileAnOldOutputIsReplaced) {
  const fs::path out = dir_ / "out";
  int changes = 0, untouched = 0;
  for (;; ++changes) {
    SCOPED_TRACE(changes);
    fs::copy(dir_ / "other", out, fs::copy_options::recursive);
    if (!quantize_until(changes, in_, out)) break;
    if (fs::exists(out / kJournal)) {
      quantize_checkpoint(resume(in_, out));
      EXPECT_EQ(files_of(out), expected_);
    } else {
      EXPECT_EQ(whole_files_of(out), other_);
      expect_error<ValueError>([&] { quantize_checkpoint(resume(in_, out)); },
                               {"of another run", "--overwrite"});
      ++untouched;
    }
    fs::remove_all(out);
  }
  EXPECT_EQ(files_of(out), expected_);
  EXPECT_EQ(changes, 39) << "as above, with two for the journal and one for each old file";
  EXPECT_EQ(untouched, 2) << "until the journal says that the folder is being cleared";
}

void quantize_rank(int rank, const fs::path& in, const fs::path& out) {
  auto options = quantize_options(in, out);
  options.rank = rank;
  options.ranks = 3;
  quantize_checkpoint(options);
}

/// The first rank dies, the others go on; then it is run again.
TEST_F(Kill, BeforeAnyChangeOfTheFirstRank) {
  const fs::path out = dir_ / "out";
  int changes = 0, halves = 0;
  for (; quantize_until(changes, in_, out, {}, "1"); ++changes) {
    SCOPED_TRACE(changes);
    for (const auto& [name, bytes] : files_of(out)) {
      if (name.find(".safetensors") == name.npos || !name.ends_with(".partial")) continue;
      ++halves;
      EXPECT_FALSE(name.ends_with(".safetensors.partial")) << name << " may be of any process";
    }
    for (const int rank : {0, 2, 1}) {
      if (rank != 0) {
        EXPECT_TRUE(fs::exists(out / kJournal)) << "rank " << rank;
        EXPECT_FALSE(fs::exists(out / "config.json")) << "rank " << rank;
      }
      quantize_rank(rank, in_, out);
    }
    EXPECT_EQ(files_of(out), expected_);
    fs::remove_all(out);
  }
  EXPECT_GT(halves, 0);
  EXPECT_EQ(changes, 8)
      << "two for the draft of the journal, its link, its end; a record and a shard";
}

/// The last rank dies while it finishes the output; any other finishes it.
TEST_F(Kill, BeforeAnyChangeOfTheLastRank) {
  for (const int again : {0, 2}) {
    const fs::path out = dir_ / "out";
    int changes = 0;
    for (;; ++changes) {
      SCOPED_TRACE(changes);
      quantize_rank(0, in_, out);
      quantize_rank(1, in_, out);
      if (!quantize_until(changes, in_, out, {}, "2")) break;
      quantize_rank(again, in_, out);
      if (fs::exists(out / kJournal)) quantize_rank(2, in_, out);  // it died in its own shard
      EXPECT_EQ(files_of(out), expected_);
      fs::remove_all(out);
    }
    EXPECT_EQ(files_of(out), expected_);
    EXPECT_GT(changes, 20);
    fs::remove_all(out);
  }
}

/// Leaves the output in the state of the second shard being written.
void interrupt(const fs::path& in, const fs::path& out) {
  auto options = quantize_options(in, out);
  options.progress = [&](const Progress&) {
    if (fs::exists(out / "model-00001-of-00003.safetensors")) throw IoError("stop");
  };
  EXPECT_THROW(quantize_checkpoint(options), IoError);
  ASSERT_TRUE(fs::exists(out / kJournal));
}

TEST_F(Kill, BetweenRecordAndName_ShardIsWrittenAgain) {
  const fs::path out = dir_ / "out", shard = out / "model-00001-of-00003.safetensors";
  interrupt(in_, out);
  EXPECT_THAT(read_text(out / kJournal), HasSubstr(shard.filename().string()));
  // The number of shards finished by then depends on the threads.
  const auto finished =
      std::count_if(fs::directory_iterator(out), fs::directory_iterator(),
                    [](const auto& entry) { return entry.path().extension() == ".safetensors"; });
  EXPECT_GE(finished, 1);
  fs::rename(shard, shard.string() + ".partial");
  EXPECT_EQ(quantize_checkpoint(resume(in_, out)).shards_reused, finished - 1);
  EXPECT_EQ(files_of(out), expected_);
}

nlohmann::json tensors_of(const std::string& file) {
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), 8);
  nlohmann::json header = nlohmann::json::parse(file.substr(8, bytes));
  header.erase("__metadata__");
  return header;
}

TEST_F(Kill, ShardOfAnotherRunIsNotTaken) {
  const fs::path out = dir_ / "out";
  for (const char* name :
       {"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}) {
    ASSERT_EQ(tensors_of(expected_.at(name)), tensors_of(other_.at(name)));
    ASSERT_NE(expected_.at(name), other_.at(name));
    interrupt(in_, out);
    write_text(out / name, other_.at(name));
    quantize_checkpoint(resume(in_, out));
    EXPECT_EQ(files_of(out), expected_) << name;

    write_text(out / name, other_.at(name));
    expect_error<ValueError>([&] { quantize_checkpoint(resume(in_, out)); },
                             {name, "of another run", "--overwrite"});
    EXPECT_EQ(read_text(out / name), other_.at(name)) << "left as it was found";
    fs::remove_all(out);
  }
}

/// Models of one architecture differ in values only. What tells them apart is in the metadata of
/// what is encoded, and among the values where nothing is.
TEST_F(Kill, AFolderOfAnotherInputIsRefused) {
  const fs::path tuned = dir_ / "tuned", name = "model-00001-of-00003.safetensors";
  fs::copy(in_, tuned, fs::copy_options::recursive);
  std::string content = read_text(tuned / name);
  for (std::size_t i = content.size() / 2; i < content.size(); i += 2) content[i] ^= 1;
  write_text(tuned / name, content);
  fs::last_write_time(tuned / name, fs::last_write_time(in_ / name));
  expect_error<ValueError>([&] { quantize_checkpoint(resume(tuned, dir_ / "whole")); },
                           {"of another run", "--overwrite"});
  EXPECT_EQ(files_of(dir_ / "whole"), expected_);
  quantize_checkpoint(tuned, dir_ / "a");
  for (const std::string to : {"compressed-tensors", "bf16"}) {
    convert(dir_ / "whole", dir_ / to, to);
    auto again = convert_options(dir_ / "whole", dir_ / to, to, {"--resume"});
    EXPECT_EQ(convert_checkpoint(again).warnings.back(),
              "the output is complete already, nothing was done");
    again.input = dir_ / "a";
    for (const auto& entry : fs::directory_iterator(dir_ / to))  // no older than its input
      fs::last_write_time(entry, fs::file_time_type::clock::now());
    expect_error<ValueError>([&] { convert_checkpoint(again); }, {"of another run"});
  }
}

/// Metadata decides what global scales are, and comes into the output.
TEST_F(Kill, AnInputWithOtherMetadataIsAnotherInput) {
  const fs::path shard = in_ / "model-00003-of-00003.safetensors";
  const auto time = fs::last_write_time(shard);
  std::string content = read_text(shard);
  const std::size_t at = content.find("\"pt\"");
  ASSERT_LT(at, 100u);
  content[at + 1] = 'P';
  write_text(shard, content);
  fs::last_write_time(shard, time);
  expect_error<ValueError>([&] { quantize_checkpoint(resume(in_, dir_ / "whole")); },
                           {"of another run", "--overwrite"});
}

/// The folder is like an output of an earlier version, or a downloaded model.
TEST_F(Kill, FolderWithoutJournalCannotBeResumed) {
  const fs::path whole = dir_ / "whole", name = "model-00002-of-00003.safetensors";
  {
    const auto file = safetensors::File::open(whole / name);
    std::vector<TestTensor> tensors;
    for (const auto& t : file.tensors()) {
      tensors.push_back({{t.name, t.dtype, t.shape}, std::vector<std::byte>(t.bytes)});
      file.read(t, 0, tensors.back().bytes);
    }
    write_shard(whole / name, tensors);
  }
  expect_error<ValueError>([&] { quantize_checkpoint(resume(in_, whole)); },
                           {name.string(), "--resume cannot continue", "--overwrite"});
  auto options = quantize_options(in_, whole, {"--overwrite"});
  expect_error<IoError>([&] { quantize_checkpoint(options); },
                        {name.string(), "remove it yourself"});
  fs::remove(whole / name);
  quantize_checkpoint(options);
  EXPECT_EQ(files_of(whole), expected_);
}

TEST_F(Kill, RecordCutOff_Resume_WritesTheShardAgain) {
  const fs::path out = dir_ / "out";
  interrupt(in_, out);
  std::string journal = read_text(out / kJournal);
  journal.pop_back();
  const std::size_t last = journal.rfind("{\"shard\":\"");
  ASSERT_NE(last, std::string::npos);
  int finished = 0;  // apart from the shard of the last record
  for (const auto& [name, bytes] : whole_files_of(out))
    finished += name.ends_with(".safetensors") && journal.find(name, last) == std::string::npos;
  write_text(out / kJournal, journal);
  EXPECT_EQ(quantize_checkpoint(resume(in_, out)).shards_reused, finished);
  EXPECT_EQ(files_of(out), expected_);
}

TEST_F(Kill, UnreadableJournalIsAnErrorWithHint) {
  const fs::path out = dir_ / "out";
  interrupt(in_, out);
  const std::string journal = read_text(out / kJournal);
  for (const char* part : {"\"options\":{", "\"input\":{"}) {
    std::string text = journal;
    const std::size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    text[at + 1] = 'X';
    write_text(out / kJournal, text);
    expect_error<FormatError>([&] { quantize_checkpoint(resume(in_, out)); },
                              {kJournal, "is missing"});
  }
  write_text(out / kJournal, journal + "{\"shard\":1}\n");
  expect_error<FormatError>([&] { quantize_checkpoint(resume(in_, out)); },
                            {kJournal, "no record of a shard"});
  write_text(out / kJournal, R"({"version": 1})");
  expect_error<FormatError>([&] { quantize_checkpoint(resume(in_, out)); },
                            {kJournal, "version", "--overwrite"});
}

}  // namespace
}  // namespace nvfp4::kill_test
