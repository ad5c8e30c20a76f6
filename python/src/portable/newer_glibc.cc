// Defines functions that libstdc++ needs and that glibc 2.28 does not have.
#include <pthread.h>

#include <ctime>

extern "C" {
// glibc has it since 2.32. The value false is correct for any process.
extern const char __libc_single_threaded;
const char __libc_single_threaded = 0;

// glibc has it since 2.30, for waits with a limit. This version waits by CLOCK_REALTIME: a change
// of the system's time shifts the limit.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  constexpr long kSecond = 1000000000;
  timespec now = {}, limit = {};
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += until->tv_sec - now.tv_sec;
  limit.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (limit.tv_nsec < 0) {
    limit.tv_nsec += kSecond;
    --limit.tv_sec;
  } else if (limit.tv_nsec >= kSecond) {
    limit.tv_nsec -= kSecond;
    ++limit.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &limit);
}
}
