#include "checkpoint/verify/faults.h"

#include "checkpoint/formats/lost_scales.h"
#include "checkpoint/source/cache.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::string take_faults(const ModelFolder& model, const UseOfValues& use) {
  const CacheScales caches(model.tensors, model.config.model_types,
                           use.caches || declares_cache(model.declared, model.hf_declared));
  std::vector<Finding> faults = value_faults(model.tensors, caches);
  if (!use.inputs)
    std::erase_if(faults, [](const Finding& f) { return f.code == "input-scale-invalid"; });
  for (const Defect& orphan : orphan_scales(model.tensors, {}))
    faults.push_back({orphan.code, Severity::error, orphan.tensor, orphan.text, {}, {}});
  if (faults.empty()) return {};
  const std::string more =
      faults.size() == 1 ? "" : fmt::format(" (and {} more)", faults.size() - 1);
  require<FormatError>(
      use.force,
      "{}: {}{}; nvfp4 verify lists all, nvfp4 repair corrects NVFP4, --force takes the values as "
      "they are{}",
      faults[0].code, faults[0].text, more,
      use.ignores ? ", what is not finite with --ignore" : "");
  return fmt::format("--force: faulty values are used as they are: {}: {}{}", faults[0].code,
                     faults[0].text, more);
}

}  // namespace nvfp4::checkpoint
