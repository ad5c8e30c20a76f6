#include "nvfp4/error_codes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "nvfp4/error.h"
#include "nvfp4/options_error.h"

namespace nvfp4::error_codes_test {
namespace {

namespace fs = std::filesystem;

/// All sources of the library but the table, strings that go on in the next line joined.
const std::string& sources() {
  static const std::string all = [] {
    std::string text;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(NVFP4_SOURCE_DIR) / "src")) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".h" && extension != ".cu") continue;
      if (entry.path().filename() == "error_codes.cc") continue;
      std::ifstream in(entry.path(), std::ios::binary);
      text.append(std::istreambuf_iterator<char>(in), {});
    }
    return std::regex_replace(text, std::regex("\"\\s*\n\\s*\""), "");
  }();
  return all;
}

TEST(ErrorCodes, AreUniqueAndInOrderAndSayWhatHelps) {
  std::string last;
  for (const ErrorCode& c : error_codes()) {
    EXPECT_TRUE(std::regex_match(std::string(c.code), std::regex("NV\\d{4}"))) << c.code;
    EXPECT_LT(last, c.code);
    last = c.code;
    EXPECT_FALSE(c.meaning.empty()) << c.code;
    EXPECT_FALSE(c.fix.empty()) << c.code;
    for (const std::string_view text : {c.meaning, c.fix}) {
      EXPECT_EQ(text.find('\n'), text.npos) << c.code;
      EXPECT_EQ(text.find('|'), text.npos) << c.code << ": it is a cell of a table";
    }
  }
}

/// A text that is worded anew must take its code along.
TEST(ErrorCodes, AreOfTextsThatTheSourcesHave) {
  const std::set<std::string> of_the_system = {"Permission denied", "No such file or directory",
                                               "out of memory"};
  for (const ErrorCode& c : error_codes()) {
    std::stringstream parts{std::string(c.message)};
    for (std::string part; std::getline(parts, part, '|');)
      if (!of_the_system.contains(part)) {
        EXPECT_NE(sources().find(part), std::string::npos) << c.code << ": " << part;
      }
  }
}

TEST(ErrorCodes, EveryTypeThatIsThrownHasOne) {
  const std::regex thrown("(?:require<|throw )(?:nvfp4::)?(\\w*Error)\\b");
  std::set<std::string> types;
  for (std::sregex_iterator it(sources().begin(), sources().end(), thrown), end; it != end; ++it)
    types.insert((*it)[1]);
  EXPECT_GE(types.size(), 6u);
  types.erase("OptionsError");
  EXPECT_EQ(error_code(OptionsError("a text that no other code is of")).type, "ValueError");
  for (const std::string& type : types) {
    const ErrorCode& code = error_code(type, "a text that no other code is of");
    EXPECT_EQ(code.type, type);
    EXPECT_TRUE(code.message.empty());
  }
}

TEST(ErrorCodes, OfAnErrorIsTheFirstOfItsTypeWhoseTextFits) {
  EXPECT_EQ(error_code(IoError("x: no such file or folder")).code, "NV0102");
  EXPECT_EQ(error_code(ValueError("x: no such file or folder")).code, "NV0399");
  EXPECT_EQ(error_code(ShapeError("quantize: x.cols = 8, must be a multiple of 16")).code,
            "NV0401");
  EXPECT_EQ(error_code(FormatError("?")).code, "NV0299");
  EXPECT_EQ(error_code(UnsupportedError("?")).code, "NV0599");
  EXPECT_EQ(error_code(DeviceError("?")).code, "NV0699");
  EXPECT_EQ(error_code(std::bad_alloc()).code, "NV0902");
  EXPECT_EQ(error_code(std::runtime_error("?")).code, "NV0999");
}

TEST(ErrorCodes, AsJsonHaveTheMessageAndTheFix) {
  const IoError error("a\xff: no such file or folder");
  const auto json = nlohmann::json::parse(error_json(error_code(error), error.what())).at("error");
  EXPECT_EQ(json.at("code"), "NV0102");
  EXPECT_EQ(json.at("type"), "IoError");
  EXPECT_FALSE(json.at("fix").empty());
}

}  // namespace
}  // namespace nvfp4::error_codes_test
