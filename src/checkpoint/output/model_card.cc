#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "checkpoint/base/option_values.h"
#include "checkpoint/engines/engines.h"
#include "checkpoint/gguf/names.h"
#include "checkpoint/hub/hub.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/output/output_folder.h"
#include "checkpoint/safetensors/folder_names.h"
#include "nvfp4/runtime.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The instructions for an engine and a format. `format` is "" for all formats that the engine
/// reads.
struct Instructions {
  std::string_view loader, format, title, how;
};

constexpr std::string_view kTransformers =
    "```python\nimport nvfp4.transformers, torch, "
    "transformers\n\n"
    "model = transformers.AutoModelForCausalLM.from_pretrained(\"path/to/this/folder\", "
    "dtype=torch.bfloat16)\n```\n";

constexpr std::string_view kDiffusers =
    "\n### diffusers\n\n```python\nimport nvfp4.diffusers, diffusers, torch\n\n"
    "model = diffusers.AutoModel.from_pretrained(\"path/to/this/folder\", "
    "torch_dtype=torch.bfloat16)\n```\n";

constexpr Instructions kInstructions[] = {
    {"", "comfyui", "ComfyUI",
     " For ComfyUI, put it into `models/diffusion_models` or `models/text_encoders`."},
    {"vllm", "", "vLLM", "```sh\nvllm serve path/to/this/folder\n```\n"},
    {"transformers+nvfp4", "", "transformers, on CPUs too", kTransformers},
    {"llama.cpp", "", "llama.cpp",
     "```sh\nnvfp4 convert path/to/this/folder model.gguf\nllama-cli -m model.gguf\n```\n"},
};

/// Returns text of a file or an option, escaped so that Markdown shows it unchanged.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (std::string_view("\\`*[]<>|#&").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Returns the text in quotes, so that YAML reads it as a string.
std::string yaml(const std::string& text) { return dump_line(Json(text)); }

std::string size_text(std::uint64_t bytes) {
  const auto b = static_cast<double>(bytes);
  if (b >= 1e9) return fmt::format("{:.2f} GB", b / 1e9);
  if (b >= 1e6) return fmt::format("{:.2f} MB", b / 1e6);
  return fmt::format("{:.2f} kB", b / 1e3);
}

bool is_encoded(const TensorReport& t) {
  return t.action == "quantized" || t.action == "converted";
}
bool is_four_bits(const TensorReport& t) { return is_encoded(t) || t.action == "moved"; }

std::int64_t elements(const TensorReport& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape) n *= d;
  return n;
}

/// Returns "experts.w1" for "model.layers.0.mlp.experts.3.w1.weight".
std::string kind_of_weight(std::string_view name) {
  if (name.ends_with(".weight")) name.remove_suffix(7);
  const std::size_t dot = name.rfind('.');
  const std::string last(dot == name.npos ? name : name.substr(dot + 1));
  return name.find(".experts.") != name.npos && last != "experts" ? "experts." + last : last;
}

class Card {
 public:
  Card(const ModelFolder& model, const Plan& plan, const TransformOptions& options,
       const QuantizeReport& report)
      : model_(model), plan_(plan), options_(options), report_(report) {
    origin_ = hub_model_of(model.root);
    name_ = origin_ ? origin_->id.substr(origin_->id.find('/') + 1) : architecture();
  }

  std::string text() const {
    return front() + head() + recipe() + sizes() + errors() + kept() + engines() + licence();
  }

 private:
  std::map<std::string, std::vector<std::string>> source() const {
    const fs::path path = model_.root / kCardNames[0];
    if (std::ranges::find(model_.others, fs::path(kCardNames[0])) == model_.others.end()) return {};
    constexpr std::uintmax_t kLargest = 1 << 24;
    std::error_code error;
    if (fs::file_size(path, error) > kLargest || error) return {};
    return front_matter(read_model_text(path));
  }

  /// Returns the architecture, as the name of a model that is not from the hub. Names of local
  /// folders must not appear in the card.
  std::string architecture() const {
    if (is_diffusers()) return model_.config.diffusers_class;
    if (!model_.config.architecture.empty()) return model_.config.architecture;
    return model_.config.model_types.empty() ? "A model" : model_.config.model_types.front();
  }

  bool has_config() const {
    return !plan_.config_json.empty() && plan_.format->single_file.empty();
  }

  bool is_diffusers() const { return !model_.config.diffusers_class.empty(); }

