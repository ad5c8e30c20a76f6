#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>

#include "checkpoint/base/error_codes.h"
#include "checkpoint/io/planned_file.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/output/own_files.h"
#include "checkpoint/safetensors/folder_names.h"
#include "checkpoint/safetensors/header.h"
#include "checkpoint/sample/sample_models.h"
#include "checkpoint/source/content.h"
#include "core/parallel_for.h"
#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4 {
namespace {

using namespace checkpoint;
namespace fs = std::filesystem;

constexpr std::uint64_t kShardBytes = 4'000'000'000;
constexpr int kMostShards = 99'999;
constexpr std::int64_t kChunkElements = 1 << 21;

std::int64_t elements(const SampleTensor& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape) n *= d;
  return n;
}
std::uint64_t bytes(const SampleTensor& t) {
  return static_cast<std::uint64_t>(elements(t)) * (t.f32 ? 4 : 2);
}

/// Number and bytes of a model's tensors.
struct Size {
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0, parameters = 0;
};

Size size_of(const SampleModel& model) {
  Size size;
  size.tensors = static_cast<std::int64_t>(model.tensors.size());
  for (const SampleTensor& t : model.tensors) {
    size.bytes += bytes(t);
    size.parameters += static_cast<std::uint64_t>(elements(t));
  }
  return size;
}

/// Returns the size of a model without its tensors, which may be millions. From layer 10 on, all
/// layers have the same size.
Size size_of(const std::string& arch, int layers, double scale) {
  constexpr int kEnough = 10;
  Size size = size_of(sample_model(arch, std::min(layers, kEnough), scale));
  if (layers <= kEnough) return size;
  const Size next = size_of(sample_model(arch, kEnough + 1, scale));
  const auto more = static_cast<std::uint64_t>(layers - kEnough);
  size.bytes += more * (next.bytes - size.bytes);
  size.parameters += more * (next.parameters - size.parameters);
  size.tensors += (layers - kEnough) * (next.tensors - size.tensors);
  return size;
}

/// Returns the ends of the shards, in tensors. Shards have about the same size, and none is empty.
std::vector<std::size_t> split(const std::vector<SampleTensor>& tensors, std::size_t shards,
                               std::uint64_t total) {
  std::vector<std::size_t> ends;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    done += bytes(tensors[i]);
    const std::size_t open = shards - ends.size();  // includes the current one
    const bool full = done >= total / shards * (ends.size() + 1);
    // Each remaining shard needs one tensor.
    const bool must = tensors.size() - (i + 1) == open - 1;
    if (open > 1 && (full || must)) ends.push_back(i + 1);
  }
  ends.push_back(tensors.size());
  return ends;
}

/// Makes the folder and writes the list of `files` there, without hashes: they are not written yet.
/// The files that this program wrote before are removed. Throws IoError, also where the disk has no
/// room for `bytes` of tensors.
void make_folder(const fs::path& folder, bool overwrite, const WrittenFiles& files,
                 std::uint64_t bytes) try {
  require_no_address(folder);
  std::error_code error;
  const bool created = fs::create_directories(folder, error);
  require<IoError>(!error && fs::is_directory(folder),
                   error ? error_code(error) : ErrorCode::not_a_folder,
                   "{}: cannot create the folder: {}", folder.string(),
                   error ? error.message() : "it is a file");
  require<IoError>(overwrite || fs::is_empty(folder), ErrorCode::output_not_empty,
                   "{}: is not empty; hint: name a new folder; --overwrite replaces a sample",
                   folder.string());
  const std::vector<fs::path> own =
      content_to_replace(folder, files, [](const auto&) { return WrittenFile(); }).own;
  std::uint64_t freed = 0;
  for (const fs::path& path : own) freed += fs::file_size(folder / path);
  const std::string lack = lack_of_room(folder, bytes, freed);
  if (!lack.empty() && created) fs::remove(folder);
  require<IoError>(lack.empty(), ErrorCode::disk_full,
                   "{}: {}; hint: free space, or write elsewhere", folder.string(), lack);
  remove_own_files(folder, own);
  save_written_files(folder, files);
} catch (const fs::filesystem_error& e) {
  throw_io_error(e);
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

using Shard = PlannedFile<safetensors::FilePlan>;

void write_vector(Shard& writer, std::size_t index, const SampleTensor& t, std::uint64_t seed) {
  const bool norm = t.fill == SampleTensor::Fill::norm;
  std::vector<float> values = sample_vector(seed, t.name, elements(t), norm ? 1.0 : 0.0, t.sigma);
  if (norm)
    for (float& v : values) v = std::clamp(v, 0.25f, 4.0f);
  if (t.f32) return writer.write(index, 0, std::as_bytes(std::span(values)));
  std::vector<std::uint16_t> bf16(values.size());
  std::ranges::transform(values, bf16.begin(), [](float v) { return BF16::from_float(v).bits; });
  writer.write(index, 0, std::as_bytes(std::span(bf16)));
}

/// Called after each chunk with its tensor, its bytes, and whether it was the tensor's last one.
using Written = std::function<void(const SampleTensor&, std::uint64_t, bool)>;

/// Returns the entry of the shard in the list of files.
WrittenFile write_shard(const fs::path& path, std::span<const SampleTensor> tensors,
                        std::uint64_t seed, const Written& written) {
  std::vector<safetensors::TensorSpec> specs;
  for (const SampleTensor& t : tensors)
    specs.push_back({t.name, t.f32 ? safetensors::DType::f32 : safetensors::DType::bf16, t.shape});
  const safetensors::Metadata metadata = {{"format", "pt"}};
  Shard writer(path, safetensors::FilePlan(
                         specs.size(), [&](std::size_t i) { return specs[i]; }, metadata,
                         name_of_file(path)));

  struct State {
    std::once_flag once;
    std::optional<SampleWeights> weights;
    std::atomic<std::int64_t> rows_done = 0;
  };
  std::vector<State> states(tensors.size());
  const std::vector<Chunk> chunks = chunks_of(tensors);
  parallel_for(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) {
    const Chunk& c = chunks[static_cast<std::size_t>(i)];
    const SampleTensor& t = tensors[c.tensor];
    State& state = states[c.tensor];
    if (t.fill != SampleTensor::Fill::weight) {
      write_vector(writer, c.tensor, t, seed);
      return written(t, bytes(t), true);
    }
    const std::int64_t cols = t.shape[1];
    std::call_once(state.once, [&] { state.weights.emplace(seed, t.name, cols, t.sigma); });
    thread_local std::vector<std::uint16_t> buffer;
    buffer.resize(static_cast<std::size_t>(c.rows * cols));
    state.weights->fill(c.first_row, buffer);
    const auto data = std::as_bytes(std::span(buffer));
    writer.write(c.tensor, static_cast<std::uint64_t>(c.first_row * cols) * 2, data);
    const bool last = state.rows_done.fetch_add(c.rows) + c.rows == t.shape[0];
    if (last) state.weights.reset();
    written(t, data.size(), last);
  });
  const std::string hash = hash_text(writer.hash());
  writer.commit();
  return {writer.file_bytes(), hash, hex(content_of(TensorFile::open(path)))};
}

}  // namespace

