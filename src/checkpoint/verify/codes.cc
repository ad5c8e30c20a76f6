#include "checkpoint/verify/codes.h"

#include <algorithm>
#include <map>
#include <vector>

#include "checkpoint/families/fuse.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/source/cache.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/verify/checks.h"
#include "core/parallel_for.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::int64_t kCodesOfTask = 1 << 20;

/// Blocks that are read at once.
constexpr std::int64_t kBlocksOfPart = 1 << 16;

/// Reads a row in the middle first, which ends the search for almost every weight.
bool has_nonzero_code(const LogicalTensor& t) {
  thread_local std::vector<std::byte> codes, scales;
  const std::int64_t row = std::max<std::int64_t>(1, t.depth() / kBlock);
  const std::int64_t blocks = t.elements() / kBlock, rows = blocks / row;
  const auto nonzero = [&](std::int64_t begin, std::int64_t count) {
    codes.resize(static_cast<std::size_t>(8 * count));
    scales.resize(static_cast<std::size_t>(count));
    t.read_blocks(begin, codes, scales);
    return std::ranges::any_of(codes, is_not_zero);
  };
  if (blocks == 0 || nonzero(rows / 2 * row, row)) return true;
  const std::int64_t step = std::max<std::int64_t>(1, kBlocksOfPart / row) * row;
  for (std::int64_t at = 0; at < blocks; at += step)
    if (nonzero(at, std::min(step, blocks - at))) return true;
  return false;
}

struct Matrices {
  std::int64_t weights = 0;
  std::vector<const LogicalTensor*> zero;
};

std::string and_more(std::size_t count) {
  return count == 1 ? "" : fmt::format(" (and {} more)", count - 1);
}

/// Returns one line for each code.
std::vector<std::string> lines_of(const std::vector<Finding>& findings) {
  std::map<std::string, std::vector<const Finding*>> of_code;
  for (const Finding& f : findings) of_code[f.code].push_back(&f);
  std::vector<std::string> lines;
  lines.reserve(of_code.size());
  for (const auto& [code, all] : of_code)
    lines.push_back(
        fmt::format("{}: {}{}; {}", code, all[0]->text, and_more(all.size()), all[0]->fix));
  return lines;
}

}  // namespace

std::int64_t count_nan(std::span<const std::byte> codes) {
  std::int64_t found = 0;
  for (const std::byte c : codes)
    found += (std::to_integer<unsigned>(c) & 0x7F) == unsigned{E4M3::kNaN};
  return found;
}

std::int64_t count_nan(std::span<const float> values) {
  std::int64_t found = 0;
  for (const float v : values) found += v != v;
  return found;
}

void check_codes(const Subject& subject, Findings& findings, Measured& measured,
                 const OnProgress& on_progress) {
  std::vector<const LogicalTensor*> weights;
  std::vector<std::uint64_t> sizes;
  for (const LogicalTensor& t : subject.tensors) {
    if (t.encoding() != Encoding::fp8 || subject.defective.contains(t.name)) continue;
    weights.push_back(&t);
    sizes.push_back(static_cast<std::uint64_t>(t.elements()));
  }
  const std::vector<bool> mine = measured.mine(sizes);
  std::vector<MeasuredPart> parts;
  std::vector<std::int64_t> counts(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::int64_t at = 0, all = weights[i]->elements(); mine[i] && at < all;
         at += kCodesOfTask) {
      const std::int64_t n = std::min(kCodesOfTask, all - at);
      parts.push_back({i, at, n, static_cast<std::uint64_t>(n)});
    }
  measure_parts(
      parts, [&](std::size_t weight) { return weights[weight]->name; },
      [&](const MeasuredPart& part) {
        thread_local std::vector<std::byte> codes;
        codes.resize(static_cast<std::size_t>(part.count));
        weights[part.item]->data.read(part.begin, codes);
        return count_nan(codes);
      },
      [&](std::size_t p, std::int64_t found) { counts[parts[p].item] += found; }, on_progress);
  measured.exchange("codes", weights, mine, counts);
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (counts[i] > 0)
      findings.add(kCodeNan, weights[i]->module(), "{}: {} of {} {} codes are NaN",
                   weights[i]->data.describe(), counts[i], weights[i]->elements(),
                   weights[i]->form_name());
}

void refuse_nan(const LogicalTensor& weight, std::int64_t n, bool force) {
  require<FormatError>(
      n == 0 || force, ErrorCode::faulty_values,
      "{}: {}: {} codes are NaN; hint: nvfp4 verify lists all, --allow broken-scales "
      "takes the values as they are",
      kCodeNan, weight.data.describe(), weight.form_name());
}

void check_zero_codes(const Subject& subject, Findings& findings) {
  const std::vector<const LogicalTensor*> weights = subject.nvfp4();
  std::vector<char> nonzero(weights.size());
  parallel_for(static_cast<std::int64_t>(weights.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    nonzero[at] = has_nonzero_code(*weights[at]);
  });
  if (std::ranges::find(nonzero, 0) == nonzero.end()) return;
  std::map<std::string, Matrices> kinds;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    Matrices& kind = kinds[template_of(weights[i]->module())];
    ++kind.weights;
    if (nonzero[i] == 0) kind.zero.push_back(weights[i]);
  }
  for (const auto& [name, kind] : kinds) {
    if (kind.weights > 1 && std::ssize(kind.zero) == kind.weights) {
      findings.add("codes-zero-everywhere", name, "{}: every code of all {} matrices is zero", name,
                   kind.weights);
      continue;
    }
    for (const LogicalTensor* t : kind.zero)
      findings.add("codes-zero", t->module(), "{}: every code is zero", t->data.describe());
  }
}

std::vector<std::string> take_faults(const ModelFolder& model, const UseOfValues& use) {
  const CacheScales caches(model.tensors, model.config.model_types,
                           use.caches || declares_cache(model.declared, model.hf_declared));
  const FuseRules fused({}, model.config.model_types);
  auto [faults, told] = value_faults(model.tensors, fused, caches);
  if (!use.inputs)
    std::erase_if(faults, [](const Finding& f) { return f.code == "input-scale-invalid"; });
  if (!use.globals) std::erase_if(told, [](const Finding& f) { return f.code == "fused-globals"; });
  for (const Defect& orphan : orphan_scales(model.tensors, {}))
    faults.push_back({orphan.code, Severity::error, orphan.tensor, orphan.text, {}, {}});
  std::vector<std::string> warnings = lines_of(told);
  if (faults.empty()) return warnings;
  const std::string more = and_more(faults.size());
  require<FormatError>(
      use.force, ErrorCode::faulty_values,
      "{}: {}{}; hint: nvfp4 verify lists all, nvfp4 repair corrects NVFP4, --allow broken-scales "
      "takes the values as they are{}",
      faults[0].code, faults[0].text, more,
      use.ignores ? ", what is not finite with --ignore" : "");
  warnings.insert(warnings.begin(),
                  fmt::format("--allow broken-scales: faulty values are used as they are: {}: {}{}",
                              faults[0].code, faults[0].text, more));
  return warnings;
}

}  // namespace nvfp4::checkpoint
