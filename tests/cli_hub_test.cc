#ifdef NVFP4_CLI_PATH

#include <gtest/gtest.h>

#include "checkpoint/tiny_model.h"
#include "run_cli.h"

/// Models by their names on the Hugging Face Hub: from its cache, or by an `hf` that these tests
/// put on PATH.
namespace nvfp4::cli_hub_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

class Hub : public Cli {
 protected:
  /// As the hub lays it: names in a snapshot are links to blobs.
  void put(const fs::path& cache, const char* revision = kCommit) {
    const fs::path model = cache / "models--org--tiny";
    write_tiny_llama(model / "blobs");
    const fs::path snapshot = model / "snapshots" / revision;
    fs::create_directories(snapshot);
    for (const auto& entry : fs::directory_iterator(model / "blobs"))
      if (entry.is_regular_file())
        fs::create_symlink("../../blobs/" + entry.path().filename().string(),
                           snapshot / entry.path().filename());
    fs::create_directories(model / "refs");
    write_text(model / "refs" / "main", std::string(revision) + "\n");
  }
  void put_hf(const std::string& script) {
    fs::create_directories(dir_ / "bin");
    write_text(dir_ / "bin/hf", "#!/bin/sh\necho \"$@\" >> hf.log\necho where it is\n" + script);
    fs::permissions(dir_ / "bin/hf", fs::perms::owner_all);
  }
  Words environment() const {
    return {"HF_HOME=" + (dir_ / "home").string(), "HF_HUB_CACHE=", "HUGGINGFACE_HUB_CACHE=",
            "HF_HUB_OFFLINE=", "PATH=" + (dir_ / "bin").string() + ":/usr/bin:/bin"};
  }
};

TEST_F(Hub, ANameIsItsSnapshotInTheCache) {
  put(dir_ / "home" / "hub");
  const Result r = run({"quantize", "org/tiny", "out"}, environment());
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(read_text(dir_ / "out" / "README.md"), "base_model: \"org/tiny\""));
  EXPECT_EQ(run({"verify", "out", "--source", "org/tiny"}, environment()).status, 0);
  EXPECT_EQ(run({"compare", "org/tiny", "out"}, environment()).status, 0);
  EXPECT_EQ(run({"inspect", "org/tiny"}, environment()).status, 0);
  EXPECT_FALSE(fs::exists(dir_ / "hf.log"));
}

TEST_F(Hub, TheCacheIsWhereTheEnvironmentSays) {
  put(dir_ / "cache");
  Words there = environment();
  there[1] = "HF_HUB_CACHE=" + (dir_ / "cache").string();
  EXPECT_EQ(run({"inspect", "org/tiny"}, there).status, 0);
  there = environment();
  there[0] = "HF_HOME=";
  there.push_back("XDG_CACHE_HOME=" + (dir_ / "xdg").string());
  const Result r = run({"inspect", "org/tiny", "-q"}, there);
  EXPECT_TRUE(has(r.err, (dir_ / "xdg" / "huggingface" / "hub").string())) << r.err;
}

TEST_F(Hub, AFolderOfThatNameComesFirst) {
  write_tiny_llama(dir_ / "org" / "tiny");
  put_hf("exit 1\n");
  EXPECT_EQ(run({"inspect", "org/tiny"}, environment()).status, 0);
  EXPECT_FALSE(fs::exists(dir_ / "hf.log"));
}

TEST_F(Hub, WhatIsNotThereIsAnErrorThatSaysHowToGetIt) {
  const Result r = run({"quantize", "org/tiny", "out"}, environment());
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r.err, "'hf download org/tiny'")) << r.err;
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Hub, WhatIsNotThereIsDownloadedByHf) {
  put(dir_ / "elsewhere");
  put_hf("mkdir -p home && cp -a elsewhere home/hub\n");
  const Result r = run({"quantize", "org/tiny", "out", "--json"}, environment());
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(r.out.starts_with("{")) << r.out;
  EXPECT_EQ(read_text(dir_ / "hf.log"), "download org/tiny\n");
}

TEST_F(Hub, WhatIsHalfThereIsDownloaded) {
  put(dir_ / "home" / "hub");
  fs::remove(dir_ / "home/hub/models--org--tiny/blobs/model-00002-of-00003.safetensors");
  put_hf("exit 3\n");
  const Result r = run({"inspect", "org/tiny"}, environment());
  EXPECT_EQ(r.status, 1);
  EXPECT_TRUE(has(r.err, "hf download ended with status 3")) << r.err;
}

TEST_F(Hub, NothingIsDownloadedOfflineNorInADryRun) {
  put_hf("exit 0\n");
  Words offline = environment();
  offline[3] = "HF_HUB_OFFLINE=1";
  EXPECT_EQ(run({"inspect", "org/tiny"}, offline).status, 1);
  EXPECT_EQ(run({"quantize", "org/tiny", "out", "--dry-run"}, environment()).status, 1);
  EXPECT_FALSE(fs::exists(dir_ / "hf.log"));
}

TEST_F(Hub, NothingIsDownloadedForAnOutputInAStore) {
  put_hf("exit 0\n");
  for (const Words& words : std::initializer_list<Words>{
           {"quantize", "org/tiny", "s3://b/out"},
           {"quantize", "org/tiny", "out", "--report", "s3://b/r.json"},
           {"convert", "org/tiny", "s3://b/out", "--to", "bf16"},
           {"convert", "org/tiny", "out", "--to", "bf16", "--report", "s3://b/r.json"},
           {"repair", "org/tiny", "s3://b/out"},
           {"repair", "org/tiny", "out", "--source", "s3://b/source"},
           {"verify", "org/tiny", "--source", "s3://b/source"},
           {"verify", "org/tiny", "--parts", "s3://b/parts"},
           {"compare", "org/tiny", "m", "--html", "s3://b/page.html"},
           {"compare", "org/tiny", "m", "--parts", "s3://b/parts"}}) {
    const Result r = run(words, environment());
    EXPECT_EQ(r.status, 1) << words[0];
    EXPECT_TRUE(has(r.err, "s3://b/") && has(r.err, "is an address")) << r.err;
  }
  EXPECT_FALSE(fs::exists(dir_ / "hf.log"));
}

TEST_F(Hub, ARevisionLeadsNowhereElse) {
  put(dir_ / "home" / "hub");
  write_tiny_llama(dir_ / "private");
  write_text(dir_ / "home/hub/models--org--tiny/refs/main", "../../../../private");
  EXPECT_EQ(run({"inspect", "org/tiny"}, environment()).status, 1);
}

TEST_F(Hub, OtherWordsAreNoNames) {
  put_hf("exit 0\n");
  for (const char* name : {"tiny", "a/b/c", "./org/tiny", "-x/tiny", "org/ti--ny", "org/", "/tiny"})
    EXPECT_NE(run({"inspect", "--", name}, environment()).status, 0) << name;
  EXPECT_FALSE(fs::exists(dir_ / "hf.log"));
}

}  // namespace
}  // namespace nvfp4::cli_hub_test

#endif
