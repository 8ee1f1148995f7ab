// libFuzzer: any bytes as a pair of token files (two bytes of the index's length, the index, the tokens) are either
// refused by a ConfigError of one line or can be read whole, document by document and at once.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/data/token_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  static const std::string prefix =
      (std::filesystem::temp_directory_path() / fmt::format("heddle-fuzz-{}", ::getpid())).string();
  static const int cleaned = std::atexit([] {
    std::filesystem::remove(prefix + ".idx");
    std::filesystem::remove(prefix + ".bin");
  });
  const size_t index = std::min<size_t>(data[0] | data[1] << 8, size - 2);
  const auto write = [](const char* end, const uint8_t* bytes, size_t count) {
    std::ofstream(prefix + end, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes), static_cast<std::streamsize>(count));
  };
  write(".idx", data + 2, index);
  write(".bin", data + 2 + index, size - 2 - index);
  try {
    const heddle::data::TokenFile file(prefix);
    std::vector<heddle::data::TokenId> ids(static_cast<size_t>(file.tokens()));
    file.read(0, ids);
    std::vector<int64_t> begins(static_cast<size_t>(file.documents() + 1));
    file.document_begins(0, begins);
    for (int64_t d = 0; d <= file.documents(); ++d) {
      if (begins[static_cast<size_t>(d)] != file.document_begin(d)) std::abort();
    }
    if (begins.front() != 0 || begins.back() != file.tokens()) std::abort();
    file.check_ids(0, file.tokens(), 1000);
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return cleaned;
}
