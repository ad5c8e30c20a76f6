#include "checkpoint/source/model_folder.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include "checkpoint/formats/format.h"
#include "checkpoint/formats/unread_forms.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/safetensors/folder_names.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeights = ".safetensors";
constexpr const char* kConfigNames[] = {"config.json", "hf_quant_config.json", kParamsName};

/// Reports whether a file has weights in another container. Copying it would undo the saving.
bool is_other_weight_format(const fs::path& path) {
  static const std::set<std::string> extensions = {".bin",  ".pth",     ".pt",       ".ckpt",
                                                   ".gguf", ".msgpack", ".h5",       ".onnx",
                                                   ".ot",   ".tflite",  ".onnx_data"};
  const std::string name = path.filename().string();
  return extensions.count(path.extension().string()) != 0 || name.starts_with("consolidated");
}

bool is_left_behind(const std::string& name) {
  return name == "config.json" || name == "hf_quant_config.json" ||
         name == "quantize_config.json" || name == "quant_config.json" ||  // of GPTQ and AWQ
         is_index_name(name) || name.ends_with(".partial") || name == kJournalName ||
         name == kFilesName || name.starts_with(kRankPrefix);
}

/// Reports whether a folder belongs to version control, an editor or a cache, not to the model.
bool is_folder_left_behind(const std::string& name) {
  return name.starts_with('.') || name == "__pycache__" || name == "node_modules" ||
         name == "original";
}

/// The regular files below the model's folder. Links to folders are followed, but no folder is
/// entered twice.
class OtherFiles {
 public:
  OtherFiles(const ModelLinks& links, ModelFolder& model) : links_(links), model_(model) {}

  void collect(const fs::path& relative = {}, int depth = 0) {
    const fs::path folder = model_.root / relative;
    require<FormatError>(depth <= kMaxDepth, "{}: more than {} folders deep", folder.string(),
                         kMaxDepth);
    const auto status = platform::status_of(folder);
    if (!status) throw_io_error(folder, "stat", errno);
    if (!entered_.insert({status->volume, status->number}).second) return;
    std::vector<fs::directory_entry> entries;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      entries.push_back(entry);
    std::ranges::sort(entries, {}, [](const auto& e) -> const auto& { return e.path().native(); });
    for (const fs::directory_entry& entry : entries) add(entry, relative, depth);
  }

 private:
  static constexpr int kMaxDepth = 64;

  void leave(const fs::path& path, const char* why) {
    model_.warnings.push_back(fmt::format("{}{}", path.string(), why));
  }

  void add(const fs::directory_entry& entry, const fs::path& relative, int depth) {
    const fs::path name = entry.path().filename(), path = relative / name;
    const bool top = relative.empty();
    if (entry.is_symlink()) links_.require_inside(entry.path());
    if (entry.is_directory()) {
      if (is_folder_left_behind(name.string())) return leave(path, "/ is not copied");
      return collect(path, depth + 1);
    }
    if (top && (is_left_behind(name.string()) || name.extension() == kWeights)) return;
    require<IoError>(entry.is_regular_file(), ErrorCode::not_a_file,
                     "{}: a pipe, socket or device, must be a regular file", entry.path().string());
    if (is_other_weight_format(name)) return leave(path, ": weights in another format, not copied");
    model_.others.push_back(path);
  }

  const ModelLinks& links_;
  ModelFolder& model_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> entered_;
};

std::vector<std::string> shards_without_index(const fs::path& root,
                                              const std::vector<std::string>& found) {
  const std::string lost = lost_shards(root, found);
  if (!lost.empty()) throw IoError(lost, ErrorCode::shard_missing);
  if (is_whole_by_itself(found)) return {kSingleName};
  return found;
}

