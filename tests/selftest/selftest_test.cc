// The selftest finds nothing on a machine that is right, and every fault that is put in.
#include "selftest/selftest.h"

#include "backends/backend.h"
#include "backends/cpu/cpu.h"
#include "backends/gemm_backend.h"
#include "backends/host/host.h"
#include "selftest/rates.h"
#include "selftest/run.h"
#include "testing.h"

namespace nvfp4::selftest_test {

using ::testing::HasSubstr;

SelftestReport run_on_cpu(const std::string& inject_fault = "") {
  return run_selftest({.device = Device{}, .rates = false, .inject_fault = inject_fault});
}

selftest::Subject subject_of(const std::string& backend) {
  return {.name = backend, .backend = backend};
}
/// The best instruction set and the reference, which is a third of the time.
SelftestReport run_on_two(const std::string& inject_fault = "",
                          const std::string& other = std::string(find_backend("").name)) {
  const SelftestOptions options{.inject_fault = inject_fault};
  SelftestReport report;
  selftest::Run run(options, report);
  selftest::check_all(run, {subject_of(other), subject_of("reference")});
  return report;
}

std::string faults_of(const SelftestReport& report) {
  std::string all;
  for (const SelftestCheck& c : report.checks)
    if (c.wrong > 0) all += fmt::format("{} {} {}: {}\n", c.subject, c.name, c.part, c.fault);
  return all;
}

std::set<std::string> subjects_with(const SelftestReport& report, bool wrong) {
  std::set<std::string> all;
  for (const SelftestCheck& c : report.checks)
    if ((c.wrong > 0) == wrong) all.insert(c.subject);
  return all;
}

TEST(Selftest, FindsNothingWrongOnThisCpu) {
  const SelftestReport report = run_on_cpu();
  EXPECT_TRUE(report.passed()) << faults_of(report);
  std::set<std::string> names, subjects;
  for (const SelftestCheck& c : report.checks) {
    names.insert(c.name);
    subjects.insert(c.subject);
    EXPECT_GT(c.cases, 0) << c.subject << ' ' << c.name;
    EXPECT_LE(c.worst, 1) << c.subject << ' ' << c.name << ' ' << c.part;
    if (c.name.starts_with("w4a")) {
      EXPECT_FALSE(c.kernels.empty()) << c.subject << ' ' << c.part;
    }
  }
  EXPECT_EQ(names, std::set<std::string>(selftest_checks().begin(), selftest_checks().end()));
  for (const BackendInfo& b : backends())  // "cpu" is another name of one of them
    EXPECT_TRUE(subjects.contains(b.name) == b.available || b.name == "cpu") << b.name;
  EXPECT_FALSE(report.plans.empty());
  EXPECT_TRUE(report.rates.empty());
}

TEST(SelftestSlow, FindsAFlippedBitInEveryCheck) {
  for (const std::string& name : selftest_checks()) {
    const SelftestReport report = run_on_two(name);
    EXPECT_FALSE(report.passed()) << name;
    for (const SelftestCheck& c : report.checks)
      EXPECT_EQ(c.wrong > 0, c.name == name) << c.subject << ' ' << c.name << ' ' << c.part;
  }
}

TEST(Selftest, NamesTheChecksForAFaultOfNone) {
  try {
    run_on_cpu("w4a8");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("inject_fault = 'w4a8', must be one of formats, layouts"));
  }
  EXPECT_THROW(run_selftest({.device = Device::cuda(1000)}), UnsupportedError);
}

TEST(Selftest, IsPassedByNoReportWithoutChecks) { EXPECT_FALSE(SelftestReport{}.passed()); }

/// The best instruction set, with a fault in one of its functions.
class FaultyBackend : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const BackendInfo& b : backends())
      for (const cpu::Target& t : cpu::targets())
        if (highway_ == 0 && b.available && b.name == t.name && t.fill == nullptr)
          highway_ = t.highway;
    if (highway_ == 0) GTEST_SKIP() << "the CPU has none of the SIMD targets";
  }
  /// The names of the checks that find it, in no other subject.
  std::set<std::string> found_with(bool (*fault)(Backend& backend)) {
    const cpu::AddedTarget added({highway_, "cpu-faulty", "a fault", fault});
    const SelftestReport report = run_on_two("", "cpu-faulty");
    EXPECT_EQ(subjects_with(report, true), std::set<std::string>{"cpu-faulty"})
        << faults_of(report);
    std::set<std::string> names;
    for (const SelftestCheck& c : report.checks)
      if (c.wrong > 0) names.insert(c.name);
    return names;
  }
  std::int64_t highway_ = 0;
};
using FaultyBackendSlow = FaultyBackend;

