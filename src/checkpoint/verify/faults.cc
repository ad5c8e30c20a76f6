#include "checkpoint/verify/faults.h"

#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

std::string take_faults(std::span<const LogicalTensor> tensors, bool force, bool inputs,
                        bool ignores) {
  std::vector<Finding> faults = value_faults(tensors, {});
  if (!inputs)
    std::erase_if(faults, [](const Finding& f) { return f.code == "input-scale-invalid"; });
  if (faults.empty()) return {};
  const std::string more =
      faults.size() == 1 ? "" : fmt::format(" (and {} more weights)", faults.size() - 1);
  require<FormatError>(
      force,
      "{}: {}{}; nvfp4 verify lists all, nvfp4 repair corrects NVFP4, --force takes the values as "
      "they are{}",
      faults[0].code, faults[0].text, more, ignores ? ", what is not finite with --ignore" : "");
  return fmt::format("--force: faulty weights are used as they are: {}: {}{}", faults[0].code,
                     faults[0].text, more);
}

}  // namespace nvfp4::checkpoint
