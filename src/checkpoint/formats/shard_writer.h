#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nvfp4::checkpoint {

struct Plan;
struct PlannedShard;
struct ModelFolder;

/// A writer for the tensors of a shard. Indices are those of PlannedShard::specs. All methods
/// except commit() are thread-safe. Without commit() no file remains.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  virtual void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Writes whole rows of an NVFP4 weight: codes and scales at byte offsets of their tensors.
  virtual void write_blocks(std::size_t codes, std::uint64_t code_offset,
                            std::span<const std::byte> code_bytes, std::size_t scales,
                            std::uint64_t scale_offset, std::span<const std::byte> scale_bytes) {
    write(codes, code_offset, code_bytes);
    write(scales, scale_offset, scale_bytes);
  }
  /// Returns the FileHash of the file, all bytes of which are written; 0 where nobody keeps it.
  virtual std::uint64_t hash() { return 0; }
  virtual void commit() = 0;
};

/// Returns the writer of a safetensors file. `shard` must outlive it.
std::unique_ptr<ShardWriter> safetensors_shard(const PlannedShard& shard,
                                               const std::filesystem::path& path);

/// A format whose output is one file and not safetensors.
class Container {
 public:
  virtual ~Container() = default;
  virtual std::unique_ptr<ShardWriter> open(const std::filesystem::path& path) const = 0;
  /// Returns the size of all tensors of the file.
  virtual std::uint64_t tensor_bytes() const = 0;
  /// Returns what is left out of the file, and why.
  virtual const std::vector<std::string>& warnings() const = 0;
};

/// Lays out everything in the plan's only shard before a byte is written. Throws UnsupportedError
/// with the name of a tensor that has no place in the file. Throws FormatError if config.json lacks
/// a required entry. The plan must outlive the container.
using MakeContainer = std::unique_ptr<const Container> (*)(const ModelFolder& model,
                                                           const Plan& plan);

}  // namespace nvfp4::checkpoint
