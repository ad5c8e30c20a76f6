// Tests of which kernels are measured for a GEMM, and of the stored result. They use fake times and
// need no GPU.
#include "backends/cuda/gemm/sm90/cost_model.h"
#include "backends/cuda/gemm/tune.h"
#include "testing.h"

namespace nvfp4::cuda::gemm_tune_test {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Capability kH200{.major = 9, .minor = 0, .multiprocessors = 132};

/// Times by name, for each kernel that is asked for; 100 µs for others.
class FakeGpu {
 public:
  explicit FakeGpu(std::map<std::string, double> times = {}) : times_(std::move(times)) {}
  double operator()(const KernelPlan& plan) {
    const std::string name = kernel_name(plan.parts[0].kernel);
    ++asked_[name];
    const auto found = times_.find(name);
    return found == times_.end() ? 100 : found->second;
  }
  const std::map<std::string, int>& asked() const { return asked_; }
  MeasurePlan measure() {
    return [this](const KernelPlan& plan) { return (*this)(plan); };
  }

 private:
  std::map<std::string, double> times_;
  std::map<std::string, int> asked_;
};

const KernelProblem kFew{.n = 4096, .k = 4096, .m = 16, .multiprocessors = kH200.multiprocessors};

/// One that is measured for kFew, and is not chosen.
const std::string kFast = kernel_name(sm90_candidates(kFew).at(3));

TEST(GemmTune, TakesTheFastestKernelThatWasMeasured) {
  const KernelPlan chosen = plan_kernels(kFew, kH200);
  FakeGpu gpu({{kFast, 40}});
  const std::vector<TunedPlan> plans = tune(chosen, kH200, 0, gpu.measure());
  ASSERT_GT(plans.size(), 12u);
  EXPECT_EQ(parts_of(plans[0].plan), (std::vector<NamedPart>{{16, kFast}}));
  EXPECT_EQ(plans[0].microseconds, 40);
  EXPECT_FALSE(plans[0].chosen);
  EXPECT_EQ(std::ranges::count(plans, true, &TunedPlan::chosen), 1);
  EXPECT_EQ(gpu.asked().at(kFast), 6) << "once, then five times in turn";
  for (const auto& [name, times] : gpu.asked()) EXPECT_TRUE(times == 1 || times == 6) << name;
  // Steps and stages are varied of the fastest.
  for (const KernelConfig& other : sm90_variants(kFew, kernel_config(kFast)))
    EXPECT_TRUE(gpu.asked().contains(kernel_name(other))) << kernel_name(other);
  EXPECT_GE(sm90_variants(kFew, kernel_config(kFast)).size(), 3u);
}

TEST(GemmTune, TheModelsLikelyFastestComeFirst) {
  const std::vector<KernelConfig> all = sm90_candidates(kFew);
  ASSERT_GT(all.size(), 12u);
  for (std::size_t i = 1; i < all.size(); ++i)
    EXPECT_LE(estimated_time(kFew, all[i - 1]), estimated_time(kFew, all[i]));
  EXPECT_EQ(all[0], choose_kernel(kFew));
  // At most a dozen tiles and variants of three are measured.
  FakeGpu gpu;
  tune(plan_kernels(kFew, kH200), kH200, 0, gpu.measure());
  std::set<std::string> tiles;
  for (const auto& [name, times] : gpu.asked()) {
    const KernelConfig kernel = kernel_config(name);
    tiles.insert(kernel_name({kernel.m, kernel.n, kernel.split_k}));
  }
  EXPECT_LE(tiles.size(), 13u);
}

TEST(GemmTune, ChosenKernelStaysUnlessAnotherIsFaster) {
  const KernelPlan chosen = plan_kernels(kFew, kH200);
  ASSERT_NE(parts_of(chosen)[0].kernel, kFast);
  for (const auto& [time, taken] : {std::pair(99.5, false), {98.5, true}}) {
    FakeGpu gpu({{kFast, time}});
    const std::vector<TunedPlan> plans = tune(chosen, kH200, 0, gpu.measure());
    EXPECT_EQ(parts_of(plans[0].plan)[0].kernel == kFast, taken) << time;
    EXPECT_EQ(plans[0].chosen, !taken);
  }
}

TEST(GemmTune, OneLuckyTimeIsNotEnough) {
  const KernelPlan chosen = plan_kernels(kFew, kH200);
  int asked = 0;
  const std::vector<TunedPlan> plans = tune(chosen, kH200, 0, [&](const KernelPlan& plan) {
    return parts_of(plan)[0].kernel == kFast && asked++ == 0 ? 10.0 : 100.0;
  });
  EXPECT_TRUE(plans[0].chosen);
  EXPECT_EQ(plans[0].microseconds, 100);
}

TEST(GemmTune, MeasuresOnlyWhatTheProblemAllows) {
  for (const bool invariant : {false, true})
    for (const std::int64_t k : {4096, 4112}) {
      KernelProblem p = kFew;
      p.k = k;
      p.batch_invariant = invariant;
      FakeGpu gpu;
      tune(plan_kernels(p, kH200), kH200, 0, gpu.measure());
      for (const auto& [name, times] : gpu.asked()) {
        const KernelConfig kernel = kernel_config(name);
        EXPECT_EQ(why_impossible(p, kernel), "") << name;
        EXPECT_EQ(kernel.stream_k_steps, 0) << name;
        EXPECT_TRUE(!invariant || is_batch_invariant(kernel)) << name;
      }
    }
  const KernelProblem routed{.n = 1536, .k = 2048, .m = 1, .groups = 8, .routed = true};
  FakeGpu gpu;
  const std::vector<TunedPlan> plans = tune(plan_kernels(routed, kH200), kH200, 0, gpu.measure());
  EXPECT_THAT(plans, SizeIs(4));
  for (const auto& [name, times] : gpu.asked()) EXPECT_THAT(name, HasSubstr("sm90_routed_"));
}

TEST(GemmTune, StreamKTakesTheWholeWorkspace) {
  const KernelProblem deep{.n = 7168, .k = 18432, .m = 16};
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1} << 20, std::int64_t{8} << 20}) {
    FakeGpu gpu;
    std::int64_t most = 0;
    bool stream_k = false;
    for (const TunedPlan& p : tune(plan_kernels(deep, kH200), kH200, bytes, gpu.measure())) {
      most = std::max(most, p.plan.workspace_bytes);
      stream_k |= p.plan.parts[0].kernel.stream_k_steps > 0;
    }
    EXPECT_LE(most, bytes);
    EXPECT_EQ(stream_k, bytes > std::int64_t{1} << 20);
  }
}

