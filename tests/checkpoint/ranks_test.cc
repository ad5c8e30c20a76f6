#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"
#include "checkpoint/output/output_folder.h"
#include "checkpoint/source/content.h"

namespace nvfp4::ranks_test {

QuantizeCheckpointOptions rank_options(const fs::path& in, const fs::path& out, int rank,
                                       int ranks) {
  auto options = quantize_options(in, out);
  options.rank = rank;
  options.ranks = ranks;
  return options;
}

TEST(ChildRank, DISABLED_Quantize) {
  auto options = rank_options(child_variable("CHILD_INPUT"), child_variable("CHILD_OUTPUT"),
                              std::stoi(child_variable("CHILD_RANK")),
                              std::stoi(child_variable("CHILD_RANKS")));
  options.format = child_variable("CHILD_FORMAT");
  quantize_checkpoint(options);
}

bool run_rank(const fs::path& in, const fs::path& out, const std::string& format, int rank,
              int ranks) {
  const int status =
      run_child("ChildRank.DISABLED_Quantize", {{"CHILD_INPUT", in.string()},
                                                {"CHILD_OUTPUT", out.string()},
                                                {"CHILD_FORMAT", format},
                                                {"CHILD_RANK", std::to_string(rank)},
                                                {"CHILD_RANKS", std::to_string(ranks)}});
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class Ranks : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tiny_llama(in_);
    quantize_checkpoint(in_, dir_ / "whole");
    expected_ = files_of(dir_ / "whole");
  }
  const TempDir dir_;
  const fs::path in_ = dir_ / "in", out_ = dir_ / "out";
  std::map<std::string, std::string> expected_;
};

TEST_F(Ranks, AnyOrderGivesTheBytesOfOneProcess) {
  for (const FormatInfo& format : output_formats()) {
    if (!format.extension.empty()) continue;
    SCOPED_TRACE(format.name);
    const QuantizeReport whole =
        quantize_checkpoint(in_, dir_ / format.name, {"--format", format.name});
    EXPECT_TRUE(whole.complete);
    for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 0, 1}}) {
      QuantizeReport last;
      last.complete = false;
      for (const int rank : order) {
        auto options = rank_options(in_, out_, rank, 3);
        options.format = format.name;
        const QuantizeReport report = quantize_checkpoint(options);
        const bool complete = whole.shards > 1 ? rank == order.back() : rank == 0 || last.complete;
        EXPECT_EQ(report.complete, complete);
        EXPECT_EQ(fs::exists(out_ / "config.json"), complete);
        if (!last.complete) last = report;
      }
      EXPECT_EQ(files_of(out_), files_of(dir_ / format.name));
      ASSERT_EQ(last.tensors.size(), whole.tensors.size());
      for (std::size_t t = 0; t < whole.tensors.size(); ++t) {
        EXPECT_TRUE(last.tensors[t].measured);
        EXPECT_EQ(last.tensors[t].squared_error, whole.tensors[t].squared_error);
      }
      fs::remove_all(out_);
    }
  }
}

TEST_F(Ranks, EveryRecipeGivesTheBytesOfOneProcess) {
  for (const FormatInfo& format : output_formats()) {
    if (!format.extension.empty()) continue;
    for (const std::string recipe : {"all", "mlp", "experts", "nvidia", "w4a16"}) {
      if (format.name == "mlx" && recipe == "nvidia") continue;  // MLX has no FP8
      const std::string name = fmt::format("{}-{}", format.name, recipe);
      SCOPED_TRACE(name);
      quantize_checkpoint(in_, dir_ / name, {"--recipe", recipe, "--format", format.name});
      for (int rank = 0; rank < 3; ++rank) {
        auto options = rank_options(in_, out_, rank, 3);
        options.recipe = recipe;
        options.format = format.name;
        quantize_checkpoint(options);
      }
      EXPECT_EQ(files_of(out_), files_of(dir_ / name));
      fs::remove_all(out_);
    }
  }
}

TEST_F(Ranks, ConcurrentRanksGiveTheBytesOfOneProcess) {
  for (int round = 0; round < 8; ++round) {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank)  // one of them without a shard
      ranks.emplace_back([&, rank] { EXPECT_TRUE(run_rank(in_, out_, "modelopt", rank, 4)); });
    ranks.clear();
    EXPECT_EQ(files_of(out_), expected_);
    fs::remove_all(out_);
  }
}

