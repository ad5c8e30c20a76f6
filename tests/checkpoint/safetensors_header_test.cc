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
  EXPECT_EQ(
      parse_json(tensor(R"("dtype":"F4","shape":[2,3],"data_offsets":[0,3])"), 3).tensors[0].bytes,
      3u);
  expect_refused(tensor(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])"), 2,
                 {"tensor 'layer.w'", "[3]", "F4", "12 bits", "must be whole bytes"});
  expect_refused(tensor(R"("dtype":"F6_E2M3","shape":[2],"data_offsets":[0,2])"), 2,
                 {"tensor 'layer.w'", "12 bits"});
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
  // What the caller holds beyond the file does not count.
  expect_error<FormatError>([] { parse(length_bytes(2) + "{}", 9); },
                            {"m.safetensors", "header length 2", "9 bytes"});
}

TEST(SafetensorsHeader, RefusesAHeaderThatIsNoObject) {
  for (const char* json : {"", " {}", "[]", "\xEF\xBB\xBF{}", "3", "\"a\""})
    expect_refused(json, 0, {"header starts with", "must be '{'"});
}

TEST(SafetensorsHeader, RefusesInvalidJson) {
  for (const char* json :
       {"{", "{]", "{}}", "{} x", "{\"a\"}", "{\"a\":}", "{,}", "{\"__metadata__\":{},}",
        "{'a':{}}", "{\"__metadata__\":{\"a\":\"b\"}", "{}//", "{\"__metadata__\":{\"a\":\"\n\"}}",
        "{\"__metadata__\":{\"a\":\"\\x\"}}", "{\"__metadata__\":{\"a\":\"\\ud800\"}}"})
    expect_refused(json, 0, {"invalid JSON at byte "});
}

TEST(SafetensorsHeader, RefusesTextAfterANul) {
  expect_refused(std::string("{}\0", 3), 0, {"byte 2", "NUL"});
  expect_refused(std::string("{}\0garbage", 10), 0, {"byte 2", "NUL"});
  expect_refused(std::string("{\0}", 3), 0, {"byte 1", "NUL"});
}

TEST(SafetensorsHeader, RefusesInvalidUtf8) {
  for (const char* name : {"\xff", "\xc0\x80", "\xe2\x82", "\xed\xa0\x80", "\xf5\x80\x80\x80"})
    expect_refused("{\"" + std::string(name) + "\":{}}", 0, {"invalid JSON at byte", "UTF-8"});
}

TEST(SafetensorsHeader, RefusesDuplicateNames) {
  const std::string w = R"("layer.w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  expect_refused("{" + w + "," + w + "}", 1, {"key 'layer.w' appears twice"});
  // Equal after its escapes are resolved.
  const std::string escaped = R"("layer\u002ew":{"dtype":"U8","shape":[1],"data_offsets":[1,2]})";
  expect_refused("{" + w + "," + escaped + "}", 2, {"key 'layer.w' appears twice"});
}

TEST(SafetensorsHeader, RefusesDuplicateKeysAtAnyLevel) {
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, {"'__metadata__' appears twice"});
  expect_refused(R"({"__metadata__":{"a":"1","a":"1"}})", 0,
                 {"__metadata__: key 'a' appears twice"});
  expect_refused(tensor(R"("dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1])"), 1,
                 {"tensor 'layer.w': key 'dtype' appears twice"});
}

TEST(SafetensorsHeader, RefusesAnUnknownDtype) {
  for (const char* dtype : {"F12", "f32", "", "F32 "})
    expect_refused(tensor(fmt::format(R"("dtype":"{}","shape":[],"data_offsets":[0,4])", dtype)), 4,
                   {"tensor 'layer.w'", fmt::format("dtype '{}' is unknown", dtype)});
}

TEST(SafetensorsHeader, RefusesADtypeThatIsNoString) {
  for (const char* dtype : {"1", "null", "{}", "[]", "true"})
    expect_refused(tensor(fmt::format(R"("dtype":{},"shape":[],"data_offsets":[0,4])", dtype)), 4,
                   {"tensor 'layer.w'", "dtype = ", "must be a string"});
}

TEST(SafetensorsHeader, RefusesAMissingKey) {
  expect_refused(tensor(""), 4, {"tensor 'layer.w'", "dtype is missing"});
  expect_refused(tensor(R"("shape":[],"data_offsets":[0,4])"), 4,
                 {"tensor 'layer.w'", "dtype is missing"});
  expect_refused(tensor(R"("dtype":"F32","data_offsets":[0,4])"), 4,
                 {"tensor 'layer.w'", "shape is missing"});
  expect_refused(tensor(R"("dtype":"F32","shape":[])"), 4,
                 {"tensor 'layer.w'", "data_offsets is missing"});
}

TEST(SafetensorsHeader, RefusesAnExtraKey) {
  expect_refused(tensor(R"("dtype":"F32","shape":[],"data_offsets":[0,4],"stride":[1])"), 4,
                 {"tensor 'layer.w'", "key 'stride'", "must be dtype, shape or data_offsets"});
}

