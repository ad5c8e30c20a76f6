#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"

namespace nvfp4::safetensors::safetensors_header_test {

std::string length_bytes(std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out;
}

Header parse(const std::string& start, std::uint64_t file_bytes) {
  return parse_header(std::as_bytes(std::span(start)), file_bytes, "m.safetensors");
}

/// A file of header `json` and `data_bytes` of data.
Header parse_json(const std::string& json, std::uint64_t data_bytes) {
  const std::string start = length_bytes(json.size()) + json;
  return parse(start, start.size() + data_bytes);
}

/// One tensor "layer.w" with these fields.
std::string tensor(const std::string& fields) { return "{\"layer.w\":{" + fields + "}}"; }

void expect_refused(const std::string& json, std::uint64_t data_bytes,
                    std::initializer_list<std::string_view> parts) {
  expect_error<FormatError>([&] { parse_json(json, data_bytes); }, {"m.safetensors: "});
  expect_error<FormatError>([&] { parse_json(json, data_bytes); }, parts);
}

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string json =
      R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},"__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}}   )";
  const Header h = parse_json(json, 28);
  EXPECT_EQ(h.metadata, (Metadata{{"format", "pt"}}));
  EXPECT_EQ(h.data_begin, 8 + json.size());
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].dtype, DType::bf16);
  EXPECT_EQ(h.tensors[0].shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(h.tensors[0].begin, h.data_begin);
  EXPECT_EQ(h.tensors[0].bytes, 4u);
  EXPECT_EQ(h.tensors[1].name, "b");
  EXPECT_EQ(h.tensors[1].begin, h.data_begin + 4);
  EXPECT_EQ(h.tensors[1].bytes, 24u);
}

TEST(SafetensorsHeader, ReadsAFileWithoutTensors) {
  EXPECT_TRUE(parse_json("{}", 0).tensors.empty());
  EXPECT_TRUE(parse_json("{}      ", 0).tensors.empty());
}

TEST(SafetensorsHeader, ReadsScalarsAndTensorsWithoutElements) {
  const Header h = parse_json(R"({"full":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                              R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[3,7]},)"
                              R"("none":{"dtype":"F64","shape":[5,0,7],"data_offsets":[3,3]},)"
                              R"("last":{"dtype":"F4","shape":[0],"data_offsets":[7,7]}})",
                              7);
  ASSERT_EQ(h.tensors.size(), 4u);
  EXPECT_EQ(h.tensors[0].name, "full");
  EXPECT_EQ(h.tensors[1].name, "none");
  EXPECT_EQ(h.tensors[1].bytes, 0u);
  EXPECT_EQ(h.tensors[2].name, "scalar");
  EXPECT_EQ(h.tensors[2].bytes, 4u);
  EXPECT_TRUE(h.tensors[2].shape.empty());
  EXPECT_EQ(h.tensors[3].name, "last");
}