TEST(GemmTune, TwoPartsAreAPlanLikeAnyOther) {
  const KernelProblem p{.n = 640, .k = 2880, .m = 5000};
  const KernelPlan chosen = plan_kernels(p, kH200);
  ASSERT_GT(chosen.parts[1].rows, 0);
  const std::vector<NamedPart> parts = parts_of(chosen);
  ASSERT_THAT(parts, SizeIs(2));
  const KernelPlan again = plan_of_parts(chosen.problem, kH200, parts, *chosen.architecture);
  EXPECT_EQ(describe(again), describe(chosen));
  EXPECT_EQ(again.problem, chosen.problem);
  // Parts that are not the problem's.
  const Architecture& sm90 = *chosen.architecture;
  std::vector<NamedPart> wrong = parts;
  wrong[1].rows += 1;
  EXPECT_THROW(plan_of_parts(chosen.problem, kH200, wrong, sm90), ValueError);
  wrong = parts;
  for (const char* name : {"sm90_wgmma_m64n128k257", "sm80_mma_m64n256k64"}) {
    wrong[0].kernel = name;
    EXPECT_THROW(plan_of_parts(chosen.problem, kH200, wrong, sm90), ValueError);
  }
  EXPECT_THROW(plan_of_parts(chosen.problem, kH200, {}, sm90), ValueError);
  KernelProblem grouped = chosen.problem;
  grouped.groups = 4;
  grouped.grouped = true;
  EXPECT_THROW(plan_of_parts(grouped, kH200, parts, sm90), ValueError);
}

