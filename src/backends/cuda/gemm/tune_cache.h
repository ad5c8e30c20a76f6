#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nvfp4/gemm.h"

/// The file of the fastest kernels. Its first line is "nvfp4 gemm tuning 1". Each further line is
/// an entry of fields separated by tabs: GPU, driver, library, problem, microseconds, then rows and
/// kernel of one or two parts. The content is untrusted: broken lines are ignored and reported.
namespace nvfp4::cuda {

/// The conditions under which a measurement is valid.
struct TuneKey {
  std::string gpu;      ///< name and number of multiprocessors
  std::string driver;   ///< version
  std::string library;  ///< version
  std::string problem;  ///< the architecture and problem_key()
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
  std::string note;                ///< ignored content and the reason, or empty
  bool is_ours = true;             ///< false: the file must not be overwritten
};

/// Returns the properties of a description that determine the time of the GEMM. W4A4 has the key of
/// W4A16, because x is dequantized first.
std::string problem_key(const GemmDescription& description);

/// Returns $NVFP4_TUNE_CACHE, or nvfp4/gemm.txt below $XDG_CACHE_HOME or ~/.cache, or an empty
/// path. `get` is std::getenv.
std::filesystem::path tune_file_path(const std::function<const char*(const char*)>& get);

TuneFile parse_tune_file(std::string_view text);
std::string tune_file_text(std::span<const TuneEntry> entries);

/// Reads the file; a missing file has no entries. It does not throw for invalid content.
TuneFile read_tune_file(const std::filesystem::path& path);

/// Adds an entry or replaces the one with its key. The file is replaced atomically. If two
/// processes write at once, one entry may be lost, but the file stays valid. Returns the reason of
/// a failure, or an empty string.
std::string keep_tune_entry(const std::filesystem::path& path, const TuneEntry& entry);

/// Returns "580.1, CUDA 13.0" from the text of /proc/driver/nvidia/version and the value of
/// cudaDriverGetVersion(), such as 13000.
std::string driver_version(std::string_view proc, int cuda);

}  // namespace nvfp4::cuda
