// Looks for quantized matrices whose codes are all zero.
#include <algorithm>
#include <map>

#include "checkpoint/match/is_number.h"
#include "checkpoint/verify/checks.h"
#include "core/parallel_for.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

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

}  // namespace

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
      findings.add("codes-zero-everywhere", name,
                   fmt::format("{}: every code of all {} matrices is zero", name, kind.weights));
      continue;
    }
    for (const LogicalTensor* t : kind.zero)
      findings.add("codes-zero", t->module(),
                   fmt::format("{}: every code is zero", t->data.describe()));
  }
}

}  // namespace nvfp4::checkpoint
