
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "checkpoint/families/model_config.h"
#include "checkpoint/gguf/blocks.h"
#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/tokenizer/tokenizer.h"
#include "checkpoint/io/grow.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/reciprocals.h"
#include "checkpoint/output/gguf_layout.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::gguf {
namespace {

using checkpoint::grow;

/// Size limit of the keys that are copied from a GGUF file. The keys of a large vocabulary have a
/// tenth of that.
constexpr std::uint64_t kMaxCarriedBytes = std::uint64_t{128} << 20;

class Sink final : public checkpoint::ShardWriter {
 public:
  Sink(const Layout& layout, const checkpoint::PlannedShard& shard,
       const std::filesystem::path& path, FilePlan file)
      : layout_(layout),
        shard_(shard),
        file_(printable(path.string(), 4096)),
        writer_(path, std::move(file)) {}

  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) override {
    for (const Target& target : layout_.targets[tensor]) write(target, offset, data);
  }

  void write_blocks(std::size_t codes, std::uint64_t code_offset,
                    std::span<const std::byte> code_bytes, std::size_t /*scales*/,
                    std::uint64_t scale_offset, std::span<const std::byte> scale_bytes) override {
    const std::vector<Target>& targets = layout_.targets[codes];
    if (targets.empty()) return;
    check_scales(codes, scale_offset, scale_bytes);
    thread_local std::vector<std::byte> blocks;
    const auto bytes_of = [](std::uint64_t bytes) { return bytes / kBlockCodes * kBlockBytes; };
    const auto out = grow(blocks, static_cast<std::int64_t>(bytes_of(code_bytes.size())));
    pack_blocks(code_bytes, scale_bytes, out);
    for (const Target& target : targets)
      place(target, bytes_of(code_offset), out, bytes_of(target.row_bytes));
  }

  void commit() override { writer_.commit(); }

  /// Writes a tensor that the model does not have.
  void write_own(std::size_t tensor, std::span<const float> values) {
    writer_.write(tensor, 0, std::as_bytes(values));
  }

 private:
  void write(const Target& target, std::uint64_t offset, std::span<const std::byte> data) {
    using Kind = Target::Kind;
    if (target.kind == Kind::copy) return place(target, offset, data, target.row_bytes);
    thread_local std::vector<std::byte> wide;
    const std::size_t growth = target.kind == Kind::f32 ? 1 : 2, bytes = 4 / growth;
    const std::size_t count = data.size() / bytes;
    const auto out = grow(wide, static_cast<std::int64_t>(4 * count));
    for (std::size_t i = 0; i < count; ++i) {
      const float value = changed(float_at(data.subspan(bytes * i), target.kind), target.change);
      std::memcpy(out.data() + 4 * i, &value, 4);
    }
    place(target, growth * offset, out, growth * target.row_bytes);
  }

  static float float_at(std::span<const std::byte> bytes, Target::Kind kind) {
    if (kind == Target::Kind::f32) {
      float value;
      std::memcpy(&value, bytes.data(), 4);
      return value;
    }
    std::uint16_t bits;
    std::memcpy(&bits, bytes.data(), 2);
    return kind == Target::Kind::widen_bf16 ? BF16{bits}.to_float() : FP16{bits}.to_float();
  }

  /// Writes bytes that start at byte `offset` of the planned tensor. Its rows have `row_bytes`.
  /// Each row, or each head of a row, goes to its place in the file.
  void place(const Target& target, std::uint64_t offset, std::span<const std::byte> data,
             std::uint64_t row_bytes) {
    if (target.transposed) return place_columns(target, offset, data, row_bytes);
    if (!target.run.is_whole()) return place_run(target, offset, data, row_bytes);
    if (!target.rows.moves() && !target.columns.moves())
      return writer_.write(target.tensor, target.begin + offset, data);
    Order columns = target.columns;  // in bytes
    if (columns.moves()) columns.d = static_cast<std::int64_t>(row_bytes) / (columns.a * columns.b);
    const std::uint64_t run = columns.moves() ? static_cast<std::uint64_t>(columns.d) : row_bytes;
    while (!data.empty()) {
      const std::uint64_t row = offset / row_bytes, inside = offset % row_bytes;
      const std::size_t n = std::min<std::uint64_t>(data.size(), run - inside % run);
      const std::uint64_t to = to_file(target.rows, row) * row_bytes + to_file(columns, inside);
      writer_.write(target.tensor, target.begin + to, data.first(n));
      data = data.subspan(n);
      offset += n;
    }
  }

