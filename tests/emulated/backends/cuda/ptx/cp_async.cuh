#pragma once
#include "simt.h"
namespace nvfp4::cuda::ptx {
inline void cp_async_16(std::uint32_t to, const void* from) {
  emulated::copy_async(to, from, 16, false);
}
inline void cp_async_16_zfill(std::uint32_t to, const void* from, bool copy) {
  emulated::copy_async(to, from, 16, !copy);
}
inline void cp_async_4(std::uint32_t to, const void* from) {
  emulated::copy_async(to, from, 4, false);
}
inline void cp_async_commit_group() { emulated::commit_copies(); }
template <int kPending>
void cp_async_wait_group() {
  emulated::await_copies(kPending);
}
}  // namespace nvfp4::cuda::ptx
