#include "checkpoint/base/error_codes.h"

#include "testing.h"

namespace nvfp4::error_codes_test {

const fs::path kRoot = NVFP4_SOURCE_DIR;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns the matches of an expression with one group.
std::set<std::string> all_of(const std::string& text, const std::string& expression) {
  const std::regex regex(expression);
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

/// Returns the sources of the library but the table.
std::string sources() {
  std::string text;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "src")) {
    const std::string extension = entry.path().extension().string();
    const bool source = extension == ".cc" || extension == ".h" || extension == ".cu";
    if (source && entry.path().filename() != "error_codes.cc") text += text_of(entry.path());
  }
  return text;
}

TEST(ErrorCodes, AreUniqueOrderedAndHaveHints) {
  std::string last;
  for (const ErrorInfo& c : error_codes()) {
    EXPECT_TRUE(std::regex_match(c.name(), std::regex("NV\\d{4}"))) << c.name();
    EXPECT_LT(last, c.name());
    last = c.name();
    EXPECT_EQ(&error_info(c.code), &c);
    EXPECT_FALSE(c.meaning.empty()) << c.name();
    EXPECT_FALSE(c.fix.empty()) << c.name();
    for (const std::string_view text : {c.meaning, c.fix}) {
      EXPECT_EQ(text.find('\n'), text.npos) << c.name();
      EXPECT_EQ(text.find('|'), text.npos) << c.name() << ": it is a cell of a table";
    }
  }
}

TEST(ErrorCodes, EachHasARowAndIsThrown) {
  const std::string header = text_of(kRoot / "include" / "nvfp4" / "error.h");
  const std::set<std::string> codes = all_of(header, "\n  (\\w+) = \\d+,");
  EXPECT_EQ(codes.size(), error_codes().size());
  std::set<std::string> thrown = all_of(sources(), "ErrorCode::(\\w+)");
  thrown.merge(all_of(header, "ErrorCode::(\\w+)"));  // those of the types
  thrown.merge(all_of(text_of(kRoot / "src/checkpoint/base/error_codes.cc"),
                      "(?:return|\\?) ErrorCode::(\\w+)"));
  thrown.insert("usage");  // by the command
  EXPECT_EQ(codes, thrown);
}

TEST(ErrorCodes, AreMembersThatTheTextDoesNotChange) {
  EXPECT_EQ(IoError("disk full").code, ErrorCode::io);
  EXPECT_EQ(IoError("?", ErrorCode::disk_full).code, ErrorCode::disk_full);
  EXPECT_EQ(ValueError("x: no such file or folder").code, ErrorCode::value);
  EXPECT_EQ(OptionsError("?").code, ErrorCode::value);
  EXPECT_EQ(ShapeError("?").code, ErrorCode::shape);
  EXPECT_EQ(FormatError("statistics").code, ErrorCode::format);
  EXPECT_EQ(UnsupportedError("?").code, ErrorCode::unsupported);
  EXPECT_EQ(DeviceError("out of memory").code, ErrorCode::device);
  EXPECT_EQ(error_code(IoError("?", ErrorCode::no_weights)), ErrorCode::no_weights);
  EXPECT_EQ(error_code(std::bad_alloc()), ErrorCode::memory);
  EXPECT_EQ(error_code(std::runtime_error("?")), ErrorCode::internal);
}

TEST(ErrorCodes, OfTheSystem) {
  const auto code = [](int reason) {
    return error_code(std::error_code(reason, std::generic_category()));
  };
  EXPECT_EQ(code(ENOSPC), ErrorCode::disk_full);
  EXPECT_EQ(code(ENOENT), ErrorCode::not_found);
  EXPECT_EQ(code(EACCES), ErrorCode::access_denied);
  EXPECT_EQ(code(EIO), ErrorCode::io);
}

TEST(ErrorCodes, AsJsonHaveTheMessageAndTheFix) {
  const ErrorText own = error_text(ErrorCode::not_found, "a; hint: b; hint: c");
  EXPECT_EQ(own.message + "|" + own.hint, "a; hint: b|c");
  const auto json =
      nlohmann::json::parse(error_json(ErrorCode::not_found, "a\xff: there is none")).at("error");
  EXPECT_EQ(json.at("code"), "NV0102");
  EXPECT_EQ(json.at("type"), "IoError");
  EXPECT_FALSE(json.at("fix").empty());
}

}  // namespace nvfp4::error_codes_test