  /// Writes the rows of the run.
  void place_run(const Target& target, std::uint64_t offset, std::span<const std::byte> data,
                 std::uint64_t row_bytes) {
    while (!data.empty()) {
      const auto row = static_cast<std::int64_t>(offset / row_bytes);
      const std::uint64_t inside = offset % row_bytes;
      const std::uint64_t left = static_cast<std::uint64_t>(target.run.left(row)) * row_bytes;
      const std::size_t n = std::min<std::uint64_t>(data.size(), left - inside);
      if (const auto to = target.run.to_file(row))
        writer_.write(target.tensor,
                      target.begin + static_cast<std::uint64_t>(*to) * row_bytes + inside,
                      data.first(n));
      data = data.subspan(n);
      offset += n;
    }
  }

  /// Writes the rows of a run as columns: each period of the run is a matrix, which is transposed.
  void place_columns(const Target& target, std::uint64_t offset, std::span<const std::byte> data,
                     std::uint64_t row_bytes) {
    thread_local std::vector<std::byte> columns;
    const std::uint64_t element = row_bytes / static_cast<std::uint64_t>(target.cols),
                        height = static_cast<std::uint64_t>(target.run.size) * element;
    while (!data.empty()) {
      const auto row = static_cast<std::int64_t>(offset / row_bytes);
      const std::uint64_t inside = offset % row_bytes;
      const auto left = static_cast<std::uint64_t>(target.run.left(row));
      // Whole rows up to the end of the run, or a part of one.
      const std::uint64_t rows = inside == 0 ? std::min(left, data.size() / row_bytes) : 0;
      const std::size_t n =
          rows > 0 ? rows * row_bytes : std::min<std::uint64_t>(data.size(), row_bytes - inside);
      if (const auto at = target.run.to_file(row)) {
        const std::uint64_t strip = std::max<std::uint64_t>(rows, 1) * element, width = n / strip,
                            first = static_cast<std::uint64_t>(*at) * element;
        const std::uint64_t begin =
            first / height * height * static_cast<std::uint64_t>(target.cols) +
            inside / element * height + first % height;
        const auto out = grow(columns, static_cast<std::int64_t>(n));
        for (std::uint64_t c = 0; c < width; ++c)
          for (std::uint64_t r = 0; r < strip / element; ++r)
            std::memcpy(out.data() + c * strip + r * element,
                        data.data() + (r * width + c) * element, element);
        if (strip == height)
          writer_.write(target.tensor, begin, out);
        else
          for (std::uint64_t c = 0; c < width; ++c)
            writer_.write(target.tensor, begin + c * height, out.subspan(c * strip, strip));
      }
      data = data.subspan(n);
      offset += n;
    }
  }

  static std::uint64_t to_file(const Order& order, std::uint64_t index) {
    return static_cast<std::uint64_t>(order.to_file(static_cast<std::int64_t>(index)));
  }

  void check_scales(std::size_t codes, std::uint64_t offset,
                    std::span<const std::byte> scales) const {
    const auto bad = std::ranges::find_if_not(scales, is_scale);
    if (bad == scales.end()) [[likely]]
      return;
    throw ValueError(fmt::format(
        "{}: tensor '{}': scale {} is 0x{:02x} ({}), GGUF has 0 to 448 only; hint: nvfp4 repair "
        "clears signs",
        file_, printable(shard_.specs.name(codes)),
        offset + static_cast<std::uint64_t>(bad - scales.begin()), std::to_integer<int>(*bad),
        E4M3{std::to_integer<std::uint8_t>(*bad)}.to_float()));
  }

