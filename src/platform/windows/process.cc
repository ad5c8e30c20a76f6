#include "platform/process.h"

#include <bit>
#include <chrono>
#include <cstdint>
#include <thread>

#include "platform/windows/system.h"
#include "platform/windows/text.h"

namespace nvfp4::platform {

const char* const kHomeVariable = "USERPROFILE";

int process_id() { return static_cast<int>(::GetCurrentProcessId()); }

std::string host_name() {
  wchar_t name[256] = {};
  DWORD size = 255;
  return ::GetComputerNameExW(ComputerNameDnsHostname, name, &size) != 0 ? narrow({name, size})
                                                                         : std::string();
}

unsigned random_number() {
  unsigned random = 0;
  if (::BCryptGenRandom(nullptr, reinterpret_cast<unsigned char*>(&random), sizeof random,
                        BCRYPT_USE_SYSTEM_PREFERRED_RNG) == 0)
    return random;
  return static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
}

int usable_cpus() {
  // The CPUs of this process in its group of at most 64.
  DWORD_PTR ours = 0, all = 0;
  if (::GetProcessAffinityMask(::GetCurrentProcess(), &ours, &all) != 0 && ours != 0)
    return std::popcount(std::uint64_t{ours});
  return static_cast<int>(std::thread::hardware_concurrency());
}

bool has_dot_products() { return false; }  // a feature of ARM

// Windows 11 permits AMX on request. This has never been tested.
bool allow_amx_tiles() { return false; }

}  // namespace nvfp4::platform
