#pragma once

#include <cstdint>
#include <string>

#include "nvfp4/report.h"

/// Pieces of the page that its sections share.
namespace nvfp4::report {

/// A measure with its unit; what is not a number stands out.
std::string measure(double x, const char* format, const char* unit);
std::string percent(double x);
std::string decibels(double x);
std::string share(std::uint64_t n, double total);
/// Wide tables scroll by themselves, with the keyboard, too.
std::string scrolling(const char* label, const std::string& table);
std::string details(const std::string& summary, const std::string& body);

/// b and what it stands beside, kind by kind, and the tensors in which they differ most. Empty if
/// it stands alone.
std::string side_by_side(const PageInput& in);

}  // namespace nvfp4::report
