// What targets share that read whole files: an input as several of them, a folder for them, and how a refusal is
// told.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::fuzz {

/// Calls `read`. False where it refuses, by one line.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const ConfigError& error) {
    if (std::strchr(error.what(), '\n') != nullptr) std::abort();
    return false;
  }
}

/// `count` files of an input, which a line "%%" divides; those that it has not are empty.
inline std::vector<std::string> pieces(const uint8_t* data, size_t size, size_t count) {
  constexpr std::string_view kBetween = "\n%%\n";
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> all(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t end = i + 1 < count ? rest.find(kBetween) : std::string_view::npos;
    all[i] = rest.substr(0, end);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + kBetween.size());
  }
  return all;
}

/// A folder of this process, in memory where the machine has such, which goes with it.
class Folder {
 public:
  explicit Folder(std::string_view name) {
    namespace fs = std::filesystem;
    const fs::path memory = "/dev/shm";
    path_ = (fs::is_directory(memory) ? memory : fs::temp_directory_path()) /
            fmt::format("heddle-fuzz-{}-{}", name, ::getpid());
    fs::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  /// An empty one is not there.
  void write(const std::string& name, std::string_view bytes) const {
    std::filesystem::remove(path_ / name);
    if (bytes.empty()) return;
    std::ofstream(path_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace heddle::fuzz
