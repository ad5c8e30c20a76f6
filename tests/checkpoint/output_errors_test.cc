#include "checkpoint/models.h"
#include "checkpoint/statistics_file.h"
#include "report/parts.h"

namespace nvfp4::output_errors_test {

using checkpoint::CheckpointReader, checkpoint::open_own_statistics;

/// Returns Σ x XᵀX xᵀ over the rows of a matrix, from the upper triangle or the diagonal.
double energy(const std::vector<float>& x, const TestStatistics& s) {
  const std::size_t depth = s.diagonal.size();
  double sum = 0;
  for (std::size_t r = 0; r < x.size(); r += depth)
    for (std::size_t i = 0, at = 0; i < depth; ++i)
      for (std::size_t j = i; j < depth; ++j, ++at) {
        const double h = !s.triangle.empty() ? s.triangle[at] : i == j ? s.diagonal[i] : 0;
        sum += (i == j ? 1 : 2) * h * x[r + i] * x[r + j];
      }
  return sum;
}

TEST(OutputErrors, AreByTheGramMatrixOrItsDiagonal) {
  const TempDir dir;
  const std::vector<float> a = random_values(40 * 48, "a", 1.0f),
                           b = random_values(40 * 48, "b", 1);
  std::vector<float> difference(a.size());
  std::ranges::transform(a, b, difference.begin(), std::minus());
  write_shard(dir / "a.safetensors",
              {stored_f32("m.0.x.weight", {40, 48}, a), stored_f32("m.0.y.weight", {40, 48}, a),
               stored_f32("m.0.z.weight", {40, 48}, a)});
  write_shard(dir / "b.safetensors",
              {stored_f32("m.0.x.weight", {40, 48}, b), stored_f32("m.0.y.weight", {40, 48}, b),
               stored_f32("m.0.z.weight", {40, 48}, b)});
  const TestStatistics gram = gram_statistics("x", 48, 30);
  TestStatistics diagonal = gram;
  diagonal.triangle.clear();
  write_statistics(dir / "s", {{"m.0.x", gram}, {"m.0.y", diagonal}});
  const report::TensorErrors errors = report::output_errors(CheckpointReader(dir / "a.safetensors"),
                                                            CheckpointReader(dir / "b.safetensors"),
                                                            *open_own_statistics(dir / "s"));
  ASSERT_EQ(errors.size(), 2u);
  for (const auto& [name, s] : {std::pair("m.0.x.weight", &gram), {"m.0.y.weight", &diagonal}}) {
    const double error = energy(difference, *s), norm = energy(a, *s);
    EXPECT_NEAR(errors.at(name).squared_error, error, 1e-5 * error) << name;
    EXPECT_NEAR(errors.at(name).squared_norm, norm, 1e-5 * norm) << name;
  }
}

}  // namespace nvfp4::output_errors_test
