#include <sched.h>
#include <sys/mount.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/child_process.h"
#include "checkpoint/io/posix_file.h"

/// A disk that cannot hold the output is found out before the input is read.
namespace nvfp4::room_test {

TEST(Room, UnknownRoomIsNoError) {
  constexpr std::uintmax_t kUnknown = static_cast<std::uintmax_t>(-1), kLarge = 1'000'000;
  const auto lack = [](std::uintmax_t capacity, std::uintmax_t free, std::uint64_t bytes,
                       std::uint64_t freed = 0) {
    return lack_of_room(fs::space_info{capacity, free, 0}, bytes, freed);
  };
  EXPECT_EQ(lack(kLarge, 1000, 1000), "");
  EXPECT_NE(lack(kLarge, 1000, 1001), "");
  EXPECT_EQ(lack(kLarge, 1000, 1001, 1), "");
  EXPECT_NE(lack(kLarge, 1000, kUnknown, 5), "");
  EXPECT_EQ(lack(kLarge, 1000, 5, kUnknown), "");
  EXPECT_EQ(lack(0, 0, 1000), "") << "FUSE without statfs";
  EXPECT_EQ(lack(kLarge, 0, 1000), "") << "perhaps it does not say; else writing fails";
  EXPECT_EQ(lack(1000, 2000, 3000), "");
  EXPECT_EQ(lack(kUnknown, kUnknown, 1000), "");
  EXPECT_EQ(lack(std::uintmax_t{1} << 62, 1000, 2000), "");
  EXPECT_THAT(lack(24'000'000'000, 1'500'000'000, 2'000'000'000),
              HasSubstr("2.00 GB, 1.50 GB are free"));
}

/// A model of one matrix, all holes, four times as large as the disk.
bool write_holes(const fs::path& folder) {
  fs::create_directories(folder);
  constexpr std::uint64_t kCols = 1 << 16;
  const std::uint64_t rows = 4 * fs::space(folder).capacity / 2 / kCols / 16 * 16;
  const std::uint64_t bytes = rows * kCols * 2;
  std::string header =
      fmt::format(R"({{"model.layers.0.mlp.down_proj.weight":{{"dtype":"BF16","shape":[{},{}],)"
                  R"("data_offsets":[0,{}]}}}})",
                  rows, kCols, bytes);
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(header.size() >> 8 * i);
  write_text(folder / "model.safetensors", length + header);
  write_text(folder / "config.json", R"({"model_type": "llama"})");
  std::error_code error;
  fs::resize_file(folder / "model.safetensors", 8 + header.size() + bytes, error);
  return !error;
}

TEST(Room, IsMissingBeforeAnythingIsRead) {
  const TempDir dir;
  if (!write_holes(dir / "in")) GTEST_SKIP() << "a file of four disks cannot be made";
  auto options = quantize_options(dir / "in", dir / "out");
  options.progress = [](const Progress& p) { FAIL() << p.tensor; };
  const std::initializer_list<std::string_view> words = {"/out: disk full", "the output takes",
                                                         "are free"};
  expect_error<IoError>([&] { quantize_checkpoint(options); }, words);
  try {
    quantize_checkpoint(options);
  } catch (const IoError& e) {
    EXPECT_EQ(e.code, ErrorCode::disk_full);
  }
  EXPECT_FALSE(fs::exists(dir / "out"));
  options.dry_run = true;  // says how large the output would be, and that it does not fit
  const QuantizeReport report = quantize_checkpoint(options);
  EXPECT_EQ(std::ranges::count_if(report.warnings,
                                  [](const std::string& w) {
                                    return w.find("/out: disk full") != std::string::npos;
                                  }),
            1);
  EXPECT_FALSE(fs::exists(dir / "out"));

  write_tiny_llama(dir / "tiny");
  quantize_checkpoint(dir / "tiny", dir / "out");
  const auto before = files_of(dir / "out");
  options.dry_run = false;
  options.overwrite = true;
  expect_error<IoError>([&] { quantize_checkpoint(options); }, words);
  EXPECT_EQ(files_of(dir / "out"), before) << "nothing old is removed";
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

void fill(const fs::path& disk, std::uint64_t leave) {
  const std::string some((fs::space(disk).free - leave) / 4096 * 4096, 'x');
  std::ofstream(disk / "filler", std::ios::binary) << some;
}

/// In a child: on a disk that takes the output once, and not twice.
TEST(ChildOnADisk, DISABLED_Quantizes) {
  const fs::path in = child_variable("CHILD_INPUT"), disk = child_variable("CHILD_OUTPUT");
  const std::uint64_t bytes = std::stoull(child_variable("CHILD_BYTES"));
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(77);
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(77);
  const std::string size = fmt::format("size={}", bytes + bytes / 2 + (64 << 10));
  if (::mount("small", disk.c_str(), "tmpfs", 0, size.c_str()) != 0) ::_exit(77);
  auto options = quantize_options(in, disk / "out");
  options.progress = [&](const Progress& p) {
    if (p.tensors_done == p.tensors_total) throw std::runtime_error("stopped");
  };
  EXPECT_THROW(quantize_checkpoint(options), std::runtime_error);
  const std::uint64_t there = bytes_in(disk / "out");
  ASSERT_GT(there, bytes / 4);
  ASSERT_LT(there, bytes);
  options.progress = {};
  options.resume = true;
  fill(disk, bytes - there + (32 << 10));
  ASSERT_LT(fs::space(disk).free, bytes);
  quantize_checkpoint(options);  // what is there takes no more room
  quantize_checkpoint(options);
  options.resume = false;
  options.overwrite = true;
  ASSERT_LT(fs::space(disk).free, bytes);
  quantize_checkpoint(options);  // in the room of what it removes
  options.output = disk / "second";
  expect_error<IoError>([&] { quantize_checkpoint(options); }, {"second: disk full", "are free"});
  EXPECT_FALSE(fs::exists(disk / "second"));
  options.output = disk / "second.gguf";
  options.format = "gguf";
  expect_error<IoError>([&] { quantize_checkpoint(options); }, {"second.gguf: disk full"});
  fs::remove_all(disk / "out");
  write_text(disk / "second.gguf.partial", std::string(bytes, 'x'));  // of a run that was killed
  ASSERT_LT(fs::space(disk).free, bytes);
  quantize_checkpoint(options);
  fs::remove(disk / "second.gguf");
  write_text(in / "carried", std::string(2 * bytes, 'x'));
  options.output = disk / "third";
  options.format = "modelopt";
  expect_error<IoError>([&] { quantize_checkpoint(options); }, {"third: disk full"});
  EXPECT_FALSE(fs::exists(disk / "third"));
  write_text(in / "carried", "");
  fs::resize_file(in / "carried", std::uint64_t{1} << 40);  // a hole
  quantize_checkpoint(options);
  EXPECT_EQ(fs::file_size(disk / "third" / "carried"), std::uint64_t{1} << 40);
}

TEST(Room, IsWhatResumeAndOverwriteHave) {
  const TempDir dir;
  write_tiny_llama(dir / "in");
  write_text(dir / "in" / "config.json",
             R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
                 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                 "intermediate_size": 128, "rms_norm_eps": 1e-05, "vocab_size": 96,
                 "max_position_embeddings": 128})");
  quantize_checkpoint(dir / "in", dir / "here");
  fs::create_directories(dir / "disk");
  const int status = run_child("ChildOnADisk.DISABLED_Quantizes",
                               {{"CHILD_INPUT", (dir / "in").string()},
                                {"CHILD_OUTPUT", (dir / "disk").string()},
                                {"CHILD_BYTES", std::to_string(bytes_in(dir / "here"))}});
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "no permission to mount a tmpfs";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace nvfp4::room_test
