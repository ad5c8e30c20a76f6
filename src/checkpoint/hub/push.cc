#include "checkpoint/hub/hub_process.h"
#include "checkpoint/io/printable.h"
#include "core/require.h"
#include "nvfp4/hub.h"

namespace nvfp4 {

using namespace checkpoint;

std::string push_account() {
  const auto python = hub_python();
  require<IoError>(
      python.has_value(),
      "--push: needs huggingface_hub: pip install huggingface_hub, with its hf on PATH");
  HubProcess process(*python, {"check"});
  const auto account = after_word(process.read_line(), "ready");
  require<IoError>(account.has_value(), "--push: {} has no huggingface_hub", printable(*python));
  return *account;
}

std::string push_model(const std::filesystem::path& folder, const std::string& id) {
  const auto python = hub_python();
  require<IoError>(python.has_value(), "--push: no Python with huggingface_hub");
  HubProcess process(*python, {"push", id, folder.string()});
  const auto url = after_word(process.read_line(), "pushed");
  require<IoError>(url.has_value(), "{}: the upload to the hub has ended", id);
  return *url;
}

}  // namespace nvfp4
