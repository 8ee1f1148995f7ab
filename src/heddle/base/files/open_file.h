// A plain file opened to be read, and whose fault it is where that fails.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

struct OpenedFile {
  int descriptor = -1;  // the caller closes it
  int64_t size_bytes = 0;
};

/// ConfigError where the path is to blame: nothing is there, it is no plain file, it may not be read. SystemError
/// where the system is: a disk or a file server that fails, no descriptor or memory left. What fails so may pass.
OpenedFile open_to_read(const std::string& path);

}  // namespace heddle
