#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"
#include "checkpoint/io/planned_file.h"
#include "checkpoint/safetensors/folder_names.h"

/// The list of what was written: what --overwrite removes, and the hashes of files.
namespace nvfp4::own_files_test {

constexpr const char* kList = "nvfp4.files.json";
constexpr const char* kLost = "modeling_llama.py: is no part of the output any more";

class OwnFiles : public ::testing::Test {
 protected:
  OwnFiles() {
    write_tiny_llama(dir_ / "in");
    write();
    options_.overwrite = true;
    expected_ = files_of(out_);
  }

  QuantizeReport write() { return quantize_checkpoint(options_); }
  void resume() { options_.overwrite = false, options_.resume = true; }

  void expect_refused(const std::string& file) {
    const auto before = files_of(out_);
    expect_error<IoError>([&] { write(); }, {file, "--overwrite does not"});
    EXPECT_EQ(files_of(out_), before);
  }

  TempDir dir_;
  const fs::path out_ = dir_ / "out";
  QuantizeCheckpointOptions options_ = quantize_options(dir_ / "in", out_);
  std::map<std::string, std::string> expected_;
};

TEST_F(OwnFiles, ResumeOfInterruptedOutputWarnsOfEdits) {
  options_.output = dir_ / "half";
  options_.overwrite = false;
  options_.progress = [](const Progress& p) {
    if (p.tensors_done == p.tensors_total - 1) throw std::runtime_error("stop");
  };
  EXPECT_THROW(write(), std::runtime_error);
  options_.progress = {};
  options_.resume = true;
  write_text(dir_ / "half" / "tokenizer.json", "edited");
  fs::copy_file(dir_ / "in" / "modeling_llama.py", dir_ / "half" / "modeling_llama.py");
  const std::string edited = (dir_ / "half" / "tokenizer.json").string();
  EXPECT_THAT(write().warnings,
              testing::ElementsAre(edited + ": is not as nvfp4 wrote it; it is written again"));
  EXPECT_EQ(read_text(edited), expected_.at("tokenizer.json"));
}

/// An output of a run that was killed after its first shards.
struct InterruptedOutput : OwnFiles {
  InterruptedOutput() {
    fs::remove_all(out_);
    run_child("Child.DISABLED_Quantize", {{"CHILD_INPUT", (dir_ / "in").string()},
                                          {"CHILD_OUTPUT", out_.string()},
                                          {"CHILD_KILL_AFTER", "21"}});
    EXPECT_TRUE(fs::exists(out_ / "nvfp4.partial.json"));
    resume();
  }
};

TEST_F(InterruptedOutput, ResumeRemovesLostFiles) {
  fs::rename(dir_ / "in" / "modeling_llama.py", out_ / "modeling_llama.py");
  write();
  expected_.erase("modeling_llama.py");
  auto files = files_of(out_);
  for (auto* each : {&files, &expected_}) each->erase(kList);
  EXPECT_EQ(files, expected_);
}

TEST_F(InterruptedOutput, ResumeKeepsAnothersFileOfALostName) {
  fs::remove(dir_ / "in" / "modeling_llama.py");
  write_text(out_ / "modeling_llama.py", "mine");
  EXPECT_TRUE(says(write().warnings, kLost));
  EXPECT_EQ(read_text(out_ / "modeling_llama.py"), "mine");
}

TEST_F(InterruptedOutput, ResumeRefusesToReplaceAnotherCard) {
  write_text(dir_ / "in" / "README.md", "the model's");
  write_text(out_ / "README.md", "mine");
  const auto before = files_of(out_);
  expect_error<IoError>([&] { write(); }, {"README.md", "--resume does not replace it"});
  EXPECT_EQ(files_of(out_), before);
  write_text(out_ / "README.md", "the model's");
  write();
}

TEST_F(InterruptedOutput, OverwriteRefusesAnothersFile) {
  options_.resume = false;
  options_.overwrite = true;
  write_text(out_ / "tokenizer.json", "mine");
  expect_refused("tokenizer.json");
}

std::string hash_of(const fs::path& path) { return checkpoint::written_file(path).hash; }

TEST(FileHash, RangesInAnyOrder_GiveOneHash) {
  const TempDir dir;
  std::string bytes(300'001, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i / 7);
  write_text(dir / "file", bytes);
  const auto data = std::as_bytes(std::span(bytes));
  const std::string whole = hash_of(dir / "file");
  int read = 0;
  const auto read_back = [&](std::uint64_t offset, std::span<std::byte> out) {
    ++read;
    std::ranges::copy(data.subspan(offset, out.size()), out.begin());
  };
  for (const std::size_t step : {1000u, 65536u, 70000u, 400000u}) {
    FileHash hash(bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += 2 * step)
      hash.add(at, data.subspan(at, std::min(step, bytes.size() - at)));
    for (std::size_t at = step; at < bytes.size(); at += 2 * step)
      hash.add(at, data.subspan(at, std::min(step, bytes.size() - at)));
    read = 0;
    EXPECT_EQ(checkpoint::hash_text(hash.finish(read_back)), whole) << step;
    EXPECT_EQ(read == 0, step == 65536 || step > bytes.size()) << step;
  }
  FileHash twice(bytes.size());
  const std::vector<std::byte> other(65536);
  twice.add(0, other);
  twice.add(0, data);
  EXPECT_EQ(checkpoint::hash_text(twice.finish(read_back)), whole) << "the later bytes count";
  bytes[200'000] ^= 1;
  write_text(dir / "file", bytes);
  EXPECT_NE(hash_of(dir / "file"), whole);
}

TEST(FileHash, HolesAreZerosAndNotRead) {
  const TempDir dir;
  std::string bytes(3 << 20, '\0');
  bytes[1'200'000] = 'x';
  write_text(dir / "zeros", bytes);
  write_text(dir / "holes", bytes.substr(0, 1));
  fs::resize_file(dir / "holes", 1'200'000);
  {
    std::ofstream file(dir / "holes", std::ios::app);
    file << 'x';
  }
  fs::resize_file(dir / "holes", bytes.size());
  EXPECT_EQ(hash_of(dir / "holes"), hash_of(dir / "zeros"));
  fs::resize_file(dir / "holes", std::uintmax_t{1} << 40);
  EXPECT_EQ(hash_of(dir / "holes"), hash_of(dir / "zeros"));
}

}  // namespace nvfp4::own_files_test