void check_index(const fs::path& file, const safetensors::Index& index, const ModelFolder& model) {
  for (std::size_t f = 0; f < model.files.size(); ++f) {
    for (const auto& tensor : model.files[f].tensors()) {
      const auto entry = index.weight_map.find(tensor.name);
      require<FormatError>(entry != index.weight_map.end(), ErrorCode::index,
                           "{}: {} of {} is not in the index; hint: nvfp4 repair writes it anew",
                           file.string(), tensor.name, model.file_names[f]);
      require<FormatError>(entry->second == model.file_names[f], ErrorCode::index,
                           "{}: {} is in {}, the index says {}; hint: nvfp4 repair writes it anew",
                           file.string(), tensor.name, model.file_names[f], entry->second);
    }
  }
  for (const auto& [tensor, shard] : index.weight_map) {
    const auto at = std::ranges::lower_bound(model.file_names, shard);  // The names are sorted.
    const auto f = static_cast<std::size_t>(at - model.file_names.begin());
    require<FormatError>(model.files[f].find(tensor) != nullptr, ErrorCode::index,
                         "{}: {} does not hold {}; hint: nvfp4 repair writes the index anew",
                         file.string(), shard, tensor);
  }
}

void put_together(ModelFolder& model, bool to_repair) {
  FoundTensors found =
      find_tensors(TensorTable(model.files), model.declared ? &*model.declared : nullptr);
  if (!found.defects.empty() && !to_repair) throw FormatError(found.defects.front().text);
  if (!found.unknown.empty())
    throw UnsupportedError(found.unknown.front().text, ErrorCode::already_quantized);
  if (const std::size_t n = found.integers.size(); n > 0)
    model.warnings.push_back(fmt::format("{} integer tensors of no known use are copied: {}{}", n,
                                         printable(found.integers[0]), n > 1 ? ", ..." : ""));
  model.tensors = std::move(found.tensors);
  model.defects = std::move(found.defects);
  for (const LogicalTensor& t : model.tensors)
    model.file_of.push_back(static_cast<std::size_t>(t.data.file - model.files.data()));
}

/// Sets the schemes of NVFP4 weights. Without an input scale a weight is W4A16 if no weight has
/// one, if the configuration says so, or if the format has no configuration.
void set_schemes(ModelFolder& model) {
  const std::optional<Declared>& declared = model.declared ? model.declared : model.hf_declared;
  std::optional<DeclaredTargets> targets;
  bool any = false, inputs = false;
  for (const LogicalTensor& t : model.tensors) {
    any |= t.is_nvfp4();
    inputs |= t.is_nvfp4() && t.input;
  }
  model.scheme = any && !inputs ? Scheme::w4a16 : Scheme::w4a4;
  for (LogicalTensor& t : model.tensors) {
    if (!t.is_nvfp4() || t.input) continue;
    const CheckpointFormat& format = *t.names->format;
    t.weights_only = !inputs || (format.names != nullptr && !format.quantization_config);
    if (t.weights_only || !declared) continue;
    if (!targets) targets.emplace(*declared);
    t.weights_only = !targets->activations_of(t.module()).value_or(true);
  }
}

bool can_be_parsed(const fs::path& index) {
  try {
    safetensors::parse_index(read_model_text(index), index.string());
    return true;
  } catch (const FormatError&) {
    return false;
  }
}

void open_files(ModelFolder& model, const ModelLinks* links = nullptr) {
  for (const std::string& name : model.file_names) {
    const fs::path path = model.root / name;
    if (links != nullptr) links->require_inside(path);
    require<IoError>(fs::exists(path), ErrorCode::shard_missing,
                     "{}: missing, but the index names it", path.string());
    model.files.push_back(TensorFile::open(path));
  }
}

/// Parses config.json. The text is empty for a file without a configuration of its own.
void parse_config(ModelFolder& model, std::string text) {
  if (text.empty()) return;
  const std::string file = (model.root / "config.json").string();
  const Json json = parse_config_json(text, file);
  model.declared = declared_in_config(json, file);
  model.config = parse_model_config(std::move(text), file, json);
}

