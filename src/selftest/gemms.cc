// Compares GEMMs with sums in FP64. With integers every order of additions gives the same sum, so
// the results must be equal bit for bit. With other numbers they must be within a bound.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/parallel_for.h"
#include "nvfp4/error.h"
#include "nvfp4/gemm.h"
#include "selftest/inputs.h"
#include "selftest/run.h"

namespace nvfp4::selftest {
namespace {

constexpr std::int64_t kGroups = 3;
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 28;

struct Product {
  std::int64_t m, n, k;
  Scheme scheme = Scheme::w4a16;
  DType x = DType::bf16, out = DType::f32;
  GemmForm form = GemmForm::dense;
  bool exact = true;  ///< true for integers

  bool w4a4() const { return scheme == Scheme::w4a4; }
  std::int64_t groups() const { return form == GemmForm::dense ? 1 : kGroups; }
  std::int64_t x_cols() const { return form == GemmForm::every_group ? k * kGroups : k; }
  std::int64_t out_cols() const { return form == GemmForm::every_group ? n * kGroups : n; }
  /// Returns the matrix of out[row, col]. Group 1 of a grouped GEMM is empty.
  std::int64_t group_of(std::int64_t row, std::int64_t col) const {
    switch (form) {
      case GemmForm::grouped:
        return row < m / 3 ? 0 : 2;
      case GemmForm::routed:
        return row % kGroups;
      case GemmForm::every_group:
        return col / n;
      case GemmForm::dense:
        break;
    }
    return 0;
  }
};

constexpr std::string_view kFormNames[] = {"dense", "grouped", "routed", "every_group"};
std::string_view form_name(GemmForm form) { return kFormNames[static_cast<std::size_t>(form)]; }

std::string to_string(const Product& p, const std::string& kernel) {
  return fmt::format("[{}, {}] x [{}, {}] of {}, x {}, out {}{}{}", p.m, p.k, p.n, p.k,
                     p.exact ? "integers" : "fractions", dtype_name(p.x), dtype_name(p.out),
                     kernel.empty() ? "" : ", ", kernel);
}

/// Returns random codes with scales and global scales that are powers of two: their sums have few
/// bits.
QuantizedMatrix whole_numbers(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  constexpr float kFactors[] = {0.5f, 1.0f, 2.0f};
  QuantizedMatrix q({.rows = rows, .cols = cols, .scope = GlobalScope::vector});
  Random random(seed);
  for (std::int64_t i = 0; i < q.shape().code_bytes(); ++i)
    q.codes()[i] = static_cast<std::uint8_t>(random.below(256));
  for (std::int64_t i = 0; i < q.shape().scale_bytes(); ++i)
    q.scales()[i] = E4M3::from_float(kFactors[random.below(3)]).bits;
  for (std::int64_t r = 0; r < rows; ++r) q.global_scale()[r] = kFactors[random.below(3)];
  return q;
}

/// Returns e2m1 · scale.
Matrix unscaled(QuantizedView q) {
  const float one = 1.0f;
  q.global_scale = &one;
  q.shape.scope = GlobalScope::tensor;
  return dequantize(q, DType::f32, kReference);
}

/// Returns int32 values on the device of a GEMM.
Matrix int32s(const std::vector<std::int32_t>& values, Device device) {
  Matrix m(DType::f32, 1, static_cast<std::int64_t>(values.size()));
  std::memcpy(m.data<std::byte>(), values.data(), values.size() * 4);
  return to_device(m.view(), device);
}

float rounded(double y, DType type) {
  const auto f = static_cast<float>(y);
  return type == DType::f32    ? f
         : type == DType::bf16 ? BF16::from_float(f).to_float()
                               : FP16::from_float(f).to_float();
}

/// The operands of a GEMM on the CPU, and its result in FP64.
class Problem {
 public:
  explicit Problem(const Product& product) : p(product) {
    const auto seed = static_cast<std::uint64_t>(p.m * 131 + p.n * 7 + p.k);
    const std::int64_t rows = p.groups() * p.n;
    if (p.exact) {
      w = whole_numbers(rows, p.k, seed);
      x = integers(p.x, p.m, p.x_cols(), 4, seed + 1);
      if (p.w4a4()) x4 = whole_numbers(p.m, p.x_cols(), seed + 1);
      bias = integers(DType::f32, 1, rows, 64, seed + 2);
    } else {
      const GlobalScope scope = p.m % 2 ? GlobalScope::vector : GlobalScope::tensor;
      w = quantize(random_matrix(DType::bf16, rows, p.k, seed).view(),
                   {.quantizer = Quantizer::max, .scope = scope, .backend = kReference});
      x = random_matrix(p.x, p.m, p.x_cols(), seed + 1);
      if (p.w4a4())
        x4 = quantize(
            x.view(),
            {.quantizer = Quantizer::max, .scope = GlobalScope::vector, .backend = kReference});
      bias = random_matrix(DType::f32, 1, rows, seed + 2);
    }
    add_up();
  }

