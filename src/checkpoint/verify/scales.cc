// Checks all block scales of NVFP4 weights, and the scales of FP8 and MXFP4 weights.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>

#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::int64_t kChunkBlocks = 1 << 18;
constexpr std::int64_t kSampledRows = 1024;

struct Counts {
  std::int64_t nan = 0, negative = 0, zero = 0, normal = 0;
  std::int64_t positive = 0;  ///< if none is normal: positive scales over nonzero codes
  std::int64_t subnormal = 0;
  std::int64_t largest = 0, next = 0;  ///< scales of 448, and of 384 and 416
  bool swizzled = false;               ///< the scales look stored in tiles

  void add(const Counts& other) {
    nan += other.nan;
    negative += other.negative;
    zero += other.zero;
    normal += other.normal;
    positive += other.positive;
    subnormal += other.subnormal;
    largest += other.largest;
    next += other.next;
    swizzled |= other.swizzled;
  }
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Counts, nan, negative, zero, normal, positive, subnormal,
                                   largest, next, swizzled)

/// Reports whether one of two codes is neither zero nor the largest.
bool is_in_between(std::byte pair) {
  const auto codes = std::to_integer<unsigned>(pair);
  const auto between = [](unsigned magnitude) { return magnitude != 0 && magnitude != 7; };
  return between(codes & 7) || between(codes >> 4 & 7);
}

/// Returns the number of blocks with a counted code and a scale of a magnitude from `least` to
/// `most`, as E4M3.
std::int64_t blocks_with_codes(const std::vector<std::byte>& codes,
                               const std::vector<std::byte>& scales, std::uint8_t least,
                               std::uint8_t most, bool (*counts)(std::byte) = is_not_zero) {
  std::int64_t found = 0;
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const auto magnitude = std::to_integer<std::uint8_t>(scales[b] & std::byte{0x7F});
    if (magnitude < least || magnitude > most) continue;
    const auto begin = codes.begin() + static_cast<std::ptrdiff_t>(8 * b);
    found += std::any_of(begin, begin + 8, counts);
  }
  return found;
}

/// Counts the scales of a part, which has blocks.
Counts count(const LogicalTensor& t, const MeasuredPart& chunk) {
  thread_local std::vector<std::byte> codes, scales;
  codes.clear();
  scales.resize(static_cast<std::size_t>(chunk.count));
  t.read_blocks(chunk.begin, {}, scales);
  std::array<std::int64_t, 256> histogram{};
  for (const std::byte s : scales) ++histogram[std::to_integer<std::size_t>(s)];
  Counts counts;
  for (std::size_t v = 0; v < 256; ++v) {
    const std::size_t magnitude = v & 0x7F;
    if (magnitude == E4M3::kNaN) counts.nan += histogram[v];
    if (v > 0x80 && magnitude != E4M3::kNaN) counts.negative += histogram[v];
    if (v > 0 && v < 0x7F) counts.positive += histogram[v];
    if (magnitude >= 8 && magnitude != E4M3::kNaN) counts.normal += histogram[v];
  }
  counts.subnormal = std::accumulate(&histogram[1], &histogram[8], std::int64_t{0});
  counts.largest = histogram[0x7E];
  counts.next = histogram[0x7D] + histogram[0x7C];
  // Over codes of zero such scales are harmless.
  const bool tiny = counts.normal == 0 && counts.positive > 0;
  const bool subnormal = counts.subnormal > counts.normal,
             saturated = counts.largest > chunk.count / 16;
  if (tiny || subnormal || saturated || histogram[0] + histogram[0x80] > 0) {
    codes.resize(scales.size() * 8);
    t.read_blocks(chunk.begin, codes, scales);
    counts.zero = blocks_with_codes(codes, scales, 0, 0);
    if (tiny) counts.positive = blocks_with_codes(codes, scales, 1, 0x7F);
    if (subnormal) counts.subnormal = blocks_with_codes(codes, scales, 1, 7);
    // Ternary and constant matrices have the largest scale, too. Only a cut leaves smaller codes.
    if (saturated) counts.largest = blocks_with_codes(codes, scales, 0x7E, 0x7E, is_in_between);
  }
  return counts;
}