  const Layout& layout_;
  const checkpoint::PlannedShard& shard_;
  std::string file_;
  PlannedFile<FilePlan> writer_;
};

class GgufContainer final : public checkpoint::Container {
 public:
  GgufContainer(const checkpoint::ModelFolder& model, const checkpoint::Plan& plan)
      : shard_(plan.shards.front()) {
    const std::string file = (model.root / "config.json").string();
    std::error_code error;
    require<UnsupportedError>(
        !model.config.text.empty(), "{}: {}, and without it the architecture is not known",
        printable(file, 4096),
        std::filesystem::exists(file, error) ? "not read for one file by itself (give the folder)"
                                             : "there is no such file");
    const auto whole = checkpoint::parse_config_json(model.config.text, file);
    const Json config = language_config(whole);
    const Architecture* architecture = architecture_of(whole);
    require<UnsupportedError>(
        architecture != nullptr,
        "{}: model_type = {}, must be one of {}; tensor '{}' has no place in GGUF that is known; "
        "hint: convert the model in BF16 (nvfp4 convert --to bf16) with llama.cpp's own converter",
        printable(file, 4096),
        whole.contains("model_type") ? checkpoint::dump_line(whole["model_type"]) : "nothing",
        known_types(), printable(first_tensor(plan)));
    layout_ = make_layout(plan, model, *architecture, config);
    warnings_ = layout_.warnings;
    tensors_ = layout_.tensors;
    if (model.files.front().container() == "gguf") {
      const File source = File::open(model.files.front().path());
      keeps_config_ = source.header().find(kConfigKey) != nullptr;
      entries_ = entries_of(source);
      read_own_tensors(source);
    } else {
      std::int64_t layers = 0;
      for (const TensorSpec& t : tensors_)
        layers = std::max(layers, layer_of(t.name).value_or(-1) + 1);
      entries_ = gguf::entries_of(config, *architecture, printable(file, 4096), layers);
      own_ = own_tensors(config, *architecture);
      const std::vector<NewEntry> general = general_entries(model.root, config, tensors_);
      entries_.insert(entries_.end(), general.begin(), general.end());
    }
    for (const OwnTensor& own : own_)
      tensors_.push_back(
          {std::string(own.name), find_type(kF32), {static_cast<std::int64_t>(own.values.size())}});
    if (model.files.front().container() != "gguf") {
      Tokenizer tokenizer = read_tokenizer(model.root, config, *architecture);
      entries_.insert(entries_.end(), tokenizer.entries.begin(), tokenizer.entries.end());
      if (!tokenizer.missing.empty()) warnings_.push_back(tokenizer.missing);
    }
    add_own_keys(plan);
    const std::string name = printable(model.root.string(), 4096) + ": as GGUF";
    file_ = plan_file(entries_, tensors_, name);
    require_readable(*architecture, name);
  }

  std::unique_ptr<checkpoint::ShardWriter> open(const std::filesystem::path& path) const override {
    auto sink = std::make_unique<Sink>(layout_, shard_, path, file_);
    for (std::size_t i = 0; i < own_.size(); ++i)
      sink->write_own(layout_.tensors.size() + i, own_[i].values);
    return sink;
  }
  std::uint64_t tensor_bytes() const override {
    std::uint64_t bytes = 0;
    for (const TensorSpec& t : tensors_) bytes += gguf::tensor_bytes(*t.type, t.shape).value_or(0);
    return bytes;
  }
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  /// Throws the error with which reading the file would fail.
  void require_readable(const Architecture& architecture, const std::string& model) const {
    const auto read = [&](std::uint64_t offset, std::span<std::byte> out) {
      const auto start = std::as_bytes(std::span(file_.start)).subspan(offset);
      std::ranges::copy(start.first(std::min(start.size(), out.size())), out.begin());
    };
    require_whole(parse_header(read, file_.bytes, model), architecture, model);
  }

