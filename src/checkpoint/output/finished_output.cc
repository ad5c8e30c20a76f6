#include <algorithm>

#include "checkpoint/output/output_folder.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/header.h"
#include "checkpoint/source/content.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

bool reads_as(const TensorFile& file, const safetensors::TensorSpec& spec,
              std::span<const std::byte> expected) {
  const safetensors::TensorInfo& tensor = *file.find(spec.name);
  std::vector<std::byte> there(expected.size());
  if (tensor.bytes < there.size()) return false;
  file.read(tensor, 0, there);
  return std::ranges::equal(there, expected);
}

bool has_tensors_of(const TensorFile& file, const SpecTable& specs) {
  const auto& tensors = file.tensors();
  if (tensors.size() != specs.size()) return false;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (tensors[i].dtype != specs.dtype(i) || tensors[i].shape != specs.shape(i) ||
        tensors[i].name != specs.name(i))
      return false;
  return true;
}

class Comparison {
 public:
  Comparison(const Plan& plan, const fs::path& folder) : plan_(plan), folder_(folder) {}

  std::string run() {
    for (std::size_t s = 0; s < plan_.shards.size(); ++s)
      if (std::string text = shard(s); !text.empty()) return text;
    return {};
  }

 private:
  std::string shard(std::size_t number) {
    const PlannedShard& planned = plan_.shards[number];
    const fs::path path = folder_ / planned.file;
    if (!fs::is_regular_file(fs::symlink_status(path))) return planned.file + " is not there";
    try {
      return shard(planned, TensorFile::open(path));
    } catch (const FormatError& e) {
      return e.what();
    }
  }

  std::string shard(const PlannedShard& planned, const TensorFile& file) {
    const std::string of =
        planned.file + " is of another run, by other options or of another input: ";
    if (!has_tensors_of(file, planned.specs)) return of + "its tensors differ";
    if (file.metadata() != planned.metadata) return of + "its metadata differ";
    for (std::size_t t = planned.first_tensor; t < planned.first_tensor + planned.tensors; ++t)
      if (!tensor(plan_.tensors[t], planned, file))
        return fmt::format("{}{} differs", of, plan_.tensors[t].name);
    return {};
  }

  bool tensor(const PlannedTensor& t, const PlannedShard& planned, const TensorFile& file) {
    if (t.copy != kNone)
      return sample_of(*t.stored.file, *t.stored.info) ==
             sample_of(file, *file.find(planned.specs.name(t.copy)));
    for (std::size_t u = t.first_unit; u < t.first_unit + t.units; ++u)
      if (!unit(plan_.units[u], planned, file)) return false;
    return true;
  }

  bool unit(const Unit& u, const PlannedShard& planned, const TensorFile& file) {
    if (const auto* plain = u.as<DequantizeWork>()) {
      if (plain->output().transposed || plain->output().begin > 0) return true;
      const MatrixRows first{*plan_.tensors[u.tensor].source, u.slice, 0, 1};
      return reads_as(file, planned.specs[u.places.codes],
                      plain->encode(first, {}, buffers_).codes);
    }
    const auto* copied = u.as<CopyWork>();
    if (copied == nullptr || !copied->own_global() || u.places.weight_global == kNone) return true;
    const float stored = plan_.format->stored_global(*copied->own_global());
    return reads_as(file, planned.specs[u.places.weight_global],
                    std::as_bytes(std::span(&stored, 1)));
  }

  const Plan& plan_;
  const fs::path& folder_;
  Buffers buffers_;
};

std::string index_text(const Plan& plan) {
  const std::vector<PlannedName> names = sorted_names(plan);
  return safetensors::index_json(plan.total_size, names.size(), [&](std::size_t i) {
    return safetensors::IndexEntry(names[i].text(), names[i].shard->file);
  });
}

}  // namespace

std::string difference_from_plan(const Plan& plan, const fs::path& folder) {
  return Comparison(plan, folder).run();
}

WrittenFiles files_of_output(const ModelFolder& model, const Plan& plan) {
  WrittenFiles files;
  for (const PlannedShard& shard : plan.shards) files[shard.file];
  for (const fs::path& other : model.others) files[other.generic_string()];
  if (!plan.index_name.empty()) files[plan.index_name];
  if (!plan.hf_quant_json.empty()) files["hf_quant_config.json"];
  if (!plan.params_json.empty()) files[kParamsName];
  if (!plan.config_json.empty()) files["config.json"];
  return files;
}

std::string text_of_file(const Plan& plan, const std::string& name) {
  if (name == "config.json") return plan.config_json;
  if (name == "hf_quant_config.json") return plan.hf_quant_json;
  if (name == kParamsName) return plan.params_json;
  return !name.empty() && name == plan.index_name ? index_text(plan) : std::string();
}

WrittenFile planned_file(const ModelFolder& model, const Plan& plan, const std::string& name) {
  if (const std::string text = text_of_file(plan, name); !text.empty()) return written_text(text);
  const bool carried = std::ranges::find(model.others, fs::path(name)) != model.others.end();
  return carried ? written_file(model.root / name) : WrittenFile();
}

}  // namespace nvfp4::checkpoint