/// Returns the share of the variance of log2(scale) that the means of rows and columns explain.
double explained(const std::vector<float>& x, std::int64_t rows, std::int64_t cols) {
  std::vector<double> row(static_cast<std::size_t>(rows)), col(static_cast<std::size_t>(cols));
  double sum = 0, squares = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) {
      const double v = x[static_cast<std::size_t>(r * cols + c)];
      row[static_cast<std::size_t>(r)] += v;
      col[static_cast<std::size_t>(c)] += v;
      sum += v;
      squares += v * v;
    }
  const double n = static_cast<double>(rows * cols), mean = sum / n;
  const double total = squares - n * mean * mean;
  const auto between = [&](const std::vector<double>& sums, std::int64_t of_each) {
    double found = 0;
    for (const double s : sums)
      found += std::pow(s / static_cast<double>(of_each) - mean, 2) * static_cast<double>(of_each);
    return found;
  };
  return total <= 0 ? 0 : (between(row, cols) + between(col, rows)) / total;
}

/// Returns log2 of the magnitude of each E4M3. For zero it is that of half the smallest.
std::array<float, 128> log_magnitudes() {
  std::array<float, 128> logs{};
  for (std::uint8_t bits = 0; bits < 128; ++bits)
    logs[bits] = std::log2(std::max(E4M3{bits}.to_float(), 0x1p-10f));
  return logs;
}

/// Reports whether scales look stored in tiles. Rows and columns of real weights have different
/// norms. If scales read from tiles explain much more of the variance, the file has tiles.
bool looks_swizzled(const LogicalTensor& t) {
  const std::int64_t blocks = t.depth() / kBlock;
  const std::int64_t rows = std::min(kSampledRows, t.outputs() / 128 * 128);
  if (t.names->arrangement.scales != ScaleLayout::linear || t.outputs() % 128 != 0 ||
      blocks % 4 != 0 || blocks < 8 || rows == 0)
    return false;
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * blocks));
  t.read_blocks(0, {}, bytes);
  std::vector<float> linear(bytes.size()), tiled(bytes.size());
  static const std::array<float, 128> logs = log_magnitudes();
  const auto value = [&](std::int64_t at) {
    return logs[std::to_integer<std::size_t>(bytes[static_cast<std::size_t>(at)] &
                                             std::byte{0x7F})];
  };
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const auto at = static_cast<std::size_t>(r * blocks + b);
      linear[at] = value(r * blocks + b);
      tiled[at] = value(scale_offset(ScaleLayout::tiled_128x4, r, b, rows, blocks));
    }
  if (std::ranges::any_of(linear, [](float v) { return std::isnan(v); })) return false;
  // The share that chance explains: one degree of freedom for each row and column.
  const double chance = static_cast<double>(rows + blocks) / static_cast<double>(rows * blocks);
  const double as_linear = explained(linear, rows, blocks) - chance,
               as_tiled = explained(tiled, rows, blocks) - chance;
  return as_tiled > 0.2 && as_tiled > 3 * std::max(as_linear, 0.0);
}

std::string share(std::int64_t n, std::int64_t total) {
  return fmt::format("{} of {} block scales", n, total);
}

