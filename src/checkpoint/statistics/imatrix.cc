#include <fmt/ranges.h>

#include <map>
#include <mutex>

#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/statistics/statistics.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

// Source: github.com/ggml-org/llama.cpp, tools/imatrix/imatrix.cpp.
constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

/// An importance matrix of llama.cpp. For each tensor, with its GGUF name, it has sums of squares
/// [matrices, K] and counts of tokens [matrices, 1].
class Imatrix final : public Statistics {
 public:
  Imatrix(const std::filesystem::path& path, const ModelConfig& config)
      : file_(gguf::File::open(path)) {
    for (const std::string& type : config.model_types)
      if (architecture_ == nullptr) architecture_ = gguf::find_architecture(type);
    bool any = false;
    for (const gguf::TensorInfo& t : file_.header().tensors) any |= t.name.ends_with(kSums);
    require<FormatError>(any, ErrorCode::statistics,
                         "{}: not an importance matrix, it has no tensor \"*{}\"", path.string(),
                         kSums);
    require<UnsupportedError>(
        architecture_ != nullptr,
        "{}: llama.cpp's layer names of model_type {} are not known; hint: nvfp4 calibrate "
        "writes statistics for any model",
        path.string(),
        config.model_types.empty() ? "(none)" : printable(config.model_types.front()));
  }

  const std::filesystem::path& path() const override { return file_.path(); }

  /// Returns the statistics of a module. It reads a count once for each module, since the counts of
  /// a stack are in one tensor.
  const InputStatistics* find(std::string_view module) const override {
    const std::lock_guard lock(mutex_);
    if (const auto it = modules_.find(module); it != modules_.end())
      return it->second.depth > 0 ? &it->second : nullptr;
    InputStatistics& s = modules_[std::string(module)];
    const auto place = gguf::place_of(*architecture_, fmt::format("{}.weight", module));
    if (!place) return nullptr;
    const gguf::TensorInfo* sums = file_.find(place->file_name + std::string(kSums));
    const gguf::TensorInfo* counts = file_.find(place->file_name + std::string(kCounts));
    if (sums == nullptr) return nullptr;
    require<FormatError>(counts != nullptr, ErrorCode::statistics, "{}: {} has no {} beside it",
                         path().string(), printable(sums->name), kCounts);
    for (const gguf::TensorInfo* t : {sums, counts})
      require<FormatError>(t->type->id == gguf::kF32, ErrorCode::statistics,
                           "{}: {} is {}, must be F32", path().string(), printable(t->name),
                           t->type->name);
    const std::int64_t matrices = counts->elements(),
                       matrix = std::max<std::int64_t>(0, place->expert);
    require<FormatError>(matrices > matrix && sums->elements() % matrices == 0 &&
                             sums->shape.back() == sums->elements() / matrices,
                         ErrorCode::statistics,
                         "{}: {} has shape [{}], with counts of {} matrices; matrix {} is wanted",
                         path().string(), printable(sums->name), fmt::join(sums->shape, ", "),
                         matrices, matrix);
    float count = 0;
    file_.read(*counts, static_cast<std::uint64_t>(matrix) * sizeof(float),
               std::as_writable_bytes(std::span(&count, 1)));
    require<FormatError>(count >= 0 && count < 1e30f, ErrorCode::statistics,
                         "{}: {} has a count of {}, must be positive", path().string(),
                         printable(counts->name), count);
    s.count = static_cast<double>(count);
    s.matrix = matrix;
    s.tensor = static_cast<std::size_t>(sums - file_.header().tensors.data());
    s.depth = sums->elements() / matrices;
    return &s;
  }

  std::vector<double> triangle(const InputStatistics&) const override { return {}; }

  std::uint64_t fingerprint() const override {
    return fingerprint_of(file_, file_.header().tensors, checkpoint::fingerprint(""));
  }

 private:
  std::vector<double> diagonal(const InputStatistics& of) const override {
    std::vector<float> sums(static_cast<std::size_t>(of.depth));
    file_.read(file_.header().tensors[of.tensor],
               static_cast<std::uint64_t>(of.matrix * of.depth) * sizeof(float),
               std::as_writable_bytes(std::span(sums)));
    return {sums.begin(), sums.end()};
  }

  gguf::File file_;
  const gguf::Architecture* architecture_ = nullptr;
  mutable std::mutex mutex_;
  /// The modules requested so far.
  mutable std::map<std::string, InputStatistics, std::less<>> modules_;
};

}  // namespace

std::shared_ptr<const Statistics> open_imatrix(const std::filesystem::path& path,
                                               const ModelConfig& config) {
  return std::make_shared<Imatrix>(path, config);
}

}  // namespace nvfp4::checkpoint
