#include "commands.h"
#include "nvfp4/runtime.h"

namespace nvfp4::cli {

void add_threads(CLI::App& command) {
  command
      .add_option_function<int>(
          "--threads", [](int threads) { set_threads(threads); },
          "threads to use; all CPUs that this process may use if not given")
      ->option_text("N")
      ->check(CLI::Range(1, 4096));
}

}  // namespace nvfp4::cli