void report(const LogicalTensor& t, const Counts& c, Findings& findings) {
  const std::int64_t total = t.elements() / kBlock;
  const std::string where = t.scales.describe();
  if (t.names->format->unsigned_scales) {
    if (c.nan + c.negative > 0)
      findings.add("gguf-scale", t.module(), "{}: {} are above 0x7E", where,
                   share(c.nan + c.negative, total));
  } else if (c.nan > 0) {
    findings.add("scale-nan", t.module(), "{}: {} are NaN", where, share(c.nan, total));
  }
  if (c.negative > 0 && !t.names->format->unsigned_scales)
    findings.add("scale-negative", t.module(), "{}: {} are negative", where,
                 share(c.negative, total));
  if (c.zero > 0)
    findings.add("scale-zero", t.module(), "{}: {} are zero over codes that are not", where,
                 share(c.zero, total));
  const bool has_global = !t.names->global.empty();  // without one, scales are as small as needed
  if (has_global && c.normal == 0 && c.positive > 0)
    findings.add("scale-subnormal", t.module(), "{}: all {} block scales are below 2^-6", where,
                 total);
  else if (has_global && c.subnormal > c.normal)
    findings.add("scale-subnormal", t.module(), "{}: {} are below 2^-6", where,
                 share(c.subnormal, total));
  // Scales that a quantizer chose thin out towards the largest. Scales that were cut pile up there.
  if (c.largest > total / 16 && c.largest > 4 * c.next)
    findings.add("scale-saturated", t.module(), "{}: {} are 448, the largest", where,
                 share(c.largest, total));
}

/// Returns the largest magnitude of a code with scale number `at` of an FP8 or INT8 weight.
float largest_under(const LogicalTensor& t, std::int64_t at) {
  const std::int64_t across = ceil_div(t.cols(), t.block_cols);
  const std::int64_t col = at % across * t.block_cols, row = at / across * t.block_rows;
  std::vector<std::byte> codes(static_cast<std::size_t>(std::min(t.block_cols, t.cols() - col)));
  std::uint8_t largest = 0;
  const bool is_int8 = t.encoding() == Encoding::int8;
  const std::int64_t rows = t.elements() / t.cols();  // of all experts of a stack
  for (std::int64_t r = row; r < std::min(row + t.block_rows, rows); ++r) {
    t.data.read(r * t.cols() + col, codes);
    for (const std::byte c : codes) {
      const int integer = static_cast<std::int8_t>(std::to_integer<std::uint8_t>(c));
      const auto magnitude =
          static_cast<std::uint8_t>(is_int8 ? std::abs(integer) : integer & 0x7F);
      if (is_int8 || magnitude != E4M3::kNaN) largest = std::max(largest, magnitude);
    }
  }
  return is_int8 ? static_cast<float>(largest) : E4M3{largest}.to_float();
}

/// Returns the largest magnitude of the 32 codes with exponent number `at` of an MXFP4 weight.
float largest_of_mxfp4(const LogicalTensor& t, std::int64_t at) {
  std::array<std::byte, 16> codes{};
  t.data.read(at * 16, codes);
  std::uint8_t largest = 0;
  for (const std::byte pair : codes) {
    const auto both = std::to_integer<std::uint8_t>(pair);
    largest = std::max(
        {largest, static_cast<std::uint8_t>(both & 7), static_cast<std::uint8_t>(both >> 4 & 7)});
  }
  return E2M1{largest}.to_float();
}

/// Limit of weights: no model reaches it. A reciprocal as global scale of NVFP4 leads to weights
/// beyond it.
constexpr float kTooLarge = 2688;

