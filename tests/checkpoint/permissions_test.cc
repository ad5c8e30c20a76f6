#include <unistd.h>

#include "checkpoint/checkpoints.h"

/// Files that the permissions of a model protect from reading are named before anything is written.
namespace nvfp4::permissions_test {

/// The owner of all files may read them whatever their mode is: without those rights for a while.
class Permissions : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_llama(in_);
    fs::permissions(dir_.path(), fs::perms::all);
    if (::geteuid() == 0 && ::seteuid(65534) != 0) GTEST_SKIP() << "cannot act as another user";
    std::error_code none;
    if (!fs::exists(in_, none)) GTEST_SKIP() << "TMPDIR is closed to other users";
  }
  void TearDown() override {
    become(0);
    for (const auto& path : {in_, in_ / "assets"}) fs::permissions(path, fs::perms::owner_all);
  }
  static void become(uid_t user) {
    if (::getuid() == 0) {
      ASSERT_EQ(::seteuid(user), 0);
    }
  }
  /// Sets the permissions as the owner.
  void set(const fs::path& path, fs::perms mode) {
    const uid_t user = ::geteuid();
    become(0);
    fs::permissions(path, mode);
    become(user);
  }
  void expect_refused(const fs::path& named) {
    const std::string text = named.string() + ": cannot open: Permission denied";
    for (const bool dry_run : {true, false}) {
      auto options = quantize_options(in_, dir_ / "out");
      options.dry_run = dry_run;
      expect_error<IoError>([&] { quantize_checkpoint(options); }, {text});
      EXPECT_FALSE(fs::exists(dir_ / "out"));
    }
  }

  TempDir dir_;
  const fs::path in_ = dir_ / "in";
};

TEST_F(Permissions, OfOtherFilesAreAskedBeforeTheRun) {
  quantize_checkpoint(in_, dir_ / "readable");
  for (const char* name : {"tokenizer.json", "assets/LICENSE", "config.json"}) {
    SCOPED_TRACE(name);
    set(in_ / name, fs::perms::none);
    expect_refused(in_ / name);
    set(in_ / name, fs::perms::owner_read | fs::perms::others_read);
  }
}

TEST_F(Permissions, OfFoldersAreNamedByTheFolder) {
  using enum fs::perms;
  for (const fs::perms mode : {none, others_read | owner_read, others_exec | owner_exec}) {
    set(in_, mode);
    expect_refused(in_);
    auto verify = verify_options(in_);
    const std::string text = in_.string() + ": cannot open: Permission denied";
    expect_error<IoError>([&] { verify_checkpoint(verify); }, {text});
    expect_error<IoError>([&] { compare_checkpoints(in_, in_); }, {text});
  }
}

TEST_F(Permissions, ClosedFolderAboveIsNamed) {
  const uid_t user = ::geteuid();
  become(0);
  fs::create_directory(dir_ / "closed");
  fs::copy(in_, dir_ / "closed" / "in");
  become(user);
  set(dir_ / "closed", fs::perms::none);
  const auto verify = verify_options(dir_ / "closed" / "in");
  expect_error<IoError>([&] { verify_checkpoint(verify); },
                        {"may not search the folder " + (dir_ / "closed").string()});
  set(dir_ / "closed", fs::perms::owner_all);
}

}  // namespace nvfp4::permissions_test