SampleReport sample_checkpoint(const SampleOptions& options) {
  const int layers = options.layers == 0 ? 2 : options.layers;
  require<ValueError>(layers >= 1 && layers <= 1000, "sample: layers = {}, must be in 1..1000",
                      layers);
  const Size size = size_of(options.arch, layers, options.scale);
  SampleReport report;
  report.tensors = size.tensors;
  report.bytes = size.bytes;
  report.parameters = size.parameters;
  const std::uint64_t fewest = (report.bytes + kShardBytes - 1) / kShardBytes;
  require<ValueError>(fewest <= kMostShards,
                      "sample: layers = {} at scale = {} make {} bytes, more than {} shards hold",
                      layers, options.scale, report.bytes, kMostShards);
  report.shards = options.shards == 0 ? static_cast<int>(fewest) : options.shards;
  const std::int64_t most = std::min<std::int64_t>(report.tensors, kMostShards);
  require<ValueError>(report.shards >= 1 && report.shards <= most,
                      "sample: shards = {}, must be in 1..{} (tensors of the model)", report.shards,
                      most);

  Progress progress;
  progress.tensors_total = report.tensors;
  progress.bytes_total = report.bytes;
  std::mutex mutex;
  const Written written = [&](const SampleTensor& t, std::uint64_t size, bool last) {
    const std::lock_guard lock(mutex);
    progress.tensor = t.name;
    progress.tensors_done += last;
    progress.bytes_done += size;
    if (options.progress) options.progress(progress);
  };
  const auto name_of = [&](std::size_t shard) {
    return report.shards == 1
               ? std::string(kSingleName)
               : fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, report.shards);
  };
  WrittenFiles files;
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "config.json"})
    files[name];
  if (report.shards > 1) files["model.safetensors.index.json"];
  for (int s = 0; s < report.shards; ++s) files[name_of(static_cast<std::size_t>(s))];
  make_folder(options.output, options.overwrite, files, report.bytes);

  const SampleModel model = sample_model(options.arch, layers, options.scale);
  safetensors::Index index;
  index.total_size = report.bytes;
  std::size_t begin = 0, shard = 0;
  for (const std::size_t end :
       split(model.tensors, static_cast<std::size_t>(report.shards), report.bytes)) {
    const std::string name = name_of(shard++);
    const std::span tensors = std::span(model.tensors).subspan(begin, end - begin);
    for (const SampleTensor& t : tensors) index.weight_map[t.name] = name;
    files[name] = write_shard(options.output / name, tensors, options.seed, written);
    begin = end;
  }
  const auto write = [&](const char* name, const std::string& text) {
    safetensors::write_file_atomically(options.output / name, text);
    files[name] = written_text(text);
  };
  if (report.shards > 1) write("model.safetensors.index.json", safetensors::index_json(index));
  write("generation_config.json", model.generation_config.dump(2) + "\n");
  write("tokenizer_config.json", model.tokenizer_config.dump(2) + "\n");
  write("config.json", model.config.dump(2) + "\n");
  save_written_files(options.output, files);
  return report;
}

}  // namespace nvfp4
