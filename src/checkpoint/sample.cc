#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "checkpoint/sample_models.h"
#include "checkpoint/sample_weights.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/checkpoint.h"
#include "nvfp4/safetensors.h"

namespace nvfp4 {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kShardBytes = 4'000'000'000;
constexpr std::int64_t kChunkElements = 1 << 21;

std::int64_t elements(const SampleTensor& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape) n *= d;
  return n;
}
std::uint64_t bytes(const SampleTensor& t) {
  return static_cast<std::uint64_t>(elements(t)) * (t.f32 ? 4 : 2);
}

/// Ends of the shards, in tensors: about the same bytes in each, none of them empty.
std::vector<std::size_t> split(const std::vector<SampleTensor>& tensors, std::size_t shards,
                               std::uint64_t total) {
  std::vector<std::size_t> ends;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    done += bytes(tensors[i]);
    const std::size_t open = shards - ends.size();  // with the current one
    const bool full = done >= total / shards * (ends.size() + 1);
    const bool must = tensors.size() - (i + 1) == open - 1;  // one tensor for each that follows
    if (open > 1 && (full || must)) ends.push_back(i + 1);
  }
  ends.push_back(tensors.size());
  return ends;
}

/// Removes an earlier checkpoint, and nothing else, from the folder.
void make_folder(const fs::path& folder, bool overwrite) {
  std::error_code error;
  fs::create_directories(folder, error);
  require<IoError>(!error && fs::is_directory(folder), "sample: cannot create folder '{}': {}",
                   folder.string(), error ? error.message() : "it is a file");
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    require<ValueError>(overwrite,
                        "sample: output '{}' is not empty; choose another or pass overwrite",
                        folder.string());
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
        name.ends_with(".partial"))
      old.push_back(entry.path());
  }
  for (const fs::path& path : old)
    require<IoError>(fs::remove(path, error) && !error, "sample: cannot remove '{}': {}",
                     path.string(), error.message());
}

struct Chunk {
  std::size_t tensor;
  std::int64_t first_row, rows;
};

std::vector<Chunk> chunks_of(std::span<const SampleTensor> tensors) {
  std::vector<Chunk> chunks;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::int64_t rows = tensors[t].shape.size() == 1 ? 1 : tensors[t].shape[0];
    const std::int64_t step =
        std::max<std::int64_t>(1, kChunkElements / (elements(tensors[t]) / rows));
    for (std::int64_t r = 0; r < rows; r += step)
      chunks.push_back({t, r, std::min(step, rows - r)});
  }
  return chunks;
}

void write_vector(safetensors::Writer& writer, std::size_t index, const SampleTensor& t,
                  std::uint64_t seed) {
  const bool norm = t.fill == SampleTensor::Fill::norm;
  std::vector<float> values = sample_vector(seed, t.name, elements(t), norm ? 1.0 : 0.0, t.sigma);
  if (norm)
    for (float& v : values) v = std::clamp(v, 0.25f, 4.0f);
  if (t.f32) return writer.write(index, 0, std::as_bytes(std::span(values)));
  std::vector<std::uint16_t> bf16(values.size());
  std::ranges::transform(values, bf16.begin(), [](float v) { return BF16::from_float(v).bits; });
  writer.write(index, 0, std::as_bytes(std::span(bf16)));
}

}  // namespace

SampleReport sample_checkpoint(const SampleOptions& options) {
  const SampleModel model =
      sample_model(options.arch, options.layers == 0 ? 2 : options.layers, options.scale);
  SampleReport report;
  report.tensors = static_cast<std::int64_t>(model.tensors.size());
  for (const SampleTensor& t : model.tensors) {
    report.bytes += bytes(t);
    report.parameters += static_cast<std::uint64_t>(elements(t));
  }
  const auto fewest = static_cast<int>((report.bytes + kShardBytes - 1) / kShardBytes);
  report.shards = options.shards == 0 ? fewest : options.shards;
  require<ValueError>(
      report.shards >= 1 && report.shards <= std::min<std::int64_t>(report.tensors, 99999),
      "sample: shards = {}, must be in 1..{} (tensors of the model)", options.shards,
      report.tensors);
  make_folder(options.output, options.overwrite);

  Progress progress;
  progress.tensors_total = report.tensors;
  progress.bytes_total = report.bytes;
  std::mutex mutex;
  safetensors::Index index;
  index.total_size = report.bytes;
  std::size_t begin = 0, shard = 0;
  for (const std::size_t end :
       split(model.tensors, static_cast<std::size_t>(report.shards), report.bytes)) {
    const std::span tensors = std::span(model.tensors).subspan(begin, end - begin);
    begin = end;
    const std::string name = report.shards == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                              ++shard, report.shards);
    std::vector<safetensors::TensorSpec> specs;
    std::vector<std::unique_ptr<SampleWeights>> weights(tensors.size());
    for (const SampleTensor& t : tensors) {
      specs.push_back(
          {t.name, t.f32 ? safetensors::DType::f32 : safetensors::DType::bf16, t.shape});
      index.weight_map[t.name] = name;
    }
    safetensors::Writer writer(options.output / name, specs, {{"format", "pt"}});
    const std::vector<Chunk> chunks = chunks_of(tensors);
    std::vector<std::once_flag> once(tensors.size());
    std::vector<std::atomic<std::int64_t>> rows_done(tensors.size());
    parallel_for(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) {
      const Chunk& c = chunks[static_cast<std::size_t>(i)];
      const SampleTensor& t = tensors[c.tensor];
      const std::int64_t rows = t.shape.size() == 1 ? 1 : t.shape[0];
      std::uint64_t written = bytes(t);
      if (t.fill == SampleTensor::Fill::weight) {
        const std::int64_t cols = t.shape[1];
        std::call_once(once[c.tensor], [&] {
          weights[c.tensor] = std::make_unique<SampleWeights>(options.seed, t.name, cols, t.sigma);
        });
        thread_local std::vector<std::uint16_t> buffer;
        buffer.resize(static_cast<std::size_t>(c.rows * cols));
        weights[c.tensor]->fill(c.first_row, buffer);
        const auto data = std::as_bytes(std::span(buffer));
        writer.write(c.tensor, static_cast<std::uint64_t>(c.first_row * cols) * 2, data);
        written = data.size();
      } else {
        write_vector(writer, c.tensor, t, options.seed);
      }
      const bool last = rows_done[c.tensor].fetch_add(c.rows) + c.rows == rows;
      if (last) weights[c.tensor].reset();
      const std::lock_guard lock(mutex);
      progress.tensor = t.name;
      progress.tensors_done += last;
      progress.bytes_done += written;
      if (options.progress) options.progress(progress);
    });
    writer.commit();
  }

  const auto write_json = [&](const char* name, const nlohmann::ordered_json& json) {
    safetensors::write_file_atomically(options.output / name, json.dump(2) + "\n");
  };
  if (report.shards > 1)
    safetensors::write_file_atomically(options.output / "model.safetensors.index.json",
                                       safetensors::index_json(index));
  write_json("generation_config.json", model.generation_config);
  write_json("tokenizer_config.json", model.tokenizer_config);
  write_json("config.json", model.config);
  return report;
}

}  // namespace nvfp4