/// Returns the largest magnitude of an INT4 weight. Its groups may hold any columns.
float largest_of_int4(const LogicalTensor& t) {
  const std::int64_t step = std::max<std::int64_t>(1, (1 << 20) / t.cols()) * t.cols();
  std::vector<float> values;
  float largest = 0;
  for (std::int64_t at = 0; at < t.elements(); at += step) {
    values.resize(static_cast<std::size_t>(std::min(step, t.elements() - at)));
    t.read(at, values);
    for (const float value : values) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

struct OtherCounts {
  std::int64_t nan = 0, negative = 0, zero = 0, large = 0;
  float reach = 0;  ///< the largest weight with a scale that is too large

  void add_if_large(float scale, float code) {
    const float weight = std::fabs(scale) * code;
    if (weight < kTooLarge) return;
    ++large;
    reach = std::max(reach, weight);
  }
};

/// Counts faulty scales of FP8. Codes are read only for scales that could be too large or are zero.
void count_fp8(const LogicalTensor& t, std::int64_t at, std::span<const float> scales,
               OtherCounts& counts) {
  constexpr float kMaxCode = 448;
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const float scale = scales[i];
    const auto index = at + static_cast<std::int64_t>(i);
    counts.nan += !std::isfinite(scale);
    if (!std::isfinite(scale)) continue;
    counts.negative += scale < 0;
    if (scale == 0)
      counts.zero += largest_under(t, index) > 0;
    else if (std::fabs(scale) * kMaxCode >= kTooLarge)
      counts.add_if_large(scale, largest_under(t, index));
  }
}

/// Counts scales of INT4 that are not finite or could be too large.
void count_int4(std::span<const float> scales, OtherCounts& counts) {
  constexpr float kMaxCode = 15;  // less its zero point
  for (const float scale : scales) {
    counts.nan += !std::isfinite(scale);
    counts.large += std::isfinite(scale) && std::fabs(scale) * kMaxCode >= kTooLarge;
  }
}

/// Counts faulty exponents. They are E8M0, which has no zero, although GPT-OSS stores them as U8.
void count_exponents(const LogicalTensor& t, std::int64_t at, std::span<const std::byte> exponents,
                     OtherCounts& counts) {
  constexpr int kBias = 127, kNaN = 255;
  const bool eight = t.encoding() == Encoding::fp8;
  const float most = eight ? E4M3::kMax : 6;
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    const int exponent = std::to_integer<int>(exponents[i]);
    counts.nan += exponent == kNaN;
    const float scale = std::ldexp(1.0f, exponent - kBias);
    if (exponent == kNaN || scale * most < kTooLarge) continue;
    const auto index = at + static_cast<std::int64_t>(i);
    counts.add_if_large(scale, eight ? largest_under(t, index) : largest_of_mxfp4(t, index));
  }
}

/// Checks the scales of FP8, MXFP8, INT8, MXFP4 and INT4. Writers of FP8 compute scales from
/// magnitudes, and loaders that round them to powers of two drop the sign.
void check_other_scales(const LogicalTensor& t, Findings& findings) {
  constexpr std::int64_t kPart = 1 << 20;
  const safetensors::DType dtype = t.scales.info->dtype;
  const std::int64_t size = safetensors::dtype_bits(dtype) / 8;
  const auto total = static_cast<std::int64_t>(t.scales.info->bytes) / size;
  OtherCounts counts;
  std::vector<std::byte> bytes;
  std::vector<float> values;
  for (std::int64_t at = 0; at < total; at += kPart) {
    const std::int64_t n = std::min(kPart, total - at);
    bytes.resize(static_cast<std::size_t>(n * size));
    t.scales.read(at * size, bytes);
    if (t.encoding() == Encoding::mxfp4 || t.is_mxfp8()) {
      count_exponents(t, at, bytes, counts);
      continue;
    }
    values.resize(static_cast<std::size_t>(n));
    to_floats(dtype, bytes, values);
    if (t.encoding() == Encoding::int4)
      count_int4(values, counts);
    else
      count_fp8(t, at, values, counts);
  }
  if (t.encoding() == Encoding::int4 && counts.large > 0) {
    counts.reach = largest_of_int4(t);
    if (counts.reach < kTooLarge) counts.large = 0;
  }
  const auto add = [&](const char* code, std::int64_t n, const std::string& are) {
    if (n > 0)
      findings.add(code, t.module(), "{}: {} of {} {} scales are {}", t.scales.describe(), n, total,
                   t.form_name(), are);
  };
  add("scale-nan", counts.nan, "NaN or infinite");
  add("scale-negative", counts.negative, "negative");
  add("scale-zero", counts.zero, "zero over codes that are not");
  add("scale-too-large", counts.large,
      fmt::format("so large that weights reach {:.3g}", counts.reach));
}

