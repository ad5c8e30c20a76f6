#include "checkpoint/stacked_experts.h"

#include "checkpoint/checkpoints.h"
#include "layers/moe_cases.h"

namespace nvfp4::stacked_experts_test {

using safetensors::DType;

RepairReport repair(const fs::path& input, const fs::path& output) {
  return repair_checkpoint(repair_options(input, output));
}

class StackedNvfp4 : public testing::TestWithParam<StackForm> {
 protected:
  StackedNvfp4() : model_(GetParam()) { model_.write(stacked(), single()); }
  fs::path stacked() const { return dir_ / "stacked"; }
  fs::path single() const { return dir_ / "single"; }
  /// Reports whether ModelOpt exports the experts as stacks and its format keeps them.
  static bool stays_in_modelopt() { return GetParam().transposed && !GetParam().each; }

  const TempDir dir_;
  StackedExperts model_;
};

INSTANTIATE_TEST_SUITE_P(Every, StackedNvfp4, testing::ValuesIn(kStackForms),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(StackedNvfp4, ConversionEqualsThatOfSingleExperts) {
  for (const std::string to : {"modelopt", "compressed-tensors", "comfyui"}) {
    convert(stacked(), dir_ / ("a-" + to), to);
    convert(single(), dir_ / ("b-" + to), to);
    if (to == "modelopt" && stays_in_modelopt()) {
      expect_same_tensors(dir_ / ("a-" + to), stacked());
      EXPECT_EQ(findings_of(dir_ / ("a-" + to)), "");
      continue;
    }
    auto a = files_of(dir_ / ("a-" + to)), b = files_of(dir_ / ("b-" + to));
    EXPECT_EQ(a, b) << to;
    EXPECT_EQ(findings_of(dir_ / ("a-" + to)), findings_of(single())) << to;
  }
}

TEST_P(StackedNvfp4, SourceGivesTheWindowOfEachGlobalScale) {
  convert(stacked(), dir_ / "source", "bf16");
  const std::string last = GetParam().each ? ", in matrix 2" : "";
  for (const auto& [factor, code] : {std::pair(1.0f, ""), {0.0625f, "scale-saturated"}}) {
    LoadedFolder folder(stacked());
    TestTensor& globals = folder.at(StackedExperts::kPrefix + "down_proj_weight_scale_2");
    std::byte* const at = globals.bytes.data() + globals.bytes.size() - sizeof(float);
    float global;
    std::memcpy(&global, at, sizeof global);
    global *= factor;
    std::memcpy(at, &global, sizeof global);
    folder.write(dir_ / code / "model");
    const VerifyReport report = verify_checkpoint({dir_ / code / "model", dir_ / "source", "", {}});
    for (const Finding& f : report.findings)
      if (f.code.starts_with("scale-s")) {
        EXPECT_EQ(f.code, code) << f.text;
        EXPECT_TRUE(f.text.ends_with(last)) << f.text;
        EXPECT_EQ(f.fix, "quantize the tensor again");
      }
    EXPECT_EQ(codes_of(report).contains("scale-saturated"), factor < 1) << text_of(report);
  }
}

TEST_P(StackedNvfp4, IsQuantizedByMovingIt) {
  quantize_checkpoint(stacked(), dir_ / "a");
  convert(single(), dir_ / "b", "modelopt");
  expect_same_tensors(dir_ / "a", stays_in_modelopt() ? stacked() : dir_ / "b");
}

TEST_P(StackedNvfp4, IsDecodedInTheShapeOfItsModel) {
  convert(stacked(), dir_ / "a", "bf16");
  // The family reads experts one by one, so they stay so.
  auto config = nlohmann::json::parse(std::ifstream(single() / "config.json"));
  config["model_type"] = "deepseek_v3";
  std::ofstream(single() / "config.json") << config.dump();
  convert(single(), dir_ / "b", "bf16");
  const LoadedModel a(dir_ / "a"), b(dir_ / "b");
  EXPECT_EQ(a.tensors.size(), 4u);
  for (const std::string stack : {"gate_up_proj", "down_proj"}) {
    const bool fused = stack == "gate_up_proj";
    const std::int64_t rows = fused ? 2 * model_.intermediate : model_.hidden,
                       cols = fused ? model_.hidden : model_.intermediate;
    const auto& t = a.at(StackedExperts::kPrefix + stack);
    EXPECT_EQ(t.dtype, DType::bf16);
    EXPECT_EQ(t.shape, GetParam().transposed ? (std::vector{model_.experts, cols, rows})
                                             : (std::vector{model_.experts, rows, cols}));
    for (std::int64_t e = 0; e < model_.experts; ++e)
      for (std::int64_t n = 0; n < rows; ++n) {
        const std::int64_t half = rows / 2, part = fused ? n / half : 0;
        const auto& matrix = b.at(
            StackedExperts::kPrefix + std::to_string(e) +
            (fused ? part == 0 ? ".gate_proj.weight" : ".up_proj.weight" : ".down_proj.weight"));
        const std::int64_t row = fused && GetParam().interleaved() ? n % half * 2 + part : n;
        for (std::int64_t k = 0; k < cols; ++k) {
          const std::int64_t at =
              GetParam().transposed ? (e * cols + k) * rows + row : (e * rows + row) * cols + k;
          const std::int64_t from = (fused ? n % half : n) * cols + k;
          ASSERT_EQ(std::memcmp(t.bytes.data() + 2 * at, matrix.bytes.data() + 2 * from, 2), 0)
              << stack << " expert " << e << " [" << n << ", " << k << "]";
        }
      }
  }
}

TEST_P(StackedNvfp4, IsComparedWithExpertsOneByOne) {
  const CompareReport same = compare_checkpoints(stacked(), single());
  EXPECT_EQ(same.identical, 3 * model_.experts + 2);
  EXPECT_TRUE(same.tensors.empty() && same.only_in_a.empty() && same.only_in_b.empty());
  LoadedFolder other(single());
  other.at(StackedExperts::kPrefix + "2.up_proj.weight").bytes[40] ^= std::byte{1};
  other.write(dir_ / "other");
  const CompareReport one = compare_checkpoints(dir_ / "other", stacked());
  ASSERT_EQ(one.tensors.size(), 1u);
  EXPECT_EQ(one.tensors[0].name, StackedExperts::kPrefix + "2.up_proj.weight");
}

TEST_P(StackedNvfp4, LoadsAsTheLayerOfTheSameExperts) {
  const test::MoeCase routing(7, 16, 16, false, 5, 0);  // ids of three experts
  const Matrix x = test::make(test::Fill::gaussian, 7, model_.hidden, 2, nvfp4::DType::bf16);
  const auto result = [&](const fs::path& folder) {
    LoadedFolder model(folder);
    model.remove(StackedExperts::kPrefix + "down_proj_bias");  // layers have none
    model.write(folder);
    return test::run(load_moe(Checkpoint(folder), "model.layers.0.mlp"), x.view(),
                     routing.routing());
  };
  EXPECT_TRUE(test::same_bits(result(stacked()), result(single())));
}

TEST_P(StackedNvfp4, IsVerifiedAndRepaired) {
  EXPECT_EQ(findings_of(stacked()), "");
  const std::string stack = StackedExperts::kPrefix + "down_proj";
  const auto found = [&](const std::function<void(LoadedFolder&)>& fault) {
    LoadedFolder model(stacked());
    fault(model);
    model.write(dir_ / "bad");
    auto options = verify_options(dir_ / "bad");
    std::set<std::string> codes;
    for (const Finding& f : verify_checkpoint(options).findings)
      if (!f.code.ends_with("-limit")) codes.insert(f.code);
    return codes;
  };
  using Codes = std::set<std::string>;
  const auto scale = [&](LoadedFolder& m) -> std::byte& {
    return m.at(stack + "_weight_scale").bytes[77];
  };
  EXPECT_EQ(found([&](auto& m) { scale(m) = std::byte{0x7F}; }), Codes{"scale-nan"});
  EXPECT_EQ(found([&](auto& m) { m.remove(stack + "_weight_scale"); }), Codes{"missing-scale"});
  EXPECT_EQ(found([&](auto& m) { m.remove(stack + "_weight_scale_2"); }),
            Codes{"missing-global-scale"});
  EXPECT_EQ(found([&](auto& m) { m.remove(stack); }), Codes{"orphan-scale"});
  EXPECT_EQ(found([&](auto& m) { m.set_scalar(stack + "_weight_scale_2", 97); }),
            Codes{"global-scale-sense"});
  EXPECT_EQ(found([&](auto& m) { m.set_scalar(stack + "_weight_scale_2", 1); }),
            Codes{"global-scale-sense"});
  EXPECT_EQ(found([&](auto& m) { scale(m) |= std::byte{0x80}; }), Codes{"scale-negative"});
  for (const RepairChange& change :
       repair_checkpoint(repair_options(dir_ / "bad", dir_ / "good")).changes)
    EXPECT_EQ(change.loss.value_or(0), 0) << change.text;
  EXPECT_EQ(findings_of(dir_ / "good"), "");
  convert(single(), dir_ / "b", "modelopt");
  expect_same_tensors(dir_ / "good", stays_in_modelopt() ? stacked() : dir_ / "b");
}

/// Writers store 1 for an expert that is all zero; another may have lost its sense.
TEST(StackedNvfp4, GlobalScalesAreJudgedOneByOne) {
  for (const StackForm& form : {kStackForms[3], kStackForms[5]}) {
    const TempDir dir;
    const StackedExperts model(form);
    model.write(dir / "a", dir / "single");
    const std::string stack = StackedExperts::kPrefix + "down_proj";
    const auto set = [&](LoadedFolder& m, std::size_t expert, float global) {
      std::memcpy(m.at(stack + "_weight_scale_2").bytes.data() + 4 * expert, &global, 4);
    };
    LoadedFolder zeros(dir / "a");
    set(zeros, 1, 1);
    auto& codes = zeros.at(stack).bytes;
    std::fill_n(codes.begin() + static_cast<std::ptrdiff_t>(codes.size() / 3), codes.size() / 3,
                std::byte{0});
    zeros.write(dir / "zeros");
    EXPECT_EQ(findings_of(dir / "zeros"), "");
    LoadedFolder bad(dir / "a");
    const float own = model.form.each ? 2 * 0.0303f : 0.0303f;
    set(bad, 1, 1 / own);
    bad.write(dir / "bad");
    EXPECT_THAT(findings_of(dir / "bad"), HasSubstr("global-scale-sense"));
    repair(dir / "bad", dir / "good");
    EXPECT_EQ(findings_of(dir / "good"), "");
    const CompareReport same = compare_checkpoints(dir / "single", dir / "good");
    EXPECT_LE(same.relative_error, 1e-6) << "but for the rounding of a reciprocal";
  }
}

TEST(StackedNvfp4, DifferingPartnersAreConvertedFirst) {
  const TempDir dir;
  StackedExperts model(kStackForms[3]);
  for (TestTensor& t : model.stacks) {  // a stack of gates, and the same again for up
    const std::size_t at = t.spec.name.find("gate_up_proj");
    if (at != std::string::npos) t.spec.name.replace(at, 12, "gate_proj");
  }
  const std::size_t n = model.stacks.size();
  for (std::size_t i = 0; i < n; ++i) {
    TestTensor up = model.stacks[i];
    const std::size_t at = up.spec.name.find("gate_proj");
    if (at == std::string::npos) continue;
    up.spec.name.replace(at, 9, "up_proj");
    model.stacks.push_back(std::move(up));
  }
  model.write(dir / "a", dir / "single");
  EXPECT_EQ(findings_of(dir / "a"), "");
  LoadedFolder late(dir / "a");
  const float other = 0.5f;
  std::memcpy(late.at(StackedExperts::kPrefix + "up_proj_weight_scale_2").bytes.data() + 8, &other,
              4);
  late.write(dir / "late");
  EXPECT_THAT(findings_of(dir / "late"), HasSubstr("fused-globals"));
  auto options = repair_options(dir / "late", dir / "out");
  expect_error<UnsupportedError>([&] { repair_checkpoint(options); },
                                 {"fused-globals", "up_proj", "nvfp4 convert"});
  EXPECT_FALSE(fs::exists(dir / "out"));
  convert(dir / "late", dir / "apart", "modelopt");
  options.input = dir / "apart";
  repair_checkpoint(options);
  EXPECT_EQ(findings_of(dir / "out"), "");
}

TEST(StackedNvfp4, ScalesBesideAPlainStackAreOmitted) {
  const TempDir dir;
  StackedExperts(kStackForms[0]).write(dir / "a", dir / "single");
  LoadedFolder left(dir / "a");
  auto& tensors = left.shards.begin()->second;
  const std::size_t whole = tensors.size();
  for (std::size_t i = 0; i < whole; ++i) {  // another layer, which stays as it is
    TestTensor t = tensors[i];
    if (!t.spec.name.starts_with(StackedExperts::kPrefix)) continue;
    t.spec.name.replace(t.spec.name.find(".0."), 3, ".1.");
    tensors.push_back(std::move(t));
  }
  const std::string stack = StackedExperts::kPrefix + "down_proj",
                    other = StackedExperts::kPrefix + "gate_up_proj";
  left.at(stack) = random_tensor(stack, {3, 96, 64});
  left.at(other) = random_tensor(other, {3, 64, 192});
  left.write(dir / "left");
  EXPECT_THAT(findings_of(dir / "left"), HasSubstr("orphan-scale"));
  repair(dir / "left", dir / "out");
  EXPECT_FALSE(LoadedModel(dir / "out").has(stack + "_weight_scale"));
  EXPECT_TRUE(LoadedModel(dir / "out").has(stack));
}

TEST(StackedNvfp4, OfManyRowsIsReadInPieces) {
  // 2^22 codes are one chunk: the fused stack has three of each half, the other one and a bit.
  const TempDir dir;
  for (const StackForm& form : {kStackForms[0], kStackForms[1]}) {
    const StackedExperts model(form, 2, 8192, 1040);
    model.write(dir / "stacked", dir / "single");
    for (const char* name : {"stacked", "single"}) {
      fs::remove_all(dir / (std::string(name) + "-ct"));
      convert(dir / name, dir / (std::string(name) + "-ct"), "compressed-tensors");
    }
    expect_same_tensors(dir / "stacked-ct", dir / "single-ct");
    // A block of zeros under a scale of zero, which is no fault where they are taken for each
    // other.
    LoadedFolder zeros(dir / "stacked");
    auto& codes = zeros.at(StackedExperts::kPrefix + "gate_up_proj").bytes;
    auto& scales = zeros.at(StackedExperts::kPrefix + "gate_up_proj_weight_scale").bytes;
    constexpr std::size_t kWidth = 2 * 1040, kColumn = 100, kBlockRow = 5;
    scales[kBlockRow * kWidth + kColumn] = std::byte{0};
    for (std::size_t k = 8 * kBlockRow; k < 8 * kBlockRow + 8; ++k)
      codes[k * kWidth + kColumn] = std::byte{0};
    zeros.write(dir / "stacked");
    EXPECT_EQ(findings_of(dir / "stacked"), "");
  }
}

TEST(StackedNvfp4, OfOtherShapesIsRefused) {
  const TempDir dir;
  const std::string stack = StackedExperts::kPrefix + "down_proj";
  const auto refused = [&](const std::function<void(LoadedFolder&)>& fault) {
    const StackedExperts model(kStackForms[0]);
    model.write(dir / "a", dir / "single");
    LoadedFolder folder(dir / "a");
    fault(folder);
    folder.write(dir / "a");
    for (const std::string to : {"modelopt", "bf16"}) {
      expect_error<FormatError>([&] { convert(dir / "a", dir / "out", to); }, {"down_proj"});
      EXPECT_FALSE(fs::exists(dir / "out"));
    }
  };
  const auto reshape = [&](std::vector<std::int64_t> codes, std::vector<std::int64_t> scales) {
    return [=](LoadedFolder& m) {
      for (const auto& [name, shape] :
           {std::pair(stack, codes), std::pair(stack + "_weight_scale", scales)}) {
        m.at(name).spec.shape = shape;
        m.at(name).bytes.resize(static_cast<std::size_t>(element_count(shape)));
      }
    };
  };
  refused(reshape({3, 48, 64}, {3, 5, 64}));
  refused(reshape({3, 48, 64}, {3, 64, 5}));
  refused(reshape({3, 44, 64}, {3, 6, 64}));
  refused(reshape({3, 0, 64}, {3, 0, 64}));
  refused(reshape({3, 48, 0}, {3, 6, 0}));
  refused(reshape({3, 0, 8}, {3, 0, 1}));
  refused(reshape({std::int64_t{1} << 34, 0, 8}, {std::int64_t{1} << 34, 0, 1}));
  refused([&](LoadedFolder& m) { m.at(stack + "_weight_scale").spec.dtype = DType::u8; });
  refused([&](LoadedFolder& m) {
    m.at(stack + "_weight_scale_2").spec.shape = {2};
    m.at(stack + "_weight_scale_2").bytes.resize(8);
  });
}

TEST(StackedNvfp4, WithoutExpertsIsRefused) {
  const TempDir dir;
  for (const StackForm& form : kStackForms) {
    StackedExperts model(form, 0);
    write_model(dir / "a", {model.stacks}, model.config());
    expect_error<FormatError>([&] { convert(dir / "a", dir / "out", "modelopt"); },
                              {"gate_up_proj", "must not be empty"});
  }
}

/// Step 3.5: "moe.gate_proj" [E, N, K], which vLLM also reads as "moe.experts.0.gate_proj".
TEST(StackedNvfp4, StacksOfStepBecomeSingleExperts) {
  const TempDir dir;
  std::vector<TestTensor> stacks, single;
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    const bool down = std::string_view(name) == "down_proj";
    const std::int64_t rows = down ? 64 : 48, cols = down ? 48 : 64;
    stacks.push_back(
        random_tensor(fmt::format("model.layers.0.moe.{}.weight", name), {2, rows, cols}));
    const auto middle = stacks.back().bytes.begin() + 2 * rows * cols;
    for (int expert = 0; expert < 2; ++expert) {
      single.push_back(stacks.back());
      single.back().spec = {fmt::format("model.layers.0.moe.experts.{}.{}.weight", expert, name),
                            DType::bf16,
                            {rows, cols}};
      single.back().bytes = expert == 0 ? std::vector(stacks.back().bytes.begin(), middle)
                                        : std::vector(middle, stacks.back().bytes.end());
    }
  }
  const std::string config = R"({"model_type": "step3p5", "hidden_size": 64})";
  write_model(dir / "stacks", {stacks}, config);
  write_model(dir / "single", {single}, config);
  quantize_checkpoint(dir / "stacks", dir / "a");
  quantize_checkpoint(dir / "single", dir / "b");
  EXPECT_TRUE(LoadedModel(dir / "a").tensors.contains(
      "model.layers.0.moe.experts.1.down_proj.weight_scale"));
  expect_same_tensors(dir / "a", dir / "b");
  EXPECT_EQ(findings_of(dir / "a"), "");
}

}  // namespace nvfp4::stacked_experts_test
