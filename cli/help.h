#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace nvfp4::cli {

/// A formatter for help in 80 columns: summary, usage, arguments, options, an example.
class HelpFormatter : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace nvfp4::cli
