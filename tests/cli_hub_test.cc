#ifdef NVFP4_CLI_PATH

#include <gtest/gtest.h>

#include "checkpoint/models.h"
#include "run_cli.h"

/// Models by their names on the Hugging Face Hub, in its cache.
namespace nvfp4::cli_hub_test {

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

class Hub : public Cli {
 protected:
  /// Writes a model as the hub lays it: names in a snapshot are links to blobs.
  void put(const fs::path& cache, const std::string& ref = "main") {
    const fs::path model = cache / "models--org--tiny";
    write_tiny_llama(model / "blobs");
    const fs::path snapshot = model / "snapshots" / kCommit;
    fs::create_directories(snapshot);
    for (const auto& entry : fs::directory_iterator(model / "blobs"))
      if (entry.is_regular_file())
        fs::create_symlink("../../blobs/" + entry.path().filename().string(),
                           snapshot / entry.path().filename());
    fs::create_directories((model / "refs" / ref).parent_path());
    write_text(model / "refs" / ref, kCommit);
  }
  Words environment() const {
    return {"HF_HOME=" + (dir_ / "home").string(),
            "HF_HUB_CACHE=", "HUGGINGFACE_HUB_CACHE=", "PATH=/nowhere"};
  }
  Words listing() const {
    Words words = environment();
    words.emplace_back("NVFP4_LIST_MISSING=1");
    return words;
  }
  fs::path model() const { return dir_ / "home" / "hub" / "models--org--tiny"; }
};

TEST_F(Hub, NameIsTheSnapshotOfRefsMain) {
  put(dir_ / "home" / "hub");
  const Result r = run({"quantize", "org/tiny", "out"}, environment());
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "hf upload ORG/NAME out --private")) << r.out;
  EXPECT_TRUE(has(read_text(dir_ / "out" / "README.md"), "base_model: \"org/tiny\""));
  for (const Words& words : std::initializer_list<Words>{
           {"verify", "out", "--source", "org/tiny"},
           {"compare", "org/tiny", "out", "--against", "org/tiny", "--html", "page.html"},
           {"convert", "org/tiny", "copy", "--to", "bf16", "--dry-run"},
           {"repair", "out", "repaired", "--source", "org/tiny"},
           {"inspect", "org/tiny"}})
    EXPECT_EQ(run(words, environment()).status, 0) << words[0];
}

TEST_F(Hub, RevisionIsACommitBranchOrTag) {
  put(dir_ / "home" / "hub", "team/v1.0");
  for (const std::string& revision : {std::string("team/v1.0"), std::string(kCommit)})
    EXPECT_EQ(run({"inspect", "org/tiny@" + revision}, environment()).status, 0) << revision;
  EXPECT_EQ(run({"inspect", "org/tiny"}, environment()).status, 1);
  const Result r = run({"inspect", "org/tiny@v2"}, environment());
  EXPECT_TRUE(has(r.err, "'hf download org/tiny --revision v2'") && has(r.err, "NV0103")) << r.err;
}

TEST_F(Hub, CacheIsWhereTheEnvironmentSays) {
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

TEST_F(Hub, FolderOfThatNameComesFirst) {
  write_tiny_llama(dir_ / "org" / "tiny");
  EXPECT_EQ(run({"inspect", "org/tiny"}, environment()).status, 0);
}

TEST_F(Hub, MisspelledPathsAreNoNamesOfTheHub) {
  write_tiny_llama(dir_ / "models" / "tiny");
  fs::create_symlink("nowhere", dir_ / "models" / "dangling");
  struct Case {
    const char *given, *meant, *code;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"models/tny", "did you mean 'models/tiny'?\n", "NV0102"},
           {"./modles/tiny", "did you mean './models/tiny'?\n", "NV0102"},
           {"models/tiny/config.jso", "did you mean 'models/tiny/config.json'?\n", "NV0102"},
           {"modles/tiny", "did you mean 'models/tiny'? 'hf download modles/tiny'", "NV0103"},
           {"models/other", "check the path", "NV0102"},
           {"models/dangling", "No such file", "NV0102"},
           {"org/weights.gguf", "check the path", "NV0102"}}) {
    const Result r = run({"inspect", c.given}, environment());
    EXPECT_TRUE(has(r.err, c.meant) && has(r.err, c.code)) << r.err;
  }
  EXPECT_EQ(run({"inspect", "models/tny"}, listing()).out, "{\"missing\": []}\n");
}

