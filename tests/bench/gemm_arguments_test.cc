// Tests of the command line of nvfp4_cuda_gemm_bench. They need no GPU.
#include "../../bench/cuda/gemm_arguments.h"

#include "testing.h"

namespace nvfp4::bench::gemm_arguments_test {

GemmBenchArguments parse(std::vector<const char*> given) { return parse_gemm_arguments(given); }

TEST(GemmBenchArguments, AShapeOfNoListIsMeasured) {
  EXPECT_EQ(parse({"--shape", "100x48"}).shapes, (std::vector<GemmShape>{{100, 48}}));
  EXPECT_EQ(parse({"--shape", "100x48", "--shape", "1x16"}).shapes,
            (std::vector<GemmShape>{{100, 48}, {1, 16}}));
}

TEST(GemmBenchArguments, NothingIsWrittenUnlessAFileIsNamed) {
  EXPECT_EQ(parse({}).json, "");
  EXPECT_EQ(parse({"--json", "x.json"}).json, "x.json");
}

TEST(GemmBenchArguments, ListsHaveNames) {
  EXPECT_EQ(parse({}).shapes.size(), std::size(kKnownShapes));
  EXPECT_EQ(parse({"--shape", "models"}).shapes.size(), std::size(kModelShapes));
  const std::size_t fitted = parse({"--shape", "fitted"}).shapes.size();
  const std::size_t reported = parse({"--shape", "reported"}).shapes.size();
  EXPECT_EQ(fitted + reported, std::size(kModelShapes));
  EXPECT_LE(fitted - reported, 1u) << "half of them";
  EXPECT_EQ(parse({"--shape", "known", "--shape", "64x64"}).shapes.size(),
            std::size(kKnownShapes) + 1);
}

TEST(GemmBenchArguments, ReadsRowsAndKernels) {
  EXPECT_EQ(parse({"--rows", "1,20"}).rows, (std::vector<std::int64_t>{1, 20}));
  EXPECT_FALSE(parse({}).each_kernel);
  EXPECT_TRUE(parse({"--kernels", "each"}).each_kernel);
}

TEST(GemmBenchArguments, WhatItDoesNotUnderstandIsAnError) {
  for (const std::vector<const char*>& given :
       std::vector<std::vector<const char*>>{{"--tiles"},
                                             {"--shape"},
                                             {"--shape", "4096"},
                                             {"--shape", "4096x"},
                                             {"--shape", "x64"},
                                             {"--shape", "64x64x64"},
                                             {"--shape", "64x63"},
                                             {"--shape", "0x64"},
                                             {"--shape", "-1x64"},
                                             {"--rows", ""},
                                             {"--rows", "1,,2"},
                                             {"--rows", "1,"},
                                             {"--rows", "a"},
                                             {"--rows", "0"},
                                             {"--kernels", "all"},
                                             {"--arithmetic", "exact"},
                                             {"4096x7168"}})
    EXPECT_THROW(parse(given), ValueError) << given.front();
}

TEST(GemmBenchShapes, EachIsListedOnceAndCanBeMultiplied) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (const GemmShape& s : kKnownShapes) EXPECT_TRUE(seen.emplace(s.n, s.k).second);
  for (const GemmShape& s : kModelShapes) {
    EXPECT_TRUE(seen.emplace(s.n, s.k).second) << s.layers;
    EXPECT_EQ(s.k % 16, 0) << s.layers;
  }
}

}  // namespace nvfp4::bench::gemm_arguments_test