TEST_F(FaultyBackend, ThatRoundsOneElementWronglyIsFound) {
  const auto fault = [](Backend& backend) {
    backend.encode = [](const EncodeJob& job, const Tile& tile) {
      find_backend("reference").encode(job, tile);
      // 0.75 is halfway between 0.5 and 1, whose code is the even one.
      const QuantizedShape& shape = job.out.shape;
      if (shape.axis == BlockAxis::rows && job.x.rows == shape.rows)
        for (std::int64_t v = tile.v0; v < tile.v1; ++v)
          for (std::int64_t k = tile.b0 * kBlock; k < tile.b1 * kBlock; ++k) {
            std::uint8_t& pair = job.out.codes[(v * shape.cols + k) / 2];
            const int at = static_cast<int>(k % 2 * 4);
            if (job.x.at(v, k) == 0.75f && (pair >> at & 0xF) == 2)
              pair = static_cast<std::uint8_t>(pair ^ 3 << at);
          }
    };
    return true;
  };
  EXPECT_EQ(found_with(fault), (std::set<std::string>{"formats", "quantize"}));
}

TEST_F(FaultyBackendSlow, ScalesOneCodeTooLargeAreFound) {
  const auto fault = [](Backend& backend) {
    backend.encode = [](const EncodeJob& job, const Tile& tile) {
      find_backend("reference").encode(job, tile);
      if (job.quantizer != Quantizer::mse) return;
      for (std::int64_t v = tile.v0; v < tile.v1; ++v)
        for (std::int64_t b = tile.b0; b < tile.b1; ++b)
          if (std::uint8_t& scale = job.out.scales[job.out.shape.scale_offset(v, b)]; scale == 0x70)
            ++scale;
    };
    return true;
  };
  EXPECT_EQ(found_with(fault), (std::set<std::string>{"fused", "quantize"}));
}

TEST_F(FaultyBackendSlow, ThatDecodesOneScaleWronglyIsFound) {
  const auto fault = [](Backend& backend) {
    backend.decode = [](const QuantizedView& q, const MatrixSpan& out, const Tile& tile) {
      find_backend("reference").decode(q, out, tile);
      if (out.dtype == DType::bf16 && tile.v0 == 0)
        static_cast<std::uint16_t*>(out.data)[out.cols - 1] ^= 1;
    };
    return true;
  };
  EXPECT_EQ(found_with(fault), std::set<std::string>{"dequantize"});
}

TEST_F(FaultyBackend, MissingBiasOfTheLastColumnIsFound) {
  const auto fault = [](Backend& backend) {
    backend.finish_gemm = [](const GemmOutput& output, const float* sums, std::int64_t stride,
                             const GemmPart& part) {
      find_backend("reference").finish_gemm(output, sums, stride, part);
      if (output.out.dtype == DType::f32 && part.n0 + part.cols == output.out.cols)
        for (std::int64_t m = part.m0; m < part.m0 + part.rows; ++m) {
          float& y =
              static_cast<float*>(output.out.data)[m * output.out.stride + output.out.cols - 1];
          y -= output.bias[output.out.cols - 1];
        }
    };
    return true;
  };
  EXPECT_EQ(found_with(fault), (std::set<std::string>{"w4a16", "w4a4"}));
}

/// Products of the CPU in which the last element of the result is off by a bit.
namespace off_by_a_bit {
GemmBackend table;
const GemmBackend& backend(Device) { return table; }
constexpr GemmBackendEntry kEntry{[](Device d) { return d.type == DeviceType::cpu; }, backend};
}  // namespace off_by_a_bit

TEST(Selftest, FindsAnErrorOfOneBit) {
  off_by_a_bit::table = host::cpu_gemm_backend();
  off_by_a_bit::table.run = [](const GemmCall& call) {
    host::run(call);
    const MatrixSpan& out = std::get<MatrixSpan>(call.arguments.out);
    static_cast<std::uint8_t*>(out.data)[(out.rows * out.cols - 1) * dtype_size(out.dtype)] ^= 1;
  };
  set_first_gemm_backend(&off_by_a_bit::kEntry);
  const SelftestReport report = run_on_two();
  set_first_gemm_backend(nullptr);
  for (const SelftestCheck& c : report.checks)
    EXPECT_EQ(c.wrong > 0, c.name.starts_with("w4a")) << c.subject << ' ' << c.name << c.part;
}

