#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace nvfp4 {

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
