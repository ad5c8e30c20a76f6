#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"
#include "checkpoint/io/planned_file.h"
#include "checkpoint/safetensors/written_files.h"

/// The list of what was written: what --overwrite removes, and the hashes of files.
namespace nvfp4::own_files_test {

constexpr const char* kList = "nvfp4.files.json";
constexpr const char* kShard = "model-00002-of-00003.safetensors";
constexpr const char* kLost = "modeling_llama.py: is no part of the output any more";

std::ptrdiff_t changed(const VerifyReport& report) {
  return std::ranges::count(report.findings, "changed-file", &Finding::code);
}

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

  /// Changes one bit and keeps size and modification time.
  void flip(const fs::path& file) {
    const auto time = fs::last_write_time(file);
    std::string bytes = read_text(file);
    bytes[bytes.size() - 3] ^= 4;
    write_text(file, bytes);
    fs::last_write_time(file, time);
  }

  TempDir dir_;
  const fs::path out_ = dir_ / "out";
  QuantizeCheckpointOptions options_ = quantize_options(dir_ / "in", out_);
  std::map<std::string, std::string> expected_;
};

TEST_F(OwnFiles, OverwriteRemovesListedFiles) {
  fs::remove_all(dir_ / "in" / "assets");
  fs::remove(dir_ / "in" / "modeling_llama.py");
  options_.format = "compressed-tensors";
  EXPECT_TRUE(write().warnings.empty());
  EXPECT_FALSE(fs::exists(out_ / "assets"));
  EXPECT_FALSE(fs::exists(out_ / "modeling_llama.py"));
  EXPECT_FALSE(fs::exists(out_ / "hf_quant_config.json"));
}

TEST_F(OwnFiles, OverwriteRefusesWhatLoadersRead) {
  for (const char* name :
       {"stale.safetensors", "adapter_model.safetensors", "adapter_config.json",
        "pytorch_model.bin.index.json", "generation_config.json", "params.json"}) {
    write_text(out_ / name, "mine");
    expect_refused(name);
    fs::remove(out_ / name);
  }
  EXPECT_NO_THROW(write());
}

TEST_F(OwnFiles, OverwriteRefusesReplacedFiles) {
  for (const char* name : {kShard, "config.json", "tokenizer.json"}) {
    const std::string old = read_text(out_ / name);
    write_text(out_ / name, old + " ");
    expect_refused(name);
    write_text(out_ / name, old);
  }
}

TEST_F(OwnFiles, OverwriteRefusesForeignCopiesOfCarriedFiles) {
  write_text(dir_ / "in" / "notes.txt", "the model's");
  write_text(out_ / "notes.txt", "mine");
  expect_refused("notes.txt");
  fs::remove(out_ / "notes.txt");
  write_text(dir_ / "in" / "assets" / "new", "the model's");
  fs::create_directory(out_ / "assets" / "new");
  expect_refused("assets/new");
  fs::remove(dir_ / "in" / "assets" / "new");
  for (const fs::path& folder : {dir_ / "in", out_}) {
    fs::create_directory(folder / "fresh");
    write_text(folder / "fresh" / "file", folder.string());
  }
  expect_refused("fresh/file");
}

TEST_F(OwnFiles, OverwriteKeepsEditedCard) {
  write_text(out_ / "README.md", read_text(out_ / "README.md") + "mine");
  const std::string edited = read_text(out_ / "README.md");
  resume();
  flip(out_ / "tokenizer.json");
  EXPECT_EQ(write().card, "README.md");
  EXPECT_EQ(read_text(out_ / "README.md"), edited);
  options_.overwrite = true;
  options_.resume = false;
  for (int i = 0; i < 2; ++i) {
    const QuantizeReport report = write();
    EXPECT_EQ(report.card, "README-NVFP4.md");
    EXPECT_TRUE(says(report.warnings, "README.md: nvfp4 did not write it as it is"));
    EXPECT_EQ(read_text(out_ / "README.md"), edited);
    EXPECT_EQ(read_text(out_ / "README-NVFP4.md"), expected_.at("README.md"));
    fs::remove(out_ / kList);  // for the second time without it
  }
}

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

TEST_F(OwnFiles, ResumeRefusesToReplaceAnotherCard) {
  resume();
  write_text(dir_ / "in" / "README.md", "the model's");
  for (const char* card : {"edited", "edited again"}) {
    write_text(out_ / "README.md", card);
    const auto before = files_of(out_);
    expect_error<IoError>([&] { write(); }, {"README.md", "--resume does not replace it"});
    EXPECT_EQ(files_of(out_), before);
    write_text(out_ / "README.md", expected_.at("README.md"));  // nvfp4's own, as it was written
    write();
    expected_["README.md"] = read_text(out_ / "README.md");
    EXPECT_EQ(expected_["README.md"], "the model's");
  }
}

