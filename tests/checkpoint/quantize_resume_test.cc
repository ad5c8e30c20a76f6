#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"

namespace nvfp4::quantize_resume_test {

constexpr const char* kJournal = "nvfp4.partial.json";

/// In a child: quantizes as the environment says, and kills itself after some tensors.
TEST(Child, DISABLED_Quantize) {
  auto options = quantize_options(child_variable("CHILD_INPUT"), child_variable("CHILD_OUTPUT"));
  options.resume = !child_variable("CHILD_RESUME").empty();
  if (child_variable("CHILD_MAX") == "1") options.method = "max";
  const std::string kill_after = child_variable("CHILD_KILL_AFTER");
  if (!kill_after.empty())
    options.progress = [&](const Progress& p) {
      if (p.tensors_done == std::stoll(kill_after)) ::kill(::getpid(), SIGKILL);
    };
  if (const std::string bytes = child_variable("CHILD_FILE_LIMIT"); !bytes.empty()) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {std::stoull(bytes), std::stoull(bytes)};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_THROW(quantize_checkpoint(options), IoError);
    return;
  }
  const QuantizeReport report = quantize_checkpoint(options);
  if (const std::string limit = child_variable("CHILD_MEMORY_LIMIT"); !limit.empty()) {
    EXPECT_LT(report.peak_memory_bytes, std::stoull(limit));
  }
}

bool exited_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

int quantize_in_child(const fs::path& in, const fs::path& out, Environment more = {}) {
  more["CHILD_INPUT"] = in.string();
  more["CHILD_OUTPUT"] = out.string();
  return run_child("Child.DISABLED_Quantize", more);
}

struct Identity {
  ino_t inode;
  timespec modified;
  bool operator==(const Identity& o) const {
    return inode == o.inode && modified.tv_sec == o.modified.tv_sec &&
           modified.tv_nsec == o.modified.tv_nsec;
  }
};
std::map<std::string, Identity> shards_of(const fs::path& folder) {
  std::map<std::string, Identity> shards;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    struct stat s {};
    ::stat(entry.path().c_str(), &s);
    shards[entry.path().filename().string()] = {s.st_ino, s.st_mtim};
  }
  return shards;
}

struct Resume : LlamaTest {};

TEST_F(Resume, KilledRunEndsByteIdentical) {
  const QuantizeReport whole = quantize_checkpoint(dir / "in", dir / "whole");
  const auto expected = files_of(dir / "whole");
  int with_finished_shards = 0;
  for (int tensors = 1; tensors <= 21; ++tensors) {
    const fs::path out = dir / ("out" + std::to_string(tensors));
    const int status =
        quantize_in_child(dir / "in", out, {{"CHILD_KILL_AFTER", std::to_string(tensors)}});
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << tensors;
    EXPECT_TRUE(fs::exists(out / kJournal));
    EXPECT_FALSE(fs::exists(out / "config.json"));
    const auto finished = shards_of(out);
    for (const auto& [name, identity] : finished)
      EXPECT_EQ(read_text(out / name), expected.at(name)) << "half-written under its final name";
    with_finished_shards += !finished.empty();

    auto options = quantize_options(dir / "in", out);
    expect_error<IoError>([&] { quantize_checkpoint(options); }, {out.string(), "--resume"});
    options.resume = true;
    const QuantizeReport report = quantize_checkpoint(options);
    EXPECT_EQ(report.shards_reused, static_cast<int>(finished.size()));
    EXPECT_EQ(files_of(out), expected) << tensors;
    for (const auto& [name, identity] : finished) EXPECT_EQ(shards_of(out)[name], identity) << name;
    for (std::size_t i = 0; i < report.tensors.size(); ++i) {
      EXPECT_EQ(report.tensors[i].squared_error, whole.tensors[i].squared_error);
      EXPECT_EQ(report.tensors[i].squared_norm, whole.tensors[i].squared_norm);
    }
  }
  EXPECT_GT(with_finished_shards, 0);
}

TEST_F(Resume, OfACompleteOutputDoesNothing) {
  auto options = quantize_options(dir / "in", dir / "out");
  options.resume = true;  // of nothing: starts
  EXPECT_EQ(quantize_checkpoint(options).shards_reused, 0);
  const auto shards = shards_of(dir / "out");
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_EQ(report.shards_reused, 3);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_THAT(report.warnings[0], HasSubstr("complete already"));
  EXPECT_EQ(shards_of(dir / "out"), shards);
}

TEST_F(Resume, OtherOptionsOrInputAreNamed) {
  quantize_in_child(dir / "in", dir / "out", {{"CHILD_KILL_AFTER", "15"}});
  auto options = quantize_options(dir / "in", dir / "out", {"--resume"});
  auto other = options;
  other.method = "max";
  expect_error<ValueError>([&] { quantize_checkpoint(other); }, {"method", "mse", "max"});
  other = options;
  other.ignore = {"*.o_proj"};
  expect_error<ValueError>([&] { quantize_checkpoint(other); }, {"ignore", "*.o_proj"});
  write_shard(dir / "in" / "model-00001-of-00003.safetensors", [&] {
    std::vector<TestTensor> tensors;
    const auto file = safetensors::File::open(dir / "in" / "model-00001-of-00003.safetensors");
    for (const auto& t : file.tensors())
      tensors.push_back({{t.name, t.dtype, t.shape}, std::vector<std::byte>(t.bytes)});
    return tensors;
  }());
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"input", "model-00001-of-00003.safetensors"});
}

