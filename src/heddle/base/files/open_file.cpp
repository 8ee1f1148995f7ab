#include "heddle/base/files/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "heddle/base/error.h"
#include "heddle/base/files/pinned_folder.h"

namespace heddle {

namespace {

// True if the path is wrong, whoever tries it and whenever.
bool is_mistake(int code) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
    case EACCES:
    case EPERM:
    case ENXIO:   // a socket, a pipe without a writer
    case ENODEV:  // a device that is not there
      return true;
    default: return false;
  }
}

}  // namespace

OpenedFile open_to_read(const std::string& path) {
  int file = -1;
  do {
    file = ::open(held_path(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (file < 0 && errno == EINTR);
  if (file < 0) {
    const int code = errno;
    const std::string what = fmt::format("cannot open {}: {}", path, disk_error(path, code));
    if (is_mistake(code)) throw ConfigError(what);
    throw SystemError(code, what);
  }
  struct stat status {};
  const int code = ::fstat(file, &status) == 0 ? 0 : errno;
  if (code == 0 && S_ISREG(status.st_mode)) return {file, status.st_size};
  ::close(file);
  if (code != 0) throw SystemError(code, fmt::format("cannot read {}: {}", path, disk_error(path, code)));
  config_error("{} is not a plain file", path);
}

}  // namespace heddle
