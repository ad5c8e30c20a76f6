// Converts the report of the self-test to JSON.
#include "checkpoint/io/json_text.h"
#include "selftest/selftest.h"

namespace nvfp4 {
namespace {

template <class Range, class Function>
Json array_of(const Range& range, const Function& object) {
  Json all = Json::array();
  for (const auto& element : range) all.push_back(object(element));
  return all;
}

}  // namespace

std::string to_json(const SelftestReport& r) {
  const auto check = [](const SelftestCheck& c) -> Json {
    return {{"subject", c.subject}, {"name", c.name},   {"part", c.part},   {"cases", c.cases},
            {"wrong", c.wrong},     {"fault", c.fault}, {"worst", c.worst}, {"kernels", c.kernels}};
  };
  const auto rate = [](const SelftestRate& x) -> Json {
    return {{"subject", x.subject}, {"name", x.name},   {"value", x.value},
            {"unit", x.unit},       {"limit", x.limit}, {"limit_of", x.limit_of}};
  };
  const auto gpu = [](const SelftestGpu& g) -> Json {
    return {{"device", device_name(g.info.device)},
            {"name", g.info.name},
            {"architecture", g.info.architecture},
            {"available", g.info.available},
            {"reason", g.info.reason},
            {"multiprocessors", g.multiprocessors},
            {"memory_bytes", g.memory_bytes},
            {"clock_mhz", g.clock_mhz},
            {"memory_gb_s", g.memory_gb_s}};
  };
  const auto backend = [](const BackendInfo& b) -> Json {
    return {{"name", b.name},
            {"available", b.available},
            {"reason", b.reason},
            {"description", b.description}};
  };
  const auto plan = [](const SelftestPlan& p) -> Json {
    return {{"device", p.device}, {"product", p.product}, {"kernel", p.kernel}};
  };
  return checkpoint::dump_pretty({{"version", r.version},
                                  {"passed", r.passed()},
                                  {"seconds", r.seconds},
                                  {"cpu", r.cpu},
                                  {"threads", r.threads},
                                  {"backend", r.backend},
                                  {"backends", array_of(r.backends, backend)},
                                  {"cuda",
                                   {{"version", r.cuda.version},
                                    {"driver", r.cuda.driver},
                                    {"architectures", r.cuda.architectures}}},
                                  {"gpus", array_of(r.gpus, gpu)},
                                  {"plans", array_of(r.plans, plan)},
                                  {"checks", array_of(r.checks, check)},
                                  {"rates", array_of(r.rates, rate)},
                                  {"fp4_instruction", r.fp4_instruction},
                                  {"not_proven", r.not_proven}});
}

}  // namespace nvfp4