TEST_F(Resume, CompleteOutputOfAnotherRunIsRefused) {
  const auto options = [&] { return quantize_options(dir / "in", dir / "out", {"--resume"}); }();
  quantize_checkpoint(options);
  const auto before = files_of(dir / "out");
  auto other = options;
  other.method = "max";
  expect_error<ValueError>([&] { quantize_checkpoint(other); }, {"options", "--overwrite"});
  other = options;
  other.input_amax = dir / "amax.json";
  write_text(dir / "amax.json", R"({"*": 3})");
  expect_error<ValueError>([&] { quantize_checkpoint(other); }, {"options", "--overwrite"});

  const fs::path shard = dir / "in" / "model-00001-of-00003.safetensors";
  const auto time = fs::last_write_time(shard);
  const std::string original = read_text(shard);
  std::string changed = original;
  for (std::size_t i = changed.size() / 2; i < changed.size(); ++i) changed[i] ^= 1;
  write_text(shard, changed);
  fs::last_write_time(shard, time);  // a copy may keep the time
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"input", "--overwrite"});
  write_text(shard, original);
  fs::last_write_time(shard, time + std::chrono::hours(1));
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"older", "--overwrite"});
  fs::last_write_time(shard, time);
  EXPECT_EQ(files_of(dir / "out"), before);

  const fs::path written = dir / "out" / "model-00001-of-00003.safetensors";
  write_shard(written, {random_tensor("x.weight", {16, 16})});
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"of another run", "--overwrite"});
}

TEST_F(Resume, BytesDependOnNoFolderOrTime) {
  fs::copy(dir / "in", dir / "copy", fs::copy_options::recursive);
  for (const auto& entry : fs::directory_iterator(dir / "copy"))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(9));
  quantize_checkpoint(dir / "in", dir / "a");
  quantize_checkpoint(dir / "copy", dir / "b");
  EXPECT_EQ(files_of(dir / "a"), files_of(dir / "b"));
}

struct Output : FolderTest {};

TEST_F(Output, FullDiskLeavesNoFinalNames) {
  write_tiny_llama(dir / "in");
  EXPECT_TRUE(
      exited_well(quantize_in_child(dir / "in", dir / "out", {{"CHILD_FILE_LIMIT", "20000"}})));
  EXPECT_FALSE(fs::exists(dir / "out" / "config.json"));
  if (fs::exists(dir / "out")) {
    for (const auto& entry : fs::directory_iterator(dir / "out"))
      EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  }
  quantize_checkpoint(dir / "in", dir / "out", {"--resume"});
  quantize_checkpoint(dir / "in", dir / "fresh");
  EXPECT_EQ(files_of(dir / "out"), files_of(dir / "fresh"));
}

TEST_F(Output, IsWrittenByOneRunAtATime) {
  write_tiny_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  auto second = options;
  second.resume = true;
  int refused = 0;
  options.progress = [&](const Progress& p) {
    if (p.tensors_done != 1) return;
    expect_error<IoError>([&] { quantize_checkpoint(second); }, {"another process"});
    ++refused;
  };
  quantize_checkpoint(options);
  EXPECT_EQ(refused, 1);
}

TEST_F(Output, FailedRunWithoutShardLeavesNoFolder) {
  TestTensor bad = random_tensor("a.q_proj.weight", {32, 64});
  const std::uint16_t nan = 0x7FC0;
  std::memcpy(&bad.bytes[2 * (5 * 64 + 7)], &nan, 2);
  write_model(dir / "in",
              {{random_tensor("a.k_proj.weight", {32, 64}), bad},
               {random_tensor("b.k_proj.weight", {32, 64})}},
              "{}");
  auto options = quantize_options(dir / "in", dir / "out");
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"a.q_proj.weight[5, 7] = nan", "--ignore"});
  EXPECT_FALSE(fs::exists(dir / "out"));
  fs::create_directories(dir / "mine");
  options.output = dir / "mine" / "of" / "this" / "run" / "";
  EXPECT_THROW(quantize_checkpoint(options), ValueError);
  EXPECT_TRUE(fs::is_empty(dir / "mine"));
  options.output = dir / "out";
  options.ignore = {"a.q_proj"};
  quantize_checkpoint(options);
  EXPECT_EQ(LoadedModel(dir / "out").at("a.q_proj.weight").bytes, bad.bytes);
}

TEST(Input, ChangeDuringTheRunIsAnError) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  const fs::path shard = dir / "in" / "model-00001-of-00003.safetensors";
  bool changed = false;
  options.progress = [&](const Progress&) {
    if (!changed) fs::last_write_time(shard, fs::file_time_type::clock::now());
    changed = true;
  };
  expect_error<IoError>([&] { quantize_checkpoint(options); },
                        {"model-00001-of-00003.safetensors"});
  EXPECT_FALSE(fs::exists(dir / "out" / "model-00001-of-00003.safetensors"));
  EXPECT_FALSE(fs::exists(dir / "out" / "config.json"));
}

TEST(Input, TruncationDuringTheRunIsAnError) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  auto options = quantize_options(dir / "in", dir / "out");
  const fs::path shard = dir / "in" / "model-00003-of-00003.safetensors";
  bool changed = false;
  options.progress = [&](const Progress&) {
    if (!changed) fs::resize_file(shard, 4096);
    changed = true;
  };
  EXPECT_THROW(quantize_checkpoint(options), IoError);
  EXPECT_FALSE(fs::exists(dir / "out" / "config.json"));
}

}  // namespace nvfp4::quantize_resume_test
