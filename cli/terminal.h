#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "nvfp4/report.h"

/// What people see: colours, tables, a progress bar. Plain text when it goes elsewhere.
namespace nvfp4::cli {

using report::human_bytes, report::human_clock, report::human_count, report::human_duration;
using report::number, report::shape_text;

/// A terminal that understands escape codes.
bool is_terminal(std::FILE* stream);
/// Of the terminal behind `stream`, at least 20; 80 if there is none.
int columns(std::FILE* stream);
/// Whether the locale's encoding is UTF-8.
bool utf8();

/// Writes to stdout. A closed pipe is not an error; anything else throws IoError.
void print(std::string_view text);
/// Writes to stderr, at once. What cannot be written is left out: no work ends for that.
void say(std::string_view text);
/// Colours for one stream: none unless it is a terminal and NO_COLOR is unset or empty.
class Style {
 public:
  explicit Style(std::FILE* stream);
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string yellow(std::string_view text) const { return wrap("33", text); }
  std::string cyan(std::string_view text) const { return wrap("36", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  bool on_;
};

/// Text from a file, safe to show: printable(), but never cut.
std::string clean(std::string_view text);
/// Columns that `text` takes: code points, escape codes not counted.
std::size_t display_width(std::string_view text);
/// At most `width` columns of it, the middle left out. `text` has no escape codes.
std::string shorten(std::string_view text, std::size_t width);
/// Lines of at most `width` columns, broken at spaces.
std::vector<std::string> wrap_words(std::string_view text, std::size_t width);

std::string arrow();  ///< "→" or "->"

/// Columns as wide as their widest cell, two spaces between them.
class Table {
 public:
  /// One letter for each column: 'l' or 'r'. `indent` spaces before each line.
  explicit Table(std::string_view alignment, std::size_t indent = 2)
      : alignment_(alignment), indent_(indent) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Columns of the longest line, and where the last column starts.
  std::size_t width() const { return width_before_last() + widths().back(); }
  std::size_t width_before_last() const;
  std::string text() const;

 private:
  std::vector<std::size_t> widths() const;
  std::string alignment_;
  std::size_t indent_;
  std::vector<std::vector<std::string>> rows_;
};

/// Shows progress on stderr: on a terminal a line that is there after a fifth of a second and fits
/// the width, whatever the work says of itself; else a line of text each minute.
class ProgressBar {
 public:
  ProgressBar(std::string_view verb, bool quiet,
              std::chrono::milliseconds between_lines = std::chrono::minutes(1));
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const Progress& p);
  /// Empty if quiet.
  std::function<void(const Progress&)> callback();

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void note(Clock::time_point now);
  std::vector<std::string> facts() const;
  void draw_line();
  void draw_bar();

  std::string verb_;
  bool quiet_, terminal_, drawn_ = false;
  std::chrono::milliseconds between_lines_;
  Style style_;
  double last_fraction_ = 0;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool over_ = false;             ///< the work, under mutex_
  std::optional<Progress> last_;  ///< none before the work has begun
  std::deque<std::pair<Clock::time_point, std::uint64_t>> window_;  ///< of the last seconds
  std::jthread painter_;  ///< the last member: it uses the others
};

}  // namespace nvfp4::cli