TEST_F(OwnFiles, ResumeRemovesWhatTheSourceLost) {
  resume();
  const auto lose = [&](const std::string& name) {
    fs::remove(dir_ / "in" / name);
    const QuantizeReport report = write();
    const auto json = nlohmann::json::parse(read_text(out_ / kList));
    EXPECT_FALSE(json["files"].contains(name)) << name;
    return report.warnings;
  };
  lose("assets/LICENSE");
  EXPECT_FALSE(fs::exists(out_ / "assets"));
  write_text(out_ / "modeling_llama.py", "mine");
  EXPECT_TRUE(says(lose("modeling_llama.py"), kLost));
  EXPECT_EQ(read_text(out_ / "modeling_llama.py"), "mine");
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

TEST_F(OwnFiles, OverwriteNamesOtherForeignFiles) {
  write_text(out_ / "notes.txt", "mine");
  write_text(out_ / "assets" / "mine.txt", "mine");
  fs::create_directories(out_ / "plots" / "deep");
  write_text(out_ / "plots" / "deep" / "config.json", "mine");
  const auto warnings = write().warnings;
  ASSERT_EQ(warnings.size(), 3u);
  EXPECT_TRUE(warnings[0].ends_with(
      "assets/mine.txt: nvfp4 did not write it as it is, so it is not removed"));
  EXPECT_EQ(read_text(out_ / "assets" / "mine.txt"), "mine");
  EXPECT_EQ(read_text(out_ / "notes.txt"), "mine");
  EXPECT_EQ(read_text(out_ / "plots" / "deep" / "config.json"), "mine");
}

TEST_F(OwnFiles, OverwriteRefusesDownloadedModel) {
  fs::copy(dir_ / "in", dir_ / "model", fs::copy_options::recursive);
  const auto before = files_of(dir_ / "model");
  options_.output = dir_ / "model";
  expect_error<IoError>([&] { write(); }, {"config.json", "--overwrite does not"});
  EXPECT_EQ(files_of(dir_ / "model"), before);
}

TEST_F(OwnFiles, OverwriteKnowsOlderFoldersByTheirMetadata) {
  fs::remove(out_ / kList);
  write_text(out_ / "lora.safetensors", "mine");
  expect_refused("lora.safetensors");
  fs::remove(out_ / "lora.safetensors");
  for (const char* text : {"tokenizer.json", "hf_quant_config.json"}) {
    flip(out_ / text);  // the size stays
    expect_refused(text);
    flip(out_ / text);
  }
  fs::remove(out_ / "README.md");
  const auto warnings = write().warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].find("has no nvfp4.files.json") != std::string::npos);
  EXPECT_EQ(files_of(out_), expected_);
}

TEST_F(OwnFiles, OverwriteReplacesConversionsToo) {
  convert_checkpoint(convert_options(out_, dir_ / "bf16", "bf16"));
  options_.output = dir_ / "bf16";
  write();
  EXPECT_EQ(files_of(dir_ / "bf16"), expected_);
}

TEST_F(OwnFiles, HostileListRemovesNothingOutside) {
  write_text(dir_ / "victim", "mine");
  fs::create_directory(dir_ / "elsewhere");
  write_text(dir_ / "elsewhere" / "file", "mine");
  fs::create_directory_symlink(dir_ / "elsewhere", out_ / "sub");
  auto json = nlohmann::json::parse(read_text(out_ / kList));
  json["files"]["sub/file"] = nlohmann::json::object();
  write_text(out_ / kList, json.dump());
  write();
  EXPECT_EQ(read_text(dir_ / "elsewhere" / "file"), "mine");
  json["files"]["../victim"] = nlohmann::json::object();
  write_text(out_ / kList, json.dump());
  write();
  EXPECT_EQ(read_text(dir_ / "victim"), "mine");
}

