#include "backends/host/gemm_loop.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "core/parallel_for.h"
#include "nvfp4/runtime.h"
#include "platform/memory.h"

namespace nvfp4 {
namespace {

struct FreeBytes {
  void operator()(std::byte* p) const { platform::free_aligned(p); }
};

/// Uninitialized memory, aligned for any vector. It grows and is kept for the next task of its
/// thread.
class Scratch {
 public:
  std::byte* get(std::int64_t bytes) {
    if (bytes > size_) {
      const auto size = static_cast<std::size_t>(round_up(bytes, 64));
      data_.reset(static_cast<std::byte*>(platform::allocate_aligned(64, size)));
      size_ = data_ ? static_cast<std::int64_t>(size) : 0;
      if (!data_) throw std::bad_alloc();
    }
    return data_.get();
  }

 private:
  std::unique_ptr<std::byte[], FreeBytes> data_;
  std::int64_t size_ = 0;
};

/// A part of one GEMM.
struct Task {
  std::size_t job;
  std::int64_t row, rows;      // rows of x
  std::int64_t panel, panels;  // panels of w
};

class Gemm {
 public:
  Gemm(const Backend& backend, const GemmKernels& kernels, std::span<const GemmJob> jobs,
       bool batch_invariant)
      : backend_(backend), kernels_(kernels), jobs_(jobs) {
    const int pool = threads();
    std::int64_t bytes = 0;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const Activations& x = jobs[j].x;
      const PanelMatrix& w = jobs[j].w;
      tilings_.push_back(
          choose_gemm_tiling(kernels, x.rows, w.rows, x.blocks, pool, batch_invariant));
      const GemmTiling& t = tilings_.back();
      // Several GEMMs with the same x share its records.
      const bool shared = j > 0 && jobs[j - 1].x == x && tilings_[j - 1].direct == t.direct;
      record_base_.push_back(shared ? record_base_[j - 1] : bytes);
      if (!shared) {
        const GemmKernels::Records& form = kernels.records(t.direct);
        for (std::int64_t r = 0; r < x.rows; r += form.strip_rows) strips_.push_back({j, r});
        bytes += round_up(x.rows * x.blocks * form.bytes, 64);
      }
      for (std::int64_t r = 0; r < x.rows; r += t.rows)
        for (std::int64_t p = 0; p < w.panels(); p += t.panels)
          tasks_.push_back(
              {j, r, std::min(t.rows, x.rows - r), p, std::min(t.panels, w.panels() - p)});
    }
    // The memory is kept, because pages of a large allocation would be mapped again in every call.
    static thread_local Scratch kept;
    constexpr std::int64_t kKept = std::int64_t{64} << 20;
    records_ = (bytes <= kKept ? kept : scratch_).get(std::max<std::int64_t>(bytes, 64));
  }

  void run() {
    // Several strips in a call, because one takes only a microsecond for small K.
    const auto strips = static_cast<std::int64_t>(strips_.size());
    parallel_for(ceil_div(strips, kStripsPerCall), [&](std::int64_t i) {
      for (std::int64_t s = i * kStripsPerCall; s < std::min(strips, (i + 1) * kStripsPerCall); ++s)
        prepare(strips_[static_cast<std::size_t>(s)]);
    });
    parallel_for(static_cast<std::int64_t>(tasks_.size()),
                 [&](std::int64_t i) { run_task(tasks_[static_cast<std::size_t>(i)]); });
  }

 private:
  static constexpr std::int64_t kStripsPerCall = 4;

  struct Strip {
    std::size_t job;
    std::int64_t row;
  };

  const GemmKernels::Records& form(std::size_t job) const {
    return kernels_.records(tilings_[job].direct);
  }
  int strip_rows(std::size_t job, std::int64_t row) const {
    return static_cast<int>(std::min<std::int64_t>(form(job).strip_rows, jobs_[job].x.rows - row));
  }
  /// Returns the records of the strip that starts at `row`, from block b on.
  std::byte* records(std::size_t job, std::int64_t row, std::int64_t b) const {
    const Activations& x = jobs_[job].x;
    return records_ + record_base_[job] +
           (row * x.blocks + b * strip_rows(job, row)) * form(job).bytes;
  }

  void prepare(const Strip& s) const {
    const Activations& x = jobs_[s.job].x;
    form(s.job).prepare(x, s.row, strip_rows(s.job, s.row), records(s.job, s.row, 0));
  }

  void run_task(const Task& task) const {
    static thread_local Scratch scratch;
    const GemmJob& job = jobs_[task.job];
    const GemmTiling& tiling = tilings_[task.job];
    const std::int64_t width =
        round_up(task.panels, tiling.direct ? 1 : kernels_.tile.panels) * kPanelRows;
    const std::int64_t sum_bytes = task.rows * width * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t decoded_bytes =
        tiling.direct ? 0 : tiling.depth * kernels_.tile.panels * kernels_.tile.decoded_bytes;
    std::byte* decoded = scratch.get(round_up(decoded_bytes, 64) + sum_bytes);
    auto* sums = reinterpret_cast<float*>(decoded + round_up(decoded_bytes, 64));
    std::memset(sums, 0, static_cast<std::size_t>(sum_bytes));
    if (tiling.direct)
      run_direct(task, sums, width);
    else
      run_tiles(task, tiling.depth, decoded, sums, width);
    const std::int64_t n0 = task.panel * kPanelRows;
    backend_.finish_gemm(
        job.output, sums, width,
        {task.row, task.rows, n0, std::min(task.panels * kPanelRows, job.w.rows - n0)});
  }

