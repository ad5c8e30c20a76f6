#include "nvfp4/device.h"

#include <charconv>

#include "core/require.h"

namespace nvfp4 {

std::string device_name(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Device device_from_name(std::string_view name) {
  if (name == "cpu") return {};
  if (name == "cuda") return Device::cuda();
  if (name == "auto") return why_unavailable(Device::cuda()).empty() ? Device::cuda() : Device{};
  constexpr std::string_view kNumbered = "cuda:";
  int index = -1;
  bool number = false;
  if (name.starts_with(kNumbered)) {
    const std::string_view digits = name.substr(kNumbered.size());
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
    number = error == std::errc() && end == digits.end() && digits[0] != '-';
  }
  require<ValueError>(number, ErrorCode::not_a_choice,
                      "device = '{}', must be cpu, cuda, cuda:N or auto", name);
  return Device::cuda(index);
}

}  // namespace nvfp4
