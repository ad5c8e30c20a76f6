// The entry point of every C++ test program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

/// Runs the tests. Returns 77, which ctest reports as skipped, if every selected test was skipped.
int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  const bool all_skipped =
      status == 0 && tests.successful_test_count() == 0 && tests.skipped_test_count() > 0;
  return all_skipped ? 77 : status;
}
