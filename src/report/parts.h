#pragma once

#include <cstdint>
#include <string>

#include "report/report.h"

/// Parts of the page that its sections share.
namespace nvfp4::report {

/// The reason why output errors come first.
inline constexpr const char* kWhyOutputs =
    "The error of the layers’ outputs over the calibration text counts. weighted and gptq lower "
    "it; errors of weights whose inputs are small or alike become larger. In large layers the "
    "output error is estimated from evenly spaced rows of the weight, at least 32.";

/// Returns a number with its unit. NaN and infinity are highlighted.
std::string measure(double x, const char* format, const char* unit);
std::string percent(double x);
std::string decibels(double x);
std::string share(std::uint64_t n, double total);
/// Returns a wide table that scrolls by itself, also with the keyboard.
std::string scrolling(const char* label, const std::string& table);
std::string details(const std::string& summary, const std::string& body);

/// Returns the comparison of b with the other checkpoint by kind, and the tensors with the largest
/// differences. It is "" without one.
std::string side_by_side(const PageInput& in);

}  // namespace nvfp4::report
