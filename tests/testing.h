#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/temp_dir.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"

/// The headers and helpers of nearly every test.
namespace nvfp4 {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

/// Expects that call() throws E with a one-line message that holds each of `parts`.
template <class E, class Call>
void expect_error(Call call, std::initializer_list<std::string_view> parts) {
  try {
    call();
  } catch (const E& error) {
    const std::string message = error.what();
    for (const std::string_view part : parts)
      EXPECT_NE(message.find(part), message.npos) << "no '" << part << "' in: " << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return;
  } catch (const std::exception& error) {
    FAIL() << "another error: " << error.what();
  }
  FAIL() << "no error";
}

}  // namespace nvfp4