void read_configs(ModelFolder& model, bool to_repair) {
  if (const fs::path config = model.root / "config.json"; fs::exists(config)) {
    std::string text = read_model_text(config);
    // This call throws: the file exists but is empty.
    if (text.empty()) parse_config_json({}, config.string());
    parse_config(model, std::move(text));
  }
  if (const fs::path params = model.root / kParamsName; fs::exists(params)) {
    std::string text = read_model_text(params);
    if (is_params_text(text)) {
      std::optional<Declared> declared = declared_in_params(text, params.string());
      if (!model.declared)
        model.declared = std::move(declared);
      else if (declared && !model.declared->unread)
        model.declared->unread = std::move(declared->unread);
      model.params.file = params.string();
      model.params.text = std::move(text);
    }
  }
  if (const fs::path config = model.root / "hf_quant_config.json"; fs::exists(config)) {
    const std::string text = read_model_text(config);
    if (text.empty() && to_repair) return;
    try {
      model.hf_declared = declared_in_hf_quant_config(text, config.string());
    } catch (const FormatError& e) {
      if (text.empty()) throw;
      if (!model.declared)
        model.warnings.insert(model.warnings.begin(), fmt::format("not read: {}", e.what()));
    }
  }
}

/// Throws UnsupportedError if a configuration declares a form that is not read.
void check_declarations(const ModelFolder& model) {
  for (const std::optional<Declared>* d : {&model.declared, &model.hf_declared})
    if (*d)
      if (const auto unread = unread_declaration(**d, model.tensors))
        throw UnsupportedError(unread->text, ErrorCode::already_quantized);
}

/// Throws an error unless FP8 weights have the scales that the configurations or other weights
/// require.
void check_scales_are_there(const ModelFolder& model) {
  std::vector<const Declared*> declared;
  for (const std::optional<Declared>* d : {&model.declared, &model.hf_declared})
    if (*d) declared.push_back(&**d);
  require_fp8_scales(model.tensors, {}, declared);
}

/// Reports whether an index in the folder, or the file's own name, makes it one of several shards.
bool is_one_of_several(const fs::path& root, const std::string& name) {
  if (shard_count_of(name) > 1) return true;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (!is_index_name(entry.path().filename().string()) || !can_be_parsed(entry.path())) continue;
    const auto index =
        safetensors::parse_index(read_model_text(entry.path()), entry.path().string());
    bool named = false, others = false;
    for (const auto& [tensor, shard] : index.weight_map) (shard == name ? named : others) = true;
    if (named && others) return true;
  }
  return false;
}

/// Reads the configurations in the folder of a single file, unless the file is a shard of a model.
void read_configs_beside(ModelFolder& model) {
  const ModelLinks links(model.root);
  for (const char* name : kConfigNames) links.require_inside(model.root / name);
  if (!fs::exists(model.root / "config.json") && !fs::exists(model.root / kParamsName)) return;
  if (is_one_of_several(model.root, model.file_names[0])) {
    model.warnings.push_back(
        fmt::format("{}: one shard of several, the configuration beside it is not copied; give the "
                    "folder for the model",
                    model.file_names[0]));
    return;
  }
  read_configs(model, /*to_repair=*/false);
}

/// Checks the other files before anything is written, since they are copied last. Only pictures may
/// be missing as Git LFS pointers. Any other pointer is an error, and so is a file that cannot be
/// read.
void check_others(ModelFolder& model) {
  static const std::set<std::string> pictures = {".png",  ".jpg", ".jpeg", ".gif",
                                                 ".webp", ".svg", ".pdf",  ".mp4"};
  std::erase_if(model.others, [&](const fs::path& other) {
    try {
      require_no_lfs_pointer(model.root / other);
      require_readable(model.root / other);
      return false;
    } catch (const FormatError& e) {
      if (!pictures.contains(other.extension().string())) throw;
      model.warnings.push_back(fmt::format("not copied: {}", e.what()));
      return true;
    }
  });
}