TEST_F(OwnFiles, SampleRemovesOnlyItsOwn) {
  auto sample = sample_options(dir_ / "sample", {"--scale", 1.0 / 64});
  sample_checkpoint(sample);
  sample.overwrite = true;
  sample.shards = 2;
  sample_checkpoint(sample);
  EXPECT_FALSE(fs::exists(dir_ / "sample" / "model.safetensors"));
  EXPECT_EQ(changed(verify_checkpoint(verify_options(dir_ / "sample", {}, "", {"--full"}))), 0);
  flip(dir_ / "sample" / "config.json");
  expect_error<IoError>([&] { sample_checkpoint(sample); }, {"config.json"});
  flip(dir_ / "sample" / "config.json");
  write_text(dir_ / "sample" / "mine.safetensors", "mine");
  expect_error<IoError>([&] { sample_checkpoint(sample); }, {"mine.safetensors"});
  EXPECT_TRUE(fs::exists(dir_ / "sample" / "mine.safetensors"));
}

TEST_F(OwnFiles, ResumeRefusesFlippedBitInCompleteOutput) {
  resume();
  flip(out_ / kShard);
  expect_error<ValueError>([&] { write(); }, {kShard, "other bytes", "--overwrite"});
  flip(out_ / kShard);
  flip(out_ / "tokenizer.json");
  write();
  EXPECT_EQ(files_of(out_), expected_);
}

TEST_F(OwnFiles, OverwriteRefusesFilesOfTheWrittenSize) {
  const std::string old = read_text(out_ / "tokenizer.json"), shard = read_text(out_ / kShard);
  flip(out_ / "tokenizer.json");
  expect_refused("tokenizer.json");
  write_text(out_ / "tokenizer.json", old);
  auto other = quantize_options(dir_ / "in", dir_ / "other", {"--method", "max"});
  quantize_checkpoint(other);
  ASSERT_EQ(fs::file_size(dir_ / "other" / kShard), shard.size());
  write_text(out_ / kShard, read_text(dir_ / "other" / kShard));
  expect_refused(kShard);
}

/// The list, without a part of the entry of a shard.
void take_from_list(const fs::path& list, const char* part) {
  auto json = nlohmann::json::parse(read_text(list));
  if (part == nullptr)
    json["files"].erase(kShard);
  else
    json["files"][kShard].erase(part);
  write_text(list, json.dump());
}

TEST_F(OwnFiles, ResumeRefusesShardsWithoutHash) {
  resume();
  const std::string list = read_text(out_ / kList);
  for (const char* part : {"xxh3", static_cast<const char*>(nullptr)}) {
    take_from_list(out_ / kList, part);
    expect_error<ValueError>([&] { write(); }, {kShard, "has no hash", "--overwrite"});
    write_text(out_ / kList, list);
  }
  write_text(out_ / kList, "{");
  expect_error<FormatError>([&] { write(); }, {kList, "--overwrite replaces the output"});
  fs::remove(out_ / kList);
  expect_error<ValueError>([&] { write(); }, {"has no hash", "--overwrite"});
  EXPECT_FALSE(fs::exists(out_ / kList));
}

TEST_F(OwnFiles, ResumeWritesOtherFilesAgain) {
  resume();
  flip(out_ / "tokenizer.json");
  const auto warnings = write().warnings;
  EXPECT_EQ(std::ranges::count_if(warnings,
                                  [](const std::string& w) {
                                    return w.find("tokenizer.json: has other bytes") != w.npos;
                                  }),
            1);
  EXPECT_EQ(files_of(out_), expected_);
  fs::remove(out_ / "README.md");
  write();
  EXPECT_TRUE(fs::exists(out_ / "README.md"));
  flip(dir_ / "in" / "tokenizer.json");
  write();
  EXPECT_EQ(read_text(out_ / "tokenizer.json"), read_text(dir_ / "in" / "tokenizer.json"));
}

TEST_F(OwnFiles, VerifyFullFindsFlippedBit) {
  auto verify = verify_options(out_, {}, "", {"--full"});
  EXPECT_FALSE(verify_checkpoint(verify).broken());
  flip(out_ / kShard);
  fs::remove(out_ / "tokenizer.json");
  write_text(out_ / "README.md", "a card may change");
  const VerifyReport report = verify_checkpoint(verify);
  EXPECT_EQ(changed(report), 2);
  EXPECT_TRUE(report.broken());
  for (const char* part : {"xxh3", static_cast<const char*>(nullptr)}) {
    take_from_list(out_ / kList, part);
    EXPECT_EQ(changed(verify_checkpoint(verify)), 2) << "a shard without hash, and the tokenizer";
  }
  verify.full = false;
  EXPECT_EQ(changed(verify_checkpoint(verify)), 0);
  fs::remove(out_ / kList);
  verify.full = true;
  expect_error<UnsupportedError>([&] { verify_checkpoint(verify); }, {kList, "--full"});
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
