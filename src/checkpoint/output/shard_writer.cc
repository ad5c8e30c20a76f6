#include "checkpoint/formats/shard_writer.h"

#include "checkpoint/io/planned_file.h"
#include "checkpoint/plan/plan.h"
#include "checkpoint/safetensors/header.h"

namespace nvfp4::checkpoint {
namespace {

class SafetensorsShard final : public ShardWriter {
 public:
  SafetensorsShard(const PlannedShard& shard, const std::filesystem::path& path)
      : file_(path, safetensors::FilePlan(
                        shard.specs.size(), [&shard](std::size_t i) { return shard.specs[i]; },
                        shard.metadata, name_of_file(path))) {}
  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> data) override {
    file_.write(tensor, offset, data);
  }
  std::uint64_t hash() override { return file_.hash(); }
  void commit() override { file_.commit(); }

 private:
  PlannedFile<safetensors::FilePlan> file_;
};

}  // namespace

std::unique_ptr<ShardWriter> safetensors_shard(const PlannedShard& shard,
                                               const std::filesystem::path& path) {
  return std::make_unique<SafetensorsShard>(shard, path);
}

}  // namespace nvfp4::checkpoint
