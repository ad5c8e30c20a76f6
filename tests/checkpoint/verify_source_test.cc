#include "checkpoint/checkpoints.h"
#include "checkpoint/faults.h"

/// What a checkpoint need not have of its source, and what a source is not.
namespace nvfp4::verify_source_test {

using namespace faults;
using Codes = std::set<std::string>;

class VerifySource : public testing::Test {
 protected:
  VerifySource() {
    write_tiny_llama(bed_.source);
    quantize_checkpoint(quantize_options(bed_.source, bed_.output));
    bed_.options.path = bed_.output;
    bed_.compare();
  }
  Codes codes() {
    Codes codes = codes_of(verify_checkpoint(bed_.options));
    codes.erase("input-scale-default");
    return codes;
  }
  RepairOptions repair() const {
    RepairOptions options;
    options.input = bed_.output;
    options.output = dir_ / "repaired";
    options.source = bed_.source;
    options.overwrite = true;
    return options;
  }

  TempDir dir_;
  Bed bed_{dir_ / "source", dir_ / "output", {}};
};

TEST_F(VerifySource, BuffersNeedNotBeThere) {
  for (const auto& [name, shape, derived] :
       {std::tuple<std::string, std::vector<std::int64_t>, bool>{
            "model.layers.0.self_attn.rotary_emb.inv_freq", {8}, true},
        {"model.embeddings.position_ids", {1, 8}, true},
        {"transformer.h.0.attn.bias", {1, 1, 8, 8}, true},
        {"transformer.h.0.attn.bias", {64}, false},
        {"model.layers.0.extra.weight", {8, 8}, false}}) {
    bed_.edit_source([&](LoadedFolder& f) {
      f.shard_of("lm_head.weight").push_back(random_tensor(name, shape));
    });
    EXPECT_EQ(codes(), Codes{derived ? "source-derived" : "source-missing"}) << name;
    EXPECT_EQ(verify_checkpoint(bed_.options).broken(), !derived);
    if (derived)
      EXPECT_FALSE(repair_checkpoint(repair()).after.broken()) << name;
    else
      expect_error<UnsupportedError>([&] { repair_checkpoint(repair()); }, {"source-missing"});
    bed_.edit_source([&](LoadedFolder& f) { f.remove(name); });
  }
}

TEST_F(VerifySource, AHeadThatIsTiedNeedNotBeThere) {
  bed_.edit([](LoadedFolder& f) { f.remove("lm_head.weight"); });
  EXPECT_EQ(codes(), Codes{"source-missing"}) << "it has values of its own";
  bed_.edit_source([](LoadedFolder& f) {
    f.at("lm_head.weight").bytes = f.at("model.embed_tokens.weight").bytes;
  });
  EXPECT_EQ(codes(), Codes{"source-derived"});
  EXPECT_FALSE(repair_checkpoint(repair()).after.broken());
  bed_.edit([](LoadedFolder& f) { f.config["tie_word_embeddings"] = false; });
  EXPECT_EQ(codes(), Codes{"source-missing"}) << "nothing ties it";
}

TEST_F(VerifySource, AnotherModelIsNoSource) {
  plants().at("other-source")(bed_);
  const VerifyReport report = verify_checkpoint(bed_.options);
  EXPECT_EQ(codes(), Codes{"other-source"}) << text_of(report);
  EXPECT_NE(text_of(report).find("of 7 tensors"), std::string::npos) << text_of(report);
  expect_error<UnsupportedError>([&] { repair_checkpoint(repair()); }, {"other-source"});
  EXPECT_FALSE(fs::exists(dir_ / "repaired"));
}

}  // namespace nvfp4::verify_source_test
