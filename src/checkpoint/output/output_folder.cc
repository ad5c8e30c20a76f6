#include "checkpoint/output/output_folder.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "checkpoint/io/posix_file.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/safetensors/folder_names.h"
#include "checkpoint/source/content.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns the newest modification time, in ns, of the input files of a shard.
std::int64_t newest_input_of(const Plan& plan, const PlannedShard& shard) {
  std::int64_t newest = 0;
  for (std::size_t t = shard.first_tensor; t < shard.first_tensor + shard.tensors; ++t)
    newest = std::max(newest, plan.tensors[t].source->data.file->modified_ns());
  return newest;
}

/// Returns the text of a file, or none if it is not there. Another rank may remove it meanwhile.
std::optional<std::string> text_if_there(const fs::path& path) {
  if (!fs::exists(path)) return {};
  try {
    return read_model_text(path);
  } catch (const IoError&) {
    if (fs::exists(path)) throw;
    return {};
  }
}

/// Returns the list of files, which is empty without one.
WrittenFiles list_of(const fs::path& folder) try {
  return read_written_files(folder).value_or(WrittenFiles());
} catch (const FormatError& e) {
  throw FormatError(fmt::format("{}; hint: --overwrite replaces the output", e.what()));
}

/// Throws IoError unless a folder can be created at the path.
void require_place_of(const fs::path& path) {
  fs::path parent = fs::absolute(path).parent_path();
  std::error_code ignored;  // below a file nothing exists
  while (!fs::exists(parent, ignored) && parent.has_relative_path()) parent = parent.parent_path();
  require<IoError>(fs::is_directory(parent), ErrorCode::not_a_folder,
                   "{}: is a file, must be a folder", parent.string());
  if (!platform::may_write_in(parent)) throw_io_error(parent, "create a folder in", errno);
}

}  // namespace

OutputFolder::OutputFolder(const ModelFolder& model, const Plan& plan,
                           const TransformOptions& options)
    : Output(plan.shards.size()),
      model_(model),
      plan_(plan),
      options_(options),
      path_(options.output),
      files_(files_of_output(model, plan)),
      journal_(model, options, plan, files_),
      resume_(options.resume),
      overwrite_(options.overwrite),
      rank_(options.rank),
      ranks_(options.ranks),
      rank_of_(rank_of_shards(plan, ranks_)),
      rank_files_(path_, rank_, ranks_) {
  for (std::size_t s = 0; s < done_.size(); ++s) {
    done_[s] = is_of_another_rank(s);
    if (!done_[s]) own_.insert(plan.shards[s].file);
  }
  if (ranks_ > 1) partial_tag_.emplace(path_);
}

OutputFolder::~OutputFolder() {
  if (ranks_ > 1 || !started_empty_ || any_shard_ || finished_) return;
  std::error_code ignored;
  fs::remove(path_ / kJournalName, ignored);
  for (const fs::path& folder : created_) fs::remove(folder, ignored);  // only if it is empty
}

void OutputFolder::check() {
  require_no_dangling_link(path_);
  Start start = Start::fresh;
  if (fs::exists(path_)) {
    require<IoError>(fs::is_directory(path_), ErrorCode::not_a_folder,
                     "{}: is a file, must be a folder", path_.string());
    lock();
    start = decide();
    if (start == Start::go_on) find_finished_shards();
  } else {
    require_place_of(path_);
  }
  const std::string lack = lack_of_room(start);
  if (!lack.empty()) warnings_.push_back(path_.string() + ": " + lack);
}

void OutputFolder::create() {
  require_no_dangling_link(path_);
  const bool exists = fs::exists(path_);
  require<IoError>(!exists || fs::is_directory(path_), ErrorCode::not_a_folder,
                   "{}: is a file, must be a folder", path_.string());
  if (exists) return;
  require_place_of(path_);
  fs::path folder = fs::absolute(path_);
  if (!folder.has_filename()) folder = folder.parent_path();
  for (; !fs::exists(folder); folder = folder.parent_path()) created_.push_back(folder);
  started_empty_ = true;  // so that the folders are removed if creating one fails
  fs::create_directories(path_);
  for (const fs::path& made : created_) sync_folder(made.parent_path());
}

