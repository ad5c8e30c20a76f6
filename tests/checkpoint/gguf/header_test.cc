#include "checkpoint/gguf/gguf_bytes.h"
#include "testing.h"

namespace nvfp4::gguf::header_test {

constexpr std::uint32_t kU32 = 4, kBool = 7, kString = 8, kArray = 9;

void refused(const GgufBytes& bytes, std::initializer_list<std::string_view> parts) {
  expect_error<FormatError>([&] { parse(bytes); }, parts);
}

GgufBytes one_tensor(const std::vector<std::int64_t>& ne, std::uint32_t type,
                     std::uint64_t offset = 0, std::size_t data = 64) {
  return GgufBytes(1).tensor("t", ne, type, offset).data(data);
}

TEST(GgufHeader, ReadsKeysAndTensors) {
  GgufBytes b(2, 4);
  b.key("general.alignment", kU32).number(std::uint32_t{64});
  b.key("general.name", kString).text("a");
  b.key("flag", kBool).number(std::uint8_t{1});
  b.key("list", kArray).number(kString).number(std::uint64_t{2}).text("x").text("yz");
  b.tensor("a", {64, 3}, kNvfp4, 0).tensor("b", {5}, kF32, 128).data(128 + 20, 64);
  const Header h = parse(b);
  EXPECT_EQ(h.version, 3u);
  EXPECT_EQ(h.alignment, 64u);
  EXPECT_EQ(*h.text("general.name"), "a");
  EXPECT_EQ(h.integer("general.alignment"), 64);
  EXPECT_EQ(h.integer("flag"), std::nullopt);
  EXPECT_EQ(std::get<ArrayPlace>(h.find("list")->value).count, 2u);
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].shape, (std::vector<std::int64_t>{3, 64})) << "rows first";
  EXPECT_EQ(h.tensors[0].bytes, 108u);
  EXPECT_EQ(h.tensors[0].begin % 64, 0u);
  EXPECT_EQ(h.tensors[1].begin, h.tensors[0].begin + 128);
  EXPECT_EQ(h.tensors[1].bytes, 20u);
}

TEST(GgufHeader, ReadsTheStringsOfAnArray) {
  GgufBytes b(0, 1);
  b.key("list", kArray).number(kString).number(std::uint64_t{2}).text("x").text("");
  const ReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), b.str().data() + offset, out.size());
  };
  const Header h = parse(b);
  EXPECT_EQ(read_strings(read, b.str().size(), std::get<ArrayPlace>(h.find("list")->value), "f"),
            (std::vector<std::string>{"x", ""}));
}

TEST(GgufHeader, ArrayHasAnIntegerForEachLayer) {
  GgufBytes b(0, 2);
  b.key("sizes", kArray).number(kU32).number(std::uint64_t{2}).number(7u).number(0u);
  b.key("flags", kArray).number(kBool).number(std::uint64_t{1}).number(std::uint8_t{1});
  const Header h = parse(b);
  EXPECT_EQ(h.integer("sizes", 0), 7);
  EXPECT_EQ(h.integer("sizes", 1), 0);
  EXPECT_EQ(h.integer("sizes", 2), std::nullopt);
  EXPECT_EQ(h.integer("sizes"), std::nullopt) << "no size of the whole model";
  EXPECT_EQ(h.integer("flags", 0), 1);
}

TEST(GgufHeader, VersionTwoIsReadAndNoOther) {
  EXPECT_EQ(parse(GgufBytes(0, 0, 2)).version, 2u);
  refused(GgufBytes(0, 0, 1), {"file.gguf", "version = 1, must be 2 or 3"});
  refused(GgufBytes(0, 0, 4), {"version = 4"});
  expect_error<UnsupportedError>([] { parse(GgufBytes(0, 0, 0x03000000)); }, {"big-endian"});
}

TEST(GgufHeader, EveryShorterFileIsRefused) {
  GgufBytes b(1, 2);
  b.key("general.name", kString).text("a");
  b.key("list", kArray).number(kU32).number(std::uint64_t{3}).data(0, 1);
  b.number(1u).number(2u).number(3u);
  b.tensor("a", {64, 3}, kNvfp4, 0).data(108);
  EXPECT_EQ(parse(b).tensors.size(), 1u);
  for (std::size_t n = 0; n < b.str().size(); ++n)
    expect_error<FormatError>([&] { parse(std::string_view(b.str()).substr(0, n)); },
                              {"file.gguf: "});
}

TEST(GgufHeader, RefusesWrongStarts) {
  expect_error<FormatError>([] { parse("GGML\3"); }, {"starts with 'GGML', must be 'GGUF'"});
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  refused(GgufBytes(kHuge), {"tensors, at most"});
  refused(GgufBytes(0, kHuge), {"keys, at most"});
  refused(GgufBytes(3), {"tensor 0: name of 8 bytes, but the file ends"});
}