TEST(GemmTune, WithoutCandidatesAllKernelsAreMeasured) {
  const Capability a100{.major = 8, .minor = 0, .multiprocessors = 108};
  // Also where another architecture supports the GPU, and comes first.
  for (const Capability& gpu : {a100, kH200}) {
    Architecture unordered = architecture_of("sm80_mma_m64n256k64");
    unordered.candidates = nullptr;
    const Architecture* const sm80[] = {&unordered};
    const KernelPlan chosen = plan_kernels(kFew, gpu, false, sm80);
    std::set<std::string> names;
    const std::vector<TunedPlan> plans = tune(chosen, gpu, 0, [&](const KernelPlan& plan) {
      const std::string name = parts_of(plan)[0].kernel;
      names.insert(name);
      return name == "sm80_mma_m64n256k64" ? 9.0 : 10.0;
    });
    EXPECT_EQ(parts_of(plans[0].plan)[0].kernel, "sm80_mma_m64n256k64");
    std::size_t possible = 0;
    for (const KernelConfig& kernel : kernel_configs(sm80[0]->kernels))
      possible += kernel.split_k == 1 && sm80[0]->why_impossible(kFew, kernel).empty() ? 1 : 0;
    EXPECT_EQ(names.size(), possible);
    EXPECT_GT(possible, 12u);
  }
}

TEST(GemmTune, Sm80MeasuresTheLikelyFastest) {
  const Architecture* const sm80[] = {&architecture_of("sm80_mma_m64n256k64")};
  ASSERT_NE(sm80[0]->candidates, nullptr);
  for (const std::int64_t workspace : {0, 6 << 20}) {
    const KernelPlan chosen = plan_kernels(kFew, kH200, workspace > 0, sm80);
    int measured = 0, shared = 0;
    tune(chosen, kH200, workspace, [&](const KernelPlan& plan) {
      ++measured;
      EXPECT_LE(plan.workspace_bytes, workspace);
      shared += plan.parts[0].kernel.split_k > 1 ? 1 : 0;
      return 10.0;
    });
    EXPECT_GT(measured, 12);
    EXPECT_EQ(shared > 0, workspace > 0);
  }
}

// A tuner with a file.
class GemmTuner : public ::testing::Test {
 protected:
  static GemmDescription few() { return {.m = 16, .n = 4096, .k = 4096, .autotune = true}; }
  Tuner tuner(const std::string& driver = "580.1, CUDA 13.0", const std::string& gpu = "H200") {
    return Tuner({.gpu = gpu, .driver = driver, .library = "0.1.0", .capability = kH200});
  }
  /// Its kernel; how_ says where it is from.
  std::string plan(Tuner& tuner, const GemmDescription& d = few()) {
    const KernelProblem problem{.n = d.n, .k = d.k, .m = d.m, .batch_invariant = d.batch_invariant};
    const KernelPlan found = tuner.plan(
        d, plan_kernels(problem, kH200), file_,
        [this](const GemmDescription&) {
          ++prepared_;
          return gpu_.measure();
        },
        how_);
    return parts_of(found)[0].kernel;
  }

  TempDir dir_;
  std::filesystem::path file_ = dir_ / "cache" / "gemm.txt";
  FakeGpu gpu_{{{kFast, 40}}};
  int prepared_ = 0;
  std::string how_;
};

TEST_F(GemmTuner, MeasuresOnceAndKeepsItForOtherProcesses) {
  Tuner first = tuner();
  EXPECT_EQ(plan(first), kFast);
  EXPECT_EQ(how_, "tuned now");
  EXPECT_EQ(plan(first), kFast);
  EXPECT_EQ(how_, "tuned by this process");
  Tuner second = tuner();
  EXPECT_EQ(plan(second), kFast);
  EXPECT_THAT(how_, HasSubstr("kept in " + file_.string()));
  EXPECT_EQ(prepared_, 1);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(file_.parent_path()), {}), 1)
      << "nothing is left beside the file";
}

