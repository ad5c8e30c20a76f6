#include "checkpoint/formats/shard_writer.h"

#include "checkpoint/plan/plan.h"

namespace nvfp4::checkpoint {
namespace {

class SafetensorsShard final : public ShardWriter {
 public:
  SafetensorsShard(const PlannedShard& shard, const std::filesystem::path& path)
      : writer_(path, shard.specs, shard.metadata) {}
  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) override {
    writer_.write(tensor, offset, data);
  }
  void commit() override { writer_.commit(); }

 private:
  safetensors::Writer writer_;
};

}  // namespace

std::unique_ptr<ShardWriter> safetensors_shard(const PlannedShard& shard,
                                               const std::filesystem::path& path) {
  return std::make_unique<SafetensorsShard>(shard, path);
}

}  // namespace nvfp4::checkpoint