TEST(SafetensorsHeader, RefusesAnEntryThatIsNoObject) {
  for (const char* value : {"1", "null", "\"U8\"", "[]", "[[0,1]]"})
    expect_refused(fmt::format(R"({{"layer.w":{}}})", value), 0,
                   {"tensor 'layer.w'", "must be an object"});
  // Also when a good one came before.
  expect_refused(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"layer.w":7})", 1,
                 {"tensor 'layer.w': 7, must be an object"});
}

TEST(SafetensorsHeader, RefusesShapesOfOtherThanNaturalNumbers) {
  for (const char* shape :
       {"[-1]", "[-0]", "[1.0]", "[1e0]", "[\"1\"]", "[null]", "[true]", "[[1]]", "[{}]", "4",
        "null", "\"[4]\"", "{}", "[18446744073709551616]"})
    expect_refused(tensor(fmt::format(R"("dtype":"U8","shape":{},"data_offsets":[0,1])", shape)), 1,
                   {"tensor 'layer.w'", "shape", "must be"});
  expect_refused(tensor(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1])"), 1,
                 {"tensor 'layer.w'", "9223372036854775808", "must be at most"});
}

TEST(SafetensorsHeader, RefusesAShapeWhoseProductOverflows) {
  for (const char* shape :
       {"[4294967296,4294967296]", "[9223372036854775807,2]", "[3,6148914691236517206]",
        "[9223372036854775807]", "[144115188075855872]", "[0,4294967296,4294967296]",
        "[4294967296,4294967296,0]"})
    expect_refused(tensor(fmt::format(R"("dtype":"F64","shape":{},"data_offsets":[0,16])", shape)),
                   16, {"tensor 'layer.w'", "shape [", "overflows"});
}

TEST(SafetensorsHeader, RefusesOffsetsOfOtherThanTwoNumbers) {
  for (const char* offsets : {"[]", "[0]", "[0,1,1]", "[-1,0]", "[0,1.0]", "[\"0\",\"1\"]", "1",
                              "{}", "null", "[[0,1]]", "[0,18446744073709551616]"})
    expect_refused(tensor(fmt::format(R"("dtype":"U8","shape":[1],"data_offsets":{})", offsets)), 1,
                   {"tensor 'layer.w'", "data_offsets = ", "must be an array of two"});
}

TEST(SafetensorsHeader, RefusesOffsetsThatEndBeforeTheyBegin) {
  expect_refused(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[2,1])"), 2,
                 {"tensor 'layer.w'", "[2, 1]", "must not end before they begin"});
}

TEST(SafetensorsHeader, RefusesOffsetsOutsideTheFile) {
  expect_refused(tensor(R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), 3,
                 {"tensor 'layer.w'", "[0, 4]", "3 bytes of data"});
  expect_refused(
      tensor(
          R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615])"),
      4, {"tensor 'layer.w'", "18446744073709551615", "4 bytes of data"});
}

TEST(SafetensorsHeader, RefusesOverlappingTensors) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                 7, {"tensor 'b'", "[3, 7]", "overlap", "tensor 'a'"});
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                 4, {"tensor 'b'", "overlap", "tensor 'a'"});
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("inside":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                 4, {"tensor 'inside'", "overlap", "tensor 'a'"});
}

TEST(SafetensorsHeader, RefusesBytesThatBelongToNoTensor) {
  expect_refused(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
                 {"tensor 'layer.w'", "begin at 1, must begin at 0"});
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})",
                 6, {"tensor 'b'", "begin at 5, must begin at 4"});
  expect_refused(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 2,
                 {"end at byte 1", "all 2 bytes"});
  expect_refused("{}", 1, {"end at byte 0", "all 1 bytes"});
}

TEST(SafetensorsHeader, RefusesSizesOtherThanShapeTimesDtype) {
  expect_refused(tensor(R"("dtype":"BF16","shape":[2,3],"data_offsets":[0,6])"), 6,
                 {"tensor 'layer.w'", "[0, 6]", "6 bytes", "must span 12", "[2, 3]", "BF16"});
  expect_refused(tensor(R"("dtype":"BF16","shape":[0],"data_offsets":[0,2])"), 2,
                 {"tensor 'layer.w'", "must span 0"});
}

TEST(SafetensorsHeader, RefusesMetadataThatIsNotOfStrings) {
  for (const char* value : {"1", "null", "true", "[]", "{}", "1.5"})
    expect_refused(fmt::format(R"({{"__metadata__":{{"format":{}}}}})", value), 0,
                   {"__metadata__", "format = ", "must be a string"});
  for (const char* value : {"1", "null", "\"pt\"", "[]"})
    expect_refused(fmt::format(R"({{"__metadata__":{}}})", value), 0,
                   {"__metadata__", "must be an object"});
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