TEST_F(GemmTuner, EachGpuDriverAndProblemIsMeasured) {
  Tuner first = tuner();
  plan(first);
  int expected = 1;
  for (Tuner* other :
       {new Tuner(tuner("570.2, CUDA 12.9")), new Tuner(tuner("580.1, CUDA 13.0", "H100"))}) {
    plan(*other);
    EXPECT_EQ(prepared_, ++expected);
    delete other;
  }
  for (const auto& change : std::vector<std::function<void(GemmDescription&)>>{
           [](auto& d) { d.m = 17; }, [](auto& d) { d.n = 4160; }, [](auto& d) { d.k = 4160; },
           [](auto& d) { d.x = DType::f16; }, [](auto& d) { d.out = DType::f32; },
           [](auto& d) { d.batch_invariant = true; },
           [](auto& d) { d.max_workspace_bytes = 1 << 24; }}) {
    GemmDescription d = few();
    change(d);
    plan(first, d);
    EXPECT_EQ(prepared_, ++expected);
  }
  // W4A4 is the same product, once x is decoded.
  GemmDescription w4a4 = few();
  w4a4.scheme = Scheme::w4a4;
  plan(first, w4a4);
  EXPECT_EQ(prepared_, expected);
  Tuner again = tuner();
  plan(again);
  EXPECT_EQ(prepared_, expected) << "all of them are in the file";
  // Kernels of another architecture, where that is asked for.
  const Architecture* const sm80[] = {&architecture_of("sm80_mma_m64n256k64")};
  const KernelPlan old = again.plan(
      few(), plan_kernels(kFew, kH200, false, sm80), file_,
      [&](const GemmDescription&) { return [](const KernelPlan&) { return 1.0; }; }, how_);
  EXPECT_EQ(old.architecture, sm80[0]);
  EXPECT_EQ(how_, "tuned now");
}

TEST_F(GemmTuner, FileEntriesAreCheckedLikeNamedKernels) {
  const TuneKey key{"H200", "580.1, CUDA 13.0", "0.1.0", "sm90 " + problem_key(few())};
  for (const auto& [parts, word] : std::vector<std::pair<std::vector<NamedPart>, const char*>>{
           {{{16, "sm90_nothing"}}, "must be the name of a kernel"},
           {{{16, "sm90_routed_m1n32k1024"}}, ""},
           {{{15, kFast}}, "must have 16"},
           {{{16, "sm90_wgmma_m16n64k256_splitk2_streamk5"}}, ""},
           {{{16, "\x1b[2Jsm90"}}, "\\x1b"}}) {
    SCOPED_TRACE(parts[0].kernel);
    std::filesystem::remove(file_);
    ASSERT_EQ(keep_tune_entry(file_, {key, parts, 1}), "");
    prepared_ = 0;
    Tuner fresh = tuner();
    EXPECT_EQ(plan(fresh), kFast);
    EXPECT_EQ(prepared_, 1);
    EXPECT_THAT(how_, HasSubstr("was ignored: "));
    EXPECT_THAT(how_, HasSubstr(word));
    EXPECT_EQ(how_.find('\x1b'), how_.npos);
    Tuner next = tuner();
    EXPECT_EQ(plan(next), kFast) << "it was replaced";
    EXPECT_EQ(prepared_, 1);
  }
  // A kernel that is not batch-invariant is none for such a product.
  GemmDescription invariant = few();
  invariant.batch_invariant = true;
  ASSERT_EQ(keep_tune_entry(
                file_, {{"H200", "580.1, CUDA 13.0", "0.1.0", "sm90 " + problem_key(invariant)},
                        {{16, kFast}},
                        1}),
            "");
  Tuner fresh = tuner();
  EXPECT_TRUE(is_batch_invariant(kernel_config(plan(fresh, invariant))));
  EXPECT_THAT(how_, HasSubstr("is not batch-invariant"));
}