  void run_direct(const Task& task, float* sums, std::int64_t width) const {
    const GemmJob& job = jobs_[task.job];
    const std::int64_t bytes = job.w.panel_bytes();
    const Panels w{job.w.data + task.panel * bytes, bytes, task.panels, job.x.blocks};
    for (std::int64_t r = 0; r < task.rows; r += kernels_.direct.records.strip_rows)
      kernels_.direct.run(w, records(task.job, task.row + r, 0), strip_rows(task.job, task.row + r),
                          sums + r * width, width);
  }

  void run_tiles(const Task& task, std::int64_t depth, std::byte* decoded, float* sums,
                 std::int64_t width) const {
    const GemmJob& job = jobs_[task.job];
    const GemmKernels::Tile& tile = kernels_.tile;
    const std::int64_t bytes = job.w.panel_bytes(), step = tile.panels;
    const std::int64_t strip = tile.records.strip_rows;
    for (std::int64_t b = 0; b < job.x.blocks; b += depth) {
      const std::int64_t blocks = std::min(depth, job.x.blocks - b);
      const std::int64_t next_blocks = std::min(depth, job.x.blocks - b - blocks);
      for (std::int64_t p = 0; p < task.panels; p += step) {
        const std::uint8_t* panel =
            job.w.data + (task.panel + p) * bytes + b / kGroupBlocks * kGroupBytes;
        // If panels are missing at the end, the last one is dequantized again.
        const bool whole = task.panels - p >= step;
        tile.decode(panel, whole ? bytes : 0, blocks, job.x.blocks - b, decoded);
        for (std::int64_t r = 0; r < task.rows; r += strip) {
          const std::int64_t row = task.row + r;
          // Each tile prefetches a part of the next data while it multiplies: the next panels from
          // memory, and the next blocks of x from the last-level cache.
          if (p + step < task.panels)
            for (std::int64_t i = 0; i < step; ++i)
              prefetch_part(panel + (step + i) * bytes, blocks * kPanelRows * 9, r / strip,
                            ceil_div(task.rows, strip));
          prefetch_part(records(task.job, row, b + blocks),
                        next_blocks * strip_rows(task.job, row) * tile.records.bytes, p / step,
                        ceil_div(task.panels, step));
          tile.run(decoded, blocks, records(task.job, row, b), strip_rows(task.job, row),
                   sums + r * width + p * kPanelRows, width);
        }
      }
    }
  }

  /// Prefetches part i of n of the bytes at p to the L2 cache.
  static void prefetch_part(const void* p, std::int64_t bytes, std::int64_t i, std::int64_t n) {
    const auto* from = static_cast<const char*>(p);
    for (std::int64_t line = i * bytes / n / 64 * 64; line < (i + 1) * bytes / n; line += 64)
      __builtin_prefetch(from + line, 0, 2);
  }

  const Backend& backend_;
  const GemmKernels& kernels_;
  std::span<const GemmJob> jobs_;
  std::vector<GemmTiling> tilings_;
  std::vector<std::int64_t> record_base_;
  std::vector<Strip> strips_;
  std::vector<Task> tasks_;
  Scratch scratch_;
  std::byte* records_ = nullptr;
};

}  // namespace

GemmTiling choose_gemm_tiling(const GemmKernels& kernels, std::int64_t m, std::int64_t n,
                              std::int64_t blocks, int threads, bool batch_invariant) {
  const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(n, kPanelRows));
  const GemmKernels::Direct& few = kernels.direct;
  const GemmKernels::Tile& tile = kernels.tile;
  const bool direct =
      tile.run == nullptr || (m <= few.most_rows && !(batch_invariant && few.differs));
  const std::int64_t strip = kernels.records(direct).strip_rows;
  GemmTiling t{.direct = direct, .panels = 0, .rows = 0, .depth = 0};
  // Sums and records of a task should stay in the L2 cache.
  constexpr std::int64_t kRows = 256, kPanels = 16, kDecodedBytes = 24 * 1024;
  t.rows = std::min(round_up(kRows, strip), round_up(m, strip));
  const std::int64_t row_parts = ceil_div(m, std::max<std::int64_t>(1, t.rows));
  // The number of tasks is high enough that no thread waits long for the last one.
  constexpr std::int64_t kTasksPerThread = 8;
  const std::int64_t wanted =
      ceil_div(kTasksPerThread * threads, std::max<std::int64_t>(1, row_parts));
  t.panels = std::clamp<std::int64_t>(panels / wanted, 1, kPanels);
  // Weights are read from memory for the first strip of rows, and from the L2 cache for the others.
  constexpr std::int64_t kStripPanels = 4;
  if (direct && m > strip) t.panels = std::min(t.panels, kStripPanels);
  if (!direct) {
    t.panels = round_up(t.panels, tile.panels);
    const std::int64_t most = kDecodedBytes / (tile.panels * tile.decoded_bytes);
    t.depth = std::max(kGroupBlocks, most / kGroupBlocks * kGroupBlocks);
    t.depth = std::min(t.depth, round_up(blocks, kGroupBlocks));
  }
  return t;
}

void run_gemms(const Backend& backend, const GemmKernels& kernels, std::span<const GemmJob> jobs,
               bool batch_invariant) {
  Gemm(backend, kernels, jobs, batch_invariant).run();
}

}  // namespace nvfp4
