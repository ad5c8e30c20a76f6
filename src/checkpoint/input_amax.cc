#include "checkpoint/input_amax.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/require.h"

namespace nvfp4::checkpoint {

InputAmax::InputAmax(const std::string& text, const std::string& file) : file_(file) {
  nlohmann::ordered_json json;
  try {
    json = nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw FormatError(fmt::format("{}: {}", file, e.what()));
  }
  require<FormatError>(json.is_object(), "{}: must be a JSON object, module -> activation amax",
                       file);
  for (const auto& [name, value] : json.items()) {
    const float amax = value.is_number() ? value.get<float>() : -1.0f;
    require<ValueError>(amax > 0 && std::isfinite(amax), "{}: {} = {}, must be a number > 0", file,
                        name, value.is_number() ? value.dump() : value.type_name());
    entries_.push_back({Pattern(name), amax});
    if (entries_.back().pattern.exact()) exact_[name] = entries_.size() - 1;
  }
}

float InputAmax::find(const std::string& module) {
  const std::string tensor = module + ".weight";
  for (const std::string& name : {module, tensor}) {
    if (const auto it = exact_.find(name); it != exact_.end()) {
      entries_[it->second].used = true;
      return entries_[it->second].amax;
    }
  }
  for (Entry& entry : entries_) {
    if (entry.pattern.exact() || !entry.pattern.matches(tensor)) continue;
    entry.used = true;
    return entry.amax;
  }
  return 0;
}

std::vector<std::string> InputAmax::warnings() const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries_)
    if (!entry.used)
      lines.push_back(
          fmt::format("{}: {} matches no quantized module", file_, entry.pattern.text()));
  return lines;
}

}  // namespace nvfp4::checkpoint
