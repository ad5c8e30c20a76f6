// NVFP4 products on Hopper beside cuBLAS BF16 and a read-only stream of the weights' bytes, all of
// the same run.
// usage: nvfp4_cuda_gemm_bench [--json FILE] [--tiles] [--rows M,M,...] [--shape NxK]
//
// --tiles also times every tile there is, one line for each M as tools/tile_table.py reads them.
// The weights are gone through in copies of at least 340 MB together, two copies from 1024 rows on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../bench_matrix.h"
#include "backends/cuda/gemm/problem.h"
#include "cublas.h"
#include "nvfp4/tensor_core_gemm.h"
#include "program.h"
#include "stream_read.h"

namespace nvfp4 {
namespace {

const Device kGpu = Device::cuda();
constexpr std::int64_t kShapes[][2] = {{4096, 7168},  {7168, 2048}, {2112, 7168},
                                       {24576, 1536}, {8192, 8192}, {7168, 18432}};
constexpr std::int64_t kManyRows = 1024;
constexpr std::int64_t kFewRows = 64;  ///< where a kernel leaves room for the next
constexpr int kMostNext = 32;          ///< GemmTile::next that is tried
constexpr int kMostEarly = 5;          ///< GemmTile::early that is tried
constexpr int kMostHelp = 12;          ///< GemmTile::help that is tried
constexpr std::size_t kNearlyFastest = 4, kFastest = 10;
constexpr int kRepeats = 5;

struct Arguments {
  std::string json;
  bool tiles = false;
  std::vector<std::int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  std::int64_t n = 0, k = 0;
};

/// One shape: copies of its weights as NVFP4 and as BF16.
struct Weights {
  std::vector<FragmentWeights> packed;
  PackedWeights reference;  ///< on the CPU
  Matrix dense;             ///< copies one below the other
  std::int64_t n, k, dense_copies;