void OutputFolder::open() {
  create();
  lock();
  Start start = decide();
  if (ranks_ > 1 && start != Start::complete) {
    require<IoError>(rank_lock_.take(rank_files_.lock()),
                     "{}: rank {} of {} is another process, which writes to it already",
                     path_.string(), rank_, ranks_);
    start = decide();  // the process before may have written meanwhile
    if (start == Start::fresh) {
      rank_files_.create(path_ / kJournalName, journal_.text());
      start = decide();  // the journal may be another rank's, with other options
    }
  }
  if (start == Start::go_on) find_finished_shards();
  for (std::size_t s = 0; s < done_.size(); ++s) reused_ += done_[s] && !is_of_another_rank(s);
  complete_ = start == Start::complete;
  if (complete_) return remove_rank_files();
  if (start == Start::go_on) remove_leftovers(own_);
  const std::string lack = lack_of_room(start);
  require<IoError>(lack.empty(), ErrorCode::disk_full, "{}: {}", path_.string(), lack);
  if (start == Start::clear) clear_old_output();
  if (ranks_ == 1) {  // so that a resumed run can tell these files from others
    for (auto& [name, written] : files_) written = planned_file(model_, plan_, name);
    journal_.add_files(files_);
  }
  journal_.save(rank_files_.record(), own_);
  if (start == Start::finish_again) remove_leftovers(own_);
}

/// Returns how the process must start in the existing folder, and reads the journal. Other ranks
/// may change the folder meanwhile.
OutputFolder::Start OutputFolder::decide() {
  const fs::path journal = path_ / kJournalName;
  const bool joins = resume_ || ranks_ > 1;
  const auto planned = [this](const auto& name) { return planned_file(model_, plan_, name); };
  for (;;) {
    std::vector<fs::path> entries = entries_of(path_);
    // A run that was killed while it wrote the first journal leaves only a part of it.
    std::erase_if(entries, [&](const fs::path& entry) {
      return (ranks_ > 1 && RankFiles::is_one(entry.string())) ||
             (joins && entry == partial_path(kJournalName));
    });
    started_empty_ = entries.empty();
    if (started_empty_) return Start::fresh;
    require<IoError>(joins || overwrite_, ErrorCode::output_not_empty,
                     "{}: holds {}, must be empty; hint: name a new folder; --overwrite replaces a "
                     "model, --resume continues an interrupted run",
                     path_.string(), entries.back().string());
    require_own_folders();
    const std::optional<std::string> text = overwrite_ ? std::nullopt : text_if_there(journal);
    if (overwrite_ || (text && Journal::is_clearing(*text, journal.string()))) {
      require<IoError>(ranks_ == 1,
                       "{}: --overwrite was interrupted there; hint: remove it before ranks start",
                       path_.string());
      old_ = content_to_replace(path_, files_, planned);
      for (std::string& warning : warnings_of(path_, old_)) warn(std::move(warning));
      return Start::clear;
    }
    if (!text && fs::exists(journal)) continue;  // another rank has just created it
    if (!text) return decide_without_journal(entries.back().string());
    journal_.resume(*text, journal.string());
    const WrittenFiles list = list_of(path_);
    require_own_cards(path_, {list, journal_.files()}, files_, model_.root);
    if (ranks_ == 1)
      for (std::string& warning :
           warnings_of_edits(path_, {list, journal_.files()}, files_, planned))
        warn(std::move(warning));
    return Start::go_on;
  }
}

/// Returns how the process must start in a folder that a run of these options has finished; it
/// holds `entry`. Throws ValueError if the files are of another run or older than their input. One
/// process writes the files beside the shards again where needed. Ranks do not: they throw IoError.
OutputFolder::Start OutputFolder::decide_without_journal(const std::string& entry) {
  const std::string difference = difference_from_plan(plan_, path_);
  const bool rest = difference.empty() && rest_is_complete();
  require<IoError>(ranks_ == 1 || rest, ErrorCode::output_not_empty,
                   "{}: holds {}, must be empty, or hold what ranks of these options write{}{}",
                   path_.string(), entry, difference.empty() ? "" : "; ", difference);
  require_same(difference, path_);
  std::fill(done_.begin(), done_.end(), true);
  any_shard_ = true;
  for (const PlannedShard& shard : plan_.shards)
    if (const fs::path path = path_ / shard.file;
        newest_input_of(plan_, shard) > InputFile(path).modified_ns())
      require_same("is older than its input", path);
  return !has_changed() && rest ? Start::complete : Start::finish_again;
}