/// Checks a scale of keys or values in an FP8 cache.
void check_cache_scale(const LogicalTensor& t, Findings& findings) {
  float value = 1;
  t.read(0, {&value, 1});
  const bool usable = std::isfinite(value);
  if (usable && value < 0)
    findings.add("cache-scale-negative", t.name, "{}: {}", t.data.describe(), value);
  if (!usable) findings.add("scale-nan", t.name, "{}: {}", t.data.describe(), value);
  if (value == 0)
    findings.add_with_effect("what the cache holds is zero", "scale-zero", t.name,
                             fmt::format("{}: {}", t.data.describe(), value));
}

}  // namespace

void check_scales(std::span<const LogicalTensor> tensors, const std::set<std::string>& defective,
                  const CacheScales& caches, Findings& findings, Measured& measured,
                  const OnProgress& on_progress, bool look_for_tiles) {
  std::vector<const LogicalTensor*> weights;
  for (const LogicalTensor& t : tensors)
    if (t.is_nvfp4() && !defective.contains(t.name)) weights.push_back(&t);
  std::vector<std::uint64_t> sizes;
  sizes.reserve(weights.size());
  for (const LogicalTensor* t : weights)
    sizes.push_back(static_cast<std::uint64_t>(t->elements() / kBlock));
  const std::vector<bool> mine = measured.mine(sizes);
  std::vector<MeasuredPart> parts;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!mine[i]) continue;
    const std::int64_t blocks = weights[i]->elements() / kBlock;
    const std::int64_t row = weights[i]->depth() / kBlock;
    const std::int64_t step =
        std::max<std::int64_t>(1, kChunkBlocks / std::max<std::int64_t>(1, row)) * row;
    for (std::int64_t at = 0; at < blocks; at += step) {
      const std::int64_t n = std::min(step, blocks - at);
      parts.push_back({i, at, n, static_cast<std::uint64_t>(n)});
    }
  }
  std::vector<Counts> counts(weights.size());
  measure_parts(
      parts, [&](std::size_t weight) { return weights[weight]->name; },
      [&](const MeasuredPart& part) {
        const LogicalTensor& t = *weights[part.item];
        Counts counted = count(t, part);
        counted.swizzled = look_for_tiles && part.begin == 0 && looks_swizzled(t);
        return counted;
      },
      [&](std::size_t p, const Counts& counted) { counts[parts[p].item].add(counted); },
      on_progress);
  measured.exchange("scales", weights, mine, counts);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    report(*weights[i], counts[i], findings);
    if (counts[i].swizzled)
      findings.add("scales-look-swizzled", weights[i]->module(),
                   "{}: rows and columns of the scales look mixed up by 128x4 tiles",
                   weights[i]->scales.describe());
  }
  for (const LogicalTensor& t : tensors) {
    if (defective.contains(t.name)) continue;
    if (caches.find(t)) check_cache_scale(t, findings);
    if (!t.is_plain() && !t.is_nvfp4()) check_other_scales(t, findings);
  }
}

ValueFaults value_faults(std::span<const LogicalTensor> tensors, const FuseRules& rules,
                         const CacheScales& caches) {
  constexpr std::string_view kFaults[] = {
      "scale-nan",          "scale-negative",      "scale-too-large",      "global-scale-invalid",
      "global-scale-sense", "input-scale-invalid", "cache-scale-negative", "fused-globals-far"};
  constexpr std::string_view kTold[] = {"global-scale-tiny", "fused-globals"};
  Findings findings("");
  std::int64_t defaults = 0;
  for (const LogicalTensor& t : tensors)
    if (t.is_nvfp4()) check_global(t, findings, defaults);
  check_fused(tensors, rules, findings);
  Measured alone({}, "");
  check_scales(tensors, {}, caches, findings, alone, {}, false);
  ValueFaults faults;
  for (Finding& f : findings.take()) {
    if (std::ranges::find(kFaults, f.code) != std::end(kFaults))
      faults.refused.push_back(std::move(f));
    else if (std::ranges::find(kTold, f.code) != std::end(kTold))
      faults.told.push_back(std::move(f));
  }
  return faults;
}

}  // namespace nvfp4::checkpoint
