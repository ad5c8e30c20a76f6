#pragma once

#include <set>
#include <string>

#include "nvfp4/checkpoint/verify.h"

/// Functions that compare the findings of reports.
namespace nvfp4 {

inline std::set<std::string> codes_of(const VerifyReport& report) {
  std::set<std::string> codes;
  for (const Finding& f : report.findings) codes.insert(f.code);
  return codes;
}

inline std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const Finding& f : report.findings) text += f.code + ": " + f.text + "\n";
  return text;
}

}  // namespace nvfp4
