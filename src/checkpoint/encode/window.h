#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/encode/gram_slot.h"
#include "checkpoint/plan/plan.h"

/// What the pipeline measures, encodes and copies together.
namespace nvfp4::checkpoint {

struct MeasureTask {
  std::size_t unit;
  std::int64_t begin, count;  // elements of the tensor
};
struct EncodeTask {
  std::size_t unit;
  std::int64_t row, rows;
};
/// Where a unit has room on the device, and what of it is not there.
struct Place {
  std::int64_t offset, missing;  // bytes, elements
};
struct CopyTask {
  std::size_t tensor;
  std::uint64_t begin, bytes;
};

/// A part of one shard.
struct Window {
  explicit Window(std::size_t shard_) : shard(shard_) {}
  std::size_t shard;
  std::vector<std::size_t> units;
  std::vector<MeasureTask> measure;  // also of partners in other windows and shards
  std::vector<EncodeTask> encode;
  std::vector<CopyTask> copy;
  std::vector<AmaxResult> amaxes;  // of `measure`
  std::vector<Outcome> outcomes;   // of `encode`
  int store = 0;                   // of the device's two
  std::int64_t stored_bytes = 0;
  std::map<std::size_t, Place> places;                     // of units
  std::vector<char> uploaded;                              // of `measure`
  std::map<std::size_t, std::shared_ptr<GramSlot>> grams;  // by InputStatistics::triangle
  std::vector<GramSlot*> unfilled;                         // of them
};

}  // namespace nvfp4::checkpoint
