#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <limits>
#include <set>

#include "checkpoint/compare/inspect_blocks.h"
#include "checkpoint/compare/measured.h"
#include "checkpoint/formats/format.h"
#include "checkpoint/source/quantized_tensors.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4 {

using namespace checkpoint;

namespace {

constexpr std::int64_t kChunkBytes = 4 << 20;
using ByteCounts = std::array<std::uint64_t, 256>;

void count_bytes(std::span<const std::byte> bytes, ByteCounts& counts) {
  // Four tables avoid that equal neighbours wait for each other's increment.
  std::array<std::array<std::uint32_t, 256>, 4> partial{};
  std::size_t i = 0;
  for (; i + 4 <= bytes.size(); i += 4)
    for (std::size_t j = 0; j < 4; ++j) ++partial[j][static_cast<std::size_t>(bytes[i + j])];
  for (; i < bytes.size(); ++i) ++partial[0][static_cast<std::size_t>(bytes[i])];
  for (std::size_t v = 0; v < 256; ++v)
    for (const auto& p : partial) counts[v] += p[v];
}

/// Bytes of codes or scales.
struct BlockChunk : MeasuredPart {
  bool scales = false;
};

void add_codes(InspectedTensor& t, const ByteCounts& counts) {
  for (std::size_t v = 0; v < 256; ++v) {
    t.codes[v & 15] += counts[v];
    t.codes[v >> 4] += counts[v];
  }
}

/// Sets the range of scales. A single NaN scale makes both ends NaN, so that it is seen.
void set_scale_range(InspectedTensor& t, const std::bitset<256>& there) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  bool nan = false;
  for (std::size_t v = 0; v < 256; ++v) {
    if (!there[v]) continue;
    const double value = E4M3{static_cast<std::uint8_t>(v)}.to_float();
    nan |= std::isnan(value);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const bool empty = low > high;
  t.scale_min = nan || empty ? std::nan("") : low;
  t.scale_max = nan || empty ? std::nan("") : high;
}

/// Fills codes, scale_min and scale_max of the NVFP4 tensors, and scales of the report. `of[i]`
/// belongs to `report.tensors[i]`.
void read_histograms(const std::vector<const LogicalTensor*>& of, InspectReport& report,
                     const std::function<void(const Progress&)>& on_progress) {
  std::vector<BlockChunk> chunks;
  std::vector<std::bitset<256>> seen(of.size());  // scales of each tensor
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (!of[i]->is_nvfp4()) continue;
    report.tensors[i].codes.assign(16, 0);
    for (const bool scales : {false, true}) {
      const auto bytes =
          static_cast<std::int64_t>((scales ? of[i]->scales : of[i]->data).info->bytes);
      for (std::int64_t at = 0; at < bytes; at += kChunkBytes) {
        const std::int64_t n = std::min(kChunkBytes, bytes - at);
        chunks.push_back({{i, at, n, static_cast<std::uint64_t>(n)}, scales});
      }
    }
  }
  report.scales.assign(256, 0);
  measure_parts(
      chunks, [&](std::size_t tensor) { return of[tensor]->name; },
      [&](const BlockChunk& c) {
        thread_local std::vector<std::byte> buffer;
        buffer.resize(static_cast<std::size_t>(c.count));
        (c.scales ? of[c.item]->scales : of[c.item]->data).read(c.begin, buffer);
        ByteCounts counts{};
        count_bytes(buffer, counts);
        return counts;
      },
      [&](std::size_t i, const ByteCounts& counts) {
        const BlockChunk& c = chunks[i];
        if (!c.scales) return add_codes(report.tensors[c.item], counts);
        for (std::size_t v = 0; v < 256; ++v) {
          report.scales[v] += counts[v];
          if (counts[v] > 0) seen[c.item].set(v);
        }
      },
      on_progress);
  for (std::size_t i = 0; i < of.size(); ++i)
    if (of[i]->is_nvfp4()) set_scale_range(report.tensors[i], seen[i]);
}

/// Returns the number of elements in the file's count. In a LogicalTensor, blocks of an unreadable
/// type are bytes.
std::uint64_t parameters_of(const LogicalTensor& t) {
  if (!t.is_plain()) return static_cast<std::uint64_t>(t.elements());
  std::uint64_t n = 1;
  for (const std::int64_t d : t.data.file->stored_form(*t.data.info).shape)
    n *= static_cast<std::uint64_t>(d);
  return n;
}

