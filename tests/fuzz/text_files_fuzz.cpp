// libFuzzer: any bytes as the user's text, plain, gzipped, by zstd, as lines of JSON, as one JSON list or under no
// name (by the first byte), are either refused by a ConfigError of one line or cut into documents that are not
// empty; read again they are the same.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/data/corpus/text_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::data;
  if (size < 1) return 0;
  static const std::string prefix =
      (std::filesystem::temp_directory_path() / fmt::format("heddle-fuzz-{}", ::getpid())).string();
  static const std::string paths[] = {prefix + ".txt.zst", prefix + ".jsonl", prefix + ".json", prefix};
  static const int cleaned = std::atexit([] {
    for (const std::string& path : paths) std::filesystem::remove(path);
  });
  const std::string& path = paths[(data[0] & 1) + 2 * ((data[0] >> 3) & 1)];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data + 1), static_cast<std::streamsize>(size - 1));
  try {
    const auto source = open_text(path, {.bytes = (data[0] & 2) != 0 ? Bytes::any : Bytes::text,
                                         .key = (data[0] & 4) != 0 ? "" : "text",
                                         .skip_bad_lines = (data[0] & 16) != 0});
    size_t sizes[2] = {0, 0};
    for (size_t& bytes : sizes) {
      for (Document document; source->next(document) && bytes < (64 << 20);) {
        if (document.text.empty()) std::abort();
        bytes += document.text.size();
      }
      if (source->passed_over().first_lines.size() > PassedOver::kMostNamed) std::abort();
      if (&bytes == &sizes[0]) source->rewind();
    }
    if (sizes[0] != sizes[1]) std::abort();
    if (source->progress() < 0 || source->progress() > 1) std::abort();
  } catch (const heddle::ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return cleaned;
}
