#include "checkpoint/safetensors/apart.h"

#include "checkpoint/base/error_codes.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/compare/shared_work.h"

/// Tests that what a command reads lies apart from what it writes or removes, whatever the names.
namespace nvfp4::apart_test {

class Apart : public ::testing::Test {
 protected:
  Apart() {
    write_tiny_llama(dir_ / "in");
    quantize_checkpoint(dir_ / "in", dir_ / "out");
  }

  /// Expects an OptionsError with these parts, before anything has changed.
  template <class Call>
  void expect_refused(Call call, std::initializer_list<std::string_view> parts) {
    const auto before = files_of(dir_.path());
    expect_error<OptionsError>(call, parts);
    EXPECT_EQ(files_of(dir_.path()), before);
  }

  TempDir dir_;
};

TEST_F(Apart, PartsInModel) {
  expect_refused(
      [&] {
        compare_share(dir_ / "in", dir_ / "out", {0, 2, dir_ / "in" / "parts"});
      },
      {"parts", "inside a"});
  auto verify = verify_options(dir_ / "out");
  expect_refused([&] { verify_share(verify, {0, 2, dir_ / "out"}); }, {"parts", "is path"});
}

TEST_F(Apart, PathsThatDoNotExistYet) {
  const auto refused = [&](const fs::path& read, const fs::path& write) {
    try {
      require_apart({{"a", read}}, {{"b", write}});
      return false;
    } catch (const OptionsError&) {
      return true;
    }
  };
  EXPECT_TRUE(refused(dir_ / "in", dir_ / "in" / "new" / "deep"));
  EXPECT_TRUE(refused(dir_ / "in", dir_ / "new" / ".." / "in"));
  EXPECT_FALSE(refused(dir_ / "in", dir_ / "new" / "in"));
  EXPECT_FALSE(refused(dir_ / "in", dir_ / "in2"));
  EXPECT_FALSE(refused(dir_ / "absent", dir_ / "absent"));
  const std::vector<UsedPath> both = {{"a", dir_ / "new" / "x"}, {"b", dir_ / "new"}};
  EXPECT_THROW(require_apart({}, both), OptionsError);
}

}  // namespace nvfp4::apart_test
