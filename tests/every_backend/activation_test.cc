#include "nvfp4/activation.h"

#include "fused_cases.h"
#include "plain_cases.h"
#include "testing.h"

namespace nvfp4::activation_test {

using test::Case;
using test::difference;
using test::FusedCase;
using test::Place;
using test::Result;

constexpr std::uint64_t kSeed = 1;
constexpr int kFused = 150, kPlain = 120;

/// Selects a backend where the operation has no argument for it.
class Selected {
 public:
  explicit Selected(const std::string& backend) { setenv("NVFP4_BACKEND", backend.c_str(), 1); }
  ~Selected() { unsetenv("NVFP4_BACKEND"); }
};

std::vector<Place> backends_but_reference() {
  std::vector<Place> places;
  for (const std::string& name : test::available_backends())
    if (name != "reference" && name != "cpu") places.push_back({.backend = name});
  return places;
}

TEST(Activation, FusedOperationsHaveReferenceBitsOnEveryBackend) {
  for (const FusedCase& c : test::fused_cases(kSeed, kFused)) {
    const Result want = c.fused(test::kReference);
    const Result stored = c.stored(test::kReference);
    for (const Place& place : backends_but_reference()) {
      ASSERT_EQ(difference(c.fused(place), want), "") << place.backend << ": " << c.name;
      ASSERT_EQ(difference(c.stored(place), stored), "") << place.backend << ": " << c.name;
    }
  }
}

TEST(Activation, FusedOperationsGiveTheBitsOfTheirChain) {
  for (const FusedCase& c : test::fused_cases(kSeed + 1000, kFused))
    for (const Place& place : {test::kReference, Place{}})
      ASSERT_EQ(difference(c.fused(place), c.chain(place)), "") << place.backend << ": " << c.name;
}

TEST(Activation, PlainOperationsHaveReferenceBitsOnEveryBackend) {
  for (const Case& c : test::plain_cases(kSeed, kPlain)) {
    Result want;
    {
      const Selected reference("reference");
      want = c.run(test::kReference);
    }
    for (const Place& place : backends_but_reference()) {
      const Selected backend(place.backend);
      ASSERT_EQ(difference(c.run(place), want), "") << place.backend << ": " << c.name;
    }
  }
}

TEST(Activation, ThreadsDoNotChangeTheResult) {
  for (const FusedCase& c : test::fused_cases(kSeed + 2000, 20)) {
    set_threads(1);
    const Result one = c.fused({});
    set_threads(3);
    ASSERT_EQ(difference(c.fused({}), one), "") << c.name;
  }
  set_threads(0);
}

}  // namespace nvfp4::activation_test