  std::string fault(const Matrix& got, double unit, double& worst) const {
    for (std::int64_t i = 0; i < p.m * p.out_cols(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t row = i / p.out_cols(), col = i % p.out_cols();
      const float y = got.view().at(row, col);
      if (p.exact) {
        if (y != rounded(exact[at], p.out))
          return fmt::format("out[{}, {}] = {}, must be {}", row, col, y,
                             rounded(exact[at], p.out));
        continue;
      }
      const double error = std::abs(static_cast<double>(y) - exact[at]), most = bound(at, unit);
      if (!(error <= most))
        return fmt::format("out[{}, {}] = {}, must be {} up to {:.3g}", row, col, y, exact[at],
                           most);
      worst = std::max(worst, error / most);
    }
    return {};
  }

  Product p;
  QuantizedMatrix w, x4;
  Matrix x, bias;
  float alpha = 0.5f;

 private:
  void add_up() {
    const Matrix ws = unscaled(w.view());
    Matrix xs = p.w4a4() ? unscaled(x4.view()) : Matrix(DType::f32, p.m, p.x_cols());
    if (!p.w4a4())
      for (std::int64_t i = 0; i < x.view().size(); ++i)
        xs.data<float>()[i] = x.view().at(i / p.x_cols(), i % p.x_cols());
    const auto size = static_cast<std::size_t>(p.m * p.out_cols());
    exact.resize(size);
    sums.resize(size);
    norms.resize(size);
    parallel_for(p.m, [&](std::int64_t m) { add_up_row(m, ws, xs); });
  }
  void add_up_row(std::int64_t m, const Matrix& ws, const Matrix& xs) {
    for (std::int64_t col = 0; col < p.out_cols(); ++col) {
      const std::int64_t row = p.group_of(m, col) * p.n + col % p.n;
      const float* a = xs.data<float>() + m * p.x_cols() +
                       (p.form == GemmForm::every_group ? col / p.n * p.k : 0);
      const float* b = ws.data<float>() + row * p.k;
      double sum = 0, norm = 0;
      for (std::int64_t k = 0; k < p.k; ++k) {
        const double v = static_cast<double>(a[k]) * static_cast<double>(b[k]);
        sum += v;
        norm += std::abs(v);
      }
      double factor = static_cast<double>(alpha) * static_cast<double>(w.view().global_of(row));
      if (p.w4a4()) factor *= static_cast<double>(x4.view().global_of(m));
      const auto at = static_cast<std::size_t>(m * p.out_cols() + col);
      exact[at] = factor * sum + static_cast<double>(bias.data<float>()[row]);
      sums[at] = std::abs(factor * sum);
      norms[at] = std::abs(factor) * norm;
    }
  }
  /// Returns the bound of the error. Each of K products and K additions has an error of at most one
  /// unit of the norm. Four more roundings are those of the factors and the scaled sum, then the
  /// bias, then the result.
  double bound(std::size_t at, double unit) const {
    constexpr double kUnit = 0x1p-24;
    const double to = p.out == DType::f32 ? 0 : p.out == DType::bf16 ? 0x1p-8 : 0x1p-11;
    return 1.01 * (unit * (static_cast<double>(p.k) + 2) * norms[at] + 4 * kUnit * sums[at] +
                   (kUnit + to) * std::abs(exact[at])) +
           (p.out == DType::f16 ? 0x1p-25 : 0x1p-140);
  }

  std::vector<double> exact, sums, norms;
};

/// The operands on a device.
class Placed {
 public:
  Placed(const Problem& problem, const Subject& subject)
      : problem_(problem),
        p_(problem.p),
        subject_(subject),
        weights_(pack_weights(problem.w.view(), {.groups = p_.groups(), .device = subject.device})),
        x_(to_device(problem.x.view(), subject.device)),
        bias_(to_device(problem.bias.view(), subject.device)),
        ends_(int32s({static_cast<std::int32_t>(p_.m / 3), static_cast<std::int32_t>(p_.m / 3),
                      static_cast<std::int32_t>(p_.m)},
                     subject.device)),
        ids_(int32s(ids(), subject.device)) {
    if (p_.w4a4()) x4_ = to_device(problem.x4.view(), subject.device);
  }

  GemmPlan plan(const std::string& kernel, std::int64_t workspace) const {
    return plan_gemm(weights_, {.m = p_.m,
                                .form = p_.form,
                                .scheme = p_.scheme,
                                .x = p_.x,
                                .out = p_.out,
                                .top_k = p_.form == GemmForm::routed ? 1 : 0,
                                .max_workspace_bytes = workspace,
                                .kernel = kernel,
                                .backend = subject_.backend});
  }

