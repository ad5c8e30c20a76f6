
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint/compare/measured.h"
#include "checkpoint/safetensors/apart.h"
#include "checkpoint/source/quantized_tensors.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "quantizers/encode_block.h"

namespace nvfp4 {
namespace {

using namespace checkpoint;
constexpr std::int64_t kChunkElements = 1 << 20;  // a multiple of the block size of every format

struct Sums {
  double squared_error = 0, squared_norm = 0;
  float max_error = 0;
  bool identical = true;
  std::vector<BlockRange> blocks = {};  ///< as in TensorPair; of a chunk, at most one
};

/// Elements of a pair.
struct Chunk : MeasuredPart {
  std::size_t matrix = 0;  ///< among those with a global scale of their own
};

Sums measure(std::span<const float> a, std::span<const float> b) {
  // Independent sums allow vectorization. Their order is fixed, so the result is, too.
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> error{}, norm{};
  std::array<float, kLanes> largest{};
  const auto add = [&](std::size_t lane, float x, float y) {
    const double d = static_cast<double>(x) - static_cast<double>(y);
    error[lane] += d * d;
    norm[lane] += static_cast<double>(x) * static_cast<double>(x);
    largest[lane] = std::max(largest[lane], static_cast<float>(std::fabs(d)));
  };
  std::size_t i = 0;
  for (; i + kLanes <= a.size(); i += kLanes)
    for (std::size_t l = 0; l < kLanes; ++l) add(l, a[i + l], b[i + l]);
  for (; i < a.size(); ++i) add(i % kLanes, a[i], b[i]);
  Sums sums;
  for (std::size_t l = 0; l < kLanes; ++l) {
    sums.squared_error += error[l];
    sums.squared_norm += norm[l];
    sums.max_error = std::max(sums.max_error, largest[l]);
  }
  // std::max ignores NaN.
  if (std::isnan(sums.squared_error)) sums.max_error = std::nanf("");
  sums.identical = std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
  return sums;
}

double sqnr_db(double squared_error, double squared_norm) {
  if (squared_error == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(squared_norm / squared_error);
}

double relative(double squared_error, double squared_norm) {
  return squared_error == 0 ? 0 : std::sqrt(squared_error / squared_norm);
}

/// Returns the sort key of an error. NaN is worse than every number.
double badness(double x) { return std::isnan(x) ? std::numeric_limits<double>::infinity() : x; }

/// Returns the median error of tensors that are sorted by error.
double median(const std::vector<TensorDifference>& tensors) {
  if (tensors.empty()) return 0;
  const std::size_t n = tensors.size();
  return (tensors[(n - 1) / 2].relative_error + tensors[n / 2].relative_error) / 2;
}

/// Returns the number of global scales of a pair whose elements become blocks, or 0.
std::size_t globals_of(const TensorPair& pair) {
  const LogicalTensor& t = *pair.b.tensor;
  const bool one_for_each_row = static_cast<std::int64_t>(t.globals.size()) > t.matrices();
  if (!t.is_nvfp4() || one_for_each_row || pair.a.tensor->is_four_bits()) return 0;
  return pair.b.whole() ? t.globals.size() : 1;
}

/// Returns chunks of whole blocks, each of one matrix if matrices have their own global scales.
std::vector<Chunk> chunks_of(const std::vector<TensorPair>& pairs) {
  std::vector<Chunk> chunks;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    const TensorPair& pair = pairs[p];
    std::int64_t elements = 1;
    for (const std::int64_t d : pair.shape) elements *= d;
    std::int64_t step = kChunkElements;
    const bool blocks_of_rows = pair.b.whole() && pair.b.tensor->transposed;
    if (!pair.a.whole() || !pair.b.whole() || blocks_of_rows) {
      const std::int64_t least = pair.shape.back() * (blocks_of_rows ? kBlock : 1);
      step = std::max<std::int64_t>(1, kChunkElements / least) * least;
    }
    const auto matrices = static_cast<std::int64_t>(std::max<std::size_t>(1, globals_of(pair)));
    const std::int64_t matrix = elements / matrices;
    for (std::int64_t m = 0; m < matrices; ++m)
      for (std::int64_t i = 0; i < matrix; i += step)
        chunks.push_back(
            {{p, m * matrix + i, std::min(step, matrix - i), 0}, static_cast<std::size_t>(m)});
  }
  return chunks;
}

bool same_bytes(const TensorPair& pair, const Chunk& c) {
  const int bits = safetensors::dtype_bits(pair.a.tensor->data.info->dtype);
  const auto size = static_cast<std::size_t>(c.count) * static_cast<std::size_t>(bits) / 8;
  std::vector<std::byte> a(size), b(size);
  pair.a.tensor->read_bytes(c.begin, a);
  pair.b.tensor->read_bytes(c.begin, b);
  return a == b;
}

/// Returns the range of blocks along rows, or along columns of `cols` elements with a distance.
BlockRange blocks_of(std::span<const float> x, bool along_columns, std::int64_t cols) {
  BlockRange range;
  const auto add = [&](float largest) { range.add({largest, largest}); };
  const auto n = static_cast<std::size_t>(cols);
  if (!along_columns)
    for (std::size_t i = 0; i + kBlock <= x.size(); i += kBlock) add(block_amax(&x[i], kBlock));
  else
    for (std::size_t i = 0; i + kBlock * n <= x.size(); i += kBlock * n)
      for (std::size_t c = 0; c < n; ++c) {
        float column[kBlock];
        for (std::size_t r = 0; r < kBlock; ++r) column[r] = x[i + r * n + c];
        add(block_amax(column, kBlock));
      }
  return range;
}

Sums measure(const TensorPair& pair, const Chunk& c) {
  if (!pair.a.tensor->readable()) {  // then both have the same dtype
    Sums sums;
    sums.identical = same_bytes(pair, c);
    if (!sums.identical) sums.squared_error = std::nan(""), sums.max_error = std::nanf("");
    return sums;
  }
  thread_local std::vector<float> a, b;
  a.resize(static_cast<std::size_t>(c.count));
  b.resize(static_cast<std::size_t>(c.count));
  const std::int64_t cols = pair.shape.empty() ? 1 : pair.shape.back();
  pair.a.read(c.begin, cols, a);
  pair.b.read(c.begin, cols, b);
  Sums sums = measure(a, b);
  if (globals_of(pair) > 0)
    sums.blocks = {blocks_of(a, pair.b.whole() && pair.b.tensor->transposed, cols)};
  if (sums.identical && pair.a.whole() && pair.b.whole() && !pair.a.tensor->exact_as_float() &&
      pair.a.tensor->form_name() == pair.b.tensor->form_name())
    sums.identical = same_bytes(pair, c);
  return sums;
}

/// Exchanges sums with the other ranks, so that `totals` covers the pairs of all ranks.
void exchange(const std::vector<TensorPair>& pairs, const std::vector<bool>& mine,
              Measured& measured, std::vector<Sums>& totals) {
  if (!measured.is_shared()) return;
  nlohmann::json items = nlohmann::json::array();
  std::vector<const LogicalTensor*> tensors;
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    tensors.insert(tensors.end(), {pairs[p].a.tensor, pairs[p].b.tensor});
    const Sums& s = totals[p];
    nlohmann::json& item = items.emplace_back();
    if (!mine[p]) continue;
    item = {json_number(s.squared_error), json_number(s.squared_norm), json_number(s.max_error),
            s.identical};
    for (const BlockRange& range : s.blocks) {
      item.push_back(json_number(range.smallest));
      item.push_back(json_number(range.largest));
    }
  }
  measured.exchange("pairs", Measured::identity_of(tensors), items);
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    const nlohmann::json& item = items[p];
    if (item.is_null()) continue;
    const std::size_t ranges = globals_of(pairs[p]);
    require<FormatError>(item.is_array() && item.size() == 4 + 2 * ranges && item[3].is_boolean(),
                         "the results of a rank for {} are malformed", pairs[p].name);
    const auto number = [&](std::size_t i) { return number_from_json(item[i], pairs[p].name); };
    totals[p] = {number(0), number(1), static_cast<float>(number(2)), item[3].get<bool>()};
    for (std::size_t i = 4; i < item.size(); i += 2)
      totals[p].blocks.push_back(
          {static_cast<float>(number(i)), static_cast<float>(number(i + 1))});
  }
}

