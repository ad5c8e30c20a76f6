#include "checkpoint/checkpoints.h"

namespace nvfp4::repair_test {

const std::string kQ = "model.layers.1.self_attn.q_proj";
const std::string kK = "model.layers.1.self_attn.k_proj";

class Repair : public testing::TestWithParam<const char*> {
 protected:
  Repair() {
    write_tiny_llama(source());
    quantize_checkpoint(source(), good(), {"--format", GetParam()});
  }
  fs::path source() const { return dir_ / "source"; }
  fs::path good() const { return dir_ / "good"; }
  fs::path bad() const { return dir_ / "bad"; }
  fs::path out() const { return dir_ / "out"; }
  bool modelopt() const { return std::string(GetParam()) == "modelopt"; }

  std::string global(const std::string& module) const {
    return module + (modelopt() ? ".weight_scale_2" : ".weight_global_scale");
  }
  std::string codes(const std::string& module) const {
    return module + (modelopt() ? ".weight" : ".weight_packed");
  }
  void plant(const std::function<void(LoadedFolder&)>& fault) const {
    LoadedFolder model(good());
    fault(model);
    model.write(bad());
  }
  /// Also checks that the input stays and that verify finds nothing in the output.
  RepairReport repair(RepairOptions options = {}) const {
    options.input = bad();
    options.output = out();
    options.overwrite = true;
    const auto before = files_of(bad());
    const RepairReport report = repair_checkpoint(options);
    EXPECT_EQ(files_of(bad()), before);
    EXPECT_TRUE(report.before.count(Severity::error) + report.before.count(Severity::warning) > 0);
    for (const Finding& f : report.after.findings)
      EXPECT_EQ(f.code, "input-scale-default") << f.text;
    EXPECT_FALSE(report.changes.empty());
    return report;
  }
  RepairReport repair_by_source() const {
    RepairOptions options;
    options.source = source();
    return repair(options);
  }
  bool same_as_good() const {
    const LoadedModel a(good()), b(out());
    bool same = a.tensors.size() == b.tensors.size();
    for (const auto& [name, t] : a.tensors)
      same &= b.has(name) && b.at(name).bytes == t.bytes && b.at(name).shape == t.shape;
    return same;
  }

  TempDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Every, Repair, testing::Values("modelopt", "compressed-tensors"),
                         [](const auto& info) {
                           return std::string(info.param) == "modelopt" ? "modelopt" : "ct";
                         });

std::vector<std::string> codes_of(const RepairReport& report) {
  std::vector<std::string> codes;
  for (const RepairChange& c : report.changes) codes.push_back(c.code);
  return codes;
}

TEST_P(Repair, GivesFusedPartnersTheLargestGlobalScale) {
  // k was quantized with half the global scale, so its block scales are twice as large.
  const LoadedModel good_model(good());
  plant([&](LoadedFolder& f) {
    const float factor = modelopt() ? 0.5f : 2.0f;
    f.set_scalar(global(kK), f.scalar(global(kK)) * factor);
    for (std::byte& s : f.at(kK + ".weight_scale").bytes)
      s = std::byte{E4M3::from_float(2 * E4M3{std::to_integer<std::uint8_t>(s)}.to_float()).bits};
  });
  const RepairReport report = repair();
  ASSERT_EQ(codes_of(report), std::vector<std::string>{"fused-globals"});
  EXPECT_EQ(report.changes[0].tensor, kK);
  EXPECT_EQ(report.changes[0].loss, 0.0) << "a ratio of two is exact";
  EXPECT_TRUE(same_as_good());
}

TEST_P(Repair, RoundedBlockScalesReportTheirLoss) {
  plant([&](LoadedFolder& f) {
    f.set_scalar(global(kQ), f.scalar(global(kQ)) * (modelopt() ? 1.7f : 1 / 1.7f));
  });
  const RepairReport report = repair();
  EXPECT_EQ(report.changes.size(), 2u) << "k and v follow q";
  for (const RepairChange& c : report.changes) {
    EXPECT_EQ(c.code, "fused-globals");
    EXPECT_GT(c.loss.value(), 0);
    EXPECT_LT(c.loss.value(), 0x1p-4) << "half a unit of E4M3's three bits";
  }
  const LoadedModel a(bad()), b(out());
  EXPECT_EQ(a.at(codes(kK)).bytes, b.at(codes(kK)).bytes) << "the codes stay";
  EXPECT_EQ(b.scalar(global(kK)), a.scalar(global(kQ)));
  const CompareReport compared = compare_checkpoints(bad(), out());
  EXPECT_EQ(compared.tensors.size(), 2u);
  EXPECT_LT(compared.relative_error, 0x1p-4);
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json.at("changes").size(), 2u);
  EXPECT_EQ(json.at("after").at("errors"), 0);
}

TEST_P(Repair, PutsSenseSignsAndOrderRight) {
  plant([&](LoadedFolder& f) {
    f.set_scalar(global(kQ), 1 / f.scalar(global(kQ)));
    for (std::byte& s : f.at(kK + ".weight_scale").bytes) s |= std::byte{0x80};
    TestTensor& scales = f.at("model.layers.0.mlp.gate_proj.weight_scale");  // [128, 4]
    std::vector<std::byte> tiled(scales.bytes.size());
    for (std::int64_t r = 0; r < 128; ++r)
      for (std::int64_t b = 0; b < 4; ++b)
        tiled[static_cast<std::size_t>(scale_offset(ScaleLayout::tiled_128x4, r, b, 128, 4))] =
            scales.bytes[static_cast<std::size_t>(r * 4 + b)];
    scales.bytes = tiled;
    for (std::byte& c : f.at(codes("model.layers.0.mlp.up_proj")).bytes) c = c << 4 | c >> 4;
  });
  const RepairReport report = repair_by_source();
  const LoadedModel a(good()), b(out());
  for (const auto& [name, t] : a.tensors) {
    if (name == global(kQ)) continue;  // a reciprocal taken twice
    EXPECT_EQ(b.at(name).bytes, t.bytes) << name;
  }
  EXPECT_NEAR(b.scalar(global(kQ)) / a.scalar(global(kQ)), 1, 0x1p-22);
}

}  // namespace nvfp4::repair_test
