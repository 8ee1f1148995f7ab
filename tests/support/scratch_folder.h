// A folder that a test may fill, gone when the test ends.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace heddle {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "heddle-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw std::filesystem::filesystem_error("mkdtemp", name, std::error_code());
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace heddle
