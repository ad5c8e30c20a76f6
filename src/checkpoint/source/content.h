#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/source/model_folder.h"

/// Fingerprints that identify files without reading all of their bytes. They cover sizes, headers
/// and 64 bytes from the middle of each tensor. Models of one architecture often differ only in
/// those bytes.
namespace nvfp4::checkpoint {

std::string hex(std::uint64_t hash);
std::uint64_t content_of(const TensorFile& file);
/// Returns the same for a safetensors file that was written with `count` tensors and `metadata`. It
/// does not parse the header.
std::uint64_t content_of(const InputFile& file, std::size_t count,
                         const std::function<safetensors::TensorSpec(std::size_t)>& spec_of,
                         const safetensors::Metadata& metadata);
/// Returns the fingerprint of a model. It does not depend on times and folders, so a copied model
/// has the same. Throws IoError.
std::uint64_t content_of(const ModelFolder& model);

/// Returns the 64 bytes from the middle of a tensor.
std::string sample_of(const TensorFile& file, const safetensors::TensorInfo& tensor);

/// The number of reads that wait for a file system at the same time.
inline constexpr std::size_t kReadsTogether = 32;

/// Calls work(i) for each i < count, up to kReadsTogether at a time on any number of processors. It
/// is for reads from slow remote file systems. After all calls have ended, it throws the error of
/// the smallest i, if any.
template <class Work>
void read_together(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed = count;
  std::exception_ptr error;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) error = std::current_exception();
        failed = std::min(failed, i);
      }
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t t = 1; t < std::min(count, kReadsTogether); ++t) {
    try {
      others.emplace_back(run);
    } catch (const std::system_error&) {
      break;  // The system has no more threads.
    }
  }
  run();
  others.clear();
  if (error) std::rethrow_exception(error);
}

/// The largest number of ranks. Each rank looks for the files of all others.
inline constexpr int kMaxRanks = 65'536;

/// Returns the rank of each item, given the items' sizes. The largest item comes first and goes to
/// the rank with the fewest bytes. The result is the same in every process.
std::vector<int> share_out(const std::vector<std::uint64_t>& sizes, int ranks);

}  // namespace nvfp4::checkpoint
