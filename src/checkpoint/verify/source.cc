// Compares every weight with its source.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/base/json_members.h"
#include "checkpoint/compare/measured.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/source/cache.h"
#include "checkpoint/source/quantized_tensors.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The relative error above which a weight does not fit its source. Rounding to 4 bits with simple
/// scales gives about 0.1 for normal weights, and 0.17 for the worst real ones. A misread tensor
/// has 0.5 and more.
constexpr double kFar = 0.3;
constexpr std::int64_t kProbe = 1 << 18;  ///< elements to read to find the cause

/// A deviation of a stored weight from its format.
struct Misreading {
  const char* code;
  const char* text;
  bool nibbles = false, tiles = false, reciprocal = false;
};
constexpr Misreading kMisreadings[] = {
    {"swizzled-scales", "if the scales are read out of 128x4 tiles", false, true, false},
    {"nibble-order", "if the even column is taken from the high nibble", true, false, false},
    {"nibble-order", "if the even column is taken from the high nibble and the scales out of tiles",
     true, true, false},
    {"global-scale-sense", "if the global scale is taken the other way", false, false, true},
};

double relative_error(const TensorPair& pair, const LogicalTensor& read_as) {
  std::int64_t rows = pair.shape.size() < 2 ? 1 : std::max<std::int64_t>(1, kProbe / pair.shape[1]);
  if (pair.shape.size() >= 2) rows = std::min(rows, pair.shape[0]);
  const std::int64_t cols = pair.shape.empty() ? 1 : pair.shape.back();
  std::vector<float> a(static_cast<std::size_t>(rows * cols)), b(a.size());
  TensorSlice slice = pair.b;
  slice.tensor = &read_as;
  pair.a.read(0, cols, a);
  slice.read(0, cols, b);
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += d * d;
    norm += static_cast<double>(a[i]) * static_cast<double>(a[i]);
  }
  return std::sqrt(error / norm);
}

void explain(const TensorPair& pair, double error, Findings& findings) {
  const LogicalTensor& t = *pair.b.tensor;
  const std::string found =
      fmt::format("{}: {:.1f} % from the source", t.data.describe(), 100 * error);
  if (t.is_nvfp4()) {
    for (const Misreading& m : kMisreadings) {
      const bool tileable = !t.transposed && t.rows() % 128 == 0 && t.cols() % 64 == 0;
      if (m.tiles && !tileable) continue;
      WeightNames names = *t.names;
      if (m.nibbles) names.arrangement.high_nibble_first ^= true;
      if (m.tiles) names.arrangement.scales = ScaleLayout::tiled_128x4;
      LogicalTensor other = t;
      other.names = &names;
      if (m.reciprocal)
        for (GlobalScale& g : other.globals) std::swap(g.multiplier, g.divisor);
      const double then = relative_error(pair, other);
      if (!(then < kFar)) continue;
      const std::string text = fmt::format("{}, {:.1f} % {}", found, 100 * then, m.text);
      if (m.tiles && m.nibbles) findings.add("swizzled-scales", t.module(), text);
      return findings.add(m.code, t.module(), text);
    }
  }
  findings.add("far-from-source", t.module(), found);
}

/// A finding about the global scale of a weight; without a code there is none.
struct ScaleFault {
  std::string code, text;
};

/// Returns the fault of a global scale whose blocks need scales above 448 or below 2^-6. In the
/// source, their maxima must be from g / 28672 to g, the largest weight that the scale allows.
ScaleFault scale_fault(const LogicalTensor& t, const GlobalScale& scale, const BlockRange& blocks) {
  constexpr double kWindow = 448 * 64, kRounding = 1 + 0x1p-8;  // some writers store BF16
  const double g = 2688 * static_cast<double>(scale.multiplier),
               smallest = static_cast<double>(blocks.smallest),
               largest = static_cast<double>(blocks.largest);
  if (largest > g * kRounding)
    return {"scale-saturated", fmt::format("{}: weights up to {:.3g} in the source, and the global "
                                           "scale allows {:.3g}",
                                           t.data.describe(), largest, g)};
  // If no global scale suits all blocks, the largest ones decide.
  if (g > kWindow * smallest * kRounding && largest <= kWindow * smallest)
    return {"scale-subnormal",
            fmt::format("{}: a block of the source has weights up to {:.3g}, and "
                        "the global scale needs {:.3g}",
                        t.data.describe(), smallest, g / kWindow)};
  return {};
}

