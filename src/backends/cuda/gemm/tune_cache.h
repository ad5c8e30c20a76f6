#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/gemm.h"

/// The file that keeps which kernels were the fastest: JSON, for people to read, too. It is input
/// like any other: what does not hold is ignored, and said.
namespace nvfp4::cuda {

/// For what a measurement holds.
struct TuneKey {
  std::string gpu;      ///< its name and multiprocessors
  std::string driver;   ///< its version
  std::string library;  ///< its version
  std::string problem;  ///< whose kernels, and problem_key()
  bool operator==(const TuneKey&) const = default;
};

struct NamedPart {
  std::int64_t rows = 0;
  std::string kernel;
  bool operator==(const NamedPart&) const = default;
};

struct TuneEntry {
  TuneKey key;
  std::vector<NamedPart> parts;  ///< one or two
  double microseconds = 0;
  bool operator==(const TuneEntry&) const = default;
};

struct TuneFile {
  std::vector<TuneEntry> entries;  ///< the oldest first
  std::string note;                ///< what was ignored, and why; "" if nothing was
  bool is_ours = true;             ///< else it must not be overwritten
};

/// All of a description that the time of a product depends on. W4A4 is the same product as W4A16,
/// once x is decoded.
std::string problem_key(const GemmDescription& description);

/// $NVFP4_TUNE_CACHE, else nvfp4/gemm.json below $XDG_CACHE_HOME or ~/.cache; empty without any of
/// them. `get` is std::getenv.
std::filesystem::path tune_file_path(const std::function<const char*(const char*)>& get);

TuneFile parse_tune_file(std::string_view text);
std::string tune_file_text(std::span<const TuneEntry> entries);

/// One that is not there has no entries. Does not throw for what a file holds.
TuneFile read_tune_file(const std::filesystem::path& path);

/// Adds an entry, or replaces the one of its key, in a file that appears whole or not at all: of
/// two processes one may lose its entry, but not the file its form. Returns why that failed, or
/// nothing.
std::string keep_tune_entry(const std::filesystem::path& path, const TuneEntry& entry);

/// "580.1", found in /proc/driver/nvidia/version, and the newest CUDA that the driver knows, as
/// cudaDriverGetVersion() says it (13000): "580.1, CUDA 13.0".
std::string driver_version(std::string_view proc, int cuda);

}  // namespace nvfp4::cuda