  /// Returns the name of a 4-bit weight, or of the first tensor if there is no such weight.
  static std::string first_tensor(const checkpoint::Plan& plan) {
    if (!plan.units.empty()) return plan.units.front().slice.module + ".weight";
    return plan.tensors.empty() ? std::string() : std::string(plan.tensors.front().name);
  }

  static std::string known_types() {
    std::string known;
    for (const Architecture* a : architectures())
      known += (known.empty() ? "" : ", ") + std::string(a->model_type);
    return known;
  }

  /// Returns the keys of a file, including those of the tokenizer. Keys about the storage of
  /// tensors and own keys are left out. The quantization version and the file type are new.
  static std::vector<NewEntry> entries_of(const File& source) {
    std::vector<NewEntry> out;
    std::map<std::string_view, std::uint32_t> anew = {{kQuantizationKey, kQuantizationVersion},
                                                      {kFileTypeKey, kMostlyNvfp4}};
    std::uint64_t room = kMaxCarriedBytes;
    for (const Entry& entry : source.header().entries) {
      const std::string_view key = entry.key;
      const std::uint64_t bytes = entry.end - entry.begin;
      require<UnsupportedError>(bytes <= room, "{}: key '{}': {} bytes, all may have {}",
                                printable(source.path().string(), 4096), printable(key), bytes,
                                kMaxCarriedBytes);
      room -= bytes;
      if (key == kAlignmentKey || key.starts_with("nvfp4.") || key.starts_with("split.")) continue;
      if (const auto changed = anew.extract(key))
        out.push_back({entry.key, new_u32(changed.mapped())});
      else
        out.push_back({entry.key, {.raw = source.raw(entry)}});
    }
    for (const auto& [key, value] : anew) out.push_back({std::string(key), new_u32(value)});
    return out;
  }

  void read_own_tensors(const File& source) {
    for (const std::string_view name : kRopeTensors) {
      const TensorInfo* tensor = source.find(name);
      if (tensor == nullptr || tensor->type->id != kF32) continue;
      OwnTensor& own = own_.emplace_back(name);
      own.values.resize(static_cast<std::size_t>(tensor->elements()));
      source.read(*tensor, 0, std::as_writable_bytes(std::span(own.values)));
    }
  }

  void add_own_keys(const checkpoint::Plan& plan) {
    // A config.json that was created from the keys has less information than the keys.
    if (keeps_config_) entries_.push_back({kConfigKey, new_text(plan.config_json)});
    if (!layout_.bf16.empty()) entries_.push_back({kBf16Key, new_strings(layout_.bf16)});
    if (!layout_.f16.empty()) entries_.push_back({kF16Key, new_strings(layout_.f16)});
    Json others = Json::object();
    for (const auto& [key, value] : shard_.metadata) {
      if (key == checkpoint::kReciprocalsKey)
        entries_.push_back({key, new_text(value)});
      else if (key != "format" || value != "pt")
        others[key] = value;
    }
    // Without the configuration this key is what names nvfp4.
    if (!others.empty() || !keeps_config_)
      entries_.push_back({kMetadataKey, new_text(checkpoint::dump_line(others))});
  }

  const checkpoint::PlannedShard& shard_;
  Layout layout_;
  std::vector<NewEntry> entries_;
  std::vector<TensorSpec> tensors_;
  FilePlan file_;
  std::vector<OwnTensor> own_;  ///< behind those of the layout
  bool keeps_config_ = true;
  std::vector<std::string> warnings_;
};

}  // namespace

std::unique_ptr<const checkpoint::Container> make_container(const checkpoint::ModelFolder& model,
                                                            const checkpoint::Plan& plan) {
  return std::make_unique<GgufContainer>(model, plan);
}

}  // namespace nvfp4::gguf