/// Throws ValueError unless `difference`, between `path` and what this run would write, is empty.
void OutputFolder::require_same(const std::string& difference, const fs::path& path) {
  require<ValueError>(difference.empty(), ErrorCode::output_differs,
                      "{}: {}, so --resume cannot continue; hint: --overwrite replaces it",
                      path.string(), difference);
}

/// Adds the records of all ranks to the journal, and marks the shards of this rank that are
/// finished.
void OutputFolder::find_finished_shards() {
  take_records();
  const std::vector<char> recorded = recorded_shards(/*whole=*/true);
  for (std::size_t s = 0; s < done_.size(); ++s) {
    done_[s] = is_of_another_rank(s) || recorded[s];
    any_shard_ |= recorded[s];
  }
}

/// Adds the records of all ranks to the journal.
void OutputFolder::take_records() {
  for (const fs::path& record : rank_files_.records())
    if (const auto text = text_if_there(record)) journal_.resume(*text, record.string());
}

/// Returns 1 for each shard whose file is the recorded one. `whole`: only those of this rank, and
/// compares all bytes.
std::vector<char> OutputFolder::recorded_shards(bool whole) const {
  std::vector<char> recorded(plan_.shards.size());
  read_together(recorded.size(), [&](std::size_t s) {
    recorded[s] = (!whole || !is_of_another_rank(s)) &&
                  journal_.is_recorded(plan_.shards[s], path_ / plan_.shards[s].file, whole);
  });
  return recorded;
}

bool OutputFolder::is_last() {
  if (ranks_ == 1) return true;
  const fs::path journal = path_ / kJournalName;
  if (!fs::exists(journal)) {  // another process with this rank was faster
    if (rest_is_complete()) remove_rank_files();
    return false;
  }
  // Each rank checks after it has recorded its own shards, so the last one finds all records.
  take_records();
  // Shards are opened only when all have records: opening takes a read for each tensor.
  if (!std::ranges::all_of(plan_.shards, [&](const auto& s) { return journal_.names(s); }) ||
      std::ranges::count(recorded_shards(/*whole=*/false), 0) > 0)
    return false;
  if (!finish_lock_.take(rank_files_.finish_lock())) return false;
  if (!fs::exists(journal)) {  // another rank has finished meanwhile
    fs::remove(rank_files_.finish_lock());
    return false;
  }
  std::set<std::string> all;
  for (const PlannedShard& shard : plan_.shards) all.insert(shard.file);
  journal_.save(journal, all);  // those of the ranks may be removed now
  remove_leftovers(all);
  return true;
}

/// Removes the ranks' files from a complete output. The process that removed the journal may have
/// died before it removed them, or a late rank may have written them again.
void OutputFolder::remove_rank_files() const {
  rank_files_.remove_records();
  rank_files_.remove_locks();
}

/// Compares this rank's shards with their hashes in the folder's list, and one process also the
/// other files. Reports whether one of those differs, with a warning. Throws ValueError for a shard
/// that differs or has no hash.
bool OutputFolder::has_changed() {
  const WrittenFiles list = list_of(path_);
  std::set<std::string_view> shards;
  for (std::size_t s = 0; s < plan_.shards.size(); ++s) {
    const std::string& name = plan_.shards[s].file;
    shards.insert(name);
    if (is_of_another_rank(s)) continue;
    const auto entry = list.find(name);
    require_same(entry == list.end() || entry->second.hash.empty()
                     ? fmt::format("has no hash in {}", kFilesName)
                     : difference_from(entry->second, path_ / name),
                 path_ / name);
  }
  if (ranks_ == 1) require_own_cards(path_, {list}, files_, model_.root);
  bool changed = false;
  for (const auto& [name, written] : list) {
    if (shards.contains(name) || ranks_ > 1 || (is_card_name(name) && !files_.contains(name)))
      continue;
    const std::string difference = difference_from(written, path_ / name);
    if (difference.empty()) continue;
    changed = true;
    if (files_.contains(name))
      warn(fmt::format("{}: {}; it is written again", (path_ / name).string(), difference));
  }
  return changed;
}