TEST_F(GemmTuner, TuningMeasuresAgainAndSaysAll) {
  Tuner first = tuner();
  plan(first);
  const KernelPlan chosen = plan_kernels(kFew, kH200);
  const GemmTuning tuning = first.tune(few(), chosen, file_, [&](const GemmDescription&) {
    ++prepared_;
    return gpu_.measure();
  });
  EXPECT_EQ(prepared_, 2);
  EXPECT_EQ(tuning.file, file_.string());
  EXPECT_EQ(tuning.note, "");
  ASSERT_GT(tuning.kernels.size(), 12u);
  EXPECT_EQ(tuning.kernels[0], (TimedKernel{kFast, 40, false}));
  EXPECT_EQ(std::ranges::count(tuning.kernels, true, &TimedKernel::chosen), 1);
  EXPECT_THAT(read_tune_file(file_).entries, SizeIs(1));
}

TEST_F(GemmTuner, WithoutAFileTheProcessRemembers) {
  file_.clear();
  Tuner first = tuner();
  EXPECT_EQ(plan(first), kFast);
  EXPECT_THAT(how_, HasSubstr("NVFP4_TUNE_CACHE"));
  EXPECT_EQ(plan(first), kFast);
  EXPECT_EQ(prepared_, 1);
}

// The file.

TuneEntry entry(const std::string& problem) {
  return {{"NVIDIA H200, 132 multiprocessors", "580.1, CUDA 13.0", "0.1.0", problem},
          {{4000, "a"}, {96, "b"}},
          12.5};
}

TEST(GemmTuneFile, SaysWhatWasWritten) {
  const std::vector<TuneEntry> entries = {entry("p"), entry("q \"quoted\" \\ ü")};
  const std::string text = tune_file_text(entries);
  const TuneFile file = parse_tune_file(text);
  EXPECT_EQ(file.entries, entries);
  EXPECT_EQ(file.note, "");
  EXPECT_TRUE(file.is_ours);
  EXPECT_EQ(parse_tune_file(tune_file_text(std::vector{entry("a\tb\nc")})).entries,
            std::vector{entry("a b c")});
  EXPECT_EQ(parse_tune_file(tune_file_text({})).entries.size(), 0u);
  EXPECT_EQ(parse_tune_file("").note, "");
}

TEST(GemmTuneFile, WhatDoesNotHoldIsIgnored) {
  const std::string good = tune_file_text(std::vector{entry("p")});
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const auto& [from, to] :
       std::vector<std::pair<const char*, std::string>>{{"4000", "0"},
                                                        {"4000", "-1"},
                                                        {"4000", "1e3"},
                                                        {"4000", " 4000"},
                                                        {"4000", "99999999999999999999"},
                                                        {"4000", ""},
                                                        {"\t4000", ""},
                                                        {"\ta\t", fmt::format("\t{:a>600}\t", "")},
                                                        {"\ta\t", "\ta\t1\tc\t"},
                                                        {"12.5", "-1"},
                                                        {"12.5", "1e999"},
                                                        {"12.5", "nan"},
                                                        {"12.5", "soon"},
                                                        {"NVIDIA", "NVIDIA\t"},
                                                        {"\tp\t", "\t\t"},
                                                        {"b\n", "b"},
                                                        {"b\n", "b\t\n"}}) {
    const TuneFile file = parse_tune_file(with(from, to));
    EXPECT_THAT(file.entries, SizeIs(0)) << to;
    EXPECT_NE(file.note, "") << to;
  }
  const TuneFile old = parse_tune_file(with("tuning 1", "tuning 0"));
  EXPECT_THAT(old.note, HasSubstr("version"));
  EXPECT_TRUE(old.is_ours);
  for (const std::string& text :
       {std::string("{"), std::string("\0\0", 2), std::string("another tool 1\n"),
        good.substr(good.find('\n')), std::string(1000000, '\t'), std::string(100000, '\n')}) {
    const TuneFile file = parse_tune_file(text);
    EXPECT_THAT(file.entries, SizeIs(0)) << text.substr(0, 40);
    EXPECT_NE(file.note, "");
    EXPECT_FALSE(file.is_ours);
  }
  // One that is broken does not take the others with it.
  const std::string two = tune_file_text(std::vector{entry("p"), entry("q")});
  std::string text = two;
  const TuneFile file = parse_tune_file(text.replace(text.find("12.5"), 4, "null"));
  EXPECT_EQ(file.entries, std::vector{entry("q")});
  EXPECT_EQ(file.note, "1 of its 2 entries are broken");
}

