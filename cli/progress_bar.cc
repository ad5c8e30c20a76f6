#include <fmt/format.h>

#include <algorithm>

#include "terminal.h"

namespace nvfp4::cli {
namespace {

using namespace std::chrono_literals;

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

double fraction_of(const Progress& p) {
  return p.bytes_total == 0
             ? 1
             : static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total);
}

/// Returns the current tensor without the parts that most names share.
std::string current_tensor(const Progress& p) {
  const std::string_view name = p.tensor;
  return clean(name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name);
}

/// Returns the non-empty facts with two spaces between them.
std::string spaced(const std::vector<std::string>& facts) {
  std::string text;
  for (const std::string& fact : facts)
    if (!fact.empty()) text += (text.empty() ? "" : "  ") + fact;
  return text;
}

}  // namespace

ProgressBar::ProgressBar(std::string_view verb, bool quiet, std::chrono::milliseconds between_lines)
    : verb_(verb),
      quiet_(quiet),
      terminal_(is_terminal(stderr)),
      between_lines_(between_lines),
      style_(stderr) {
  window_.emplace_back(Clock::now(), 0);
  if (!quiet_) painter_ = std::jthread([this] { run(); });
}

ProgressBar::~ProgressBar() {
  if (!painter_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ends_.notify_all();
  painter_.join();
  if (drawn_) say("\r\x1b[K");
}

std::function<void(const Progress&)> ProgressBar::callback() {
  if (quiet_) return {};
  return [this](const Progress& p) { update(p); };
}

void ProgressBar::run() {
  std::unique_lock lock(mutex_);
  auto wait = terminal_ ? 200ms : between_lines_;
  // There is no stop token: with mingw's library a wait with one never wakes up.
  while (!ends_.wait_for(lock, wait, [this] { return over_; })) {
    note(Clock::now());
    if (terminal_)
      draw_bar();
    else
      draw_line();
    if (terminal_) wait = 100ms;
  }
}

void ProgressBar::update(const Progress& p) {
  const std::lock_guard lock(mutex_);
  last_ = p;
}

void ProgressBar::note(Clock::time_point now) {
  if (!last_) return;
  last_fraction_ = fraction_of(*last_);
  window_.emplace_back(now, last_->bytes_done);
  while (window_.size() > 2 && now - window_.front().first > 10s) window_.pop_front();
}

/// Returns the finished share, the tensors, the speed and the remaining time.
std::vector<std::string> ProgressBar::facts() const {
  if (!last_) return {"reading the input", "", "", ""};
  const double rate =
      static_cast<double>(last_->bytes_done - std::min(last_->bytes_done, window_.front().second)) /
      seconds(window_.back().first - window_.front().first);
  return {fmt::format("{:.0f} %", 100 * last_fraction_),
          fmt::format("{}/{} tensors", last_->tensors_done, last_->tensors_total),
          fmt::format("{:.2f} GB/s", rate / 1e9),
          rate > 0
              ? human_clock(static_cast<double>(last_->bytes_total - last_->bytes_done) / rate) +
                    " left"
              : ""};
}

void ProgressBar::draw_line() {
  std::vector<std::string> shown = facts();
  if (last_) shown.push_back(current_tensor(*last_));
  say(fmt::format("{}: {}\n", verb_, spaced(shown)));
}

void ProgressBar::draw_bar() {
  drawn_ = true;
  std::vector<std::string> shown = facts();
  shown[0] = fmt::format("{:>5}", shown[0]);  // constant width, so that the line does not move
  // The last column stays free: some terminals continue on the next line there.
  const auto width = static_cast<std::size_t>(columns(stderr)) - 1;
  const auto taken = [&] { return verb_.size() + 2 + display_width(spaced(shown)); };
  for (const std::size_t dispensable : {2, 1, 3})
    if (taken() > width) shown[dispensable].clear();
  std::string bar, tensor;
  // The width is the same for every name, so that the bar does not move.
  constexpr std::size_t kName = 36, kShortest = 12, kBar = 6;
  if (const std::size_t used = taken() + kBar + 4; last_ && used + kShortest <= width) {
    const std::size_t field = std::min(kName, width - used);
    const std::string name = shorten(current_tensor(*last_), field);
    tensor = style_.dim("  " + name + std::string(field - display_width(name), ' '));
  }
  if (last_ && taken() + 10 <= width) {
    const auto room = static_cast<double>(width - taken() - 2 - display_width(tensor));
    const auto full = static_cast<int>(last_fraction_ * room);
    for (int i = 0; i < full; ++i) bar += utf8() ? "━" : "=";
    std::string rest;
    for (int i = full; i < static_cast<int>(room); ++i) rest += utf8() ? "─" : "-";
    bar = style_.green(bar) + style_.dim(rest) + "  ";
  }
  const bool named = taken() <= width;
  say(fmt::format("\r{}{}{}{}\x1b[K", named ? style_.bold(verb_) + "  " : "", bar,
                  shorten(spaced(shown), width), tensor));
}

}  // namespace nvfp4::cli