TEST(Selftest, FindsWeightsOfAnotherGroup) {
  off_by_a_bit::table = host::cpu_gemm_backend();
  off_by_a_bit::table.run = [](const GemmCall& call) {
    GemmArguments arguments = call.arguments;
    std::vector<std::int32_t> ends(arguments.row_ends.begin(), arguments.row_ends.end());
    if (!ends.empty()) ends[1] += 1;  // a row of group 2 goes to group 1
    arguments.row_ends = ends;
    host::run({call.plan, arguments, call.workspace, call.stream, call.row_ends_settled});
  };
  set_first_gemm_backend(&off_by_a_bit::kEntry);
  const SelftestReport report = run_on_two();
  set_first_gemm_backend(nullptr);
  for (const SelftestCheck& c : report.checks)
    EXPECT_EQ(c.wrong > 0, c.part == "grouped") << c.subject << ' ' << c.name << c.part;
}

/// With a table of kernels the products are tried with each of them.
TEST(SelftestSlow, TriesEveryKernelThatIsNamed) {
  selftest::Subject subject{.name = "cpu", .backend = "reference"};
  subject.kernels = {"reference_w4a16", "reference_w4a4", "no_kernel"};
  SelftestOptions options;
  SelftestReport report;
  selftest::Run run(options, report);
  selftest::check_gemms(run, {subject});
  std::int64_t cases = 0;
  for (const SelftestCheck& c : report.checks) {
    EXPECT_EQ(c.wrong, 0) << c.fault;
    EXPECT_EQ(c.kernels, std::vector<std::string>{fmt::format("reference_{}", c.name)});
    EXPECT_EQ(c.cases % 2, 0);
    cases += c.cases;
  }
  subject.kernels.clear();
  SelftestReport plain;
  selftest::Run once(options, plain);
  selftest::check_gemms(once, {subject});
  for (const SelftestCheck& c : plain.checks) cases -= 2 * c.cases;
  EXPECT_EQ(cases, 0) << "once as the library chooses, once by name";
}

TEST(CudaSelftest, FindsNothingWrongButWhatIsPutIn) {
  const Device gpu = Device::cuda();
  if (const std::string reason = why_unavailable(gpu); !reason.empty()) GTEST_SKIP() << reason;
  const SelftestReport report = run_selftest({.device = gpu, .rates = false});
  EXPECT_TRUE(report.passed()) << faults_of(report);
  for (const char* name : {"formats", "w4a16"}) {
    const SelftestReport spoilt =
        run_selftest({.device = gpu, .rates = false, .inject_fault = name});
    for (const SelftestCheck& c : spoilt.checks)
      EXPECT_EQ(c.wrong > 0, c.name == name) << c.name << ' ' << c.part << ": " << c.fault;
  }
}

TEST(Selftest, SaysWhatItDoesNotProve) {
  SelftestReport report;
  const auto said_of = [&](const std::string& architecture, bool available = true) {
    report.gpus = {{.info = {.device = Device::cuda(3),
                             .name = "a GPU",
                             .architecture = architecture,
                             .available = available,
                             .reason = "no machine code"}}};
    std::string all;
    for (const std::string& sentence : selftest::not_proven({}, report)) all += sentence + '\n';
    return all;
  };
  for (const char* blackwell : {"sm_100", "sm_103", "sm_120", "sm_121"})
    EXPECT_THAT(said_of(blackwell),
                AllOf(HasSubstr("cuda:3: the FP4 instruction"), HasSubstr("only compiled")));
  EXPECT_THAT(said_of("sm_89"), AllOf(Not(HasSubstr("FP4")), HasSubstr("only compiled")));
  EXPECT_THAT(said_of("sm_90"), Not(HasSubstr("cuda:3")));
  EXPECT_THAT(said_of("sm_75", false), HasSubstr("cuda:3: not tested, no machine code"));
  report.gpus.clear();
  report.backends = {
      {.name = "cpu-old", .available = false, .reason = "this CPU lacks it", .description = ""}};
  const auto without = selftest::not_proven({}, report);
  EXPECT_EQ(without[0], "cpu-old: not run, this CPU lacks it");
  EXPECT_THAT(without[1], HasSubstr("GPUs: none was tested, "));
  EXPECT_THAT(selftest::not_proven({.device = Device{}}, report)[1],
              HasSubstr("devices other than"));
}

TEST(Selftest, MeasuresConversionsAndProducts) {
  SelftestReport report;
  selftest::measure({.name = "here"}, {16, 64, 32, 64, 2, {1, 20}, {20}}, report);
  std::vector<std::string> names;
  for (const SelftestRate& r : report.rates) {
    names.push_back(r.name);
    EXPECT_GT(r.value, 0) << r.name;
    EXPECT_EQ(r.subject, "here");
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"copy", "quantize max", "quantize four_over_six",
                                      "quantize mse", "dequantize", "W4A16, 1 row x [32, 64]",
                                      "W4A16, 20 rows x [32, 64]", "W4A4, 20 rows x [32, 64]"}));
  EXPECT_EQ(report.rates[1].limit, report.rates[0].value) << "of a copy";
}

}  // namespace nvfp4::selftest_test
