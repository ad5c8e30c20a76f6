#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/encode/encoder.h"
#include "checkpoint/io/posix_file.h"
#include "testing.h"

namespace nvfp4::checkpoint::read_ahead_test {

using safetensors::TensorInfo;
using std::chrono::steady_clock;

constexpr std::uint64_t kMegabyte = 1 << 20;

struct Hint {
  const TensorInfo* tensor;
  std::uint64_t begin, bytes;
};

/// Remembers what it is told.
class FakeSource final : public TensorSource {
 public:
  FakeSource(std::vector<Hint>& hints, std::mutex& mutex) : hints_(hints), mutex_(mutex) {}
  const std::filesystem::path& path() const override { return path_; }
  const safetensors::Metadata& metadata() const override { return metadata_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view /*name*/) const override { return nullptr; }
  void read(const TensorInfo& /*tensor*/, std::uint64_t /*offset*/,
            std::span<std::byte> /*out*/) const override {}
  void will_read(const TensorInfo& tensor, std::uint64_t offset,
                 std::uint64_t bytes) const override {
    const std::lock_guard lock(mutex_);
    hints_.push_back({&tensor, offset, bytes});
  }
  std::span<const std::byte> data(const TensorInfo& /*tensor*/) const override { return {}; }
  void check_unchanged() const override {}
  std::uint64_t file_bytes() const override { return 0; }
  std::int64_t modified_ns() const override { return 0; }
  std::string_view container() const override { return "fake"; }

 private:
  std::vector<Hint>& hints_;
  std::mutex& mutex_;
  std::filesystem::path path_;
  safetensors::Metadata metadata_;
  std::vector<TensorInfo> tensors_;
};

/// Three shards: a copied tensor and one of two units; one that is done; one of a large tensor.
class ReadAheadTest : public testing::Test {
 protected:
  ReadAheadTest() : file_(std::make_unique<FakeSource>(hints_, mutex_)) {
    infos_[0].bytes = 3 * kMegabyte + 5;
    infos_[1].bytes = 8 * kMegabyte;
    infos_[2].bytes = 2 * kMegabyte;
    infos_[3].bytes = 2 * kAheadBytes;
    sources_[1].shape = {1024, 4096};  // BF16
    sources_[1].data = {&file_, &infos_[1]};
    plan_.shards.resize(3);
    add(0, 0);
    add(0, 1);
    add(1, 2);
    add(2, 3);
    PlannedTensor& weight = plan_.tensors[1];
    weight.copy = kNone;
    weight.units = 2;
    weight.bytes_before = infos_[1].bytes;
    for (const std::int64_t half : {0, 1}) {
      Unit unit;
      unit.tensor = 1;
      unit.slice.rows = 512;
      unit.slice.cols = 4096;
      unit.slice.amax_begin = half * 512 * 4096;
      unit.slice.amax_count = 512 * 4096;
      plan_.units.push_back(unit);
    }
  }

  void add(std::size_t shard, std::size_t i) {
    PlannedTensor t;
    t.source = &sources_[i];
    t.stored = {&file_, &infos_[i]};
    t.shard = shard;
    t.copy = 0;
    if (plan_.shards[shard].tensors++ == 0) plan_.shards[shard].first_tensor = plan_.tensors.size();
    plan_.tensors.push_back(t);
  }

  std::vector<Hint> hints() {
    const std::lock_guard lock(mutex_);
    return hints_;
  }
  /// Returns the requested bytes of a tensor. Requests start at its first byte and are consecutive.
  std::uint64_t asked_for(std::size_t i) {
    std::uint64_t end = 0;
    for (const Hint& h : hints()) {
      if (h.tensor != &infos_[i]) continue;
      EXPECT_EQ(h.begin, end) << "tensor " << i;
      EXPECT_LE(h.bytes, kMegabyte);
      end = h.begin + h.bytes;
    }
    return end;
  }
  template <class Condition>
  void expect_soon(const Condition& condition) {
    const auto end = steady_clock::now() + std::chrono::seconds(20);
    while (!condition() && steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(condition());
  }

  std::mutex mutex_;
  std::vector<Hint> hints_;
  TensorFile file_;
  TensorInfo infos_[4];
  LogicalTensor sources_[4];
  Plan plan_;
  std::vector<bool> done_ = {false, true, false};
};

TEST_F(ReadAheadTest, ReadsInOrderWithinItsLimit) {
  const std::uint64_t before = infos_[0].bytes + infos_[1].bytes;
  {
    ReadAhead ahead(plan_, done_);
    expect_soon([&] { return before + asked_for(3) >= kAheadBytes; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LT(before + asked_for(3), kAheadBytes + kMegabyte) << "and no further";
    ahead.advance(before + 10 * kMegabyte);
    expect_soon([&] { return asked_for(3) >= kAheadBytes + 10 * kMegabyte; });
    EXPECT_LT(asked_for(3), kAheadBytes + 11 * kMegabyte);
    ahead.advance(before + infos_[3].bytes);
    expect_soon([&] { return asked_for(3) == infos_[3].bytes; });
  }
  EXPECT_EQ(asked_for(0), infos_[0].bytes);
  EXPECT_EQ(asked_for(1), infos_[1].bytes) << "both units";
  EXPECT_EQ(asked_for(2), 0U) << "its shard is done";
  std::size_t last = 0;
  for (const Hint& h : hints()) {
    const auto tensor = static_cast<std::size_t>(h.tensor - infos_);
    EXPECT_GE(tensor, last);
    last = tensor;
  }
}

TEST_F(ReadAheadTest, StopsWhereverItIs) {
  for (int i = 0; i < 50; ++i) ReadAhead(plan_, done_);
  EXPECT_LT(asked_for(2), 1U);
}

TEST_F(ReadAheadTest, CountsUnitsByTheirShareOfTheTensor) {
  EXPECT_EQ(input_bytes(plan_, plan_.units[0]), 4 * kMegabyte);
  plan_.tensors[1].bytes_before = 9 * kMegabyte;  // with scales
  EXPECT_EQ(input_bytes(plan_, plan_.units[1]), 9 * kMegabyte / 2);
}

#ifdef __linux__
TEST(InputFile, BringsWhatWillBeReadIntoMemory) {
  const TempDir dir;
  const auto path = dir / "file";
  write_text(path, std::string(4 * kMegabyte, 'x'));
  const InputFile file(path);
  // Asks without reading: a read that may not wait starts to read ahead, too.
  void* const map = ::mmap(nullptr, 4 * kMegabyte, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  ASSERT_NE(map, MAP_FAILED);
  const auto in_memory = [&] {
    std::vector<unsigned char> pages(4 * kMegabyte / static_cast<std::uint64_t>(::getpagesize()));
    EXPECT_EQ(::mincore(map, 4 * kMegabyte, pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; });
  };
  const auto all = static_cast<std::ptrdiff_t>(4 * kMegabyte) / ::getpagesize();
  ASSERT_EQ(::fsync(file.descriptor()), 0);
  ASSERT_EQ(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED), 0);
  if (in_memory() != 0) GTEST_SKIP() << "this file system keeps its files in memory";
  file.will_read(0, 4 * kMegabyte);
  const auto end = steady_clock::now() + std::chrono::seconds(20);
  while (in_memory() < all && steady_clock::now() < end) ::usleep(1000);
  EXPECT_EQ(in_memory(), all);
  file.will_read(0, 4 * kMegabyte);  // again, and past the end: a hint
  file.will_read(5 * kMegabyte, kMegabyte);
  ::munmap(map, 4 * kMegabyte);
}
#endif

}  // namespace nvfp4::checkpoint::read_ahead_test