  /// Returns the front matter, which the hub reads. "base_model" must be the name of a model there.
  std::string front() const {
    auto members = source();
    std::string out = "---\n";
    out += origin_ ? fmt::format("base_model: {}\n", yaml(origin_->id))
                   : "# base_model: ORGANIZATION/NAME\n";
    out += "base_model_relation: quantized\n";
    if (!members.contains("library_name") && has_config())
      members["library_name"] = {is_diffusers() ? "diffusers" : "transformers"};
    for (const char* key :
         {"library_name", "pipeline_tag", "license", "license_name", "license_link", "language"}) {
      const auto& words = members[key];
      if (words.size() == 1) out += fmt::format("{}: {}\n", key, yaml(words[0]));
      if (words.size() < 2) continue;
      out += fmt::format("{}:\n", key);
      for (const std::string& word : words) out += fmt::format("- {}\n", yaml(word));
    }
    out += fmt::format("quantized_by: nvfp4.cpp\ntags:\n- nvfp4\n- fp4\n- {}\n- {}\n",
                       scheme_name(plan_.scheme), plan_.format->name);
    return out + "---\n";
  }

  std::string command() const {
    std::string out = origin_ ? fmt::format("nvfp4 quantize {} {}", shell_word(origin_->id),
                                            shell_word(name_ + "-NVFP4"))
                              : "nvfp4 quantize path/to/model path/to/model-NVFP4";
    Json known = {{"format", plan_.format->name}, {"method", options_.chosen.text()}};
    if (options_.layers == nullptr || options_.has_budget())  // the budget chose the layers
      known["recipe"] = nullptr;
    else if (!options_.layers->name.empty())
      known["recipe"] = options_.layers->name;
    known["merge"] = nullptr;
    for (const std::string& adapter : options_.merge)  // the names of folders stay here
      known["merge"].push_back(fs::path(adapter).filename().string());
    Json given = Json::object();
    options::record(given, kQuantizeOptions, options_, Effect::allowed, known);
    return out + options::words_of(kQuantizeOptions, given);
  }

  std::string activations() const {
    if (plan_.scheme == Scheme::w4a16) return "Activations stay in 16 bits (W4A16)";
    return "Activations are 4-bit, too (W4A4)" +
           (plan_.weights_only == 0
                ? ""
                : fmt::format(", except those of {} layers (W4A16)", plan_.weights_only));
  }

  std::string head() const {
    const std::string of = origin_ ? fmt::format("[{0}](https://huggingface.co/{0}) at {1}",
                                                 origin_->id, origin_->commit)
                                   : plain(name_);
    return fmt::format(
        "\n# {} in NVFP4\n\n"
        "{}, its weights quantized to NVFP4: 4-bit elements (E2M1), an E4M3 scale for each 16 of "
        "them, one FP32 scale for each tensor. {}. Block scales were chosen by `{}`, the format is "
        "`{}`.\n\nMade by nvfp4.cpp {}:\n\n```sh\n{}\n```\n",
        plain(name_), of, activations(), report_.method, plan_.format->name, version(), command());
  }

  std::string recipe() const {
    if (options_.layers == nullptr) return {};
    std::string_view text = options_.layers->text;
    std::string lines;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      lines += printable(text.substr(0, end), end) + '\n';
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    std::size_t ticks = 0, longest = 2;
    for (const char c : lines) longest = std::max(longest, ticks = c == '`' ? ticks + 1 : 0);
    const std::string fence(longest + 1, '`');
    return fmt::format("\n## Recipe\n\n{}yaml\n{}{}\n", fence, lines, fence);
  }

  std::string sizes() const {
    double weights = 0, bits = 0;
    for (const TensorReport& t : report_.tensors) {
      if (!is_four_bits(t)) continue;
      weights += static_cast<double>(elements(t));
      bits += 8 * static_cast<double>(t.bytes_after);
    }
    return fmt::format(
        "\n## Sizes\n\n| | before | after |\n|---|---|---|\n| all tensors | {} | {} |\n"
        "| bits of a quantized weight | | {:.2f} |\n| quantized weights | | {:.4g} million |\n",
        size_text(report_.bytes_before), size_text(report_.bytes_after), bits / weights,
        weights / 1e6);
  }

