#include <fmt/format.h>
#include <re2/set.h>

#include <algorithm>
#include <iterator>

#include "checkpoint/match/expression.h"
#include "core/parallel_for.h"

namespace nvfp4::checkpoint {
namespace {

/// Size of a chunk. With larger chunks, automata grow more than the number of calls shrinks.
constexpr std::size_t kMostOfChunk = 128;
/// Memory of a chunk's program and automaton. A chunk that does not fit is split.
constexpr std::int64_t kChunkBytes = 1 << 20;

/// Names and expressions in a set are ASCII, so a byte is a character.
RE2::Options set_options() {
  RE2::Options options(RE2::Latin1);
  options.set_log_errors(false);
  options.set_max_mem(kChunkBytes);
  return options;
}

}  // namespace

struct ExpressionSet::Chunk {
  std::vector<std::size_t> members;
  std::string called;
  RE2::Set set;
};

ExpressionSet::ExpressionSet(std::span<const std::string_view> texts, Expression::Extent extent,
                             SharedBudget budget)
    : texts_(texts.begin(), texts.end()),
      extent_(extent),
      budget_(std::move(budget)),
      alone_(texts.size()) {
  std::vector<std::size_t> together;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    check_expression(texts_[i]);
    const bool alike = is_plain_text(texts_[i]) && means_the_same(texts_[i]);
    (alike ? together : others_).push_back(i);
  }
  // Compiling takes longest.
  std::vector<std::vector<Chunk>> chunks((together.size() + kMostOfChunk - 1) / kMostOfChunk);
  std::vector<std::vector<std::size_t>> others(chunks.size());
  parallel_for(static_cast<std::int64_t>(chunks.size()), [&](std::int64_t i) {
    const auto c = static_cast<std::size_t>(i);
    const std::size_t begin = c * kMostOfChunk;
    add_chunks(std::span(together).subspan(begin, std::min(kMostOfChunk, together.size() - begin)),
               chunks[c], others[c]);
  });
  for (std::vector<Chunk>& part : chunks)
    for (Chunk& chunk : part) chunks_.push_back(std::move(chunk));
  for (const std::vector<std::size_t>& part : others)
    others_.insert(others_.end(), part.begin(), part.end());
  std::ranges::sort(others_);
}

ExpressionSet::~ExpressionSet() = default;

/// Adds a chunk of `members`, or two chunks if it takes too much memory. RE2 does not support the
/// members that become `others`.
void ExpressionSet::add_chunks(std::span<const std::size_t> members, std::vector<Chunk>& chunks,
                               std::vector<std::size_t>& others) const {
  const bool whole = extent_ == Expression::Extent::whole;
  Chunk chunk{.members = {},
              .called = {},
              .set = {set_options(), whole ? RE2::ANCHOR_BOTH : RE2::ANCHOR_START}};
  for (const std::size_t i : members)
    (chunk.set.Add(texts_[i], nullptr) >= 0 ? chunk.members : others).push_back(i);
  const std::vector<std::size_t> added = chunk.members;
  if (added.empty()) return;
  if (chunk.set.Compile()) {
    chunk.called = texts_[added.front()];
    if (added.size() > 1)
      chunk.called += fmt::format(" or one of {} expressions after it", added.size() - 1);
    return chunks.push_back(std::move(chunk));
  }
  if (added.size() == 1) return others.push_back(added.front());
  const std::span<const std::size_t> all(added);
  add_chunks(all.first(all.size() / 2), chunks, others);
  add_chunks(all.subspan(all.size() / 2), chunks, others);
}

bool ExpressionSet::matches(std::size_t expression, std::string_view name) const {
  ++calls_;
  const Expression* alone = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& owned = alone_[expression];
    if (owned == nullptr)
      owned = std::make_unique<const Expression>(texts_[expression], extent_, budget_);
    alone = owned.get();
  }
  return alone->matches(name);
}

std::vector<std::size_t> ExpressionSet::matches_of(const Chunk& chunk,
                                                   std::string_view name) const {
  ++calls_;
  std::vector<int> found;
  RE2::Set::ErrorInfo error{};
  const ComputedTime time;
  const bool any = chunk.set.Match(re2::StringPiece(name.data(), name.size()), &found, &error);
  budget_->spend(time.steps(), chunk.called);
  std::vector<std::size_t> matching;
  if (any)
    for (const int place : found)
      matching.push_back(chunk.members[static_cast<std::size_t>(place)]);
  else if (error.kind != RE2::Set::kNoError)
    std::ranges::copy_if(chunk.members, std::back_inserter(matching),
                         [&](std::size_t expression) { return matches(expression, name); });
  return matching;
}

std::optional<std::size_t> ExpressionSet::first(std::string_view name, std::size_t end) const {
  std::optional<std::size_t> found;
  if (is_plain_text(name)) {
    for (const Chunk& chunk : chunks_) {
      if (found || chunk.members.front() >= end) break;
      const std::vector<std::size_t> matching = matches_of(chunk, name);
      if (!matching.empty()) found = std::ranges::min(matching);
    }
    if (found && *found >= end) found.reset();
    for (const std::size_t i : others_) {
      if (i >= found.value_or(end)) break;
      if (matches(i, name)) return i;
    }
    return found;
  }
  for (std::size_t i = 0; i < std::min(end, texts_.size()); ++i)
    if (matches(i, name)) return i;
  return std::nullopt;
}

void ExpressionSet::find_all(std::string_view name, std::vector<std::size_t>& found) const {
  const bool plain = is_plain_text(name);
  const auto find_alone = [&](std::size_t i) {
    if (matches(i, name)) found.push_back(i);
  };
  for (std::size_t i = 0; !plain && i < texts_.size(); ++i) find_alone(i);
  if (!plain) return;
  for (const Chunk& chunk : chunks_)
    for (const std::size_t i : matches_of(chunk, name)) found.push_back(i);
  std::ranges::for_each(others_, find_alone);
}

}  // namespace nvfp4::checkpoint
