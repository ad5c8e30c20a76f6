#include "checkpoint/safetensors/apart.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "checkpoint/base/error_codes.h"
#include "checkpoint/io/posix_file.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4 {
namespace {

namespace fs = std::filesystem;

/// A path that is resolved by the file system: the nearest part that exists, the folders that
/// contain it, and the rest, which does not exist yet.
class Place {
 public:
  explicit Place(const UsedPath& used) : used_(&used) {
    std::error_code error;
    fs::path at = fs::weakly_canonical(fs::absolute(used.path, error), error);
    if (error) at = fs::absolute(used.path, error).lexically_normal();
    if (!at.has_filename()) at = at.parent_path();
    for (;; at = at.parent_path()) {
      if (const auto status = platform::status_of(at))
        around_.emplace_back(status->volume, status->number);
      else if (around_.empty())
        rest_ = rest_.empty() ? at.filename() : at.filename() / rest_;
      if (!at.has_relative_path()) break;
    }
  }

  bool exists() const { return rest_.empty() && !around_.empty(); }
  std::string name() const { return used_->name + " " + printable(used_->path.string(), 4096); }
  const std::string& word() const { return used_->name; }

  /// Reports whether `inner` is this place or lies below it.
  bool holds(const Place& inner) const {
    if (around_.empty()) return false;
    const auto at = std::ranges::find(inner.around_, around_.front());
    if (at == inner.around_.end()) return false;
    if (rest_.empty()) return true;
    return at == inner.around_.begin() &&
           std::ranges::mismatch(rest_, inner.rest_).in1 == rest_.end();
  }

 private:
  const UsedPath* used_;
  /// Volume and file number of the part that exists and of the folders that contain it, in order.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> around_;
  fs::path rest_;
};

/// Adds the configurations in the folder of a safetensors file, and the links to files in a folder.
void add_parts(std::vector<UsedPath>& reads) {
  const std::size_t given = reads.size();
  for (std::size_t i = 0; i < given; ++i) {
    const UsedPath read = reads[i];
    std::error_code error, ignored;
    if (fs::is_regular_file(read.path, ignored) && read.path.extension() == ".safetensors")
      for (const char* beside :
           {"config.json", "hf_quant_config.json", "model.safetensors.index.json"})
        reads.push_back({read.name, read.path.parent_path() / beside});
    if (!fs::is_directory(read.path, ignored)) continue;
    constexpr auto kSkip = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator entry(read.path, kSkip, error), end;
         !error && entry != end; entry.increment(error))
      if (entry->is_symlink() && fs::is_regular_file(entry->path(), ignored))
        reads.push_back({read.name, entry->path()});
  }
}

void add_partials(std::vector<UsedPath>& writes) {
  const std::size_t given = writes.size();
  std::error_code ignored;
  for (std::size_t i = 0; i < given; ++i)
    if (!fs::is_directory(writes[i].path, ignored))
      writes.push_back({writes[i].name, partial_path(writes[i].path)});
}

template <class... Values>
void require_place(bool ok, const Place& written, fmt::format_string<Values...> text,
                   Values&&... values) {
  if (ok) return;
  OptionsError error(fmt::format(text, std::forward<Values>(values)...),
                     ErrorCode::output_in_input);
  error.option = written.word();
  throw error;
}

}  // namespace

void require_apart(std::vector<UsedPath> reads, std::vector<UsedPath> writes) {
  for (std::vector<UsedPath>* list : {&reads, &writes})
    std::erase_if(*list, [](const UsedPath& used) { return used.path.empty(); });
  add_parts(reads);
  add_partials(writes);
  const std::vector<Place> read(reads.begin(), reads.end()), written(writes.begin(), writes.end());
  for (const Place& to : written) {
    for (const Place& from : read) {
      if (!from.exists()) continue;
      const bool outer = to.holds(from), inner = from.holds(to);
      require_place(!outer || !inner, to, "{} is {}, must be another", to.name(), from.name());
      require_place(!inner, to, "{} is inside {}, must be apart: what is read is never changed",
                    to.name(), from.name());
      require_place(!outer, to, "{} is inside {}, must be apart: it would be removed or replaced",
                    from.name(), to.name());
    }
    for (const Place& other : written)
      require_place(&other == &to || !to.holds(other), to,
                    "{} is inside {}, must be apart: both are written", other.name(), to.name());
  }
}

}  // namespace nvfp4
