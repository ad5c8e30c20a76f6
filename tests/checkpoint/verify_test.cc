#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"

namespace nvfp4::checkpoint_verify_test {

using table::Model;
using table::Row;
const FindingKind& kind_of(const std::string& code) {
  for (const FindingKind& kind : finding_kinds())
    if (kind.code == code) return kind;
  throw std::runtime_error("no kind " + code);
}

std::set<std::string> every_code() {
  std::set<std::string> codes;
  for (const FindingKind& kind : finding_kinds())
    if (!kind.code.starts_with("gguf-")) codes.emplace(kind.code);  // gguf/verify_test.cc
  return codes;
}

class VerifyTable : public testing::TestWithParam<Row> {};

TEST_P(VerifyTable, FindsWhatTheRowNames) {
  const Model model(GetParam().column(0), GetParam().column(1));
  const table::Expected how(GetParam().column(2)), expected(GetParam().column(3));
  auto options = verify_options(model.path);
  if (std::ranges::count(how.words, "source") > 0) options.source = model.source;
  options.full = std::ranges::count(how.words, "full") > 0;
  if (const auto gpus = how.value("gpus")) options.tensor_parallel = std::stoi(*gpus);
  for (const std::string& loader : table::split(how.value("loader").value_or("-"), ',')) {
    SCOPED_TRACE(loader);
    options.loader = loader == "-" ? "" : loader;
    const VerifyReport report = verify_checkpoint(options);
    expected.expect_codes(report);
    EXPECT_EQ(report.format, expected.value("format").value_or(report.format));
    EXPECT_EQ(report.scheme, expected.value("scheme").value_or(report.scheme));
    for (const Finding& f : report.findings) {
      EXPECT_FALSE(f.tensor.empty() || f.text.empty() || f.effect.empty() || f.fix.empty())
          << f.code;
      EXPECT_EQ(f.text.find('\n'), std::string::npos) << f.text;
      EXPECT_TRUE(report.broken() || kind_of(f.code).severity != Severity::error) << f.code;
    }
    const auto json = nlohmann::json::parse(to_json(report));
    EXPECT_EQ(json.at("findings").size(), report.findings.size());
    EXPECT_EQ(json.at("broken"), report.broken());
  }
  const auto refusal = expected.value("repair");
  if (!refusal) return;
  RepairOptions repair = repair_options(model.path, model.dir / "repaired");
  repair.source = options.source;
  if (refusal->empty()) {
    EXPECT_FALSE(repair_checkpoint(repair).after.broken());
  } else {
    expect_error<UnsupportedError>([&] { repair_checkpoint(repair); }, {*refusal});
    EXPECT_FALSE(fs::exists(repair.output));
  }
}

INSTANTIATE_TEST_SUITE_P(Row, VerifyTable, testing::ValuesIn(table::rows_of("verify.txt")),
                         table::test_name);

TEST(Verify, EveryCodeHasARow) {
  std::set<std::string> rows;
  for (const Row& row : table::rows_of("verify.txt"))
    if (table::Expected(row.column(3)).words.at(0) == row.name) rows.insert(row.name);
  EXPECT_EQ(rows, every_code());
}

TEST(Verify, SourceThatMatchesWithdrawsGuesses) {
  for (const Row& row : table::rows_of("verify.txt")) {
    if (row.name != "scales-look-swizzled" && row.name != "global-scale-sense") continue;
    const Model model(row.column(0), row.column(1));
    VerifyOptions options{model.path, model.source, "", {}};
    EXPECT_TRUE(codes_of(verify_checkpoint(options)).contains(row.name)) << "it was right";
    // The source has the values of the faulty weights.
    convert(model.path, model.dir / "decoded", "bf16", /*force=*/true);
    options.source = model.dir / "decoded";
    const VerifyReport report = verify_checkpoint(options);
    EXPECT_FALSE(codes_of(report).contains(row.name)) << text_of(report);
  }
}

TEST(Verify, SourceGivesTheWindowOfGlobalScales) {
  // The largest maximum of a block is 1. The method mse needs a global scale for 1.75.
  struct Case {
    float smallest;  ///< maximum of a block beside one of zeros
    std::string max, mse;
  };
  for (const Case& c :
       {Case{0x1p-13f, "", ""}, Case{0x1p-14f, "", ""}, Case{0x1.fcp-15f, "", "scale-subnormal"},
        Case{0x1.cp-15f, "", "scale-subnormal"}, Case{0x1p-16f, "", ""}})
    for (const std::string method : {"max", "mse"}) {
      const TempDir dir;
      std::vector<float> values(32 * 64);
      for (std::size_t i = 16; i < values.size(); ++i)
        values[i] = (i < 32 ? c.smallest : 1.0f) / static_cast<float>(1 + i % 2);
      TestTensor tensor = random_tensor("model.layers.0.mlp.down_proj.weight", {32, 64});
      tensor.bytes = encode(values, safetensors::DType::bf16);
      write_model(dir / "source", {{std::move(tensor)}}, kLlamaConfig);
      quantize_checkpoint(dir / "source", dir / "out", {"--method", method});
      const VerifyReport guess = verify_checkpoint(verify_options(dir / "out"));
      EXPECT_EQ(codes_of(guess).contains("scale-saturated"), method == "max") << text_of(guess);
      std::set<std::string> found =
          codes_of(verify_checkpoint({dir / "out", dir / "source", "", {}}));
      std::erase_if(found, [](const std::string& code) { return !code.starts_with("scale-"); });
      const std::string& expected = method == "max" ? c.max : c.mse;
      EXPECT_EQ(found, expected.empty() ? std::set<std::string>{} : std::set{expected})
          << c.smallest;
    }
}

TEST(Verify, UnknownLoaderAndPathAreRefused) {
  const TempDir dir;
  auto options = verify_options(dir / "nowhere");
  expect_error<IoError>([&] { verify_checkpoint(options); }, {"nowhere"});
  options.path = dir.path();
  expect_error<IoError>([&] { verify_checkpoint(options); }, {".safetensors"});
  options.loader = "x";
  expect_error<ValueError>([&] { verify_checkpoint(options); }, {"loader = 'x'", "vllm"});
  const Model model("llama");
  expect_error<IoError>([&] { verify_checkpoint({model.path, dir / "none", "", {}}); }, {"none"});
}

/// A row for each kind of fault that `nvfp4 repair` is the fix of.
class RepairTable : public testing::TestWithParam<Row> {};

TEST_P(RepairTable, MendsTheFault) {
  const std::string& code = GetParam().name;
  const Model model(GetParam().column(0), GetParam().column(1));
  quantize_checkpoint(model.source, model.dir / "good");
  RepairOptions options = repair_options(model.path, model.dir / "repaired");
  if (GetParam().column(2) == "source" || code.starts_with("fused-globals"))
    options.source = model.source;
  if (code.ends_with("-config"))  // as the fix says
    fs::copy_file(model.source / "config.json", model.path / "config.json",
                  fs::copy_options::overwrite_existing);
  options.scales_swizzled = code == "scales-look-swizzled";
  EXPECT_FALSE(repair_checkpoint(options).after.broken());
  for (const Finding& f : verify_checkpoint({options.output, model.source, "", {}}).findings)
    EXPECT_EQ(f.severity, Severity::note) << f.code << ": " << f.text;
  const CompareReport good = compare_checkpoints(model.source, model.dir / "good");
  const CompareReport out = compare_checkpoints(model.source, options.output);
  EXPECT_LE(out.relative_error, 1.02 * good.relative_error) << "as near to the source as before";
  EXPECT_GT(out.relative_error, 0);
  EXPECT_TRUE(out.only_in_a.empty() && out.only_in_b.empty() && out.shape_mismatch.empty());
  EXPECT_EQ(out.tensors.size(), good.tensors.size());
}

std::vector<Row> rows_that_repair_fixes() {
  std::vector<Row> rows;
  for (const Row& row : table::rows_of("verify.txt")) {
    if (!every_code().contains(row.name)) continue;
    const std::string_view fix = kind_of(row.name).fix;
    if (fix.starts_with("nvfp4 repair ") || fix.ends_with(", then nvfp4 repair"))
      rows.push_back(row);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Row, RepairTable, testing::ValuesIn(rows_that_repair_fixes()),
                         table::test_name);

}  // namespace nvfp4::checkpoint_verify_test