  Weights(std::int64_t n_, std::int64_t k_) : n(n_), k(k_) {
    const Matrix host = bench::gaussian(DType::bf16, n, k);
    const QuantizedMatrix q = quantize(host.view(), {.quantizer = Quantizer::max});
    reference = pack_weights(q.view());
    const FragmentWeights one = pack_fragments(q.view());
    const auto copies = static_cast<std::size_t>(ceil_div(bench::kRotated, one.bytes()) + 1);
    for (std::size_t i = 0; i < copies; ++i) packed.push_back(to_device(one, kGpu));
    dense_copies = ceil_div(bench::kRotated, n * k * 2) + 1;
    dense = Matrix(DType::bf16, dense_copies * n, k, kGpu);
    Matrix values(DType::bf16, n, k);
    dequantize_into(q.view(), values.span());
    for (std::int64_t i = 0; i < dense_copies; ++i) copy(values.view(), dense_span(i));
    synchronize(kGpu);
  }
  MatrixSpan dense_span(std::int64_t i) {
    MatrixSpan s = dense.span();
    s.data = static_cast<char*>(s.data) + i * n * k * 2;
    s.rows = n;
    return s;
  }
};

MatrixView first_rows(const Matrix& x, std::int64_t rows) {
  MatrixView v = x.view();
  v.rows = rows;
  return v;
}

/// ‖out - FP32 product‖ / ‖FP32 product‖ over at most 64 rows.
double relative_error(const Matrix& x, const Weights& w, const Matrix& out) {
  const std::int64_t rows = std::min<std::int64_t>(x.rows(), 64);
  const Matrix host_x = to_device(first_rows(x, rows), Device{});
  const Matrix host_out = to_device(first_rows(out, rows), Device{});
  const Matrix exact = gemm(host_x.view(), w.reference, DType::f32);
  double error = 0, norm = 0;
  for (std::int64_t i = 0; i < rows * w.n; ++i) {
    const double e = exact.data<float>()[i];
    const double d = BF16{host_out.data<std::uint16_t>()[i]}.to_float() - e;
    error += d * d;
    norm += e * e;
  }
  return std::sqrt(error / norm);
}

using TimedTile = std::pair<GemmTile, double>;
struct Times {
  double ours = 0, cublas = 0, error = 0;
  std::vector<TimedTile> tiles;
};

bool is_faster(const TimedTile& a, const TimedTile& b) { return a.second < b.second; }

/// The ten fastest, by what `ours` measures, of the tiles that there are: first each for itself,
/// then with other values of next, then with those of early and of help, and at last in turn, for
/// the least of so many is luck, too.
template <class Exists, class Ours>
std::vector<TimedTile> fastest_tiles(std::int64_t k, std::int64_t m, const Exists& exists,
                                     const Ours& ours) {
  std::vector<TimedTile> shapes;
  for (const int tokens : {2, 8, 16, 32, 48, 64, 96, 128, 144, 160, 192, 256})
    for (const int rows : {16, 32, 64, 128, 192})
      for (const int splits : {1, 2, 4, 8}) {
        const bool useless = (tokens >= 2 * m && tokens > 8) || (tokens == 2 && m > 2) ||
                             tokens * 32 < m || (m >= kManyRows && (tokens < 128 || splits > 2)) ||
                             k / 64 < splits * 4;
        const GemmTile tile{tokens, rows, splits};
        if (!useless && exists(tile)) shapes.emplace_back(tile, ours(tile));
      }
  // The two move a tile's time by less than its shape does.
  const double limit = 1.2 * std::min_element(shapes.begin(), shapes.end(), is_faster)->second;
  std::vector<TimedTile> tiles;
  for (const TimedTile& shape : shapes) {
    if (shape.second > limit) continue;
    std::vector<TimedTile> of_shape = {shape};
    GemmTile tile = shape.first;
    for (int next = 1; next <= kMostNext && m <= kFewRows; ++next) {
      tile.next = next;
      of_shape.emplace_back(tile, ours(tile));
    }
    std::sort(of_shape.begin() + 1, of_shape.end(), is_faster);
    // The warps of strips bring all of their stages.
    const std::size_t count = cuda::is_strips(tile) ? 0 : std::min(kNearlyFastest, of_shape.size());
    for (std::size_t i = 0; i < count; ++i)
      for (int early = 1; early <= kMostEarly; ++early) {
        tile = of_shape[i].first;
        tile.early = early;
        of_shape.emplace_back(tile, ours(tile));
      }
    std::sort(of_shape.begin(), of_shape.end(), is_faster);
    tile = of_shape[0].first;
    if (tile.tokens == 64) tile.next = 0;
    for (tile.help = 1; tile.help <= kMostHelp && exists(tile); ++tile.help)
      of_shape.emplace_back(tile, ours(tile));
    tiles.insert(tiles.end(), of_shape.begin(), of_shape.end());
  }
  std::sort(tiles.begin(), tiles.end(), is_faster);
  tiles.resize(std::min(kFastest, tiles.size()));
  std::vector<std::vector<double>> times(tiles.size());
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    for (std::size_t i = 0; i < tiles.size(); ++i) times[i].push_back(ours(tiles[i].first));
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    tiles[i].second = times[i][kRepeats / 2];
  }
  std::sort(tiles.begin(), tiles.end(), is_faster);
  return tiles;
}

Times time_rows(Weights& w, std::int64_t m, bench::Cublas& cublas, bool all_tiles) {
  const Matrix x = to_device(bench::gaussian(DType::bf16, m, w.k, 7).view(), kGpu);
  Matrix out(DType::bf16, m, w.n, kGpu);
  static PartialSums partial_sums(kGpu);
  const auto some = [&](std::int64_t copies) { return m >= kManyRows ? 2 : copies; };
  const int replays = m >= kManyRows ? 7 : 15;
  const auto ours = [&](const GemmTile& tile) {
    return bench::measure(
        some(static_cast<std::int64_t>(w.packed.size())),
        [&](std::int64_t i, Stream s) {
          gemm_into(x.view(), w.packed[static_cast<std::size_t>(i)], out.span(),
                    {.tile = tile, .partial_sums = &partial_sums, .stream = s});
        },
        replays);
  };
  const auto exists = [&](const GemmTile& tile) {
    try {
      gemm_into(x.view(), w.packed[0], out.span(), {.tile = tile, .partial_sums = &partial_sums});
      return true;
    } catch (const ValueError&) {
      return false;
    }
  };
  Times t;
  bench::check(cudaMemset(out.data<void>(), 0xFF, static_cast<std::size_t>(m * w.n * 2)));
  gemm_into(x.view(), w.packed[0], out.span(), {.partial_sums = &partial_sums});
  synchronize(kGpu);
  t.error = relative_error(x, w, out);
  t.ours = ours({});
  if (cublas.available())
    t.cublas = bench::measure(
        some(w.dense_copies),
        [&](std::int64_t i, Stream s) {
          cublas.multiply(x.view(), w.dense_span(i), out.span(), s);
        },
        replays);
  if (all_tiles) t.tiles = fastest_tiles(w.k, m, exists, ours);
  return t;
}

/// Of the issue: a multiple of the stream for few rows, of cuBLAS for many.
double aim_of(const Weights& w, std::int64_t m, double floor, double cublas) {
  const bool large = w.n * w.k >= std::int64_t{8192} * 8192;
  if (m <= 16) return floor * (large ? 1.2 : 1.35);
  if (m <= 64) return std::min(floor * 1.7, cublas);
  return cublas * 1.05;
}

nlohmann::json run_shape(const Arguments& arguments, std::int64_t n, std::int64_t k,
                         bench::Cublas& cublas) {
  Weights w(n, k);
  Buffer never(16, kGpu);
  const double floor =
      bench::measure(static_cast<std::int64_t>(w.packed.size()), [&](std::int64_t i, Stream s) {
        const FragmentWeights& p = w.packed[static_cast<std::size_t>(i)];
        bench::stream_read(p.data(), p.bytes(), static_cast<unsigned*>(never.data()),
                           static_cast<cudaStream_t>(s.handle));
      });
  fmt::print("== {}x{}: {:.2f} MB, read in {:.2f} us ({:.2f} TB/s)\n", n, k,
             static_cast<double>(w.packed[0].bytes()) * 1e-6, floor,
             static_cast<double>(w.packed[0].bytes()) / floor * 1e-6);
  nlohmann::json shape{{"n", n}, {"k", k}, {"bytes", w.packed[0].bytes()}, {"read_us", floor}};
  for (const std::int64_t m : arguments.rows) {
    const Times t = time_rows(w, m, cublas, arguments.tiles);
    const double aim = aim_of(w, m, floor, t.cublas);
    const double tflops = 2e-6 * static_cast<double>(m * n * k) / t.ours;
    fmt::print(
        "  M={:<5} ours {:>8.2f} us {:>6.1f} TFLOP/s {:>5.2f} x read  cuBLAS BF16 {:>8.2f} "
        "us {:>5.2f} x  error {:.2e}  aim {:>8.2f} {}\n",
        m, t.ours, tflops, t.ours / floor, t.cublas, t.ours / t.cublas, t.error, aim,
        t.ours <= aim ? "reached" : "missed");
    if (!t.tiles.empty()) {
      fmt::print("  M={:<5}", m);
      for (const auto& [tile, us] : t.tiles)
        fmt::print(" [{},{},{},{},{},{}]={:.2f}", tile.tokens, tile.rows, tile.splits, tile.next,
                   tile.early, tile.help, us);
      fmt::print("\n");
    }
    std::fflush(stdout);
    shape["rows"].push_back({{"m", m},
                             {"us", t.ours},
                             {"cublas_bf16_us", t.cublas},
                             {"relative_error", t.error},
                             {"aim_us", aim}});
  }
  return shape;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (name == "--tiles") {
      a.tiles = true;
      continue;
    }
    ++i;
    if (name == "--json") {
      a.json = value;
    } else if (name == "--shape" && value.find('x') != std::string::npos) {
      a.n = std::stoll(value);
      a.k = std::stoll(value.substr(value.find('x') + 1));
    } else if (name == "--rows") {
      a.rows = bench::parse_numbers(value);
    } else {
      throw ValueError(fmt::format("unknown argument {}", name));
    }
  }
  return a;
}

void run(const Arguments& arguments) {
  bench::Cublas cublas;
  if (!cublas.available()) fmt::print("cuBLAS was not found\n");
  nlohmann::json j = bench::describe_gpu();
  for (const auto& [n, k] : kShapes)
    if (arguments.n == 0 || (arguments.n == n && arguments.k == k))
      j["shapes"].push_back(run_shape(arguments, n, k, cublas));
  bench::write_json(arguments.json, j);
}

}  // namespace
}  // namespace nvfp4

int main(int argc, char** argv) {
  return nvfp4::bench::run_program("nvfp4_cuda_gemm_bench",
                                   [&] { nvfp4::run(nvfp4::parse(argc, argv)); });
}
