#include "checkpoint/families/fuse.h"

#include "testing.h"

namespace nvfp4::checkpoint::fuse_test {

TEST(Fuse, SiblingsThatLoadersMergeShareAKey) {
  const FuseRules rules({});
  const std::vector<std::vector<std::string>> sets = {
      {"q_proj", "k_proj", "v_proj"},
      {"gate_proj", "up_proj", "linear_gate"},
      {"w1", "w3"},
      {"q_a_proj", "kv_a_proj_with_mqa"},
      {"wq_a", "wkv_a_with_mqa"},
      {"c_fc_0", "c_fc_1"},
      {"linear", "linear_v"},
      {"to_q", "to_k", "to_v"},
      {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"}};
  for (const auto& set : sets)
    for (const std::string& name : set)
      EXPECT_EQ(rules.key("model.layers.0.x." + name), rules.key("model.layers.0.x." + set[0]))
          << name;
}

TEST(Fuse, FamiliesAddSiblings) {
  const std::pair<std::string, std::string> rows[] = {{"bailing_hybrid", "b_proj"},
                                                      {"olmo_hybrid", "g_proj"},
                                                      {"kimi_linear", "f_a_proj"},
                                                      {"dots3_note", "kv_a_proj_with_mqa"}};
  for (const auto& [type, name] : rows) {
    const FuseRules rules({}, std::span(&type, 1));
    const std::string other = type == "dots3_note" ? "g_proj" : "q_proj";
    EXPECT_EQ(rules.key("l." + name), rules.key("l." + other)) << type;
  }
}

TEST(Fuse, OthersDoNot) {
  const FuseRules rules({});
  EXPECT_NE(rules.key("l.0.q_proj"), rules.key("l.1.q_proj"));
  EXPECT_NE(rules.key("l.0.w1"), rules.key("l.0.w2"));
  EXPECT_NE(rules.key("l.0.q_proj"), rules.key("l.0.gate_proj"));
  EXPECT_NE(rules.key("l.0.experts.1.w1"), rules.key("l.0.experts.2.w1"));
  EXPECT_EQ(rules.key("l.0.o_proj"), "l.0.o_proj");
}

TEST(Fuse, TheUserAddsSetsAndJoinsThem) {
  const FuseRules rules({"gate_proj,down_proj", "a,b"});
  EXPECT_EQ(rules.key("m.down_proj"), rules.key("m.up_proj"));
  EXPECT_EQ(rules.key("m.a"), rules.key("m.b"));
  EXPECT_EQ(rules.key("a"), rules.key("b"));
}

TEST(Fuse, RefusesWhatIsNotAList) {
  expect_error<ValueError>([] { FuseRules({"w1"}); }, {"--fuse w1"});
  expect_error<ValueError>([] { FuseRules({"w1,,w3"}); }, {"--fuse w1,,w3"});
  expect_error<ValueError>([] { FuseRules({"a.w1,w3"}); }, {"--fuse a.w1,w3"});
}

TEST(Fuse, SetsThatNameNoModuleAreWarnedAbout) {
  FuseRules rules({"nosuch,nosuch2", "w1,w2"});
  rules.see("a.w2");
  rules.see("nosuch.w3");
  EXPECT_EQ(rules.warnings(),
            std::vector<std::string>{"--fuse nosuch,nosuch2: matches no quantized module"});
}

}  // namespace nvfp4::checkpoint::fuse_test
