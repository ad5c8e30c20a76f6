#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "nvfp4/report.h"

namespace nvfp4::report {

std::vector<DecidedWeight> decided_weights(const std::filesystem::path& run) {
  using Json = nlohmann::json;
  const std::string file = run.string();
  const Json json = checkpoint::parse_json<Json>(checkpoint::read_text_file(run), file);
  require<FormatError>(json.is_object() && json.contains("tensors") && json["tensors"].is_array(),
                       "{}: no report of nvfp4 quantize, it has no list \"tensors\"", file);
  std::vector<DecidedWeight> weights;
  for (const Json& tensor : json["tensors"]) {
    if (!tensor.is_object() || !tensor.contains("rows")) continue;
    const auto number = [&](const char* group, const char* key) {
      const auto member = [](const Json& of, const char* name) -> const Json& {
        static const Json none;
        const auto it = of.is_object() ? of.find(name) : of.end();
        return it == of.end() ? none : *it;
      };
      const Json& value = member(member(tensor, group), key);
      require<FormatError>(value.is_number() && value.get<double>() >= 0,
                           "{}: a weight without a number {}.{} that is not negative", file, group,
                           key);
      return value.get<double>();
    };
    DecidedWeight& w = weights.emplace_back();
    require<FormatError>(tensor.contains("name") && tensor["name"].is_string(),
                         "{}: a weight without a name", file);
    w.name = tensor["name"].get<std::string>();
    constexpr const char* kRows[] = {"mse", "weighted", "gptq", "descent"};
    for (std::size_t c = 0; c < w.rows.size(); ++c)
      w.rows[c] = static_cast<std::int64_t>(number("rows", kRows[c]));
    w.output = {number("output_error", "mse"), number("output_error", "kept")};
  }
  return weights;
}

}  // namespace nvfp4::report