TEST(GemmTuneFile, AFileThatIsNoneOfOursStays) {
  const TempDir dir;
  const auto path = dir / "notes.txt";
  write_text(path, "dear diary");
  EXPECT_NE(keep_tune_entry(path, entry("p")), "");
  EXPECT_EQ(read_text(path), "dear diary");
  EXPECT_NE(keep_tune_entry(dir.path(), entry("p")), "");
  EXPECT_NE(keep_tune_entry("/dev/null", entry("p")), "");
  EXPECT_NE(keep_tune_entry(path / "below" / "gemm.txt", entry("p")), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(GemmTuneFile, AnEntryReplacesThatOfItsKey) {
  const TempDir dir;
  const auto path = dir / "a" / "b" / "gemm.txt";
  EXPECT_EQ(keep_tune_entry(path, entry("p")), "");
  EXPECT_EQ(keep_tune_entry(path, entry("q")), "");
  TuneEntry other = entry("p");
  other.microseconds = 7;
  EXPECT_EQ(keep_tune_entry(path, other), "");
  EXPECT_EQ(read_tune_file(path).entries, (std::vector{entry("q"), other}));
}

TEST(GemmTuneFile, WritersAtOnceLeaveItWhole) {
  const TempDir dir;
  const auto path = dir / "gemm.txt";
  {
    std::vector<std::jthread> writers;
    for (int w = 0; w < 4; ++w)
      writers.emplace_back([&, w] {
        for (int i = 0; i < 25; ++i) {
          EXPECT_EQ(keep_tune_entry(path, entry(fmt::format("{} {}", w, i))), "");
          const TuneFile seen = read_tune_file(path);
          EXPECT_EQ(seen.note, "");
          EXPECT_GE(seen.entries.size(), 1u);
        }
      });
  }
  EXPECT_EQ(read_tune_file(path).note, "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(GemmTuneFile, LiesWhereTheEnvironmentSays) {
  const auto path = [](std::map<std::string, const char*> environment) {
    return tune_file_path([&](const char* name) {
             const auto found = environment.find(name);
             return found == environment.end() ? nullptr : found->second;
           })
        .string();
  };
  EXPECT_EQ(path({{"NVFP4_TUNE_CACHE", "t"}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "t");
  EXPECT_EQ(path({{"NVFP4_TUNE_CACHE", ""}, {"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}),
            "/x/nvfp4/gemm.txt");
  EXPECT_EQ(path({{"XDG_CACHE_HOME", "x"}, {"HOME", "/h"}}), "/h/.cache/nvfp4/gemm.txt");
  EXPECT_EQ(path({}), "");
}

TEST(GemmTuneFile, KnowsTheDriver) {
  EXPECT_EQ(driver_version("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue "
                           "Sep 2\nGCC version:  gcc version 12.2.0\n",
                           13000),
            "580.159.04, CUDA 13.0");
  EXPECT_EQ(driver_version("", 12090), "CUDA 12.9");
  EXPECT_EQ(driver_version("no number here", 13010), "CUDA 13.1");
}

}  // namespace nvfp4::cuda::gemm_tune_test