TEST_F(Ranks, OneThatIsRunAgainDoesNothingTwice) {
  EXPECT_EQ(quantize_checkpoint(rank_options(in_, out_, 0, 2)).shards_reused, 0);
  const QuantizeReport again = quantize_checkpoint(rank_options(in_, out_, 0, 2));
  EXPECT_GT(again.shards_reused, 0);
  EXPECT_FALSE(again.complete);
  EXPECT_TRUE(quantize_checkpoint(rank_options(in_, out_, 1, 2)).complete);
  const QuantizeReport late = quantize_checkpoint(rank_options(in_, out_, 0, 2));
  EXPECT_EQ(late.shards_reused, again.shards_reused);
  EXPECT_EQ(late.warnings.back(), "the output is complete already, nothing was done");
  EXPECT_EQ(files_of(out_), expected_);
}

TEST_F(Ranks, SecondProcessOfARankIsRefused) {
  quantize_checkpoint(rank_options(in_, out_, 0, 2));
  checkpoint::FileLock other;
  ASSERT_TRUE(other.take(out_ / "nvfp4.rank-1-of-2.lock"));
  const auto before = files_of(out_);
  EXPECT_FALSE(run_rank(in_, out_, "modelopt", 1, 2));
  expect_error<IoError>([&] { quantize_checkpoint(rank_options(in_, out_, 1, 2)); },
                        {"rank 1 of 2 is another process"});
  EXPECT_EQ(files_of(out_), before);
  other = {};
  quantize_checkpoint(rank_options(in_, out_, 1, 2));
  EXPECT_EQ(files_of(out_), expected_);
}

TEST_F(Ranks, LockOfARemovedFileIsFree) {
  const fs::path path = dir_ / "lock";
  checkpoint::FileLock first, second;
  ASSERT_TRUE(first.take(path));
  EXPECT_FALSE(second.take(path));
  fs::remove(path);
  EXPECT_TRUE(second.take(path));
  EXPECT_FALSE(checkpoint::FileLock().take(path));
}

TEST_F(Ranks, WhatOneThatCameTooLateLeftGoes) {
  quantize_checkpoint(rank_options(in_, out_, 0, 2));
  const std::string record = read_text(out_ / "nvfp4.rank-0-of-2.json");
  quantize_checkpoint(rank_options(in_, out_, 1, 2));
  write_text(out_ / "nvfp4.rank-0-of-2.json", record);
  write_text(out_ / "nvfp4.rank-0-of-2.lock", "");
  write_text(out_ / "nvfp4.rank-finish.lock", "");
  EXPECT_TRUE(quantize_checkpoint(rank_options(in_, out_, 1, 2)).complete);
  EXPECT_EQ(files_of(out_), expected_);
}

/// With locks that are local to a machine, processes with the same ID may write the same shard.
TEST(PartialTag, APartialFileIsOfOneProcess) {
  const TempDir dir;
  const fs::path path = dir / "m.safetensors";
  const std::string plain = path.string() + ".partial";
  EXPECT_EQ(partial_path(path), plain);
  {
    const PartialTag tag(dir.path());
    const std::string mine = partial_path(path).string();
    EXPECT_TRUE(mine.starts_with(path.string() + ".") && mine.ends_with(".partial")) << mine;
    EXPECT_NE(mine, plain);
    EXPECT_EQ(partial_path(path), mine);
    EXPECT_NE(partial_path(dir / "sub/x"), (dir / "sub/x").string() + ".partial");
    EXPECT_EQ(partial_path("elsewhere/x"), "elsewhere/x.partial");
    const pid_t child = ::fork();
    if (child == 0) ::_exit(partial_path(path) == mine ? 1 : 0);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "another process has another";
    write_text(mine, "half");
  }
  EXPECT_EQ(partial_path(path), plain);
  for (const char* other : {"m.safetensors", "m.safetensors.old.partial", "n.safetensors.partial"})
    write_text(dir / other, "");
  write_text(plain, "half");
  remove_partials(dir.path(), {"m.safetensors"});
  EXPECT_EQ(files_of(dir.path()).size(), 3u);
  EXPECT_FALSE(fs::exists(plain));
}

TEST_F(Ranks, OtherOptionsOrRankCountsAreRefused) {
  quantize_checkpoint(rank_options(in_, out_, 0, 3));
  const auto before = files_of(out_);
  auto other = rank_options(in_, out_, 1, 3);
  other.scheme = Scheme::w4a16;
  expect_error<ValueError>([&] { quantize_checkpoint(other); }, {"scheme was"});
  expect_error<ValueError>([&] { quantize_checkpoint(rank_options(in_, out_, 1, 4)); },
                           {"ranks was 3, now 4"});
  expect_error<ValueError>([&] { quantize_checkpoint(in_, out_, {"--resume"}); },
                           {"ranks was 3, now absent"});
  EXPECT_EQ(files_of(out_), before);
}

