#include "checkpoint/families/experts.h"

#include "testing.h"

namespace nvfp4::checkpoint::experts_test {

safetensors::TensorInfo tensor(std::string name, std::vector<std::int64_t> shape) {
  safetensors::TensorInfo t;
  t.name = std::move(name);
  t.dtype = safetensors::DType::bf16;
  t.shape = std::move(shape);
  return t;
}

ModelConfig config(std::int64_t hidden, std::string type = "x") {
  ModelConfig c;
  c.hidden_size = hidden;
  c.model_types = {std::move(type)};
  return c;
}

TEST(SliceExperts, RowsByColumnsAsInLinearLayers) {
  const auto s = slice_experts(tensor("l.mlp.experts.gate_up_proj", {2, 96, 64}), config(64));
  ASSERT_EQ(s.size(), 4u);
  EXPECT_EQ(s[0].module, "l.mlp.experts.0.gate_proj");
  EXPECT_EQ(s[1].module, "l.mlp.experts.0.up_proj");
  EXPECT_EQ(s[3].module, "l.mlp.experts.1.up_proj");
  EXPECT_EQ(s[3].rows, 48);
  EXPECT_EQ(s[3].cols, 64);
  EXPECT_EQ(s[3].offset, 96 * 64 + 48 * 64);
  EXPECT_EQ(s[3].row_stride, 64);
  EXPECT_EQ(s[3].col_stride, 1);
}

TEST(SliceExperts, TransposedAsLlama4StoresThem) {
  const auto s = slice_experts(tensor("l.experts.gate_up_proj", {2, 64, 96}), config(64));
  EXPECT_EQ(s[3].rows, 48);
  EXPECT_EQ(s[3].cols, 64);
  EXPECT_EQ(s[3].offset, 64 * 96 + 48);
  EXPECT_EQ(s[3].row_stride, 1);
  EXPECT_EQ(s[3].col_stride, 96);
  const auto down = slice_experts(tensor("l.experts.down_proj", {2, 48, 64}), config(64));
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down[1].module, "l.experts.1.down_proj");
  EXPECT_EQ(down[1].rows, 64);
  EXPECT_EQ(down[1].cols, 48);
  EXPECT_EQ(down[1].col_stride, 64);
}

TEST(SliceExperts, GptOssInterleavesGateAndUp) {
  const auto s =
      slice_experts(tensor("l.experts.gate_up_proj", {1, 64, 64}), config(64, "gpt_oss"));
  EXPECT_EQ(s[0].rows, 32);
  EXPECT_EQ(s[0].row_stride, 2);
  EXPECT_EQ(s[1].offset, 1);
}

/// transformers passes over single experts of these.
TEST(StackForm, IsRowsWhereTransformersMergesNoExperts) {
  for (const char* type : {"diffusion_gemma_text", "gemma4", "gemma4_text", "hy_v4_vl",
                           "hy_v4_vl_text", "lara_mini", "mistral4", "qwen3_vl_moe_text"}) {
    const auto form = stack_form(config(64, type));
    ASSERT_TRUE(form.has_value()) << type;
    EXPECT_FALSE(form->transposed || form->interleaved) << type;
  }
  EXPECT_FALSE(stack_form(config(64, "qwen3_moe")).has_value());
  ModelConfig whole = config(64, "qwen3_vl_moe");
  whole.model_types.push_back("qwen3_vl_moe_text");
  EXPECT_TRUE(stack_form(whole)->transposed);
}

TEST(SliceExperts, ThePartsThatAreMeasuredCoverEachExpert) {
  for (const char* type : {"llama4", "gpt_oss"}) {
    std::int64_t next = 0;
    for (const WeightSlice& s :
         slice_experts(tensor("l.experts.gate_up_proj", {3, 64, 96}), config(64, type))) {
      EXPECT_EQ(s.amax_begin, next);
      next += s.amax_count;
    }
    EXPECT_EQ(next, 3 * 64 * 96);
  }
}

TEST(SliceExperts, ASquareMatrixNeedsAKnownModel) {
  const auto square = tensor("l.experts.down_proj", {2, 64, 64});
  EXPECT_EQ(slice_experts(square, config(64, "gpt_oss"))[0].col_stride, 64);
  EXPECT_EQ(slice_experts(square, config(64, "qwen3_5_moe"))[0].col_stride, 1);
  expect_error<ValueError>([&] { slice_experts(square, config(64)); },
                           {"l.experts.down_proj", "--ignore"});
  expect_error<ValueError>(
      [&] {
        slice_experts(tensor("l.experts.w1", {2, 48, 32}), config(64));
      },
      {"l.experts.w1"});
}

TEST(ExpertLayers, Names) {
  EXPECT_EQ(expert_layer_of("a.experts.7.w1"), "a.experts");
  EXPECT_EQ(expert_layer_of("experts.7.w1"), "experts");
  EXPECT_EQ(expert_layer_of("a.experts.gate_up_proj"), "a.experts");
  EXPECT_EQ(expert_layer_of("a.shared_experts.up_proj"), "");
  EXPECT_EQ(without_expert_number("a.experts.17.w1"), "a.experts.*.w1");
  EXPECT_EQ(without_expert_number("a.experts.down_proj"), "a.experts.down_proj");
  EXPECT_EQ(without_expert_number("a.q_proj"), "a.q_proj");
}

}  // namespace nvfp4::checkpoint::experts_test
