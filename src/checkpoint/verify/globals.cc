// Checks global and input scales, of single weights and of layers that loaders fuse.
#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "checkpoint/families/experts.h"
#include "checkpoint/families/fuse.h"
#include "checkpoint/families/select.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// An input scale of this size is a reciprocal, or almost useless.
constexpr float kSuspiciousInput = 16.0f;

/// The largest code times the largest block scale, without the global scale: 6 · 448.
constexpr float kLargestWeight = 2688;

/// Weights or activations below this size are zero in FP16, and in sums with others.
constexpr float kTiny = 0x1p-64f;

/// The ratio of two global scales above which no block scale of one is representable with the
/// other. Block scales are 2^-9 to 448, and half of the smallest one rounds to zero.
constexpr double kFarApart = 448 / 0x1p-10;

std::string number_text(const LogicalTensor& t, const GlobalScale& scale) {
  return fmt::format("{} = {}", t.names->divisors ? "divisor" : "multiplier",
                     t.names->divisors ? scale.divisor : scale.multiplier);
}

/// The smallest block scale, as E4M3, that contradicts a global scale of 1. Writers store 1 beside
/// weights of zeros, and beside block scales that were chosen without a global scale. If 1 is a
/// reciprocal or replaces a lost scale, block scales reach 448.
constexpr std::uint8_t kLarge = 0x68;  // 64: weights up to 384

/// Reports whether a block with a nonzero code has a scale of at least `least`, as E4M3.
bool has_blocks(const LogicalTensor& t, std::size_t global, std::uint8_t least) {
  const std::int64_t row = std::max<std::int64_t>(1, t.depth() / kBlock);
  const std::int64_t step = ceil_div(1 << 16, row) * row;  // rounded to whole rows
  std::vector<std::byte> scales, codes;
  const std::int64_t own = t.elements() / kBlock / static_cast<std::int64_t>(t.globals.size());
  const std::int64_t begin = static_cast<std::int64_t>(global) * own, end = begin + own;
  for (std::int64_t at = begin; at < end; at += step) {
    const auto n = static_cast<std::size_t>(std::min(step, end - at));
    scales.resize(n);
    codes.resize(8 * n);
    t.read_blocks(at, codes, scales);
    for (std::size_t b = 0; b < n; ++b) {
      if (std::to_integer<std::uint8_t>(scales[b] & std::byte{0x7F}) < least) continue;
      const auto block = std::span(codes).subspan(8 * b, 8);
      if (std::ranges::any_of(block, is_not_zero)) return true;
    }
  }
  return false;
}

void add_tiny(const StoredTensor& scale, std::string_view what, const LogicalTensor& t,
              const GlobalScale& value, Findings& findings) {
  findings.add("global-scale-tiny", t.module(), "{}: {}, for {} up to {:.3g}", scale.describe(),
               number_text(t, value), what, kLargestWeight * static_cast<double>(value.multiplier));
}

}  // namespace

void check_global(const LogicalTensor& t, Findings& findings, std::int64_t& defaults) {
  if (static_cast<std::int64_t>(t.globals.size()) > t.matrices())
    findings.add("wrong-shape", t.module(),
                 "{}: {} global scales, one for each row; loaders read one", t.global.describe(),
                 t.globals.size());
  const auto invalid = std::ranges::find_if_not(t.globals, is_valid);
  if (invalid != t.globals.end())
    findings.add("global-scale-invalid", t.module(), "{}: {}", t.global.describe(),
                 number_text(t, *invalid));
  if (const auto wrong = wrong_senses(t); !wrong.empty()) {
    const GlobalScale& scale = t.globals[wrong[0]];
    findings.add("global-scale-sense", t.module(), "{}: {}, so weights would reach {:.3g}",
                 t.global.describe(), number_text(t, scale),
                 kLargestWeight * static_cast<double>(scale.multiplier));
  }
  const auto is_tiny = [](const GlobalScale& s) {
    return is_valid(s) && kLargestWeight * s.multiplier < kTiny;
  };
  for (std::size_t i = 0; i < t.globals.size(); ++i) {
    if (!is_tiny(t.globals[i]) || !has_blocks(t, i, 1)) continue;
    add_tiny(t.global, "weights", t, t.globals[i], findings);
    break;
  }
  if (const auto tiny = std::ranges::find_if(t.inputs, is_tiny); tiny != t.inputs.end())
    add_tiny(t.input, "activations", t, *tiny, findings);
  for (const GlobalScale& scale : t.inputs) {
    if (!is_valid(scale)) {
      findings.add("input-scale-invalid", t.module(), "{}: {}", t.input.describe(),
                   number_text(t, scale));
      break;
    }
    if (scale.multiplier >= kSuspiciousInput) {
      findings.add("input-scale-sense", t.module(), "{}: {}, for activations up to {:.3g}",
                   t.input.describe(), number_text(t, scale),
                   kLargestWeight * static_cast<double>(scale.multiplier));
      break;
    }
    defaults += scale.multiplier == 1.0f;
  }
}

