#include "heddle/base/files/pinned_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle {

namespace {

struct Entry {
  std::string path;  // without slashes at its end
  int folder = -1;
};

struct Registry {
  std::mutex mutex;
  std::vector<Entry> entries;
};

Registry& registry() {
  static Registry all;
  return all;
}

std::string trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

bool is_same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

bool leads_to(const std::string& path, int folder) {
  struct stat named {
  }, held{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(folder, &held) == 0 && is_same(named, held);
}

std::string name_of(int folder) { return fmt::format("/proc/self/fd/{}", folder); }

// The whole path that the system knows of it.
std::string link_of(int folder) {
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlink(name_of(folder).c_str(), text.data(), text.size());
  return {text.data(), static_cast<size_t>(size > 0 ? size : 0)};
}

// The innermost pinned folder that `path` names or lies below; `rest`: what comes behind its name. −1: none.
int folder_of(const std::string& path, std::string_view& rest) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  size_t longest = 0;
  int found = -1;
  for (const Entry& entry : all.entries) {
    const size_t size = entry.path.size();
    if (size < longest || !path.starts_with(entry.path) || (path.size() > size && path[size] != '/')) continue;
    longest = size;
    found = entry.folder;
  }
  rest = std::string_view(path).substr(longest);
  return found;
}

bool is_removed(int folder) {
  struct stat held {};
  return ::fstat(folder, &held) == 0 && held.st_nlink == 0;
}

}  // namespace

PinnedFolder::PinnedFolder(const std::string& path) : path_(path) {
  // A folder within one that is pinned already is found there; of the same name the one that stands there now is
  // meant.
  std::string_view rest;
  const bool within = folder_of(path, rest) >= 0 && !rest.empty();
  folder_ = ::open((within ? held_path(path) : path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_ < 0) {
    const int code = errno;
    throw SystemError(code, fmt::format("cannot open the folder {}: {}", path, std::strerror(code)));
  }
  if (!leads_to(name_of(folder_), folder_)) return;
  const std::string whole = link_of(folder_);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const std::string& name : {trimmed(path), whole}) {
    if (name.size() > 1 || name == ".") all.entries.push_back({name, folder_});
  }
}

PinnedFolder::~PinnedFolder() {
  if (folder_ < 0) return;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.entries, [&](const Entry& entry) { return entry.folder == folder_; });
  ::close(folder_);
}

PinnedFolder::PinnedFolder(PinnedFolder&& other) noexcept
    : path_(std::move(other.path_)), folder_(std::exchange(other.folder_, -1)) {}

std::string PinnedFolder::place() const {
  if (leads_to(path_, folder_)) return path_;
  const std::string now = link_of(folder_);
  return !now.empty() && leads_to(now, folder_) ? now : "";
}

bool PinnedFolder::removed() const { return is_removed(folder_); }

std::string held_path(const std::string& path) {
  std::string_view rest;
  const int folder = folder_of(path, rest);
  if (folder < 0) return path;
  // The name of a descriptor is a link; behind it comes the folder itself.
  return fmt::format("{}{}", name_of(folder), rest.empty() ? "/." : rest);
}

std::string disk_error(const std::string& path, int code) {
  std::string_view rest;
  if (const int folder = code == ENOENT || code == ESTALE ? folder_of(path, rest) : -1;
      folder >= 0 && is_removed(folder))
    return fmt::format("its folder {} was removed meanwhile",
                       std::string_view(path).substr(0, path.size() - rest.size()));
  return std::strerror(code);
}

}  // namespace heddle