/// Adds a warning, unless check() has added it.
void OutputFolder::warn(std::string text) {
  if (std::ranges::find(warnings_, text) == warnings_.end()) warnings_.push_back(std::move(text));
}

/// Reports whether all files other than the shards are those that this run would write.
bool OutputFolder::rest_is_complete() const {
  const auto holds = [&](const std::string& name) {
    const std::string text = text_of_file(plan_, name);
    return text.empty() ||
           (fs::is_regular_file(path_ / name) && read_model_text(path_ / name) == text);
  };
  const WrittenFiles list = list_of(path_);
  const auto is_carried = [&](const fs::path& other) {
    const auto entry = list.find(other.generic_string());
    return entry != list.end() && difference_from(entry->second, model_.root / other).empty();
  };
  const auto is_output = [&](const auto& file) {
    return fs::is_regular_file(path_ / file.first) &&
           (files_.contains(file.first) || is_card_name(file.first));
  };
  return !list.empty() && std::ranges::all_of(list, is_output) && holds("config.json") &&
         holds("hf_quant_config.json") && holds(kParamsName) && holds(plan_.index_name) &&
         std::ranges::all_of(model_.others, is_carried);
}

/// Locks the folder: one process against all others, ranks against a process without them. The
/// locks between ranks are files.
void OutputFolder::lock() {
  lock_ = platform::open(path_, platform::Open::folder);
  if (lock_.get() < 0) throw_io_error(path_, "open", errno);
  // File systems without locks report other errors. Two runs are then possible.
  const bool busy =
      !platform::lock_folder(lock_.get(), /*shared=*/ranks_ > 1) && errno == EWOULDBLOCK;
  if (busy) started_empty_ = false;  // nothing of the other process may be removed
  require<IoError>(!busy, ErrorCode::output_busy, "{}: another process is writing to it",
                   path_.string());
}

/// Returns why the shards and carried files that this run must still write do not fit on the disk.
/// Files that the run removes first count as free space.
std::string OutputFolder::lack_of_room(Start start) const {
  std::uint64_t bytes = 0, freed = 0;
  for (const PlannedTensor& t : plan_.tensors)
    if (!done_[t.shard]) bytes += t.bytes_after;
  for (const fs::path& other : model_.others) {
    const auto from = platform::status_of(model_.root / other);
    const auto to = platform::status_of(path_ / other);
    if (from && (!to || to->bytes != from->bytes)) bytes += from->allocated;
  }
  const auto add_file = [&](const fs::path& path) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (!error) freed += size;
  };
  if (start == Start::clear)
    for (const fs::path& path : old_.own) add_file(path_ / path);
  if (start == Start::go_on && ranks_ == 1)
    for (const fs::path& name : entries_of(path_))
      if (name.extension() == ".partial") add_file(path_ / name);
  return nvfp4::lack_of_room(path_, bytes, freed);
}

void OutputFolder::clear_old_output() {
  // The journal, which marks the folder as incomplete, is written before any file is removed.
  std::erase(old_.own, fs::path(kJournalName));
  Journal::save_clearing(path_, old_.own);
  remove_own_files(path_, old_.own);
  sync_folder(path_);
}

/// Removes unfinished files of these shards. If they are all shards, also of the other files.
void OutputFolder::remove_leftovers(const std::set<std::string>& shards) const {
  std::map<fs::path, std::set<std::string>> names = {{"", shards}};
  if (shards.size() == plan_.shards.size()) {
    names[""].insert({kJournalName, kFilesName, kCardNames[0], kCardNames[1]});
    for (const auto& [path, written] : files_)
      names[fs::path(path).parent_path()].insert(fs::path(path).filename().string());
  }
  for (const auto& [folder, files] : names)
    if (fs::is_directory(path_ / folder)) remove_partials(path_ / folder, files);
}

/// Throws IoError if a folder of carried files is a link out of the output. Its files would be
/// written to the link's target, for example into the input.
void OutputFolder::require_own_folders() const {
  const fs::path whole = fs::canonical(path_);
  for (const fs::path& parent : folders_of_others()) {
    const fs::path folder = path_ / parent;
    require<IoError>(is_below(fs::weakly_canonical(folder), whole),
                     "{}: leads out of the output folder, must be a folder in it", folder.string());
  }
}

