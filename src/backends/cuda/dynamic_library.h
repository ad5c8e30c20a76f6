#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

/// Loads NVIDIA's libraries at run time. Host only.
namespace nvfp4::cuda {

/// A shared library that is loaded when it is needed, so that no build depends on it. It is never
/// unloaded.
class DynamicLibrary {
 public:
  /// Loads the file that the environment variable names, otherwise the first of two files.
  DynamicLibrary(std::string_view name, const char* variable,
                 const std::array<const char*, 2>& files)
      : name_(name) {
    const char* const named = std::getenv(variable);
    if (named != nullptr && *named != '\0') {
      library_ = dlopen(named, RTLD_NOW | RTLD_LOCAL);
      if (library_ == nullptr)
        reason_ = fmt::format("{} = \"{}\" cannot be loaded: {}", variable, named, dlerror());
      return;
    }
    for (const char* file : files)
      if (library_ == nullptr) library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr)
      reason_ = fmt::format("neither {} nor {} can be loaded", files[0], files[1]);
  }

  /// Sets a pointer to a function of the library.
  template <class F>
  void find(const char* function, F*& pointer) {
    if (!reason_.empty()) return;
    pointer = reinterpret_cast<F*>(dlsym(library_, function));
    if (pointer == nullptr)
      reason_ = fmt::format("the {} that was loaded has no {}", name_, function);
  }

  /// Returns why the library cannot be used, or an empty string.
  const std::string& reason() const { return reason_; }

 private:
  std::string_view name_;
  void* library_ = nullptr;
  std::string reason_;
};

}  // namespace nvfp4::cuda