InspectedTensor describe(const LogicalTensor& t) {
  InspectedTensor out;
  out.name = t.name;
  StoredForm form = t.data.file->stored_form(*t.data.info);
  out.dtype = std::move(form.type);
  out.shape = t.shape;
  if (t.is_plain()) out.shape = std::move(form.shape);
  out.bytes = t.bytes;
  out.file = t.data.file->path().filename().string();
  if (!t.is_plain()) {
    out.scheme = t.form_name();
    std::ranges::transform(out.scheme, out.scheme.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  }
  if (!t.is_nvfp4()) return out;
  for (const GlobalScale& g : t.globals)
    out.global_scale = std::max<double>(out.global_scale, g.multiplier);
  out.input_scale = t.input_scale();
  out.scale_min = out.scale_max = std::nan("");
  return out;
}

}  // namespace

InspectReport inspect_checkpoint(const InspectOptions& options) {
  const CheckpointReader reader(options.path, Naming::stored);
  InspectReport report;
  report.path = options.path.string();
  report.complete = reader.complete();
  report.model_type = reader.model_type();
  report.format = reader.container();
  std::vector<const LogicalTensor*> shown;
  bool input_scales = false;
  std::set<std::string> formats;
  for (const LogicalTensor& t : reader.tensors()) {
    report.bytes += t.bytes;
    report.parameters += parameters_of(t);
    if (!t.is_plain()) formats.insert(std::string(t.names->format->name));
    if (t.is_nvfp4()) {
      input_scales |= t.input_scale().has_value();
      report.scheme = scheme_name(input_scales ? Scheme::w4a4 : Scheme::w4a16);
    } else if (!t.is_plain() && report.scheme.empty()) {
      report.scheme = t.names->format->name;
    }
    if (!options.tensor || t.name == *options.tensor || t.name == *options.tensor + ".weight")
      shown.push_back(&t);
  }
  for (const Defect& unread : reader.unread()) formats.insert(unread.form + " (not read)");
  if (!formats.empty()) report.format = fmt::format("{}", fmt::join(formats, ", "));
  require<ValueError>(!options.tensor || !shown.empty(), ErrorCode::no_such_tensor,
                      "{}: holds no tensor '{}'", report.path, options.tensor.value_or(""));
  for (const LogicalTensor* t : shown) report.tensors.push_back(describe(*t));
  if (options.histograms) read_histograms(shown, report, options.progress);
  return report;
}

std::vector<InspectedBlock> inspect_blocks(const std::filesystem::path& path,
                                           const std::string& tensor, std::int64_t row,
                                           std::int64_t count) {
  const CheckpointReader reader(path, Naming::stored);
  const LogicalTensor* t = reader.find(tensor);
  if (t == nullptr) t = reader.find(tensor + ".weight");
  require<ValueError>(t != nullptr, ErrorCode::no_such_tensor, "{}: holds no tensor '{}'",
                      path.string(), printable(tensor));
  if (!t->is_nvfp4()) return {};
  const std::int64_t rows = t->matrices() * t->outputs(), blocks = t->depth() / kBlock;
  require<ValueError>(row >= 0 && row < rows, "row = {}, must be in 0..{} for {}", row, rows - 1,
                      printable(t->name));
  std::vector<std::byte> codes(static_cast<std::size_t>(blocks * kBlock / 2));
  std::vector<std::byte> scales(static_cast<std::size_t>(blocks));
  t->read_blocks(row * blocks, codes, scales);
  std::vector<InspectedBlock> out(
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, blocks)));
  const bool by_row = static_cast<std::int64_t>(t->globals.size()) == rows && rows != t->matrices();
  const GlobalScale& global =
      by_row ? t->globals[static_cast<std::size_t>(row)] : scale_of(t->globals, row / t->outputs());
  for (std::size_t b = 0; b < out.size(); ++b) {
    InspectedBlock& block = out[b];
    block.row = row;
    block.column = static_cast<std::int64_t>(b) * kBlock;
    block.scale_bits = static_cast<std::uint8_t>(scales[b]);
    block.scale = E4M3{block.scale_bits}.to_float();
    block.global_scale = global.multiplier;
    for (std::size_t i = 0; i < block.elements.size(); ++i) {
      const auto pair = static_cast<unsigned>(codes[b * kBlock / 2 + i / 2]);
      block.elements[i] =
          E2M1{static_cast<std::uint8_t>((i % 2 == 0 ? pair : pair >> 4) & 15)}.to_float();
    }
  }
  return out;
}

}  // namespace nvfp4