/// Replaces guesses about global scales by what the source shows.
void check_windows(const std::vector<TensorPair>& pairs, Findings& findings) {
  std::map<const LogicalTensor*, std::vector<BlockRange>> ranges;
  for (const TensorPair& pair : pairs) {
    if (pair.blocks.empty()) continue;
    std::vector<BlockRange>& all = ranges[pair.b.tensor];
    all.resize(pair.b.tensor->globals.size());
    for (std::size_t i = 0; i < pair.blocks.size(); ++i)
      all[pair.first_global + i].add(pair.blocks[i]);
  }
  std::map<std::string, ScaleFault> faults;  // of the first faulty matrix of each weight
  for (const auto& [t, all] : ranges)
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].largest == 0 || !is_valid(t->globals[i])) continue;
      ScaleFault& fault = faults[t->module()];
      if (!fault.code.empty()) continue;
      fault = scale_fault(*t, t->globals[i], all[i]);
      if (!fault.code.empty() && all.size() > 1) fault.text += fmt::format(", in matrix {}", i);
    }
  findings.withdraw_if([&](const Finding& f) {
    const auto found = faults.find(f.tensor);
    return found != faults.end() && (f.code == "scale-saturated" || f.code == found->second.code);
  });
  for (auto& [module, fault] : faults)
    if (!fault.code.empty()) findings.add(fault.code, module, std::move(fault.text));
}

void report_missing(const std::vector<std::string>& names, const DerivedTensors& derived,
                    Findings& findings) {
  std::vector<std::string> unneeded;
  for (const std::string& name : names) {
    if (derived.contains(name))
      unneeded.push_back(name);
    else
      findings.add("source-missing", name, "{} is in the source only", name);
  }
  if (!unneeded.empty())
    findings.add("source-derived", unneeded.front(), "{} of the source {} not here, such as {}",
                 unneeded.size(), unneeded.size() == 1 ? "is" : "are", unneeded.front());
}

/// Returns the message for a wrong source, or "". Unquantized tensors equal those of the right
/// source, whatever the errors of quantized weights.
std::string other_source(const CompareReport& report,
                         const std::unordered_map<std::string_view, const TensorPair*>& by_name) {
  constexpr std::int64_t kFewest = 3;
  const auto kept = [](const TensorPair& pair) {
    return pair.b.tensor->is_plain() && pair.a.tensor->is_plain();
  };
  std::int64_t all = 0, far = 0;
  for (const auto& [name, pair] : by_name) all += kept(*pair);
  for (const TensorDifference& t : report.tensors) {
    const auto pair = by_name.find(t.name);
    far += pair != by_name.end() && kept(*pair->second) && !(t.relative_error <= kFar);
  }
  if (far < kFewest || 2 * far <= all) return {};
  return fmt::format("{} of {} tensors that were not quantized are more than {:.0f} % away", far,
                     all, 100 * kFar);
}

void compare(const Subject& subject, const CheckpointReader& a, const std::filesystem::path& source,
             Findings& findings, Measured& measured, const OnProgress& progress) {
  const CheckpointReader b(subject.path);
  TensorPairs matched = pair_tensors(a, b);
  std::unordered_map<std::string_view, const TensorPair*> by_name;
  for (const TensorPair& pair : matched.pairs) by_name.emplace(pair.name, &pair);
  const CompareReport report = compare_pairs(a, b, matched, measured, progress);
  report_missing(report.only_in_a, DerivedTensors(a, b, subject), findings);
  for (const std::string& line : report.shape_mismatch)
    findings.add("far-from-source", line.substr(0, line.find(": ")), line);
  const CacheScales caches(b.tensors(), {}, true);
  for (const std::string& name : report.only_in_b)
    if (const LogicalTensor* t = b.find(name); t == nullptr || !caches.find(*t))
      findings.add("source-extra", name, "{} is not in the source", name);
  if (const std::string text = other_source(report, by_name); !text.empty())
    return findings.add("other-source", source.filename().string(), "{}: {}", source.string(),
                        text);
  check_windows(matched.pairs, findings);
  std::map<std::string, bool> near;  // NVFP4 modules -> all compared tensors are near
  for (const TensorDifference& t : report.tensors) {
    const auto found = by_name.find(t.name);
    if (found == by_name.end()) continue;
    const TensorPair& pair = *found->second;
    const bool kept = pair.b.tensor->is_plain();
    if (subject.unknown.contains(pair.b.tensor->module())) continue;
    if (!(t.relative_error <= kFar))
      explain(pair, t.relative_error, findings);
    else if (kept && t.form_a == t.form_b)
      findings.add("source-differs", t.name, "{}: {:.2g} % from the source, and not quantized",
                   t.name, 100 * t.relative_error);
    if (pair.b.tensor->is_nvfp4())
      near.try_emplace(pair.b.tensor->module(), true).first->second &= t.relative_error <= kFar;
  }
  findings.withdraw_if([&](const Finding& f) {
    const bool guess = f.code == "scales-look-swizzled" || f.code == "global-scale-sense" ||
                       f.code == "scale-too-large";
    const auto module = guess ? near.find(f.tensor) : near.end();
    return module != near.end() && module->second;
  });
  findings.mark_compared();
}

