// Configs, indexes, headers and GGUF files with random damage, through everything that reads them:
// a typed error or a result, never a crash or another exception.
#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/stacked_experts.h"

namespace nvfp4::fuzzed_folders_test {

std::string damaged(std::string text, std::size_t reach, std::mt19937& random) {
  const auto anywhere = [&] { return random() % std::min(text.size(), reach); };
  const char* const words[] = {"null", "[]", "{}", "-1", "1e999", "\"\"", "4294967296", "true"};
  for (int edits = 1 + static_cast<int>(random() % 3); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = anywhere();
    switch (random() % 5) {
      case 0:
        text.erase(at, random() % 40);
        break;
      case 1:
        text[at] = static_cast<char>(random());
        break;
      case 2:
        text.insert(at, text.substr(anywhere(), random() % 60));
        break;
      default: {  // the value of a key becomes another one
        const std::size_t colon = text.find(": ", at), end = text.find_first_of(",}\n", colon);
        if (colon < end && end < reach)
          text.replace(colon + 2, end - colon - 2, words[random() % std::size(words)]);
      }
    }
  }
  return text;
}

/// Damages each file of `names` below `root` a number of times, and uses it. Returns how often that
/// was an error, and how often not.
std::pair<int, int> fuzz(const fs::path& root, const std::vector<std::string>& names, int rounds,
                         unsigned seed, const std::vector<std::function<void()>>& uses) {
  std::mt19937 random(seed);
  std::pair<int, int> counts;
  for (const std::string& name : names) {
    const std::string good = read_text(root / name);
    for (int i = 0; i < rounds; ++i) {
      const std::string bad = damaged(good, 3000, random);
      write_text(root / name, bad);
      for (std::size_t u = 0; u < uses.size(); ++u) {
        try {
          uses[u]();
          ++counts.second;
        } catch (const Error& e) {
          ++counts.first;
          EXPECT_GT(std::string(e.what()).size(), 10u);
        } catch (const std::exception& e) {
          ADD_FAILURE() << name << ", use " << u << ": " << e.what() << '\n' << bad.substr(0, 3000);
        }
      }
    }
    write_text(root / name, good);
  }
  return counts;
}

class FuzzedFolder : public testing::TestWithParam<const char*> {
 protected:
  fs::path model() const { return dir_ / "model"; }
  fs::path out() const { return dir_ / "out"; }
  std::vector<std::function<void()>> uses() const {
    const auto to = [this](const char* form) {
      auto options = convert_options(
          model(), out() / (std::string(form) == "gguf" ? "model.gguf" : form), form);
      options.overwrite = true;
      convert_checkpoint(options);
    };
    return {[=] { to("bf16"); },
            [=] { to("modelopt"); },
            [=] { to("compressed-tensors"); },
            [=] { to("comfyui"); },
            [=] { to("gguf"); },
            [this] {
              repair_checkpoint(repair_options(model(), out() / "repaired", {}, {"--overwrite"}));
            },
            [this] { quantize_checkpoint(model(), out() / "quantized", {"--overwrite"}); },
            [this] {
              EXPECT_NO_THROW(verify_checkpoint({model(), {}, "", {}}));
            },
            [this] { inspect_checkpoint({.path = model(), .tensor = {}, .progress = {}}); },
            [this] { compare_checkpoints(model(), model()); },
            [this] { load_linear(Checkpoint(model()), "model.layers.0.self_attn.q_proj"); }};
  }

  TempDir dir_;
};

TEST_P(FuzzedFolder, IsUsedOrRefusedWithATypedError) {
  gguf::write_llama(dir_ / "source");
  auto options = quantize_options(dir_ / "source", model(), {"--format", GetParam()});
  quantize_checkpoint(options);
  std::vector<std::string> names = {"config.json", "model.safetensors.index.json",
                                    "model-00002-of-00003.safetensors"};
  if (options.format == "modelopt") names.emplace_back("hf_quant_config.json");
  const auto [errors, results] = fuzz(model(), names, 6, 3, uses());
  EXPECT_GT(errors, 25) << "the damage does nothing";
  EXPECT_GT(results, 25) << "nothing is read at all";
}

INSTANTIATE_TEST_SUITE_P(Every, FuzzedFolder, testing::Values("modelopt", "compressed-tensors"),
                         [](const auto& info) {
                           return std::string(info.param) == "modelopt" ? "modelopt" : "ct";
                         });

TEST(FuzzedSources, StackedExpertsAreUsedOrRefused) {
  const TempDir dir;
  for (const StackForm& form : {kStackForms[0], kStackForms[3]}) {
    StackedExperts model(form);
    model.stacks.pop_back();  // the bias, which layers refuse
    model.write(dir / "model", dir / "single");
    const auto to = [&](const char* to) {
      convert_checkpoint(convert_options(dir / "model", dir / to, to, {"--overwrite"}));
    };
    const auto [errors, results] =
        fuzz(dir / "model", {"config.json", "model.safetensors"}, 40, 9,
             {[&] { to("bf16"); }, [&] { to("modelopt"); },
              [&] { verify_checkpoint(verify_options(dir / "model")); },
              [&] { compare_checkpoints(dir / "model", dir / "single"); },
              [&] { load_moe(Checkpoint(dir / "model"), "model.layers.0.mlp"); }});
    EXPECT_GT(errors, 25) << "the damage does nothing";
    EXPECT_GT(results, 25) << "nothing is read at all";
  }
}

TEST(FuzzedSources, Fp8AndMxfp4AreUsedOrRefused) {
  const TempDir dir;
  std::vector<TestTensor> tensors = {random_tensor("model.norm.weight", {64})};
  append(tensors, mxfp4_matrix("layers.0.ffn.experts.0.w1", 32, 64, 110, 120));
  append(tensors, fp8_blocks("layers.0.attn.wq_a", 64, 64));
  write_model(dir / "model", {tensors},
              "{\"model_type\": \"deepseek_v4\", \"hidden_size\": 64, \"quantization_config\": "
              "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}\n");
  const auto [errors, results] =
      fuzz(dir / "model", {"config.json", "model.safetensors"}, 40, 5,
           {[&] { quantize_checkpoint(dir / "model", dir / "out", {"--overwrite"}); }});
  EXPECT_GT(errors, 5);
  EXPECT_GT(results, 5);
}

TEST(FuzzedGguf, IsUsedOrRefusedWithATypedError) {
  const TempDir dir;
  gguf::write_llama(dir / "source");
  fs::create_directories(dir / "gguf");
  quantize_checkpoint(dir / "source", dir / "gguf" / "model.gguf", {"--format", "gguf"});
  const fs::path file = dir / "gguf" / "model.gguf";
  const auto to = [&](const char* form) {
    convert_checkpoint(convert_options(file, dir / form, form, {"--overwrite"}));
  };
  const auto [errors, results] =
      fuzz(dir / "gguf", {"model.gguf"}, 60, 7,
           {[&] { to("modelopt"); }, [&] { to("bf16"); },
            [&] { inspect_checkpoint({.path = file, .tensor = {}, .progress = {}}); },
            [&] { EXPECT_NO_THROW(verify_checkpoint(verify_options(file))); }});
  EXPECT_GT(errors, 20);
  EXPECT_GT(results, 20);
}

}  // namespace nvfp4::fuzzed_folders_test
