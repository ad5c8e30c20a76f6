#include "checkpoint/gguf/blocks.h"

#include "checkpoint/gguf/names.h"
#include "testing.h"

namespace nvfp4::gguf::blocks_test {

/// Made by hand from ggml-common.h and gguf-py's NVFP4.dequantize_blocks: element i has code i %
/// 16, so that each sub-block counts from 0 to 15.
TEST(GgufBlocks, GoldenBlock) {
  std::vector<std::byte> codes,
      scales = {std::byte{0x01}, std::byte{0x38}, std::byte{0x7E}, std::byte{0x00}};
  for (int s = 0; s < 4; ++s)
    for (const int pair : {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE})
      codes.push_back(static_cast<std::byte>(pair));
  std::vector<std::byte> block(kBlockBytes);
  pack_blocks(codes, scales, block);
  std::vector<std::byte> expected = scales;
  for (int s = 0; s < 4; ++s)
    for (const int pair : {0x80, 0x91, 0xA2, 0xB3, 0xC4, 0xD5, 0xE6, 0xF7})
      expected.push_back(static_cast<std::byte>(pair));
  EXPECT_EQ(block, expected);
}

/// The position of every element, one at a time.
TEST(GgufBlocks, ElementsLieWhereGgmlReadsThem) {
  for (int e = 0; e < 64; ++e) {
    std::vector<std::byte> codes(kBlockCodes), scales(kBlockScales), block(kBlockBytes);
    codes[static_cast<std::size_t>(e / 2)] = static_cast<std::byte>(e % 2 == 0 ? 0x0D : 0xD0);
    pack_blocks(codes, scales, block);
    const int sub = e / 16, inside = e % 16;
    std::vector<std::byte> expected(kBlockBytes);
    expected[static_cast<std::size_t>(4 + 8 * sub + inside % 8)] =
        static_cast<std::byte>(inside < 8 ? 0x0D : 0xD0);
    EXPECT_EQ(block, expected) << e;
  }
}

TEST(GgufBlocks, UnpackingUndoesPacking) {
  std::mt19937 random(1);
  std::vector<std::byte> codes(7 * kBlockCodes), scales(7 * kBlockScales), blocks(7 * kBlockBytes);
  for (std::byte& b : codes) b = static_cast<std::byte>(random());
  for (std::byte& b : scales) b = static_cast<std::byte>(random());
  pack_blocks(codes, scales, blocks);
  std::vector<std::byte> codes_again(codes.size()), scales_again(scales.size());
  unpack_codes(blocks, codes_again);
  unpack_scales(blocks, scales_again);
  EXPECT_EQ(codes_again, codes);
  EXPECT_EQ(scales_again, scales);
}

TEST(GgufBlocks, OnlyWhatMeansTheSameIsAScale) {
  for (int bits = 0; bits < 256; ++bits)
    EXPECT_EQ(is_scale(static_cast<std::byte>(bits)), bits < 0x7F) << bits;
}

/// Two heads of eight rows: 0 4 1 5 2 6 3 7, as conversion/llama.py's permute() gives.
TEST(GgufNames, InterleavedRows) {
  const Order two_heads = rotary_order(8);
  const std::vector<std::int64_t> order = {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15};
  for (std::int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(two_heads.to_file(order[static_cast<std::size_t>(row)]), row);
    EXPECT_EQ(Order{}.to_file(row), row);
  }
}

/// Two keys with three values of two rows each, behind eight rows of queries and keys.
TEST(GgufNames, FirstValuesOfKeysComeFirst) {
  const LinearHeads heads{2, 6, 2};
  const auto rows = heads.order(Heads::last_rows, 20);
  ASSERT_TRUE(rows);
  const std::vector<std::int64_t> order = {0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11};
  for (std::int64_t row = 0; row < 20; ++row) {
    EXPECT_EQ(rows->to_file(row < 8 ? row : 8 + order[static_cast<std::size_t>(row - 8)]), row);
  }
  EXPECT_FALSE(heads.order(Heads::last_rows, 8));
  EXPECT_FALSE(heads.order(Heads::rows, 13));
  EXPECT_FALSE((LinearHeads{4, 6, 2}.order(Heads::rows, 12)));
  EXPECT_FALSE((LinearHeads{1, 6, std::int64_t{1} << 62}.order(Heads::last_rows, 20)));
  EXPECT_FALSE(LinearHeads{}.order(Heads::rows, 12));
}

TEST(GgufNames, ThereAndBack) {
  const Architecture& llama = *find_architecture("llama");
  const auto place = place_of(llama, "model.layers.12.self_attn.k_proj.weight");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->file_name, "blk.12.attn_k.weight");
  EXPECT_EQ(place->layer, 12);
  EXPECT_TRUE(place->key && place->scaled && !place->query);
  EXPECT_EQ(place_of(llama, "lm_head.weight")->file_name, "output.weight");
  EXPECT_EQ(place_of(llama, "model.layers.1.self_attn.q_proj.bias")->file_name,
            "blk.1.attn_q.bias");
  for (const char* none :
       {"model.layers.01.self_attn.k_proj.weight", "model.layers..mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight.x", "visual.patch.weight", "weight",
        "model.layers.1.self_attn.q_norm.weight"})
    EXPECT_FALSE(place_of(llama, none)) << none;
  EXPECT_FALSE(place_of(*find_architecture("qwen3_5"), "model.layers.0.input_layernorm.weight"));
  const Architecture& moe = *find_architecture("qwen3_moe");
  const auto expert = place_of(moe, "model.layers.3.mlp.experts.17.down_proj.weight");
  EXPECT_EQ(expert->file_name, "blk.3.ffn_down_exps.weight");
  EXPECT_EQ(expert->expert, 17);
  EXPECT_EQ(model_name_of(moe, "blk.3.ffn_down_exps.weight", 17),
            "model.layers.3.mlp.experts.17.down_proj.weight");
  const Architecture& deepseek = *find_architecture("deepseek_v3");
  EXPECT_EQ(place_of(deepseek, "model.layers.5.mlp.gate.e_score_correction_bias")->file_name,
            "blk.5.exp_probs_b.bias");
  EXPECT_EQ(model_name_of(deepseek, "blk.5.exp_probs_b.bias"),
            "model.layers.5.mlp.gate.e_score_correction_bias");
}

/// Returns the name of a module in layer 2, and of expert 3. `layer`: the start of names in it.
std::string numbered(std::string_view layer, std::string_view pattern) {
  std::string name = pattern.starts_with('.') ? std::string(layer) : "";
  name += pattern;
  if (const std::size_t at = name.find("{e}"); at != name.npos) name.replace(at, 3, "3");
  return name;
}

/// No two modules of an architecture share a name, whichever way, but those of a split tensor.
TEST(GgufNames, AreUnique) {
  for (const Architecture* known : architectures())
    for (const NameGroup& group : known->groups)
      for (const NamePair& pair : group.modules) {
        const Architecture& a = *known;
        std::string name = numbered("model.layers.2", pair.model);
        const std::string file = numbered("blk.2", pair.file);
        if (name.starts_with("model.")) name.replace(0, 6, a.prefix);
        const std::vector<Place> places = places_of(a, name + ".weight");
        EXPECT_EQ(places.size(), is_split(pair.heads) ? 2u : 1u) << a.model_type << " " << name;
        EXPECT_EQ(std::ranges::count(places, file + ".weight", &Place::file_name), 1) << file;
        EXPECT_EQ(model_name_of(a, file + ".weight", 3), name + ".weight") << a.model_type;
      }
}

}  // namespace nvfp4::gguf::blocks_test
