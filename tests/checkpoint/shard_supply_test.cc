#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "checkpoint/expect_error.h"
#include "checkpoint/tiny_model.h"
#include "nvfp4/error.h"

/// Shards that arrive while they are quantized.
namespace nvfp4::shard_supply_test {
namespace {

namespace fs = std::filesystem;

/// Copies a shard from `whole` to where it is read when it is needed, and empties it when it is
/// not.
class CopiedShards final : public ShardSupply {
 public:
  CopiedShards(fs::path whole, fs::path staged)
      : whole_(std::move(whole)), staged_(std::move(staged)) {
    fs::copy(whole_, staged_, fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(staged_))
      if (entry.path().extension() == ".safetensors") {
        keep_header(entry.path());
        fs::last_write_time(entry.path(), fs::last_write_time(whole_ / entry.path().filename()));
      }
  }
  std::string identity() const override { return "a commit"; }
  void expect(const std::vector<std::string>& shards) override { expected = shards; }
  void need(const std::string& shard) override {
    if (shard == missing) throw IoError("no " + shard);
    EXPECT_TRUE(held_.insert(shard).second) << shard;
    most = std::max(most, held_.size());
    needed.push_back(shard);
    fs::remove(staged_ / shard);
    fs::copy_file(whole_ / (shard == exchanged ? needed[0] : shard), staged_ / shard);
  }
  void done(const std::string& shard) override {
    EXPECT_EQ(held_.erase(shard), 1U) << shard;
    fs::resize_file(staged_ / shard, 0);
  }
  bool holds_any() const { return !held_.empty(); }

  std::vector<std::string> expected, needed;
  std::string missing, exchanged;
  std::size_t most = 0;

 private:
  static void keep_header(const fs::path& path) {
    const std::string bytes = read_text(path);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    write_text(path, bytes.substr(0, 8 + length));
    fs::resize_file(path, bytes.size());
  }

  fs::path whole_, staged_;
  std::set<std::string> held_;
};

/// What cannot be read of the input before it is there: a sum that the output has of it.
std::map<std::string, std::string> without_input(std::map<std::string, std::string> files) {
  for (auto& [name, content] : files)
    for (const std::string_view key : {R"("input": ")", R"(\"input\":\")"})
      if (const std::size_t at = content.find(key); at != content.npos)
        content.replace(at + key.size(), 16, 16, '0');
  return files;
}

class ShardsThatArrive : public ::testing::Test {
 protected:
  ShardsThatArrive() {
    write_tiny_llama(dir_ / "whole");
    quantize_checkpoint(quantize_options(dir_ / "whole", dir_ / "wanted"));
    supply_ = std::make_shared<CopiedShards>(dir_ / "whole", dir_ / "staged");
  }
  QuantizeCheckpointOptions options() {
    QuantizeCheckpointOptions options = quantize_options(dir_ / "staged", dir_ / "out");
    options.supply = supply_;
    return options;
  }
  void expect_wanted() {
    EXPECT_EQ(without_input(files_of(dir_ / "out")), without_input(files_of(dir_ / "wanted")));
  }

  TempDir dir_;
  std::shared_ptr<CopiedShards> supply_;
};

TEST_F(ShardsThatArrive, GiveTheSameBytesAndFewAreThereAtOnce) {
  quantize_checkpoint(options());
  expect_wanted();
  EXPECT_EQ(supply_->needed, supply_->expected);
  EXPECT_EQ(supply_->needed.size(), 3U);
  EXPECT_EQ(supply_->most, 2U);  // the second holds partners of the third
  EXPECT_FALSE(supply_->holds_any());
}

TEST_F(ShardsThatArrive, AreThoseThatAreNotFinishedWhenARunIsResumed) {
  supply_->missing = "model-00003-of-00003.safetensors";
  expect_error<IoError>([&] { quantize_checkpoint(options()); }, {"no model-00003"});
  EXPECT_FALSE(fs::exists(dir_ / "out" / "config.json"));
  ASSERT_TRUE(fs::exists(dir_ / "out" / "model-00001-of-00003.safetensors"));
  fs::remove_all(dir_ / "staged");
  supply_ = std::make_shared<CopiedShards>(dir_ / "whole", dir_ / "staged");
  QuantizeCheckpointOptions resumed = options();
  resumed.resume = true;
  quantize_checkpoint(resumed);
  expect_wanted();
  EXPECT_EQ(supply_->needed, (std::vector<std::string>{"model-00002-of-00003.safetensors",
                                                       "model-00003-of-00003.safetensors"}));
}

TEST_F(ShardsThatArrive, MustHaveTheHeaderThatWasThere) {
  supply_->exchanged = "model-00002-of-00003.safetensors";
  expect_error<FormatError>([&] { quantize_checkpoint(options()); },
                            {"model-00002", "not the one whose header was read"});
}

}  // namespace
}  // namespace nvfp4::shard_supply_test