  Matrix run(const GemmPlan& plan) const {
    const Device device = subject_.device;
    Matrix out(p_.out, p_.m, p_.out_cols(), device);
    const Buffer workspace(plan.workspace_bytes(), device);
    GemmArguments a{.weights = weights_, .out = out.span(), .alpha = problem_.alpha};
    if (p_.w4a4())
      a.x = x4_.view();
    else
      a.x = x_.view();
    a.bias = {bias_.data<float>(), static_cast<std::size_t>(problem_.bias.cols())};
    if (p_.form == GemmForm::grouped)
      a.row_ends = {ends_.data<std::int32_t>(), static_cast<std::size_t>(kGroups)};
    if (p_.form == GemmForm::routed)
      a.routing = {.ids = ids_.data<std::int32_t>(), .id_stride = 1, .rows = p_.m, .top_k = 1};
    gemm(plan, a,
         {static_cast<std::byte*>(workspace.data()),
          static_cast<std::size_t>(plan.workspace_bytes())});
    synchronize(device);
    return to_device(out.view(), {});
  }

 private:
  std::vector<std::int32_t> ids() const {
    std::vector<std::int32_t> all;
    for (std::int64_t row = 0; row < p_.m; ++row)
      all.push_back(static_cast<std::int32_t>(p_.group_of(row, 0)));
    return all;
  }

  const Problem& problem_;
  Product p_;
  const Subject& subject_;
  PackedWeights weights_;
  Matrix x_, bias_, ends_, ids_;
  QuantizedMatrix x4_;
};

void check_product(Run& run, const Problem& problem, const Subject& subject) {
  const Product& p = problem.p;
  const CheckName name{p.w4a4() ? "w4a4" : "w4a16", form_name(p.form)};
  const bool on_gpu = subject.device.type == DeviceType::cuda;
  if (on_gpu && p.x == DType::f32) return;
  std::optional<Placed> placed;
  const auto check = [&](const std::string& kernel, const GemmPlan& plan) {
    run.check(subject, name, to_string(p, kernel), [&](SelftestCheck& c) {
      if (std::ranges::find(c.kernels, plan.kernel()) == c.kernels.end())
        c.kernels.push_back(plan.kernel());
      Matrix got = placed->run(plan);
      run.inject_fault(name.name, got.data<std::uint8_t>());
      // Tensor cores truncate, other units round.
      return problem.fault(got, on_gpu ? 0x1p-23 : 0x1p-24, c.worst);
    });
  };
  GemmPlan chosen, with_workspace;
  run.check(subject, name, to_string(p, ""), [&](SelftestCheck& c) {
    placed.emplace(problem, subject);
    chosen = placed->plan("", 0);
    with_workspace = placed->plan("", kMostWorkspace);
    --c.cases;  // the checks below count the GEMM itself
    return std::string();
  });
  if (with_workspace.empty()) return;
  check("", chosen);
  if (with_workspace.workspace_bytes() > chosen.workspace_bytes()) check("", with_workspace);
  for (const std::string& kernel : subject.kernels) {
    GemmPlan plan;
    try {
      plan = placed->plan(kernel, kMostWorkspace);
    } catch (const ValueError&) {
      continue;  // the kernel does not support this GEMM
    } catch (const UnsupportedError&) {
      continue;
    }
    check(kernel, plan);
  }
}

void check_everywhere(Run& run, const std::vector<Subject>& subjects, Product p) {
  for (const bool exact : {true, false}) {
    p.exact = exact;
    const Problem problem(p);
    for (const Subject& s : subjects) check_product(run, problem, s);
  }
}

}  // namespace

void check_gemms(Run& run, const std::vector<Subject>& subjects) {
  constexpr DType kOut[] = {DType::f32, DType::bf16, DType::f16};
  for (const Scheme scheme : {Scheme::w4a16, Scheme::w4a4}) {
    std::size_t i = 0;
    for (const std::int64_t m : {1, 5, 17, 70, 133})
      for (const DType x : {DType::bf16, DType::f16, DType::f32}) {
        if (x != DType::bf16 && (scheme == Scheme::w4a4 || (m != 5 && m != 70))) continue;
        const std::int64_t k = m % 2 ? 704 : 720;
        check_everywhere(run, subjects, {m, 136, k, scheme, x, kOut[i++ % 3]});
      }
    check_everywhere(run, subjects, {300, 264, 128, scheme, DType::bf16, DType::bf16});
    for (const GemmForm form : {GemmForm::grouped, GemmForm::routed, GemmForm::every_group})
      for (const std::int64_t m : {7, 67})
        check_everywhere(run, subjects,
                         {m, 144, 192 + 16 * (m % 7), scheme, DType::bf16, kOut[i++ % 3], form});
  }
}

}  // namespace nvfp4::selftest
