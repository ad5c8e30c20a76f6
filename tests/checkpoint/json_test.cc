#include "checkpoint/base/json.h"

#include <gtest/gtest.h>

namespace nvfp4::json_test {

Json many(int members) {
  Json json = Json::object();
  for (int i = members; i > 0; --i) json["k" + std::to_string(i)] = i;
  return json;
}

TEST(Json, KeepsTheOrderOfItsMembers) {
  for (const int members : {1, 16, 17, 1000}) {
    Json json = many(members);
    json["k1"] = "again";
    int expected = members;
    for (const auto& [key, value] : json.items()) EXPECT_EQ(key, "k" + std::to_string(expected--));
    EXPECT_EQ(expected, 0);
    EXPECT_EQ(json["k1"], "again");
    EXPECT_EQ(Json::parse(json.dump()), json);
  }
}

TEST(Json, FindsMembersAfterOthersAreErased) {
  for (const int members : {3, 17, 18, 1000}) {
    Json json = many(members);
    Json copy = json;
    EXPECT_EQ(json.erase("k2"), 1u);
    EXPECT_EQ(json.erase("k2"), 0u);
    EXPECT_FALSE(json.contains("k2"));
    EXPECT_EQ(json.at("k1"), 1);
    EXPECT_EQ(json["k3"], 3);
    EXPECT_EQ(copy["k2"], 2);
    const Json moved = std::move(copy);
    EXPECT_EQ(moved.find("k1").value(), 1);
    EXPECT_EQ(moved.find("none"), moved.end());
    json.clear();
    json["k9"] = 9;
    EXPECT_EQ(json.dump(), R"({"k9":9})");
  }
}

/// Half a minute, if each key were compared with all before it.
TEST(Json, ManyMembersTakeLinearTime) {
  constexpr int kMembers = 200'000;
  const Json json = Json::parse(many(kMembers).dump());
  EXPECT_EQ(json.size(), std::size_t{kMembers});
  for (int i = 1; i <= kMembers; ++i) ASSERT_TRUE(json.contains("k" + std::to_string(i)));
}

TEST(Json, ValuesAreMovedAsObjectsGrow) {
  Json json = {{"list", Json::array({1, 2})}};
  const auto* const list = json["list"].get_ptr<const Json::array_t*>();
  json.update(many(100));
  EXPECT_EQ(json["list"].get_ptr<const Json::array_t*>(), list);
}

}  // namespace nvfp4::json_test
