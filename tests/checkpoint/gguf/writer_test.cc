#include "checkpoint/gguf/gguf_bytes.h"
#include "checkpoint/gguf/header.h"
#include "testing.h"

namespace nvfp4::gguf::writer_test {

std::vector<std::byte> bytes(std::size_t n, int value) {
  return std::vector<std::byte>(n, static_cast<std::byte>(value));
}

TEST(GgufWriter, WhatIsWrittenIsReadAgain) {
  const TempDir dir;
  const std::vector<NewEntry> entries = {{"text", new_text("a\n\xff")},
                                         {"number", new_u32(7)},
                                         {"real", new_f32(0.5)},
                                         {"flag", new_bool(true)},
                                         {"strings", new_strings({"", "b"})},
                                         {"integers", new_i32s({-1, 2})}};
  const std::vector<TensorSpec> tensors = {{"a", find_type(kNvfp4), {2, 3, 64}},
                                           {"b", find_type(kF32), {5}},
                                           {"c", find_type(kBF16), {0, 4}}};
  Writer writer(dir / "x.gguf", entries, tensors);
  writer.write(1, 4, bytes(16, 2));
  writer.write(0, 0, bytes(216, 1));
  writer.write(1, 0, bytes(4, 3));
  EXPECT_FALSE(fs::exists(dir / "x.gguf")) << "not before it is whole";
  writer.commit();
  const File file = File::open(dir / "x.gguf");
  const Header& h = file.header();
  EXPECT_EQ(*h.text("text"), "a\n\xff");
  EXPECT_EQ(h.integer("number"), 7);
  EXPECT_EQ(std::get<double>(h.find("real")->value), 0.5);
  EXPECT_EQ(std::get<bool>(h.find("flag")->value), true);
  EXPECT_EQ(file.strings("strings", 2), (std::vector<std::string>{"", "b"}));
  EXPECT_EQ(file.strings("number", 2), std::vector<std::string>());
  EXPECT_EQ(std::get<ArrayPlace>(h.find("integers")->value).count, 2u);
  ASSERT_EQ(h.tensors.size(), 3u);
  EXPECT_EQ(file.find("a")->shape, (std::vector<std::int64_t>{2, 3, 64}));
  EXPECT_EQ(file.find("d"), nullptr);
  std::vector<std::byte> read(20);
  file.read(*file.find("b"), 0, read);
  EXPECT_EQ(read[3], std::byte{3});
  EXPECT_EQ(read[4], std::byte{2});
  EXPECT_EQ(fs::file_size(dir / "x.gguf") % 32, 0u) << "the last tensor is padded too";
}

TEST(GgufWriter, LeavesNothingWithoutCommit) {
  const TempDir dir;
  {
    Writer writer(dir / "x.gguf", {}, {{"a", find_type(kF32), {1}}});
    EXPECT_TRUE(fs::exists(dir / "x.gguf.partial"));
    expect_error<ValueError>([&] { writer.commit(); },
                             {"tensor 'a': byte 0 of 4 was never written"});
    expect_error<ValueError>([&] { writer.write(0, 1, bytes(4, 0)); }, {"must lie within its 4"});
    expect_error<ValueError>([&] { writer.write(1, 0, bytes(4, 0)); }, {"tensor 1"});
  }
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(GgufWriter, TakesNothingAfterCommit) {
  const TempDir dir;
  Writer writer(dir / "x.gguf", {}, {{"a", find_type(kF32), {1}}});
  writer.write(0, 0, bytes(4, 1));
  writer.commit();
  expect_error<ValueError>([&] { writer.write(0, 0, bytes(4, 2)); }, {"x.gguf: is committed"});
  expect_error<ValueError>([&] { writer.commit(); }, {"x.gguf: is committed already"});
}

TEST(GgufWriter, RefusesWhatLlamaCppCannotRead) {
  const TempDir dir;
  const auto refused = [&](const std::vector<NewEntry>& entries,
                           const std::vector<TensorSpec>& tensors, std::string_view part) {
    expect_error<ValueError>([&] { Writer(dir / "x.gguf", entries, tensors); }, {"x.gguf", part});
    EXPECT_TRUE(fs::is_empty(dir.path()));
  };
  const Type* f32 = find_type(kF32);
  refused({}, {{std::string(64, 'a'), f32, {1}}}, "must be UTF-8 of 1 to 63 bytes");
  refused({}, {{"\xff", f32, {1}}}, "must be UTF-8");
  refused({}, {{"a", f32, {1}}, {"a", f32, {1}}}, "is there twice");
  refused({}, {{"a", f32, {1, 1, 1, 1, 1}}}, "at most 4 dimensions");
  refused({}, {{"a", find_type(kNvfp4), {32}}}, "[32] of NVFP4");
  refused({}, {{"a", f32, {-1}}}, "[-1] of F32");
  refused({{"k", new_u32(1)}, {"k", new_u32(1)}}, {}, "key 'k' is there twice");
  refused({{"", new_u32(1)}}, {}, "key ''");
}

TEST(GgufFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  expect_error<IoError>([&] { File::open(dir / "absent"); }, {"absent: cannot open"});
  expect_error<IoError>([&] { File::open(dir.path()); }, {"a folder, must be a regular file"});
  write_text(dir / "empty.gguf", "");
  expect_error<FormatError>([&] { File::open(dir / "empty.gguf"); }, {"empty.gguf", "magic"});
}

}  // namespace nvfp4::gguf::writer_test