  std::string errors() const {
    struct Sum {
      std::int64_t tensors = 0;
      double error = 0, norm = 0;
      bool known = true;
    };
    std::map<std::string, Sum> sums;
    Sum total;
    for (const TensorReport& t : report_.tensors) {
      if (!is_encoded(t)) continue;
      for (Sum* sum : {&sums[kind_of_weight(t.name)], &total}) {
        ++sum->tensors;
        sum->error += t.squared_error;
        sum->norm += t.squared_norm;
        sum->known &= t.measured;
      }
    }
    if (total.tensors == 0) return {};
    std::string out =
        "\n## Errors of the weights\n\n| weights | tensors | relative error | SQNR, dB |\n"
        "|---|---|---|---|\n";
    const auto row = [&](const std::string& name, const Sum& sum) {
      const bool measured = sum.known && sum.norm > 0, exact = measured && sum.error == 0;
      out += fmt::format(
          "| {} | {} | {} | {} |\n", name, sum.tensors,
          measured ? fmt::format("{:.2f} %", 100 * std::sqrt(sum.error / sum.norm)) : "not known",
          exact      ? "exact"
          : measured ? fmt::format("{:.2f}", 10 * std::log10(sum.norm / sum.error))
                     : "not known");
    };
    for (const auto& [name, sum] : sums) row(plain(name), sum);
    row("all", total);
    return out + "\nRelative error is |a - b| / |a| (L2), a the weights before, b after.\n";
  }

  std::string kept() const {
    std::map<std::tuple<std::string, std::string, std::string>,
             std::pair<std::int64_t, std::uint64_t>>
        groups;
    for (const TensorReport& t : report_.tensors) {
      if (is_four_bits(t)) continue;
      auto& [tensors, bytes] = groups[{t.kind, t.action, t.reason}];
      ++tensors;
      bytes += t.bytes_after;
    }
    if (groups.empty()) return {};
    std::string out =
        "\n## Not in NVFP4\n\n| what | tensors | size | | why |\n|---|---|---|---|---|\n";
    for (const auto& [key, sum] : groups) {
      const auto& [kind, action, reason] = key;
      out += fmt::format("| {} | {} | {} | {} | {} |\n", plain(kind), sum.first,
                         size_text(sum.second), action, plain(reason));
    }
    return out;
  }

  std::string engines() const {
    const CheckpointFormat& format = *plan_.format;
    if (plan_.config_json.empty() && format.single_file.empty()) return {};
    std::string out =
        "\n## Run it\n\n`nvfp4 verify` says for each engine whether it reads this model.\n";
    if (!format.single_file.empty()) {
      const auto* program = std::ranges::find(kInstructions, format.name, &Instructions::format);
      return out + fmt::format("\nThe weights are one file, `{}`.{}\n", format.single_file,
                               program == std::end(kInstructions) ? "" : program->how);
    }
    if (is_diffusers()) return out.append(kDiffusers);
    for (const std::string_view loader : format.loaders) {
      const auto* found = std::ranges::find_if(kInstructions, [&](const Instructions& e) {
        return e.loader == loader && (e.format.empty() || e.format == format.name);
      });
      const std::string version = tested_with(loader);
      if (found != std::end(kInstructions) && !version.empty())
        out += fmt::format("\n### {}\n\nTested with {}.\n\n{}", found->title, version, found->how);
    }
    return out;
  }

  /// Returns the release of a loader with which tests load this architecture, or "".
  std::string tested_with(std::string_view loader) const {
    const auto& types = model_.config.model_types;
    const std::string type = types.empty() ? "" : types.front();
    if (loader == "llama.cpp")
      return gguf::find_architecture(type) == nullptr ? "" : "llama.cpp's names of this family";
    const Engine* engine = find_engine(loader);
    return engine != nullptr && engine->was_loaded(type, architecture())
               ? std::string(engine->version)
               : "";
  }

  std::string licence() const {
    auto members = source();
    std::string of;
    for (const char* key : {"license_name", "license"})
      if (of.empty())
        for (const std::string& word : members[key]) {
          if (!of.empty()) of += ", ";
          of += word;
        }
    std::string out = "\n## Licence\n\n";
    if (of.empty())
      return out + "The source names none in its card. The licence of the base model applies.\n";
    out += fmt::format("That of the base model: {}", plain(of));
    if (!members["license_link"].empty())
      out += fmt::format(" ({})", plain(members["license_link"][0]));
    return out + ".\n";
  }

  const ModelFolder& model_;
  const Plan& plan_;
  const TransformOptions& options_;
  const QuantizeReport& report_;
  std::optional<HubModel> origin_;
  std::string name_;
};

}  // namespace

std::string model_card(const ModelFolder& model, const Plan& plan, const TransformOptions& options,
                       const QuantizeReport& report) {
  if (options.task != TransformOptions::Task::quantize || plan.format == nullptr ||
      std::ranges::none_of(report.tensors, is_four_bits))
    return {};
  return Card(model, plan, options, report).text();
}

}  // namespace nvfp4::checkpoint
