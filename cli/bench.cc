#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "command_line.h"
#include "commands.h"
#include "nvfp4/error.h"
#include "nvfp4/quantize.h"
#include "nvfp4/runtime.h"
#include "terminal.h"

namespace nvfp4::cli {
namespace {

constexpr std::int64_t kRows = 8192, kReferenceRows = 128, kCols = 8192;
constexpr double kPackedBytes = 0.5 + 1.0 / kBlock;  // bytes of an element: code and block scale
constexpr double kSecondsPerLine = 0.35;

/// Returns the best time of one call. It runs for kSecondsPerLine, and at least twice.
double seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30, total = 0;
  for (int i = 0; i < 2 || (total < kSecondsPerLine && i < 50); ++i) {
    const auto start = Clock::now();
    call();
    const double s = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, s);
    total += s;
  }
  return best;
}

/// Returns the bytes that memcpy reads and writes per second on `threads` threads.
double copy_bandwidth(const Matrix& from, Matrix& to, int threads) {
  const std::int64_t bytes = from.rows() * from.cols() * dtype_size(from.dtype());
  const double s = seconds([&] {
    std::vector<std::jthread> workers;
    workers.reserve(static_cast<std::size_t>(threads));
    for (int t = 0; t < threads; ++t)
      workers.emplace_back([&, t] {
        const std::int64_t begin = bytes * t / threads, end = bytes * (t + 1) / threads;
        std::memcpy(to.data<std::byte>() + begin, from.data<std::byte>() + begin,
                    static_cast<std::size_t>(end - begin));
      });
  });
  return 2.0 * static_cast<double>(bytes) / s;
}

void fill(Matrix& x) {
  auto* data = x.data<std::uint16_t>();
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < x.rows() * x.cols();
       ++i) {  // the sum of two uniform numbers is sufficient
    state = state * 1664525u + 1013904223u;
    const float v = static_cast<float>(state >> 16) + static_cast<float>(state & 0xFFFF);
    data[i] = BF16::from_float((v - 65535.0f) * 0x1p-21f).bits;
  }
}

/// Checks a result, since the rate of a wrong result is worthless.
void check(MatrixView x, const QuantizeOptions& options, std::string_view name) {
  const MatrixView slice(x.data, x.dtype, 37, x.cols, x.stride);
  QuantizeOptions reference = options;
  reference.backend = "reference";
  const QuantizedMatrix q = quantize(slice, options);
  if (!(q == quantize(slice, reference)))
    throw Error(fmt::format("bench: {} differs from the reference", name));
  const Matrix a = dequantize(q.view(), DType::bf16, options.backend);
  const Matrix b = dequantize(q.view(), DType::bf16, "reference");
  if (std::memcmp(a.view().data, b.view().data, static_cast<std::size_t>(slice.size()) * 2) != 0)
    throw Error("bench: dequantize differs from the reference");
}

struct Line {
  std::string name;
  double bytes;  ///< bytes read and written for each element
  std::function<void()> call;
  std::vector<double> seconds;
};

void run(const BenchArguments& arguments) {
  const BackendInfo backend = select_backend(arguments.backend);
  const int all = threads();
  const Style style(stdout);
  // The reference is a hundred times slower, and no cache affects it.
  const std::int64_t rows = backend.name == "reference" ? kReferenceRows : kRows;
  Matrix x(DType::bf16, rows, kCols), back(DType::bf16, rows, kCols);
  fill(x);
  QuantizedMatrix packed(QuantizedShape{.rows = rows, .cols = kCols});
  const float largest = amax(x.view(), backend.name);
  std::vector<Line> lines;
  const auto quantizer = [&](std::string name, Quantizer q, bool measured) {
    QuantizeOptions options;
    options.quantizer = q;
    options.backend = backend.name;
    check(x.view(), options, name);
    const double input = measured ? 4 : 2;  // measuring the global scale reads it again
    const GlobalScale global = GlobalScale::from_amax(largest, q);
    lines.push_back({std::move(name),
                     input + kPackedBytes,
                     [&, options, measured, global]() mutable {
                       if (!measured) options.global = {&global, 1};
                       quantize_into(x.view(), packed.span(), options);
                     },
                     {}});
  };
  quantizer("max", Quantizer::max, false);
  quantizer("max, global measured", Quantizer::max, true);
  quantizer("four_over_six", Quantizer::four_over_six, false);
  quantizer("mse", Quantizer::mse, false);
  lines.push_back({"dequantize",
                   2 + kPackedBytes,
                   [&] { dequantize_into(packed.view(), back.span(), backend.name); },
                   {}});

  std::vector<int> counts{1};
  if (all > 1) counts.push_back(all);
  std::vector<double> copies;
  for (const int n : counts) {
    set_threads(n);
    copies.push_back(copy_bandwidth(x, back, n));
    for (Line& line : lines) line.seconds.push_back(seconds(line.call));
  }

  const double elements = static_cast<double>(rows * kCols);
  Table table("lrrrr");
  std::vector<std::string> titles{fmt::format("BF16, {} x {}", rows, kCols), "threads", "Gelem/s",
                                  "GB/s", "of copy"};
  table.title(titles);
  for (std::size_t i = 0; i < counts.size(); ++i)
    table.add({i == 0 ? "copy" : "", fmt::format("{}", counts[i]), "",
               fmt::format("{:.1f}", copies[i] / 1e9), ""});
  for (const Line& line : lines)
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double rate = elements / line.seconds[i];
      table.add({i == 0 ? line.name : "", fmt::format("{}", counts[i]),
                 style.bold(fmt::format("{:.3g}", rate / 1e9)),
                 fmt::format("{:.1f}", rate * line.bytes / 1e9),
                 fmt::format("{:.0f} %", 100 * rate * line.bytes / copies[i])});
    }
  print(wrapped(
      stdout,
      fmt::format("{}  {}\n\n{}\n{}\n", style.bold(backend.name), backend.description, table.text(),
                  style.dim("  every result was checked against the reference"))));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  CommandLine line(app, "bench", *arguments);
  line.callback([arguments] { run(*arguments); });
}

}  // namespace nvfp4::cli
