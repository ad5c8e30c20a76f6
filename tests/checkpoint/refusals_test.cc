#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"

/// Faults that verify reports, and formats that do not exist, are refused by the commands.
namespace nvfp4::refusals_test {

using table::Model;
using table::Row;
/// Runs a reader of the table, and returns its warnings.
std::vector<std::string> run(const std::string& who, const Model& model, bool force, bool dry_run) {
  const fs::path out = model.dir / (who == "gguf" ? "out.gguf" : "out");
  if (who == "compare")
    return (compare_checkpoints(model.path, model.path), std::vector<std::string>());
  if (who == "inspect")
    return (inspect_checkpoint({.path = model.path, .tensor = {}, .progress = {}}),
            std::vector<std::string>());
  if (who == "open") return (Checkpoint{model.path}, std::vector<std::string>());
  if (who.starts_with("repair")) {
    auto options = repair_options(model.path, out);
    if (who == "repair-by-source") options.source = model.source;
    return repair_checkpoint(options).written.warnings;
  }
  if (who == "quantize" || who == "copy") {
    QuantizeCheckpointOptions options = quantize_options(model.path, out);
    options.allow.broken_scales = force;
    options.dry_run = dry_run;
    if (who == "copy") options.ignore = {"*"};
    return quantize_checkpoint(options).warnings;
  }
  auto options = convert_options(model.path, out, who);
  options.allow.broken_scales = force;
  options.dry_run = dry_run;
  return convert_checkpoint(options).warnings;
}

/// Expects what a column says of a run: a class of errors with their texts, or "ok" with those of
/// warnings.
void expect_outcome(const table::Expected& expected, const std::string& who, const Model& model,
                    bool force, bool dry_run) {
  SCOPED_TRACE(who);
  const std::string& outcome = expected.words.at(0);
  std::vector<std::string> warnings;
  std::string error, message;
  try {
    warnings = run(who, model, force, dry_run);
    error = "ok";
  } catch (const Error& e) {
    error = table::error_class(e), message = e.what();
  }
  EXPECT_EQ(error, outcome) << message;
  if (error == "ok") {
    for (const std::string& warning : warnings) message += warning + "\n";
    EXPECT_EQ(message.empty(), expected.texts.empty()) << message;
    EXPECT_EQ(message.find("--allow broken-scales: ") != message.npos, force) << message;
  } else {
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(model.dir / "out") || fs::exists(model.dir / "out.gguf"));
  }
  for (const std::string& text : expected.texts)
    EXPECT_THAT(message, HasSubstr(text)) << text << '\n' << message;
  fs::remove_all(model.dir / "out");
  fs::remove_all(model.dir / "out.gguf");
}

class Refusals : public testing::TestWithParam<Row> {};

TEST_P(Refusals, EachReaderDoesWhatTheRowSays) {
  const Model model(GetParam().column(0), GetParam().column(1));
  table::Expected(GetParam().column(2)).expect_codes(verify_checkpoint({model.path, {}, "", {}}));
  if (table::Expected(GetParam().column(2)).value("inspect")) {
    EXPECT_NO_THROW(inspect_checkpoint({.path = model.path, .tensor = {}, .progress = {}}));
  }
  const table::Expected outcome(GetParam().column(4));
  for (const std::string& name : table::split(GetParam().column(3), ' '))
    for (const std::string& who : name == "all" ? conversion_targets() : std::vector{name})
      for (const bool dry_run : {true, false}) {
        if (dry_run && std::ranges::count(outcome.words, "late") > 0) continue;
        expect_outcome(outcome, who, model, false, dry_run);
        if (GetParam().column(5).empty() || dry_run) continue;
        table::Expected forced(GetParam().column(5));
        if (forced.texts.empty() && outcome.words.at(0) != "ok")
          forced.texts = {outcome.texts.at(0)};
        // NVFP4 has no NaN, so that such weights are excluded.
        expect_outcome(forced, who == "quantize" && forced.words.at(0) == "ok" ? "copy" : who,
                       model, true, false);
      }
}

INSTANTIATE_TEST_SUITE_P(Row, Refusals, testing::ValuesIn(table::rows_of("refusals.txt")),
                         table::test_name);

}  // namespace nvfp4::refusals_test