/// A buffer that older versions of transformers saved and that the configuration determines.
struct Buffer {
  std::string_view name;       ///< last components of the name
  std::size_t dimensions = 0;  ///< rank that tells a buffer from a weight; 0: any
};
constexpr Buffer kBuffers[] = {
    {"inv_freq"},
    {"position_ids"},
    {"token_type_ids"},
    {"cos_cached"},
    {"sin_cached"},
    {"masked_bias"},
    {"attn.bias", 4},
    {"attention.bias", 4},
    {"rotary_emb.cos"},
    {"rotary_emb.sin"},
    {"relative_position_index"},
};

/// Vocabulary tables. Any of them may be the same tensor as another.
constexpr std::string_view kTables[] = {
    "lm_head.weight",   "embed_tokens.weight",    "shared.weight",
    "wte.weight",       "word_embeddings.weight", "embed_in.weight",
    "embed_out.weight", "decoder.weight",         "output_projection.weight"};

/// Reports whether `name` is `part` or ends with a dot and `part`.
bool ends_with(std::string_view name, std::string_view part) {
  return name.ends_with(part) &&
         (name.size() == part.size() || name[name.size() - part.size() - 1] == '.');
}

bool is_table(const std::string& name) {
  return std::ranges::any_of(kTables, [&](std::string_view t) { return ends_with(name, t); });
}

bool same_bytes(const StoredTensor& a, const StoredTensor& b) {
  constexpr std::uint64_t kPart = 1 << 20;
  std::vector<std::byte> x, y;
  for (std::uint64_t at = 0; at < a.info->bytes; at += kPart) {
    const auto n = static_cast<std::size_t>(std::min(kPart, a.info->bytes - at));
    x.resize(n);
    y.resize(n);
    a.read(static_cast<std::int64_t>(at), x);
    b.read(static_cast<std::int64_t>(at), y);
    if (x != y) return false;
  }
  return true;
}

}  // namespace

void check_source(const Subject& subject, const std::filesystem::path& source, Findings& findings,
                  Measured& measured, const OnProgress& progress) {
  const CheckpointReader a(source);
  const auto give_up = [&](std::string_view why) {
    findings.add("not-compared", subject.path.filename().string(),
                 "{}: not compared with the source: {}", subject.path.string(), why);
  };
  if (!subject.complete) return give_up("files are missing or cannot be read");
  if (!subject.defective.empty())
    return give_up(fmt::format("{} is not whole", *subject.defective.begin()));
  try {
    compare(subject, a, source, findings, measured, progress);
  } catch (const Error& e) {
    if (!findings.has_errors()) throw;
    give_up(e.what());
  }
}

DerivedTensors::DerivedTensors(const CheckpointReader& source, const CheckpointReader& made,
                               const Subject& subject)
    : source_(source) {
  constexpr std::size_t kMost = 16;  // a model has one to three
  for (const LogicalTensor& t : source.tensors())
    if (tables_.size() < kMost && t.is_plain() && is_table(t.name) && made.find(t.name) != nullptr)
      tables_.push_back(&t);
  const auto caches = [](const std::optional<Declared>& declared) {
    return declared && !cache_type(*declared).name.empty();
  };
  if (!caches(subject.in_config) && !caches(subject.in_hf_quant))
    undeclared_ = CacheScales(source.tensors(), {subject.model_type}, true);
  if (!subject.config.is_object()) return;
  for (const auto* level : {&subject.config, &language_model_config(subject.config)}) {
    if (member_of(*level, "tie_word_embeddings") == false) may_be_tied_ = false;
  }
}

bool DerivedTensors::contains(const std::string& name) const {
  const LogicalTensor* t = source_.find(name);
  if (t == nullptr || !t->is_plain()) return false;
  const bool buffer = std::ranges::any_of(kBuffers, [&](const Buffer& b) {
    return ends_with(name, b.name) && (b.dimensions == 0 || b.dimensions == t->shape.size());
  });
  return buffer || undeclared_.find(*t) || (is_table(name) && is_tied(*t));
}

bool DerivedTensors::is_tied(const LogicalTensor& t) const {
  return may_be_tied_ && std::ranges::any_of(tables_, [&](const LogicalTensor* other) {
           return other->name != t.name && other->shape == t.shape &&
                  other->data.info->dtype == t.data.info->dtype && same_bytes(t.data, other->data);
         });
}

}  // namespace nvfp4::checkpoint
