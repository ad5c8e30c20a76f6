// Finds the files, and checks that they and the index can be read and agree.
#include <algorithm>

#include "checkpoint/base/json_members.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/formats/unread_forms.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/safetensors/folder_names.h"
#include "checkpoint/source/content.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/verify/checks.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

class Opener {
 public:
  Opener(const fs::path& path, Findings& findings) : findings_(findings) {
    subject_.path = model_path(path);
  }

  Subject run() {
    require_exists(subject_.path);
    subject_.folder = fs::is_directory(subject_.path);
    if (subject_.folder)
      open_folder();
    else
      open(subject_.path);
    for (const TensorFile& file : subject_.files)
      for (const safetensors::TensorInfo& info : file.tensors()) add({&file, &info});
    FoundTensors found =
        find_tensors(subject_.table, subject_.in_config ? &*subject_.in_config : nullptr);
    subject_.tensors = std::move(found.tensors);
    for (const Defect& defect : found.defects) {
      findings_.add(defect.code, defect.tensor, defect.text);
      subject_.defective.insert(defect.tensor);
    }
    for (const Defect& unknown : found.unknown) {
      findings_.add(unknown.code, unknown.tensor, unknown.text);
      subject_.unknown.insert(unknown.tensor.substr(0, unknown.tensor.rfind('.')));
      subject_.unknown.insert(std::string(module_of(unknown.tensor)));
    }
    for (const auto* declared : {&subject_.in_config, &subject_.in_hf_quant})
      if (*declared)
        if (const auto unread = unread_declaration(**declared, subject_.tensors))
          findings_.add(unread->code, unread->tensor, unread->text);
    find_lost_scales();
    find_orphans();
    if (subject_.index) check_index();
    return std::move(subject_);
  }

 private:
  bool open(const fs::path& path) {
    try {
      subject_.files.push_back(TensorFile::open(path));
      return true;
    } catch (const Error& e) {
      findings_.add("unreadable-file", path.filename().string(), e.what());
      subject_.complete = false;
      return false;
    }
  }

  void open_folder() {
    std::vector<std::string> shards;
    std::string index_name;
    for (const fs::directory_entry& entry : fs::directory_iterator(subject_.path)) {
      const std::string name = entry.path().filename().string();
      if (is_index_name(name) && (index_name.empty() || name == "model.safetensors.index.json"))
        index_name = name;
      if (entry.path().extension() == ".safetensors") shards.push_back(name);
    }
    std::ranges::sort(shards);
    if (shards.empty() && index_name.empty() && !fs::exists(subject_.path / kJournalName))
      throw_no_weights(subject_.path);
    subject_.complete = !fs::exists(subject_.path / kJournalName);
    if (!subject_.complete)
      findings_.add("interrupted", kJournalName, "{}: holds {}", subject_.path.string(),
                    kJournalName);
    else if (index_name.empty())
      find_lost(shards);
    if (!index_name.empty()) read_index(index_name);
    if (subject_.index) {
      std::set<std::string> named;
      for (const auto& [tensor, file] : subject_.index->weight_map) named.insert(file);
      for (const std::string& file : named)
        if (!std::ranges::binary_search(shards, file)) {
          subject_.complete = false;
          findings_.add("unreadable-file", file, "{}: missing, but the index names it",
                        (subject_.path / file).string());
        }
      std::erase_if(shards, [&](const std::string& name) { return !named.contains(name); });
    } else if (index_name.empty() && shards.size() > 1) {
      findings_.add("no-index", "model.safetensors.index.json", "{}: {} shards and no index",
                    subject_.path.string(), shards.size());
    }
    for (const std::string& name : shards)
      if (open(subject_.path / name)) subject_.file_names.push_back(name);
    read_configs();
  }

  void find_lost(const std::vector<std::string>& shards) {
    const std::string lost = lost_shards(subject_.path, shards);
    if (lost.empty()) return;
    subject_.complete = false;
    findings_.add("missing-shard", shards.front(), lost);
  }

  void read_index(const std::string& name) {
    const fs::path path = subject_.path / name;
    try {
      subject_.index = safetensors::parse_index(read_model_text(path), path.string());
    } catch (const Error& e) {
      findings_.add("bad-index", name, e.what());
      subject_.complete = false;
    }
  }

  template <class Read>
  void try_config(const char* name, Read read) {
    const fs::path path = subject_.path / name;
    if (!fs::exists(path)) return;
    try {
      read(read_model_text(path), path.string());
    } catch (const Error& e) {
      findings_.add("bad-config", name, e.what());
    }
  }

