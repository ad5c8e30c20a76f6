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

/// Takes the bytes of a shard's tensors, by their numbers in PlannedShard::specs. Its methods are
/// thread-safe, but for commit(). Without commit() nothing stays.
class ShardWriter {
 public:
  virtual ~ShardWriter() = default;
  virtual void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) = 0;
  /// Whole rows of an NVFP4 weight: codes and scales at these places of their tensors.
  virtual void write_blocks(std::size_t codes, std::uint64_t code_offset,
                            std::span<const std::byte> code_bytes, std::size_t scales,
                            std::uint64_t scale_offset, std::span<const std::byte> scale_bytes) {
    write(codes, code_offset, code_bytes);
    write(scales, scale_offset, scale_bytes);
  }
  virtual void commit() = 0;
};

/// The shard must outlive it.
std::unique_ptr<ShardWriter> safetensors_shard(const PlannedShard& shard,
                                               const std::filesystem::path& path);

/// A format whose output is one file of another kind than safetensors.
class Container {
 public:
  virtual ~Container() = default;
  virtual std::unique_ptr<ShardWriter> open(const std::filesystem::path& path) const = 0;
  /// Of all tensors of the file.
  virtual std::uint64_t tensor_bytes() const = 0;
  /// What does not become part of the file, and why.
  virtual const std::vector<std::string>& warnings() const = 0;
};

/// Finds a place for everything in the plan's only shard, before a byte is written. Throws
/// UnsupportedError that names the tensor that has none, FormatError for a config.json that does
/// not say what is needed. The plan must outlive it.
using MakeContainer = std::unique_ptr<const Container> (*)(const ModelFolder& model,
                                                           const Plan& plan);

}  // namespace nvfp4::checkpoint