/// Opens a file that contains its configuration.
void open_single(const fs::path& input, ModelFolder& model) {
  model.root = input.has_parent_path() ? input.parent_path() : fs::path(".");
  model.files.push_back(TensorFile::open(input));
  model.file_names = {"model.safetensors"};  // name in the output
  parse_config(model, model.files[0].config_text());
  model.warnings = model.files[0].warnings();
}

}  // namespace

ModelFolder open_model_folder(const fs::path& given, bool to_repair) try {
  const fs::path input = model_path(given);
  ModelFolder model;
  require_exists(input);
  if (!fs::is_directory(input) && is_gguf_name(input)) {
    open_single(input, model);
    put_together(model, to_repair);
    set_schemes(model);
    return model;
  }
  if (!fs::is_directory(input)) {
    if (input.extension() != kWeights) throw FormatError(no_model_file_text(input));
    model.root = input.has_parent_path() ? input.parent_path() : fs::path(".");
    model.file_names = {input.filename().string()};
    open_files(model);
    read_configs_beside(model);
    put_together(model, to_repair);
    check_declarations(model);
    set_schemes(model);
    if (!to_repair) check_scales_are_there(model);
    return model;
  }

  model.root = input;
  require<FormatError>(!fs::exists(input / kJournalName), ErrorCode::incomplete,
                       "{}: holds {}, so it is the output of an interrupted run; the command that "
                       "wrote it finishes it with --resume",
                       input.string(), kJournalName);
  const ModelLinks links(input);
  std::vector<std::string> shards, indexes;
  for (const auto& entry : fs::directory_iterator(input)) {
    const std::string name = entry.path().filename().string();
    if (is_index_name(name)) indexes.push_back(name);
    if (entry.path().extension() == kWeights) shards.push_back(name);
  }
  std::sort(shards.begin(), shards.end());
  std::sort(indexes.begin(), indexes.end());
  if (shards.empty()) throw_no_weights(input);
  if (std::find(indexes.begin(), indexes.end(), "model.safetensors.index.json") != indexes.end())
    indexes = {"model.safetensors.index.json"};
  require<FormatError>(indexes.size() <= 1, ErrorCode::several_indices,
                       "{}: {} index files, must be one", input.string(), indexes.size());

  for (const std::string& name : indexes) links.require_inside(input / name);
  for (const char* name : kConfigNames) links.require_inside(input / name);

  safetensors::Index index;
  if (!indexes.empty() && to_repair && !can_be_parsed(input / indexes[0])) indexes.clear();
  if (!indexes.empty()) {
    model.index_name = indexes[0];
    const fs::path path = input / model.index_name;
    index = safetensors::parse_index(read_model_text(path), path.string());
    std::set<std::string> names;
    for (const auto& [tensor, shard] : index.weight_map) {
      require<FormatError>(shard.ends_with(kWeights), ErrorCode::index,
                           "{}: {} is in {}, must end in {}", path.string(), tensor, shard,
                           kWeights);
      names.insert(shard);
    }
    model.file_names.assign(names.begin(), names.end());
  } else {
    model.file_names = shards_without_index(input, shards);
    if (model.file_names.size() > 1) {
      model.index_name = "model.safetensors.index.json";
      model.warnings.push_back("the shards have no index; the output has one");
    }
  }
  for (const std::string& name : shards)
    if (!std::ranges::binary_search(model.file_names, name))
      model.warnings.push_back(name + ": not a shard of the model, not copied");
  open_files(model, &links);
  if (!indexes.empty() && !to_repair) check_index(input / model.index_name, index, model);
  read_configs(model, to_repair);
  put_together(model, to_repair);
  check_declarations(model);
  set_schemes(model);
  if (!to_repair) check_scales_are_there(model);
  OtherFiles(links, model).collect();
  if (!model.params.text.empty()) std::erase(model.others, fs::path(kParamsName));
  check_others(model);
  return model;
} catch (const fs::filesystem_error& e) {
  throw_io_error(e);
}

}  // namespace nvfp4::checkpoint