/// Returns the size of the input of a chunk in bytes, for the progress display.
std::uint64_t bytes_read(const TensorPair& pair, const Chunk& c) {
  double bytes = 0;  // bytes of one element in both
  for (const LogicalTensor* t : {pair.a.tensor, pair.b.tensor})
    bytes += static_cast<double>(t->bytes) / static_cast<double>(t->elements());
  return static_cast<std::uint64_t>(static_cast<double>(c.count) * bytes);
}

}  // namespace

namespace checkpoint {

CompareReport compare_pairs(const CheckpointReader& checkpoint_a,
                            const CheckpointReader& checkpoint_b, TensorPairs& matched,
                            Measured& measured,
                            const std::function<void(const Progress&)>& on_progress) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(matched.pairs.size());
  for (const TensorPair& pair : matched.pairs)
    sizes.push_back(pair.a.tensor->bytes + pair.b.tensor->bytes);
  const std::vector<bool> mine = measured.mine(sizes);
  std::vector<Chunk> chunks = chunks_of(matched.pairs);
  std::erase_if(chunks, [&](const Chunk& c) { return !mine[c.item]; });

  for (Chunk& c : chunks) c.bytes = bytes_read(matched.pairs[c.item], c);
  std::vector<Sums> parts(chunks.size());
  measure_parts(
      chunks, [&](std::size_t pair) { return matched.pairs[pair].name; },
      [&](const Chunk& c) { return measure(matched.pairs[c.item], c); },
      [&](std::size_t i, Sums sums) { parts[i] = std::move(sums); }, on_progress);

