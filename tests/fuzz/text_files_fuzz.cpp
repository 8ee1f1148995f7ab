// libFuzzer: any bytes as the user's text, plain, gzipped, by zstd or as lines of JSON (by the first byte), are
// either refused by a ConfigError of one line or cut into documents that are not empty.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/data/corpus/corpus.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::data;
  if (size < 1) return 0;
  static const std::string prefix =
      (std::filesystem::temp_directory_path() / fmt::format("heddle-fuzz-{}", ::getpid())).string();
  static const std::string paths[] = {prefix + ".txt.zst", prefix + ".jsonl"};
  static const int cleaned = std::atexit([] {
    for (const std::string& path : paths) std::filesystem::remove(path);
  });
  const std::string& path = paths[data[0] & 1];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  try {
    const auto source = open_text(path, {(data[0] & 2) != 0 ? Bytes::any : Bytes::text, "text"});
    size_t bytes = 0;
    for (Document document; source->next(document) && bytes < (64 << 20);) {
      if (document.text.empty()) std::abort();
      bytes += document.text.size();
    }
    if (source->progress() < 0 || source->progress() > 1) std::abort();
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return cleaned;
}