TEST(GgufHeader, RefusesWrongKeys) {
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  refused(GgufBytes(0, 1).key("a", 13), {"key 'a': type = 13, must be at most 12"});
  refused(GgufBytes(0, 1).key("", kU32).number(1u), {"key 0: '', must be UTF-8"});
  refused(GgufBytes(0, 1).key("\xff", kU32).number(1u), {R"('\xff', must be UTF-8)"});
  refused(GgufBytes(0, 1).number(kHuge), {"key 0: key of 18446744073709551615 bytes, at most"});
  refused(GgufBytes(0, 2).key("a", kU32).number(1u).key("a", kU32).number(1u),
          {"key 'a': is there twice"});
  refused(GgufBytes(0, 1).key("a", kBool).number(std::uint8_t{2}), {"a bool of 2"});
  refused(GgufBytes(0, 1).key("a", kString).number(kHuge),
          {"key 'a': value of 18446744073709551615"});
  refused(GgufBytes(0, 1).key("a", kString).number(std::uint64_t{5}), {"but the file ends in 0"});
}

TEST(GgufHeader, RefusesWrongArrays) {
  constexpr auto kHuge = std::numeric_limits<std::uint64_t>::max();
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return GgufBytes(0, 1).key("a", kArray).number(type).number(count);
  };
  refused(array(kU32, kHuge), {"key 'a'", "18446744073709551615 elements"});
  refused(array(kU32, 2).number(1u), {"an array of 8 bytes, but the file ends in 4"});
  refused(array(kString, 1).number(kHuge), {"a string in an array of 18446744073709551615 bytes"});
  refused(array(kBool, 1).number(std::uint8_t{7}), {"a bool of 7"});
  refused(array(99, 1).number(1u), {"type = 99"});
  GgufBytes deep = array(kArray, 1);
  for (int i = 0; i < 2; ++i) deep.number(kArray).number(std::uint64_t{1});
  GgufBytes deeper = deep;
  deep.number(kU32).number(std::uint64_t{1}).number(5u);
  EXPECT_NO_THROW(parse(deep));
  deeper.number(kArray).number(std::uint64_t{1}).number(kU32).number(std::uint64_t{1}).number(5u);
  refused(deeper, {"arrays nested 5 deep, at most 4"});
}

TEST(GgufHeader, RefusesWrongAlignments) {
  for (const std::uint32_t bad : {0u, 3u, 48u})
    refused(GgufBytes(0, 1).key("general.alignment", kU32).number(bad),
            {"'general.alignment'", "must be a power of two"});
  refused(GgufBytes(0, 1).key("general.alignment", kString).text("32"),
          {"is a string, must be a u32"});
  refused(one_tensor({1}, kF32, 4), {"tensor 't': offset 4, must be a multiple of 32"});
}

TEST(GgufHeader, RefusesWrongTensors) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  refused(one_tensor({1}, 4), {"tensor 't': type = 4, which is no type that is known"});
  refused(one_tensor({1}, 999), {"type = 999"});
  refused(one_tensor({96}, kNvfp4), {"tensor 't': [96] of NVFP4", "multiple of 64"});
  refused(one_tensor({-1}, kF32), {"dimension 0 = -1"});
  refused(one_tensor({1, 1, 1, 1, 1}, kF32), {"5 dimensions, at most 4"});
  refused(one_tensor({kMax}, kF32), {"fit 63 bits"});
  refused(one_tensor({64, kMax / 64, 2}, kNvfp4), {"fit 63 bits"});
  refused(one_tensor({1 << 30, 1 << 30, 1 << 30, 0}, kF32), {"fit 63 bits"});
  refused(one_tensor({}, kNvfp4), {"[] of NVFP4"});
  refused(GgufBytes(1).tensor("", {1}, kF32, 0).data(4), {"tensor 0: ''"});
  refused(GgufBytes(1).tensor(std::string(1025, 'a'), {1}, kF32, 0).data(4),
          {"name of 1025 bytes, at most 1024"});
  EXPECT_EQ(parse(one_tensor({0, 5}, kF32)).tensors[0].bytes, 0u);
  EXPECT_EQ(parse(one_tensor({}, kF32)).tensors[0].bytes, 4u) << "a scalar";
}

TEST(GgufHeader, RefusesTensorsOutsideOrOnEachOther) {
  refused(one_tensor({17}, kF32, 0, 64),
          {"tensor 't': bytes 0 to 68 of the data, but the file has 64"});
  refused(one_tensor({1}, kF32, 64, 64), {"bytes 64 to 68"});
  refused(one_tensor({1}, kF32, ~std::uint64_t{31}, 64), {"tensor 't'", "but the file has 64"});
  refused(GgufBytes(2).tensor("t", {1}, kF32, 0).tensor("t", {1}, kF32, 32).data(64),
          {"tensor 't': is there twice"});
  refused(GgufBytes(2).tensor("a", {9}, kF32, 0).tensor("b", {1}, kF32, 32).data(64),
          {"tensor 'b': overlaps 'a'"});
  refused(GgufBytes(2).tensor("a", {1}, kF32, 0).tensor("b", {1}, kF32, 0).data(64), {"overlaps"});
  EXPECT_EQ(parse(GgufBytes(2).tensor("a", {0}, kF32, 0).tensor("b", {1}, kF32, 0).data(64))
                .tensors.size(),
            2u)
      << "what is empty overlaps nothing";
}

}  // namespace nvfp4::gguf::header_test
