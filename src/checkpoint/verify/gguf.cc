// Checks header, keys and names of a GGUF file for llama.cpp. Values are checked as in other
// formats.
#include <fmt/ranges.h>

#include "checkpoint/gguf/config.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/gguf/view.h"
#include "checkpoint/io/posix_file.h"
#include "checkpoint/verify/checks.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;
using gguf::TensorInfo;

class GgufCheck {
 public:
  GgufCheck(const gguf::File& file, Findings& findings)
      : file_(file), header_(file.header()), findings_(findings) {}

  /// Runs the checks. Returns false if codes and scales cannot be combined.
  bool run() {
    check_layout();
    check_names();
    const bool readable = check_global_scales();
    check_tokenizer();
    const std::string* type = header_.text("general.type");
    if (type != nullptr && *type != "model")
      findings_.add("gguf-key", "general.type", "{}: 'general.type' = '{}', must be model", where(),
                    printable(*type));
    const std::string* name = header_.text(gguf::kArchitectureKey);
    if (name == nullptr) {
      findings_.add("gguf-architecture", std::string(gguf::kArchitectureKey), "{}: has no '{}'",
                    where(), gguf::kArchitectureKey);
      return readable;
    }
    if (header_.integer("split.count").value_or(1) > 1)
      findings_.add("gguf-split", "split.count", "{}: one of {} files", where(),
                    *header_.integer("split.count"));
    else if (const gguf::Architecture* known = gguf::architecture_of(file_))
      check_architecture(*known);
    return readable;
  }

 private:
  std::string where() const { return printable(file_.path().string(), 4096); }
  std::string where(const TensorInfo& t) const {
    return fmt::format("{}: tensor '{}'", where(), printable(t.name));
  }

  /// Checks that tensors follow each other without gaps. Source: ggml/src/gguf.cpp: "tensor '%s'
  /// has offset %, expected %".
  void check_layout() {
    std::uint64_t expected = 0;
    for (const TensorInfo& t : header_.tensors) {
      const std::uint64_t offset = t.begin - header_.data_begin;
      if (offset != expected)
        return findings_.add("gguf-layout", t.name,
                             "{}: at byte {} of the data, where {} is expected", where(t), offset,
                             expected);
      const std::uint64_t mask = header_.alignment - 1;
      expected += (t.bytes + mask) & ~mask;
    }
  }

  void check_names() {
    for (const TensorInfo& t : header_.tensors)
      if (t.name.size() > gguf::kMaxName)
        findings_.add("gguf-name", t.name, "{}: a name of {} bytes, at most {}", where(t),
                      t.name.size(), gguf::kMaxName);
  }

  bool check_global_scales() {
    bool readable = true;
    std::int64_t without = 0;
    std::string first;
    for (const TensorInfo& t : header_.tensors) {
      if (t.type->id != gguf::kNvfp4 || !t.name.ends_with(".weight")) continue;
      const std::string module = t.name.substr(0, t.name.size() - 7);
      const std::int64_t matrices = t.shape.size() > 2 ? t.shape[0] : 1;
      bool any = false;
      for (const char* suffix : {".scale", ".input_scale"})
        for (const std::string& base : {module, t.name}) {
          const TensorInfo* part = file_.find(base + suffix);
          if (part == nullptr) continue;
          any |= suffix == std::string_view(".scale");
          if (part->type->id == gguf::kF32 && part->elements() == matrices) continue;
          readable = false;
          findings_.add(part->type->id == gguf::kF32 ? "wrong-shape" : "wrong-dtype", part->name,
                        "{}: {} [{}], must be F32 with {} element(s)", where(*part),
                        part->type->name, fmt::join(part->shape, ", "), matrices);
        }
      if (!any && without++ == 0) first = t.name;
    }
    if (without > 0)
      findings_.add("gguf-no-global-scale", first,
                    "{}: {} NVFP4 tensors without, '{}' is the first", where(), without,
                    printable(first));
    for (const TensorInfo& t : header_.tensors)
      for (const std::string_view suffix : {".input_scale", ".scale"})
        if (t.name.ends_with(suffix) && is_orphan(t.name.substr(0, t.name.size() - suffix.size())))
          findings_.add("orphan-scale", t.name, "{}: no weight beside it", where(t));
    return readable;
  }

  bool is_orphan(const std::string& base) const {
    return file_.find(base + ".weight") == nullptr && file_.find(base) == nullptr;
  }

  void check_tokenizer() {
    const gguf::Value* tokens = header_.find("tokenizer.ggml.tokens");
    const auto* place = tokens == nullptr ? nullptr : std::get_if<gguf::ArrayPlace>(&tokens->value);
    if (header_.find("tokenizer.ggml.model") == nullptr || place == nullptr)
      return findings_.add("gguf-tokenizer", "tokenizer.ggml.model", "{}: has no tokenizer",
                           where());
    const TensorInfo* table = file_.find("token_embd.weight");
    if (table != nullptr && !table->shape.empty() &&
        static_cast<std::uint64_t>(table->shape[0]) != place->count)
      findings_.add("gguf-tokenizer", "tokenizer.ggml.tokens",
                    "{}: {} tokens, but token_embd.weight has {} rows", where(), place->count,
                    table->shape[0]);
  }

  void check_architecture(const gguf::Architecture& a) {
    for (gguf::Fault& fault : gguf::faults_of(header_, a))
      findings_.add(fault.code, std::move(fault.name), "{}: {}", where(), fault.text);
    for (const TensorInfo& t : header_.tensors)
      if (t.type->id == gguf::kNvfp4) check_is_scaled(t, a);
  }

  void check_is_scaled(const TensorInfo& t, const gguf::Architecture& a) {
    const auto name = gguf::model_name_of(a, t.name);
    if (!name || gguf::place_of(a, *name)->scaled) return;
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    if (file_.find(module + ".scale") == nullptr && file_.find(t.name + ".scale") == nullptr)
      return;
    findings_.add("gguf-unread-scale", t.name,
                  "{}: NVFP4 with a global scale, which llama.cpp reads of linear "
                  "layers of '{}' only, and not here",
                  where(t), a.name);
  }

  const gguf::File& file_;
  const gguf::Header& header_;
  Findings& findings_;
};

}  // namespace

Subject open_gguf_subject(const fs::path& path, Findings& findings) {
  Subject subject;
  subject.path = path;
  subject.folder = false;
  require_exists(path);
  subject.file_names = {path.filename().string()};
  try {
    const gguf::File file = gguf::File::open(path);
    if (!GgufCheck(file, findings).run()) return subject;
    subject.gguf_family = gguf::architecture_of(file);
    subject.files.emplace_back(gguf::open_view(path, gguf::Naming::stored));
  } catch (const Error& e) {
    findings.add("unreadable-file", path.filename().string(), e.what());
    return subject;
  }
  subject.table = TensorTable(subject.files);
  FoundTensors found = find_tensors(subject.table);
  subject.tensors = std::move(found.tensors);
  for (const Defect& defect : found.defects) {
    findings.add(defect.code, defect.tensor, defect.text);
    subject.defective.insert(defect.tensor);
  }
  return subject;
}

}  // namespace nvfp4::checkpoint