  std::vector<Sums> totals(matched.pairs.size());
  for (std::size_t p = 0; p < totals.size(); ++p)
    totals[p].blocks.resize(globals_of(matched.pairs[p]));
  for (std::size_t i = 0; i < chunks.size(); ++i) {  // in order: sums do not depend on threads
    Sums& total = totals[chunks[i].item];
    total.squared_error += parts[i].squared_error;
    total.squared_norm += parts[i].squared_norm;
    if (!(parts[i].max_error <= total.max_error)) total.max_error = parts[i].max_error;
    total.identical &= parts[i].identical;
    if (!parts[i].blocks.empty()) total.blocks[chunks[i].matrix].add(parts[i].blocks[0]);
  }

  exchange(matched.pairs, mine, measured, totals);
  CompareReport report;
  double squared_error = 0, squared_norm = 0;
  for (std::size_t p = 0; p < matched.pairs.size(); ++p) {
    TensorPair& pair = matched.pairs[p];
    const Sums& s = totals[p];
    const LogicalTensor& b = *pair.b.tensor;
    if (!pair.b.whole() && b.globals.size() > 1)
      pair.first_global = static_cast<std::size_t>(pair.b.first / (b.rows() * b.cols()));
    pair.blocks = s.blocks;
    TensorDifference t;
    t.form_a = pair.a.tensor->form_name();
    t.form_b = pair.b.tensor->form_name();
    if (s.identical && t.form_a == t.form_b) {
      ++report.identical;
      continue;
    }
    t.name = pair.name;
    t.shape = pair.shape;
    t.squared_error = s.squared_error;
    t.squared_norm = s.squared_norm;
    t.relative_error = relative(s.squared_error, s.squared_norm);
    t.sqnr_db = sqnr_db(s.squared_error, s.squared_norm);
    t.max_error = s.max_error;
    squared_error += s.squared_error;
    squared_norm += s.squared_norm;
    if (!(t.max_error <= report.max_error)) report.max_error = t.max_error;
    report.tensors.push_back(std::move(t));
  }
  std::ranges::stable_sort(report.tensors, [](const auto& x, const auto& y) {
    return badness(x.relative_error) > badness(y.relative_error);
  });
  report.relative_error = relative(squared_error, squared_norm);
  report.sqnr_db = sqnr_db(squared_error, squared_norm);
  report.median_relative_error = median(report.tensors);
  report.complete_a = checkpoint_a.complete();
  report.complete_b = checkpoint_b.complete();
  report.only_in_a = std::move(matched.only_in_a);
  report.only_in_b = std::move(matched.only_in_b);
  report.shape_mismatch = std::move(matched.shape_mismatch);
  return report;
}

}  // namespace checkpoint

Shared<CompareReport> compare_share(const std::filesystem::path& a, const std::filesystem::path& b,
                                    const SharedWork& shared,
                                    const std::function<void(const Progress&)>& on_progress) {
  const CheckpointReader checkpoint_a(a), checkpoint_b(b);
  require_apart({{"a", a}, {"b", b}}, {{"parts", shared.parts}});
  Measured measured(shared, "compare");
  const auto compare = [&](const std::function<void(const Progress&)>& progress) {
    TensorPairs matched = pair_tensors(checkpoint_a, checkpoint_b);
    return compare_pairs(checkpoint_a, checkpoint_b, matched, measured, progress);
  };
  CompareReport report = compare(on_progress);
  if (!measured.is_shared()) return {std::move(report), {}};
  if (std::vector<int> missing = measured.join(); !missing.empty()) return {{}, missing};
  return {compare({}), {}};
}

CompareReport compare_checkpoints(const std::filesystem::path& a, const std::filesystem::path& b,
                                  const std::function<void(const Progress&)>& on_progress) {
  return *compare_share(a, b, {}, on_progress).report;
}

}  // namespace nvfp4