TEST(SafetensorsHeader, KnowsEveryDtypeByNameAndSize) {
  const std::pair<const char*, int> expected[] = {
      {"BOOL", 8}, {"U8", 8},      {"I8", 8},      {"F8_E5M2", 8},     {"F8_E4M3", 8},
      {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
      {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},       {"F8_E8M0", 8},
      {"I32", 32}, {"U32", 32},    {"F32", 32},    {"F64", 64},        {"I64", 64},
      {"U64", 64}, {"C64", 64}};
  for (const auto& [name, bits] : expected) {
    const auto dtype = dtype_from_name(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(dtype_name(*dtype), name);
    EXPECT_EQ(dtype_bits(*dtype), bits) << name;
  }
  EXPECT_FALSE(dtype_from_name("f32"));
  EXPECT_FALSE(dtype_from_name(""));
}

TEST(SafetensorsHeader, ReadsDtypesNarrowerThanAByte) {
  const Header h = parse_json(tensor(R"("dtype":"F4","shape":[2,3],"data_offsets":[0,3])"), 3);
  EXPECT_EQ(h.tensors[0].bytes, 3u);
}

TEST(SafetensorsHeader, AgreesOnEscapesInNames) {
  const Header h =
      parse_json(R"({"a\u0062\n\"\u00e9":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1);
  EXPECT_EQ(h.tensors[0].name, "ab\n\"\xc3\xa9");
}

TEST(SafetensorsHeader, RefusesAFileShorterThanTheLength) {
  for (std::size_t n = 0; n < 8; ++n)
    expect_error<FormatError>([&] { parse(std::string(n, '\1'), n); },
                              {"m.safetensors", fmt::format("{} bytes", n), "at least the 8"});
}

TEST(SafetensorsHeader, RefusesAHeaderAboveTheCap) {
  for (const std::uint64_t length : {kMaxHeaderBytes + 1, ~std::uint64_t{0}, ~std::uint64_t{0} - 7})
    expect_error<FormatError>([&] { parse(length_bytes(length) + "{}", 1ull << 40); },
                              {"m.safetensors", std::to_string(length), "at most 100000000"});
}

TEST(SafetensorsHeader, RefusesAHeaderPastTheFile) {
  expect_error<FormatError>([] { parse(length_bytes(3) + "{}", 10); },
                            {"m.safetensors", "header length 3", "10 bytes"});
  // Memory of the caller behind the file does not count.
  expect_error<FormatError>([] { parse(length_bytes(2) + "{}", 9); },
                            {"m.safetensors", "header length 2", "9 bytes"});
}

class SafetensorsHeaderTable : public testing::TestWithParam<table::Row> {};

TEST_P(SafetensorsHeaderTable, IsRefused) {
  const std::string column = GetParam().column(0);
  const std::string json = column.starts_with('@') ? tensor(column.substr(1)) : column;
  const table::Expected expected(GetParam().column(2));
  expect_refused(json, std::stoull(GetParam().column(1)), {});
  for (const std::string& text : expected.texts)
    expect_refused(json, std::stoull(GetParam().column(1)), {text});
}

INSTANTIATE_TEST_SUITE_P(Row, SafetensorsHeaderTable,
                         testing::ValuesIn(table::rows_of("safetensors_headers.txt")),
                         table::test_name);

TEST(SafetensorsHeader, RefusesOtherStartsAndControlCharacters) {
  for (const char* json : {"", " {}", "\xEF\xBB\xBF{}"})
    expect_refused(json, 0, {"header starts with", "must be '{'"});
  expect_refused("{\"__metadata__\":{\"a\":\"\n\"}}", 0, {"invalid JSON at byte "});
  expect_refused(std::string("{}\0", 3), 0, {"byte 2", "NUL"});
  expect_refused(std::string("{}\0garbage", 10), 0, {"byte 2", "NUL"});
  expect_refused(std::string("{\0}", 3), 0, {"byte 1", "NUL"});
}

TEST(SafetensorsHeader, RefusesInvalidUtf8) {
  for (const char* name : {"\xff", "\xc0\x80", "\xe2\x82", "\xed\xa0\x80", "\xf5\x80\x80\x80"})
    expect_refused("{\"" + std::string(name) + "\":{}}", 0, {"invalid JSON at byte", "UTF-8"});
}

TEST(SafetensorsHeader, RefusesDeepNesting) {
  const std::string deep(5'000'000, '[');
  expect_refused("{\"a\":" + deep, 0, {"tensor 'a'"});
  std::string objects = "{";
  for (int i = 0; i < 100'000; ++i) objects += "\"shape\":{";
  expect_refused(objects, 0, {"tensor 'shape'"});
  expect_refused(tensor("\"shape\":" + deep), 0, {"tensor 'layer.w'"});
}

TEST(SafetensorsHeader, KeepsMessagesShortAndOnOneLine) {
  const std::string long_name(1'000'000, 'x');
  for (const std::string& name :
       {std::string("a\\nb\\u001b[31m"), std::string("\\u2028\\u202e"), long_name}) {
    try {
      parse_json("{\"" + name + "\":{\"dtype\":\"" + name + "\"}}", 0);
      FAIL() << "no error";
    } catch (const FormatError& error) {
      const std::string message = error.what();
      EXPECT_LT(message.size(), 1000u);
      for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
      EXPECT_THAT(message, Not(HasSubstr("\xe2\x80")));
    }
  }
  try {
    parse_header({}, 0, "evil\nname");
    FAIL() << "no error";
  } catch (const FormatError& error) {
    EXPECT_EQ(std::string_view(error.what()).substr(0, 12), "evil\\x0aname");
  }
}

TEST(SafetensorsHeader, LongInvalidTokenHasAShortMessage) {
  const std::string json = fmt::format("{{\"{:x<20000000}", "");
  try {
    parse_json(json, 0);
    FAIL() << "no error";
  } catch (const FormatError& error) {
    EXPECT_LT(std::string_view(error.what()).size(), 1000u);
  }
}

TEST(SafetensorsHeader, ReadsManyTensors) {
  std::string json = "{";
  constexpr int kTensors = 100'000;
  for (int i = kTensors; i-- > 0;) {
    json += fmt::format(R"("t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}}{})", i, i,
                        i + 1, i ? "," : "}");
  }
  const Header h = parse_json(json, kTensors);
  ASSERT_EQ(h.tensors.size(), static_cast<std::size_t>(kTensors));
  EXPECT_EQ(h.tensors[0].name, "t0");
  EXPECT_EQ(h.tensors.back().name, "t99999");
}

}  // namespace nvfp4::safetensors::safetensors_header_test
