#include "platform/process.h"

#include <sched.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace nvfp4::platform {

const char* const kHomeVariable = "HOME";

int process_id() { return ::getpid(); }

std::string host_name() {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  return host;
}

unsigned random_number() {
  // Not std::random_device: in libstdc++ it needs arc4random(), which glibc has from 2.36 on.
  unsigned random = 0;
  if (::getentropy(&random, sizeof random) == 0) return random;
  return static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
}

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

bool has_dot_products() {
#ifdef __aarch64__
  constexpr unsigned long kHasDotProd = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kHasDotProd) != 0;
#else
  return false;
#endif
}

bool allow_amx_tiles() {
#ifdef __x86_64__
  constexpr int kTileData = 18, kRequestPermission = 0x1023;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace nvfp4::platform