TEST_F(Ranks, FolderOfSomethingElseIsRefused) {
  fs::create_directory(out_);
  write_text(out_ / "notes.txt", "mine");
  expect_error<IoError>([&] { quantize_checkpoint(rank_options(in_, out_, 0, 2)); },
                        {"notes.txt", "must be empty"});
  EXPECT_EQ(files_of(out_), (std::map<std::string, std::string>{{"notes.txt", "mine"}}));
}

TEST_F(Ranks, OptionsThatRanksCannotHave) {
  auto options = rank_options(in_, out_, 2, 2);
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"rank = 2", "ranks - 1 = 1"});
  options = rank_options(in_, out_, 0, 0);
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"ranks = 0"});
  options = rank_options(in_, out_, 0, 100'000'000);
  expect_error<ValueError>([&] { quantize_checkpoint(options); },
                           {"ranks = 100000000", "must be from 1 to 65536"});
  options = rank_options(in_, out_, 0, 2);
  options.overwrite = true;
  expect_error<ValueError>([&] { quantize_checkpoint(options); }, {"overwrite"});
  options = rank_options(in_, dir_ / "out.gguf", 0, 2);
  options.format = "gguf";
  expect_error<UnsupportedError>([&] { quantize_checkpoint(options); }, {"ranks = 2", "one file"});
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Ranks, ADryRunChangesNothing) {
  auto options = rank_options(in_, out_, 0, 2);
  options.dry_run = true;
  quantize_checkpoint(options);
  EXPECT_FALSE(fs::exists(out_));
  quantize_checkpoint(rank_options(in_, out_, 1, 2));
  const auto before = files_of(out_);
  quantize_checkpoint(options);
  EXPECT_EQ(files_of(out_), before);
}

TEST(RankOfShards, BytesAreSharedOut) {
  checkpoint::Plan plan;
  for (const std::uint64_t bytes : {10u, 70u, 20u, 60u, 40u}) {
    checkpoint::PlannedTensor tensor;
    tensor.shard = plan.shards.size();
    tensor.bytes_before = bytes;
    plan.tensors.push_back(tensor);
    plan.shards.emplace_back();
  }
  EXPECT_EQ(checkpoint::rank_of_shards(plan, 2), (std::vector{0, 0, 0, 1, 1}));
  EXPECT_EQ(checkpoint::rank_of_shards(plan, 9), (std::vector{4, 0, 3, 1, 2}));
}

TEST(RankOfShards, ManyAreSharedOutAmongManyRanks) {
  const std::vector<std::uint64_t> sizes(200'000, 3);
  const std::vector<int> rank_of = checkpoint::share_out(sizes, checkpoint::kMaxRanks);
  EXPECT_EQ(rank_of.front(), 0);
  EXPECT_EQ(rank_of[65'535], 65'535);
  EXPECT_EQ(rank_of.back(), 200'000 - 3 * 65'536 - 1);
}

class RankFromText : public ::testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                             "PMI_RANK", "PMI_SIZE", "SLURM_PROCID", "SLURM_NTASKS"})
      ::unsetenv(name);
  }
};

TEST_F(RankFromText, TheInnermostLauncherCounts) {
  expect_error<ValueError>([] { rank_from_text({}, "auto"); },
                           {"SLURM_PROCID, SLURM_NTASKS", "WORLD_SIZE"});
  const std::vector<std::pair<const char*, const char*>> launchers = {
      {"SLURM_PROCID", "SLURM_NTASKS"},
      {"PMI_RANK", "PMI_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"RANK", "WORLD_SIZE"}};
  int ranks = 4;
  for (const auto& [rank, size] : launchers) {
    ::setenv(rank, "3", 1);
    ::setenv(size, std::to_string(++ranks).c_str(), 1);
    EXPECT_EQ(rank_from_text({}, "auto").rank, 3);
    EXPECT_EQ(rank_from_text({}, "auto").ranks, ranks);
  }
  ::setenv("RANK", "x", 1);
  expect_error<ValueError>([] { rank_from_text({}, "auto"); }, {"RANK = 'x'"});
}

TEST_F(RankFromText, NumbersAreGivenTogether) {
  EXPECT_EQ(rank_from_text({}, "1").ranks, 1);
  EXPECT_EQ(rank_from_text(2, "4").rank, 2);
  expect_error<ValueError>([] { rank_from_text({}, "4"); }, {"ranks = 4", "rank is not given"});
  expect_error<ValueError>([] { rank_from_text(1, "auto"); }, {"rank = 1", "auto"});
  expect_error<ValueError>([] { rank_from_text(1, "four"); }, {"ranks = 'four'"});
}

}  // namespace nvfp4::ranks_test
