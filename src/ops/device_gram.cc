#include "ops/device_gram.h"

#include "core/device_memory.h"
#include "core/stream_work.h"
#include "nvfp4/layout.h"

namespace nvfp4 {

DeviceGram::DeviceGram(const GramFactor& factor, Device device, Stream stream) {
  std::int64_t bytes = 0;
  const auto each = [&](const auto& visit) {
    visit(factor.gram, view_.gram);
    visit(factor.upper, view_.upper);
    visit(factor.reciprocal, view_.reciprocal);
    visit(factor.block_inverse, view_.block_inverse);
    visit(factor.block_upper, view_.block_upper);
    visit(factor.block_reciprocal, view_.block_reciprocal);
    visit(factor.order, view_.order);
  };
  const auto size_of = [](const auto& from) {
    return static_cast<std::int64_t>(from.size() * sizeof(from[0]));
  };
  each([&](const auto& from, auto&) { bytes += round_up(size_of(from), kDeviceAlignment); });
  memory_ = Buffer(bytes, device);
  StreamWork work(device, stream);
  auto* at = static_cast<std::byte*>(memory_.data());
  each([&](const auto& from, auto& to) {
    const std::int64_t size = size_of(from);
    device_copy(device, at, size, {}, from.data(), size, size, 1, stream);
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
    at += round_up(size, kDeviceAlignment);
  });
  view_.depth = factor.depth;
  view_.damping = factor.damping;
  work.wait();  // pageable memory is read until here
}

}  // namespace nvfp4
