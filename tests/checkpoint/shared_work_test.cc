#include "checkpoint/compare/shared_work.h"

#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"

namespace nvfp4::shared_work_test {

class SharedWorkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tiny_llama(source_);
    quantize_checkpoint(source_, output_);
  }
  Shared<CompareReport> compare(int rank, int ranks) const {
    return compare_share(source_, output_, {rank, ranks, parts_});
  }
  const TempDir dir_;
  const fs::path source_ = dir_ / "source", output_ = dir_ / "output", parts_ = dir_ / "parts";
};

TEST_F(SharedWorkTest, RanksCompareAsOneProcessDoes) {
  const std::string whole = to_json(compare_checkpoints(source_, output_));
  EXPECT_EQ(compare(2, 3).missing, (std::vector{0, 1}));
  EXPECT_EQ(compare(0, 3).missing, (std::vector{1}));
  EXPECT_FALSE(compare(0, 3).report);
  EXPECT_EQ(to_json(compare(1, 3).report.value()), whole);
  EXPECT_EQ(to_json(compare(0, 3).report.value()), whole) << "whoever is run again";
}

TEST_F(SharedWorkTest, ProgressOfARankEndsAtItsTotals) {
  Progress last;
  const std::function<void(const Progress&)> progress = [&](const Progress& p) { last = p; };
  const auto expect_end = [&] {
    EXPECT_GT(last.tensors_done, 0);
    EXPECT_EQ(last.tensors_done, last.tensors_total);
    EXPECT_EQ(last.bytes_done, last.bytes_total);
  };
  compare_share(source_, output_, {0, 2, parts_}, progress);
  expect_end();
  VerifyOptions verify;
  verify.path = output_;
  verify.progress = progress;
  verify_share(verify, {0, 2, parts_});
  expect_end();
}

/// Measured by another: what comes out is what its file says.
TEST_F(SharedWorkTest, ARankMeasuresItsShareAlone) {
  compare(0, 2);
  const fs::path part = parts_ / "nvfp4.compare-rank-0-of-2.json";
  nlohmann::json json = nlohmann::json::parse(read_text(part));
  std::size_t shares = 0, others = 0;
  for (nlohmann::json& item : json["stages"]["pairs"]["items"]) {
    ++(item.is_null() ? others : shares);
    if (!item.is_null()) item[0] = "nan", item[3] = false;
  }
  EXPECT_GT(shares, 1u);
  EXPECT_GT(others, 1u);
  write_text(part, json.dump());
  const CompareReport report = compare(1, 2).report.value();
  EXPECT_EQ(
      static_cast<std::size_t>(std::ranges::count_if(
          report.tensors, [](const TensorDifference& t) { return std::isnan(t.squared_error); })),
      shares);
}

TEST_F(SharedWorkTest, FilesOfOtherWorkAreRefused) {
  compare(0, 2);
  const fs::path part = parts_ / "nvfp4.compare-rank-0-of-2.json";
  const std::string text = read_text(part);
  for (const std::string& wrong :
       {std::string("{"), std::string("[]"), std::string(R"({"version": 1, "stages": {}})"),
        std::string(R"({"version": 1, "stages": {"pairs": 3}})"),
        std::string(R"({"version": 1, "stages": {"pairs": {"of": "x", "items": []}}})")}) {
    write_text(part, wrong);
    expect_error<FormatError>([&] { compare(1, 2); }, {"rank-0-of-2.json"});
  }
  nlohmann::json json = nlohmann::json::parse(text);
  for (nlohmann::json& item : json["stages"]["pairs"]["items"]) item = nullptr;
  write_text(part, json.dump());
  expect_error<FormatError>([&] { compare(1, 2); }, {"has not measured all"});
  write_text(part, text);
  EXPECT_TRUE(compare(1, 2).report);
  auto other = quantize_options(source_, output_, {"--method", "max", "--overwrite"});
  quantize_checkpoint(other);
  expect_error<FormatError>([&] { compare(1, 2); }, {"rank-0-of-2.json", "other files"});
}

TEST_F(SharedWorkTest, RanksThatCannotBe) {
  const auto with = [&](const SharedWork& shared) {
    return [=, this] { compare_share(source_, output_, shared); };
  };
  expect_error<ValueError>(with({0, 0, {}}), {"ranks = 0"});
  expect_error<ValueError>(with({0, 100'000'000, parts_}), {"must be from 1 to 65536"});
  expect_error<ValueError>(with({2, 2, parts_}), {"rank = 2"});
  expect_error<ValueError>(with({0, 2, {}}), {"needs parts"});
  expect_error<ValueError>(with({0, 1, parts_}), {"parts"});
}

/// With every fault that verify knows: what ranks say of it together is what one process says.
TEST(SharedVerify, RanksFindWhatOneProcessFinds) {
  for (const table::Row& row : table::rows_of("verify.txt")) {
    if (table::Expected(row.column(3)).words.at(0) != row.name) continue;
    SCOPED_TRACE(row.name);
    const table::Model model(row.column(0), row.column(1));
    auto options = verify_options(model.path);
    if (row.column(2) == "source") options.source = model.source;
    options.loader = table::Expected(row.column(2)).value("loader").value_or("");
    const std::string whole = to_json(verify_checkpoint(options));
    for (const int rank : {1, 2, 0}) {
      const auto shared = verify_share(options, {rank, 3, model.dir / "parts"});
      EXPECT_EQ(shared.report.has_value(), rank == 0);
      if (shared.report) {
        EXPECT_EQ(to_json(*shared.report), whole);
      }
    }
  }
}

}  // namespace nvfp4::shared_work_test
