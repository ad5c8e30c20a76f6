// The kernels that are chosen for known and held-back shapes, as tests/ops/data/gemm_choices.txt
// lists them: who changes the cost model sees here what else changes. No GPU is needed.
#include "../../bench/cuda/gemm_shapes.h"
#include "backends/cuda/gemm/plan.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_choices_test {

constexpr Capability kH200{.major = 9, .minor = 0, .multiprocessors = 132};
constexpr std::int64_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
constexpr std::int64_t kTokens[] = {1, 16, 128, 1024};

/// "4096x7168 1:sm90_... 2:sm90_...", and of two parts "4096:sm90_...:sm90_...:3840".
template <class ProblemOf>
std::string line_of(const std::string& name, std::span<const std::int64_t> rows, bool stream_k,
                    const ProblemOf& problem_of) {
  std::string line = name;
  for (const std::int64_t m : rows) {
    const KernelPlan plan = plan_kernels(problem_of(m), kH200, stream_k);
    line += fmt::format(" {}", m);
    for (const PlanPart& part : plan.parts)
      if (part.rows > 0) line += fmt::format(":{}", kernel_name(part.kernel));
    if (plan.parts[1].rows > 0) line += fmt::format(":{}", plan.parts[0].rows);
  }
  return line;
}

std::vector<std::string> lines_of(const bench::GemmShape& s) {
  std::vector<std::string> lines;
  for (const bool stream_k : {false, true}) {
    const std::string name = fmt::format("{}x{}{}", s.n, s.k, stream_k ? " workspace" : "");
    lines.push_back(line_of(name, kRows, stream_k, [&](std::int64_t m) {
      return KernelProblem{.n = s.n, .k = s.k, .m = m};
    }));
  }
  return lines;
}

/// Gate and up, and down, as the Moe layer has them: routed for one token, grouped for more.
std::vector<std::string> lines_of(const bench::MoeShape& s) {
  const auto problem = [&](std::int64_t tokens, std::int64_t n, std::int64_t k, bool swiglu) {
    const std::int64_t rows = tokens * s.top_k;
    const bool routed = tokens == 1;
    return KernelProblem{.n = n,
                         .k = k,
                         .m = routed ? 1 : rows,
                         .groups = routed ? rows : s.experts,
                         .grouped = !routed,
                         .routed = routed,
                         .swiglu = swiglu};
  };
  return {line_of(fmt::format("{} gate_up", s.model), kTokens, false,
                  [&](std::int64_t t) { return problem(t, 2 * s.intermediate, s.hidden, true); }),
          line_of(fmt::format("{} down", s.model), kTokens, false,
                  [&](std::int64_t t) { return problem(t, s.hidden, s.intermediate, false); })};
}

TEST(GemmChoices, AreThoseOfTheList) {
  std::vector<std::string> lines;
  const auto add = [&](const auto& shapes) {
    for (const auto& s : shapes)
      for (std::string& line : lines_of(s)) lines.push_back(std::move(line));
  };
  add(bench::kKnownShapes);
  add(bench::kModelShapes);
  add(bench::kMoeShapes);
  std::ifstream in(NVFP4_SOURCE_DIR "/tests/ops/data/gemm_choices.txt");
  ASSERT_TRUE(in.is_open());
  std::vector<std::string> listed;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with('#')) listed.push_back(line);
  EXPECT_EQ(listed.size(), lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(i < listed.size() ? listed[i] : "", lines[i]) << "the second is what is chosen";
}

}  // namespace nvfp4::cuda::gemm_choices_test