TEST_F(Hub, MissingModelIsAnErrorForEachCommand) {
  put(dir_ / "home" / "hub");
  write_tiny_llama(dir_ / "m");
  fs::remove(model() / "blobs" / "model-00002-of-00003.safetensors");
  for (const Words& words : std::initializer_list<Words>{
           {"quantize", "org/tiny", "out"},
           {"quantize", "org/tiny", "out", "--dry-run"},
           {"convert", "org/tiny", "out", "--to", "bf16"},
           {"inspect", "org/tiny"},
           {"verify", "org/tiny"},
           {"verify", "m", "--source", "org/tiny"},
           {"compare", "org/tiny", "m"},
           {"compare", "m", "org/tiny"},
           {"compare", "m", "m", "--against", "org/tiny", "--html", "page.html"},
           {"repair", "org/tiny", "out"},
           {"repair", "m", "out", "--source", "org/tiny"}}) {
    const Result r = run(words, environment());
    EXPECT_EQ(r.status, 1) << words[0];
    EXPECT_TRUE(has(r.err, "'hf download org/tiny'") && has(r.err, "NV0103")) << r.err;
    EXPECT_FALSE(fs::exists(dir_ / "out")) << words[0];
    const bool dry_run = words.back() == "--dry-run";
    EXPECT_EQ(run(words, listing()).out,
              dry_run ? "{\"missing\": []}\n" : "{\"missing\": [\"org/tiny\"]}\n")
        << words[0];
  }
}

TEST_F(Hub, ListingStopsBeforeTheRun) {
  put(dir_ / "home" / "hub");
  EXPECT_EQ(run({"quantize", "org/tiny", "out"}, listing()).out, "{\"missing\": []}\n");
  EXPECT_EQ(run({"sample", "out"}, listing()).out, "{\"missing\": []}\n");
  EXPECT_FALSE(fs::exists(dir_ / "out"));
}

TEST_F(Hub, WrongUsageComesBeforeTheModel) {
  for (const Words& words :
       std::initializer_list<Words>{{"convert", "org/tiny", "out"},
                                    {"quantize", "org/tiny", "out", "--ranks", "no"},
                                    {"verify", "org/tiny", "--ranks", "no"},
                                    {"compare", "org/tiny", "m", "--against", "q"}}) {
    const Result r = run(words, listing());
    EXPECT_EQ(r.status, 2) << words[0];
    EXPECT_FALSE(has(r.out, "missing")) << r.out;
  }
}

TEST_F(Hub, AddressOfAStoreComesBeforeTheModel) {
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
    const Result r = run(words, listing());
    EXPECT_EQ(r.status, 1) << words[0];
    EXPECT_TRUE(has(r.err, "s3://b/") && has(r.err, "is an address")) << r.err;
    EXPECT_FALSE(has(r.out, "missing")) << r.out;
  }
}

TEST_F(Hub, RefLeadsNowhereElse) {
  put(dir_ / "home" / "hub");
  write_tiny_llama(dir_ / "private");
  write_tiny_llama(model() / "snapshots" / "abc");
  for (const std::string& ref :
       std::initializer_list<std::string>{"../../../../private", dir_ / "private", "abc", ""}) {
    write_text(model() / "refs" / "main", ref);
    const Result r = run({"inspect", "org/tiny"}, environment());
    EXPECT_EQ(r.status, 1) << ref;
    EXPECT_TRUE(has(r.err, "must be 40 hexadecimal digits")) << r.err;
  }
  for (const std::string revision : {"../../../private", "/private", "..", "a/../main", "a/"})
    EXPECT_NE(run({"inspect", "org/tiny@" + revision}, environment()).status, 0) << revision;
}

TEST_F(Hub, ConsolidatedFileMayBeBesideShards) {
  put(dir_ / "home" / "hub");
  const fs::path snapshot = model() / "snapshots" / kCommit;
  fs::copy(snapshot / "model-00001-of-00003.safetensors", snapshot / "consolidated.safetensors");
  EXPECT_EQ(run({"quantize", "org/tiny", "out"}, listing()).out, "{\"missing\": []}\n");
}

TEST_F(Hub, OtherWordsAreNoNames) {
  for (const char* name : {"tiny", "a/b/c", "./org/tiny", "-x/tiny", "org/ti--ny", "org/", "/tiny",
                           "org/tiny@", "org@main/tiny"})
    EXPECT_FALSE(has(run({"inspect", "--", name}, listing()).out, "tiny")) << name;
}

/// A program of the working folder's name is none of ours to start.
TEST_F(Hub, NothingIsStarted) {
  fs::create_directories(dir_ / "bin");
  for (const char* name : {"hf", "python3", "python"}) {
    write_text(dir_ / "bin" / name, "#!/bin/sh\ntouch STARTED\n");
    fs::permissions(dir_ / "bin" / name, fs::perms::owner_all);
  }
  Words words = environment();
  words.back() = "PATH=" + (dir_ / "bin").string() + ":/usr/bin:/bin";
  words.push_back("NVFP4_HUB_PYTHON=" + (dir_ / "bin" / "python3").string());
  EXPECT_EQ(run({"quantize", "org/tiny", "out"}, words).status, 1);
  EXPECT_FALSE(fs::exists(dir_ / "STARTED"));
}

}  // namespace nvfp4::cli_hub_test

#endif
