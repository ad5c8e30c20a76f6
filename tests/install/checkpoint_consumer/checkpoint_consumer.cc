// Quantizes a model in the working directory with what is installed and nothing else. The model and
// the pattern need every library that nvfp4::checkpoint links.
#include <cstdio>
#include <filesystem>

#include "nvfp4/checkpoint/checkpoint.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/error.h"

int main() {
  const std::filesystem::path model = "model", output = "model-nvfp4";
  nvfp4::SampleOptions sample;
  sample.output = model;
  sample.scale = 0.015625;
  sample.overwrite = true;
  nvfp4::sample_checkpoint(sample);
  nvfp4::QuantizeCheckpointOptions options;
  options.input = model;
  options.output = output;
  options.overwrite = true;
  options.ignore = {"re:.*q_proj.*"};
  const nvfp4::QuantizeReport report = nvfp4::quantize_checkpoint(options);
  try {
    options.ignore = {"re:("};
    nvfp4::quantize_checkpoint(options);
    std::fprintf(stderr, "an invalid pattern is no ValueError\n");
    return 1;
  } catch (const nvfp4::ValueError&) {
  }
  std::puts(to_json(report).c_str());
  return report.bytes_after < report.bytes_before ? 0 : 1;
}
