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

#include "report/report.h"

/// Output for people: colors, tables, a progress bar. It is plain text if stdout is not a terminal.
namespace nvfp4::cli {

using report::human_bytes, report::human_clock, report::human_count, report::human_duration;
using report::number, report::shape_text;

/// Reports whether the stream is a terminal with escape codes.
bool is_terminal(std::FILE* stream);
/// Returns the width of lines in characters, at least 20: COLUMNS if it is set, else that of the
/// terminal, else 80.
int columns(std::FILE* stream);
/// Reports whether the locale's encoding is UTF-8.
bool utf8();

/// Writes to stdout. A closed pipe is not an error; anything else throws IoError.
void print(std::string_view text);
/// Writes to stderr at once. An error is ignored, so that it does not end the work.
void say(std::string_view text);
/// The colors of a stream. There are none unless it is a terminal and NO_COLOR is unset or empty.
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

/// Returns text of a file that is safe to print: as printable(), but never cut.
std::string clean(std::string_view text);
/// Returns the number of columns of `text` without escape codes. A wide character, such as a
/// Chinese one, has two.
std::size_t display_width(std::string_view text);
/// Shortens `text` to at most `width` columns by omitting its middle. `text` has no escape codes.
std::string shorten(std::string_view text, std::size_t width);
/// Returns lines of at most `width` columns, broken at spaces. Words in single quotes, such as a
/// command to copy, stay together.
std::vector<std::string> wrap_words(std::string_view text, std::size_t width);
/// Returns the text with lines that fit a terminal, or COLUMNS. Broken lines keep their
/// indentation. The text stays if the stream is neither.
std::string wrapped(std::FILE* stream, std::string_view text);

/// Returns "→" or "->".
std::string arrow();

/// A table with columns as wide as their widest cell and two spaces between them. If the terminal
/// is narrower, names are shortened, or the last column is wrapped, or the table becomes a list.
class Table {
 public:
  /// Creates a table with one letter for each column: 'l', 'r', or 's' for names on the left that
  /// may be shortened. Each line starts with `indent` spaces.
  explicit Table(std::string_view alignment, std::size_t indent = 2)
      : alignment_(alignment), indent_(indent) {}
  /// Adds the titles of the columns, which the rows below it have.
  void title(std::vector<std::string> cells) {
    for (std::string& cell : cells) cell = Style(stdout).dim(cell);
    add(std::move(cells));
    titled_ = rows_.size();
  }
  /// Adds a row of a name and its value.
  void fact(std::string_view name, std::string value) {
    add({Style(stdout).dim(std::string(name)), std::move(value)});
  }
  void add(std::vector<std::string> cells) { rows_.push_back({std::move(cells), false}); }
  /// Adds a row that stays on one line, such as a command to copy.
  void add_line(std::vector<std::string> cells) { rows_.push_back({std::move(cells), true}); }
  std::string text() const { return text(static_cast<std::size_t>(columns(stdout))); }
  /// Returns the table for a terminal with this number of columns.
  std::string text(std::size_t limit) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    bool one_line;
  };
  std::vector<std::size_t> widths() const;
  std::size_t width_before_last() const;
  std::string lines(std::size_t last_width) const;
  std::string list(std::size_t limit) const;

  std::string alignment_;
  std::size_t indent_;
  std::vector<Row> rows_;
  std::size_t titled_ = 0;  ///< number of rows up to the titles
};

/// Progress on stderr. On a terminal it is a line that fits the width and appears after 0.2 s.
/// Elsewhere it is a line of text each minute.
class ProgressBar {
 public:
  ProgressBar(std::string_view verb, bool quiet,
              std::chrono::milliseconds between_lines = std::chrono::minutes(1));
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(const Progress& p);
  /// Returns the function that receives the progress, or none if quiet.
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
  bool over_ = false;             ///< true at the end of the work; protected by mutex_
  std::optional<Progress> last_;  ///< none before the work starts
  std::deque<std::pair<Clock::time_point, std::uint64_t>> window_;  ///< values of the last seconds
  std::jthread painter_;  ///< last member, because it uses the others
};

}  // namespace nvfp4::cli
