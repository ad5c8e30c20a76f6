#ifdef NVFP4_CLI_PATH

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/models.h"
#include "run_cli.h"

/// Compares the --json output of commands with docs/schema/nvfp4.schema.json.
namespace nvfp4::cli_json_test {

using Json = nlohmann::json;

const Json& schema() {
  static const Json all = Json::parse(
      read_text(std::filesystem::path(NVFP4_SOURCE_DIR) / "docs" / "schema" / "nvfp4.schema.json"));
  return all;
}

bool is_of_type(const Json& value, const std::string& type) {
  return (type == "string" && value.is_string()) ||
         (type == "integer" && value.is_number_integer()) ||
         (type == "number" && value.is_number()) || (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null()) || (type == "array" && value.is_array()) ||
         (type == "object" && value.is_object());
}

/// The part of JSON Schema that matters here; test_json_schema.py has all of it; `where` for
/// messages.
void expect_valid(const Json& value, Json rule, const std::string& where) {
  while (rule.contains("$ref"))
    rule = schema().at(Json::json_pointer(rule.at("$ref").get<std::string>().substr(1)));
  if (const auto type = rule.find("type"); type != rule.end()) {
    const Json types = type->is_array() ? *type : Json::array({*type});
    EXPECT_TRUE(std::ranges::any_of(types, [&](const Json& t) { return is_of_type(value, t); }))
        << where << ": " << value << " is not " << types;
  }
  if (const auto of = rule.find("enum"); of != rule.end()) {
    EXPECT_TRUE(std::ranges::count(*of, value) == 1) << where << ": " << value;
  }
  if (const auto items = rule.find("items"); items != rule.end())
    for (const Json& item : value) expect_valid(item, *items, where + "[]");
  for (const Json& key : rule.value("required", Json::array()))
    EXPECT_TRUE(value.contains(key.get<std::string>())) << where << " lacks " << key;
  const Json properties = rule.value("properties", Json::object());
  const Json others = rule.value("additionalProperties", Json());
  if (!value.is_object()) return;
  for (const auto& [key, member] : value.items()) {
    const std::string inside = fmt::format("{}.{}", where, key);
    if (properties.contains(key))
      expect_valid(member, properties.at(key), inside);
    else if (others.is_object())
      expect_valid(member, others, inside);
    else
      ADD_FAILURE() << inside << " is not in the schema";
  }
}

class CliJson : public Cli {
 protected:
  void expect_schema(const Words& arguments) {
    const Result r = run(arguments);
    const Json json = Json::parse(r.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(json.is_discarded()) << arguments[0] << ": " << r.out << r.err;
    expect_valid(json, schema().at("$defs").at(arguments[0]), arguments[0]);
  }
};

TEST_F(CliJson, OfEveryCommandFitsTheSchema) {
  make_sample();
  expect_schema({"quantize", "m", "dry", "--dry-run", "--json"});
  expect_schema({"quantize", "m", "q", "--json", "--quiet"});
  expect_schema({"convert", "q", "plain", "--to", "bf16", "--json"});
  expect_schema({"repair", "q", "mended", "--json"});
  expect_schema({"inspect", "q", "--json"});
  expect_schema({"inspect", "m", "--json", "--no-histogram"});
  expect_schema({"inspect", "q", "--json", "--tensor", "model.layers.0.mlp.up_proj"});
  expect_schema({"compare", "m", "q", "--json"});
  expect_schema({"verify", "q", "--json"});
  expect_schema({"verify", "q", "--source", "m", "--for", "transformers", "--json"});
  expect_schema({"selftest", "--device", "cpu", "--json"});
}

TEST_F(CliJson, HasEveryDecisionOfARun) {
  make_sample();
  const Result r = run({"quantize", "m", "q", "--json", "--ignore", "*.up_proj"});
  const Json json = Json::parse(r.out);
  int ignored = 0;
  for (const Json& tensor : json.at("tensors")) {
    EXPECT_TRUE(tensor.contains("action"));
    EXPECT_EQ(tensor.at("action") == "kept", tensor.value("reason", "") != "");
    ignored += tensor.value("reason", "") == "--ignore *.up_proj";
  }
  EXPECT_EQ(ignored, 2);
}

}  // namespace nvfp4::cli_json_test

#endif
