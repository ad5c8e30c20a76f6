#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/work/gram_slot.h"

/// The tasks that the pipeline measures, encodes and copies together.
namespace nvfp4::checkpoint {

struct MeasureTask {
  std::size_t unit;
  std::int64_t begin, count;  // elements of the tensor
};
struct EncodeTask {
  std::size_t unit;
  std::int64_t row, rows;
};
/// The place of a unit in device memory, and the number of elements that are not uploaded.
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
  std::vector<MeasureTask> measure;  // includes partners in other windows and shards
  std::vector<EncodeTask> encode;
  std::vector<CopyTask> copy;
  std::vector<AmaxResult> amaxes;  // results of `measure`
  std::vector<Outcome> outcomes;   // results of `encode`
  int store = 0;                   // index of the device store
  std::int64_t stored_bytes = 0;
  std::map<std::size_t, Place> places;  // places of units, by unit
  std::vector<char> uploaded;  // results of `measure`: true if the elements are on the device
  std::map<std::size_t, std::shared_ptr<GramSlot>> grams;  // keyed by InputStatistics::triangle
  std::vector<GramSlot*> unfilled;  // elements of `grams` that must be filled
};

}  // namespace nvfp4::checkpoint
