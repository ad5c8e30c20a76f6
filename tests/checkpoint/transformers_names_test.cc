#include "checkpoint/families/transformers_names.h"

#include "testing.h"

/// Names of modules that transformers 5 gives.
namespace nvfp4::transformers_names_test {

using checkpoint::TransformersNames;

TEST(TransformersNames, BeginningsAreReplaced) {
  struct Case {
    const char *type, *module, *name;
  };
  const Case cases[] = {
      {"qwen2_5_vl", "visual.blocks.0.attn.qkv", "model.visual.blocks.0.attn.qkv"},
      {"qwen2_5_vl", "model.layers.3.mlp.up_proj", "model.language_model.layers.3.mlp.up_proj"},
      {"qwen2_5_vl", "lm_head", "lm_head"},
      {"llava", "vision_tower.vision_model.encoder.layers.0.mlp.fc1",
       "model.vision_tower.encoder.layers.0.mlp.fc1"},
      {"llava", "multi_modal_projector.linear_1", "model.multi_modal_projector.linear_1"},
      {"llava", "language_model.model.layers.0.mlp.up_proj",
       "model.language_model.layers.0.mlp.up_proj"},
      {"llava", "language_model.lm_head", "lm_head"},
      {"gemma3", "vision_tower.vision_model.encoder.layers.0.mlp.fc1",
       "model.vision_tower.encoder.layers.0.mlp.fc1"},
      {"molmo2", "model.vision_backbone.image_vit.transformer.resblocks.7.attention.wq",
       "model.vision_tower.layers.7.self_attn.q_proj"},
      {"llama", "model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj"},
      {"of another library", "visual.proj", "visual.proj"},
  };
  for (const Case& c : cases) {
    const TransformersNames names(c.type);
    EXPECT_EQ(names.name_of(c.module), c.name) << c.type;
    EXPECT_EQ(names.name_of(c.name), c.name) << c.type << ": checkpoints may have new names";
  }
}

}  // namespace nvfp4::transformers_names_test