  void read_configs() {
    try_config("config.json", [&](const std::string& text, const std::string& file) {
      subject_.config_file = file;
      subject_.config = parse_config_json(text, file);
      subject_.model_type = text_of(subject_.config, "model_type");
      subject_.in_config = declared_in_config(subject_.config, file, budget_);
    });
    try_config("hf_quant_config.json", [&](const std::string& text, const std::string& file) {
      subject_.in_hf_quant = declared_in_hf_quant_config(text, file, budget_);
    });
    const bool none = !subject_.in_config && subject_.config.is_null();
    try_config(kParamsName, [&](const std::string& text, const std::string& file) {
      if (!is_params_text(text)) return;
      std::optional<Declared> declared = declared_in_params(text, file, budget_);
      subject_.method_in_params = declared ? declared->method : "";
      if (none)
        subject_.in_config = std::move(declared);
      else if (declared && subject_.in_config && !subject_.in_config->unread)
        subject_.in_config->unread = std::move(declared->unread);
    });
    if (!fs::exists(subject_.path / "config.json") && !subject_.method_in_params)
      findings_.add("no-config", "config.json", "{}: no config.json", subject_.path.string());
  }

  void add(const StoredTensor& tensor) {
    if (subject_.table.add(tensor)) return;
    findings_.add("stored-twice", tensor.info->name, "{} is in {} too", tensor.describe(),
                  subject_.table.find(tensor.info->name).file->path().string());
  }

  void find_lost_scales() {
    std::vector<const Declared*> declared;
    for (const auto* each : {&subject_.in_config, &subject_.in_hf_quant})
      if (*each) declared.push_back(&**each);
    for (const Defect& lost : lost_fp8_scales(subject_.tensors, declared)) {
      if (subject_.unknown.contains(std::string(module_of(lost.tensor)))) continue;
      findings_.add(lost.code, lost.tensor, lost.text);
      subject_.defective.insert(lost.tensor);
    }
  }

  void find_orphans() {
    for (const Defect& orphan : orphan_scales(subject_.tensors, subject_.unknown))
      findings_.add(orphan.code, orphan.tensor, orphan.text);
  }

  void check_index() {
    const safetensors::Index& index = *subject_.index;
    std::uint64_t total = 0;
    for (const StoredTensor& t : subject_.table.all()) {
      total += t.info->bytes;
      const auto entry = index.weight_map.find(t.info->name);
      if (entry == index.weight_map.end())
        findings_.add("index-unlisted-tensor", t.info->name, "{} is not in the index",
                      t.describe());
    }
    for (const auto& [tensor, file] : index.weight_map) {
      const StoredTensor found = subject_.table.find(tensor);
      if (!std::ranges::binary_search(subject_.file_names, file)) continue;  // has its own finding
      if (!found || found.file->path().filename() != file)
        findings_.add("index-missing-tensor", tensor,
                      "{}: tensor '{}' is not there, where the index says it is", file,
                      printable(tensor));
    }
    if (index.total_size != total && subject_.complete)
      findings_.add("index-total-size", "model.safetensors.index.json",
                    "total_size = {}, the tensors have {} bytes", index.total_size, total);
  }

  Findings& findings_;
  Subject subject_;
  const SharedBudget budget_ = std::make_shared<MatchBudget>();
};

}  // namespace

std::vector<const LogicalTensor*> Subject::nvfp4() const {
  std::vector<const LogicalTensor*> out;
  for (const LogicalTensor& t : tensors)
    if (t.is_nvfp4() && !defective.contains(t.name)) out.push_back(&t);
  return out;
}

Subject open_subject(const fs::path& path, Findings& findings) {
  return Opener(path, findings).run();
}

void check_hashes(const std::filesystem::path& folder, const std::vector<std::string>& shards,
                  Findings& findings, Measured& measured, const OnProgress& on_progress) {
  const auto list = read_written_files(folder);
  require<UnsupportedError>(list.has_value(),
                            "{}: has no {}, whose hashes --full compares; hint: run without --full",
                            folder.string(), kFilesName);
  for (const std::string& shard : shards)
    if (const auto entry = list->find(shard); entry == list->end() || entry->second.hash.empty())
      findings.add("changed-file", shard, "{}: has no hash in {}", (folder / shard).string(),
                   kFilesName);
  const std::vector<std::pair<std::string, WrittenFile>> files(list->begin(), list->end());
  std::vector<std::uint64_t> sizes;
  for (const auto& [name, written] : files) sizes.push_back(written.bytes.value_or(0));
  const std::vector<bool> mine = measured.mine(sizes);
  nlohmann::json differences(files.size(), nullptr);
  Progress progress;
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.tensors_total += mine[i];
    progress.bytes_total += mine[i] ? sizes[i] : 0;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!mine[i]) continue;
    progress.tensor = files[i].first;
    // People edit the card.
    differences[i] = is_card_name(files[i].first)
                         ? std::string()
                         : difference_from(files[i].second, folder / files[i].first);
    ++progress.tensors_done;
    progress.bytes_done += sizes[i];
    if (on_progress) on_progress(progress);
  }
  measured.exchange("hashes", hex(fingerprint(json_of(*list).dump())), differences);
  for (std::size_t i = 0; i < files.size(); ++i)
    if (differences[i].is_string() && differences[i] != "")  // null: the share of another rank
      findings.add("changed-file", files[i].first, "{}: {}", (folder / files[i].first).string(),
                   differences[i].get<std::string>());
}

}  // namespace nvfp4::checkpoint
