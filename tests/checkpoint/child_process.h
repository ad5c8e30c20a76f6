#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

/// Runs a disabled test of this binary in a process of its own: it may be killed, and has its own
/// memory and limits.
namespace nvfp4 {

using Environment = std::map<std::string, std::string>;

/// The status that waitpid() gives.
inline int run_child(const std::string& test, const Environment& environment) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    for (const char* shard :
         {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"})  // the parent's, not of one test
      ::unsetenv(shard);
    const std::string filter = "--gtest_filter=" + test;
#ifdef NVFP4_TEST_EMULATOR  // the kernel does not know how to run this binary
    std::string self(4096, '\0');
    self.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, ::readlink("/proc/self/exe", self.data(), self.size()))));
    ::execl("/bin/sh", "sh", "-c", "exec " NVFP4_TEST_EMULATOR " \"$@\"", "sh", self.c_str(),
            filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1", nullptr);
#else
    ::execl("/proc/self/exe", "nvfp4_tests", filter.c_str(), "--gtest_also_run_disabled_tests",
            "--gtest_brief=1", nullptr);
#endif
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(pid, &status, 0);
  return status;
}

/// A variable that the parent has set, or "".
inline std::string child_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace nvfp4
