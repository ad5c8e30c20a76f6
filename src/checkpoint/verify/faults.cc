#include <map>

#include "checkpoint/families/fuse.h"
#include "checkpoint/source/cache.h"
#include "checkpoint/source/model_folder.h"
#include "checkpoint/verify/checks.h"
#include "checkpoint/verify/codes.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

std::string and_more(std::size_t count) {
  return count == 1 ? "" : fmt::format(" (and {} more)", count - 1);
}

/// Returns one line for each code.
std::vector<std::string> lines_of(const std::vector<Finding>& findings) {
  std::map<std::string, std::vector<const Finding*>> of_code;
  for (const Finding& f : findings) of_code[f.code].push_back(&f);
  std::vector<std::string> lines;
  lines.reserve(of_code.size());
  for (const auto& [code, all] : of_code)
    lines.push_back(
        fmt::format("{}: {}{}; {}", code, all[0]->text, and_more(all.size()), all[0]->fix));
  return lines;
}

}  // namespace

std::vector<std::string> take_faults(const ModelFolder& model, const UseOfValues& use) {
  const CacheScales caches(model.tensors, model.config.model_types,
                           use.caches || declares_cache(model.declared, model.hf_declared));
  const FuseRules fused({}, model.config.model_types);
  auto [faults, told] = value_faults(model.tensors, fused, caches);
  if (!use.inputs)
    std::erase_if(faults, [](const Finding& f) { return f.code == "input-scale-invalid"; });
  if (!use.globals) std::erase_if(told, [](const Finding& f) { return f.code == "fused-globals"; });
  for (const Defect& orphan : orphan_scales(model.tensors, {}))
    faults.push_back({orphan.code, Severity::error, orphan.tensor, orphan.text, {}, {}});
  std::vector<std::string> warnings = lines_of(told);
  if (faults.empty()) return warnings;
  const std::string more = and_more(faults.size());
  require<FormatError>(
      use.force, ErrorCode::faulty_values,
      "{}: {}{}; hint: nvfp4 verify lists all, nvfp4 repair corrects NVFP4, --allow broken-scales "
      "takes the values as they are{}",
      faults[0].code, faults[0].text, more,
      use.ignores ? ", what is not finite with --ignore" : "");
  warnings.insert(warnings.begin(),
                  fmt::format("--allow broken-scales: faulty values are used as they are: {}: {}{}",
                              faults[0].code, faults[0].text, more));
  return warnings;
}

}  // namespace nvfp4::checkpoint
