// Stands for libFuzzer in an ordinary build: runs the target on every file of the folders or files
// named, on what is left of each when it is cut or damaged, and on inputs that are deep, long or
// empty.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

std::int64_t runs = 0;

void run(const std::string& input) {
  // A copy of exactly its size: a sanitizer sees what reads past it.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ++runs;
}

/// The file, its beginnings, and the file with one byte of its first 4096 changed.
void run_around(const std::string& content) {
  constexpr std::size_t kSteps = 64;
  run(content);
  for (std::size_t i = 0; i < kSteps; ++i) run(content.substr(0, content.size() * i / kSteps));
  for (std::size_t i = 0; i < std::min<std::size_t>(content.size(), 4096); ++i) {
    std::string damaged = content;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 3 == 0 ? 0x80 : i % 3 == 1 ? 0x01 : 0xFF));
    run(damaged);
  }
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

/// Eight bytes of length before it, as safetensors has them.
std::string with_length(const std::string& header, std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> 8 * i);
  return bytes + header;
}

void run_hostile() {
  constexpr int kDeep = 100'000;
  for (const std::string& open : {std::string("["), std::string("{\"a\":")}) {
    const std::string deep = repeated(open, kDeep);
    run(deep);
    run(with_length(deep, deep.size()));
    run("{\"weight_map\":" + deep);
  }
  for (const std::uint64_t length :
       {std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}})
    run(with_length("{}", length));
  for (const char* magic : {"", "GGUF", "GGUF\3", "GGUF\2"})
    for (const char fill : {'\0', '\1', '\x7F', '\xFF'})
      for (const std::size_t size : {std::size_t{0}, std::size_t{20}, std::size_t{1} << 20})
        run(magic + std::string(size, fill));
}

}  // namespace

int main(int argc, char** argv) try {
  std::int64_t files = 0;
  const auto run_file = [&](const fs::path& path) {
    fmt::print("{}\n", path.string());
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot be opened");
    run_around({std::istreambuf_iterator<char>(file), {}});
    ++files;
  };
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i]))
      run_file(argv[i]);
    else
      for (const auto& entry : fs::directory_iterator(argv[i])) run_file(entry.path());
  }
  run_hostile();
  fmt::print("{} files, {} inputs\n", files, runs);
  return files > 0 ? 0 : 1;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 2;
}
