#include "checkpoint/architectures.h"

#include "checkpoint/families/select.h"

/// The selection against architectures that transformers builds from a default configuration.
namespace nvfp4::checkpoint::architectures_test {

using Strings = std::set<std::string>;

using Row = ArchitectureRow;

const std::vector<Row>& table() {
  static const std::vector<Row> rows = architecture_rows();
  return rows;
}

Selection select(const Row& row) { return classify(row.tensor, row.architecture); }

TEST(Architectures, TheTableCoversThem) {
  Strings names;
  for (const Row& row : table()) names.insert(row.architecture);
  for (const char* name :
       {"llama",      "mistral",     "mixtral",    "qwen2",    "qwen3",
        "qwen2_moe",  "qwen3_moe",   "gemma2",     "gemma3",   "phi3",
        "gpt_oss",    "deepseek_v3", "glm4",       "glm4_moe", "llama4",
        "granitemoe", "qwen2_5_vl",  "llava",      "whisper",  "t5",
        "bart",       "bert",        "modernbert", "mamba2",   "falcon",
        "jetmoe",     "m2m_100",     "nllb-moe",   "led",      "pegasus_x",
        "florence2",  "ctrl",        "sam",        "detr",     "decision_transformer"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Architectures, NothingButLinearLayersAndExpertsIsQuantized) {
  for (const Row& row : table()) {
    if (row.is_linear() || row.is_experts()) continue;
    EXPECT_FALSE(select(row).quantize) << row;
  }
}

TEST(Architectures, LinearLayersAreQuantizedByKind) {
  const Strings kinds = {"vision",    "audio",   "norm",       "lm_head", "head",
                         "embedding", "router",  "mtp",        "mamba",   "latent attention",
                         "decay",     "indexer", "modulation", "linear",  "expert"};
  for (const Row& row : table()) {
    const Selection s = select(row);
    if (!row.is_linear() || s.quantize || !row.tensor.name.ends_with(".weight")) continue;
    EXPECT_TRUE(kinds.contains(s.kind)) << row << ": " << s.kind;
    EXPECT_FALSE(s.reason.empty()) << row;
    EXPECT_TRUE(s.linear) << row << ": a loader builds it as a linear layer, so lists must name it";
  }
}

TEST(Architectures, ExpertsAreQuantizedOrSaidToBeExperts) {
  for (const Row& row : table()) {
    if (!row.is_experts() || row.tensor.shape.size() != 3) continue;
    const Selection s = select(row);
    EXPECT_TRUE(s.quantize || s.kind == "experts") << row << ": " << s.kind;
  }
}

TEST(Architectures, TablesAreNotListedAsLinearLayers) {
  std::size_t tables = 0, listed = 0;
  for (const Row& row : table()) {
    if (row.owner != "Embedding") continue;
    ++tables;
    listed += select(row).linear;
  }
  EXPECT_LT(listed, tables / 4);  // to list one too many harms nobody
}

/// Layers that are excluded on purpose although they could be quantized, and that are a large part
/// of an architecture.
const std::map<std::string, std::string> kKeptOnPurpose = {
    {"aria", "experts"},
    {"aria_text", "experts"},
    {"d_fine", "router"},
    {"deimv2", "router"},
    {"falcon_mamba", "mamba"},
    {"glm5_next", "latent attention"},
    {"glm5_next_text", "latent attention"},
    {"gradium_phonon_tts", "modulation"},
    {"granitemoe", "experts"},
    {"ibert", "linear"},
    {"granitemoehybrid", "experts"},
    {"granitemoeshared", "experts"},
    {"inkling2", "experts"},
    {"inkling2_loop", "experts"},
    {"inkling2_loop_text", "experts"},
    {"inkling2_text", "experts"},
    {"inkling_mm_model", "experts"},
    {"inkling_text", "experts"},
    {"jamba", "mamba"},
    {"jetmoe", "experts"},
    {"mamba", "mamba"},
};

TEST(Architectures, AlmostAllWeightsOfLayersAreQuantized) {
  const Strings towers = {"vision", "audio", "lm_head", "head", "embedding"};
  std::map<std::string, std::pair<double, double>> kept_and_all;
  for (const Row& row : table()) {
    if (!row.is_linear() && !row.is_experts()) continue;
    const Selection s = select(row);
    if (towers.contains(s.kind) || s.reason.find("multiple of 16") != std::string::npos) continue;
    auto& [kept, all] = kept_and_all[row.architecture];
    all += row.size();
    const auto known = kKeptOnPurpose.find(row.architecture);
    if (!s.quantize && (known == kKeptOnPurpose.end() || known->second != s.kind))
      kept += row.size();
  }
  for (const auto& [architecture, sizes] : kept_and_all)
    EXPECT_LT(sizes.first, 0.1 * sizes.second) << architecture;
}

}  // namespace nvfp4::checkpoint::architectures_test