/// Returns the folders of the carried files, relative to the model.
std::set<fs::path> OutputFolder::folders_of_others() const {
  std::set<fs::path> folders;
  for (const fs::path& other : model_.others) folders.insert(other.parent_path());
  return folders;
}

void OutputFolder::before_commit(std::size_t shard, ShardWriter& writer,
                                 const std::vector<Outcome>& errors) {
  const PlannedShard& whole = plan_.shards[shard];
  journal_.record(whole, partial_path(path_ / whole.file), hash_text(writer.hash()), errors);
  journal_.append(whole, rank_files_.record());
  any_shard_ = true;
}

/// Adds the card to the list of files. Returns its name if it must be written: no card is replaced
/// that the input has, or that somebody else wrote or edited. `before`: the list in the folder.
std::string OutputFolder::place_of_card(const std::string& card, const WrittenFiles& before,
                                        bool whole, QuantizeReport& report) {
  if (card.empty()) return {};
  const WrittenFile written = written_text(card);
  for (const char* name : kCardNames) {
    if (files_.contains(name)) continue;  // carried
    const bool there = fs::exists(fs::symlink_status(path_ / name));
    const auto listed = before.find(name);
    const bool is_listed = listed != before.end();
    if (there && !is_listed && !is_as_written(written, path_ / name)) continue;
    report.card = name;
    const bool stays =
        there && is_listed && (!whole || !is_as_written(listed->second, path_ / name));
    files_[name] = stays ? listed->second : written;
    return stays ? std::string() : name;
  }
  report.warnings.push_back(fmt::format("no model card is written: {} and {} are there already",
                                        kCardNames[0], kCardNames[1]));
  return {};
}

std::unique_ptr<ShardWriter> OutputFolder::open_shard(std::size_t shard) const {
  return safetensors_shard(plan_.shards[shard], path_ / plan_.shards[shard].file);
}

/// Writes the list of the output's files. `before`: the list that it replaces.
void OutputFolder::save_list(const WrittenFiles& before) {
  for (const PlannedShard& shard : plan_.shards) {
    WrittenFile& written = files_[shard.file] = journal_.written(shard);
    // A finished output has no journal, and its list was compared with the shards.
    if (const auto old = before.find(shard.file); written.hash.empty() && old != before.end())
      written = old->second;
  }
  for (auto& [path, written] : files_)
    if (path == "config.json")
      written = written_text(plan_.config_json);
    else if (written.hash.empty())
      written = written_file(path_ / path);
  save_written_files(path_, files_);
}

void OutputFolder::finish(QuantizeReport& report, bool whole) {
  const std::string card = model_card(model_, plan_, options_, report);
  const std::set<fs::path> folders = folders_of_others();
  for (const fs::path& folder : folders) fs::create_directories(path_ / folder);
  for (const fs::path& other : model_.others)
    report.carried_bytes += carry_file(model_.root / other, path_ / other);
  // One wait for all copies is faster than a wait for each.
  sync_files(path_, model_.others);
  for (const fs::path& folder : folders) sync_folder(path_ / folder);
  report.carried_files = static_cast<std::int64_t>(model_.others.size());
  for (const std::string& name :
       {std::string("hf_quant_config.json"), std::string(kParamsName), plan_.index_name})
    if (const std::string text = text_of_file(plan_, name); !text.empty())
      safetensors::write_file_atomically(path_ / name, text);
  const WrittenFiles before = read_written_files(path_).value_or(WrittenFiles());
  WrittenFiles old = journal_.files();
  for (const auto& [name, written] : before)
    if (!written.hash.empty()) old[name] = written;
  std::ranges::copy(remove_stale(path_, old, files_), std::back_inserter(report.warnings));
  const std::string name_of_card = place_of_card(card, before, whole, report);
  save_list(before);
  if (!name_of_card.empty()) safetensors::write_file_atomically(path_ / name_of_card, card);
  if (!plan_.config_json.empty())
    safetensors::write_file_atomically(path_ / "config.json", plan_.config_json);
  finished_ = true;
  rank_files_.remove_records();
  Journal::finish(path_);
  rank_files_.remove_locks();
}

}  // namespace nvfp4::checkpoint