namespace {

/// Returns the ratio of two scales, at least 1.
double apart(const GlobalScale& x, const GlobalScale& y) {
  const double ratio = static_cast<double>(x.multiplier) / static_cast<double>(y.multiplier);
  return ratio < 1 ? 1 / ratio : ratio;
}

std::string both(const LogicalTensor& a, const GlobalScale& x, const LogicalTensor& b,
                 const GlobalScale& y) {
  return fmt::format("{} has {:.6g}, {} has {:.6g} (as multipliers), {:.3g} times apart",
                     a.module(), x.multiplier, b.module(), y.multiplier, apart(x, y));
}

/// Returns the first pair of scales of two weights for which `are` is true of their indices. A
/// weight has one scale, or one for each matrix.
template <class Are>
std::optional<std::pair<GlobalScale, GlobalScale>> first_pair(const std::vector<GlobalScale>& a,
                                                              const std::vector<GlobalScale>& b,
                                                              const Are& are) {
  if (a.empty() || b.empty()) return std::nullopt;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::size_t of_a = std::min(i, a.size() - 1), of_b = std::min(i, b.size() - 1);
    if (are(of_a, of_b)) return std::pair(a[of_a], b[of_b]);
  }
  return std::nullopt;
}

auto first_difference(const std::vector<GlobalScale>& a, const std::vector<GlobalScale>& b) {
  return first_pair(
      a, b, [&](std::size_t i, std::size_t j) { return a[i].multiplier != b[j].multiplier; });
}

/// Returns the first pair of scales without a common scale. Invalid scales and reciprocals have
/// findings of their own. The scale of a matrix of zeros is skipped, because writers choose 1 or a
/// very small value for it.
auto first_far_apart(const LogicalTensor& a, const LogicalTensor& b) {
  return first_pair(a.globals, b.globals, [&](std::size_t i, std::size_t j) {
    const GlobalScale &x = a.globals[i], &y = b.globals[j];
    const bool right = is_valid(x) && is_valid(y) && x.multiplier <= 1 && y.multiplier <= 1;
    return right && apart(x, y) > kFarApart && has_blocks(a, i, 1) && has_blocks(b, j, 1);
  });
}

/// Modules that loaders fuse.
struct Partners {
  std::vector<const LogicalTensor*> quantized;
  std::string kept;  ///< the first module that is not quantized
};

void check_partners(const Partners& partners, Findings& findings) {
  const auto& all = partners.quantized;
  if (!partners.kept.empty() && !all.empty())
    findings.add("fused-partly", partners.kept, "{} is not quantized, {} is", partners.kept,
                 all[0]->module());
  for (std::size_t i = 1; i < all.size(); ++i) {
    const LogicalTensor &a = *all[0], &b = *all[i];
    if (const auto d = first_difference(a.globals, b.globals)) {
      const auto far = first_far_apart(a, b);
      const auto& [x, y] = far ? *far : *d;
      findings.add(far ? "fused-globals-far" : "fused-globals", b.module(), both(a, x, b, y));
    }
    if (const auto d = first_difference(a.inputs, b.inputs))
      findings.add("fused-input-scales", b.module(), both(a, d->first, b, d->second));
  }
}

bool is_of_expert_layer(const LogicalTensor& t) {
  if (expert_layer_of(t.module()).empty()) return false;
  const safetensors::TensorInfo info = t.plain_info();
  return is_expert_weight(info, classify(info));
}

}  // namespace

std::vector<std::size_t> wrong_senses(const LogicalTensor& t) {
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < t.globals.size(); ++i) {
    const GlobalScale& scale = t.globals[i];
    // A weight without a stored global scale has the scale 1.
    const bool one = scale.multiplier == 1 && !t.names->format->global_is_optional;
    if (is_valid(scale) && (scale.multiplier > 1 || (one && has_blocks(t, i, kLarge))))
      wrong.push_back(i);
  }
  return wrong;
}

void check_fused(std::span<const LogicalTensor> tensors, const FuseRules& rules,
                 Findings& findings) {
  std::map<std::string, Partners> groups;
  for (const LogicalTensor& t : tensors)
    if (t.is_nvfp4()) groups[rules.key(t.module())].quantized.push_back(&t);
  for (const auto& [key, partners] : groups) check_partners(partners, findings);
}

void check_globals(const Subject& subject, Findings& findings) {
  const FuseRules rules({}, std::span(&subject.model_type, 1));
  std::map<std::string, Partners> groups;
  std::map<std::string, ExpertCount> expert_layers;
  std::int64_t defaults = 0;
  std::string first_default;
  for (const LogicalTensor& t : subject.tensors) {
    if (subject.defective.contains(t.name)) continue;
    const bool expert = is_of_expert_layer(t);
    if (expert) {
      ExpertCount& count = expert_layers[expert_layer_of(t.module())];
      ++count.weights;
      count.quantized += t.is_nvfp4();
    }
    if (t.is_nvfp4()) {
      const std::int64_t before = defaults;
      check_global(t, findings, defaults);
      if (defaults > before && first_default.empty()) first_default = t.module();
      groups[rules.key(t.module())].quantized.push_back(&t);
    } else if (t.name.ends_with(".weight") && t.shape.size() == 2 && !expert &&
               !is_decay_projection(t.name)) {
      std::string& kept = groups[rules.key(t.module())].kept;
      if (kept.empty()) kept = t.module();
    }
  }
  if (defaults > 0)
    findings.add("input-scale-default", first_default,
                 "{} input scale{} of exactly 1, such as that of {}", defaults,
                 defaults == 1 ? "" : "s", first_default);
  for (const auto& [key, partners] : groups) check_partners(partners, findings);
  for (const auto& [layer, count] : expert_layers)
    if (count.is_partly()) findings.add("fused-partly", layer, count.complaint(layer));
}

}  // namespace nvfp4::checkpoint
