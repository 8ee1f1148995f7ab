#include "heddle/session/run/folder_watch.h"

#include <cerrno>
#include <utility>

#include "heddle/base/error.h"

namespace heddle::session {

FolderWatch::FolderWatch(std::string path, FolderLock lock, NewFolder made)
    : path_(std::move(path)), stands_at_(path_), lock_(std::move(lock)), made_(std::move(made)) {}

void FolderWatch::look(const std::function<void(const std::string&)>& warn) {
  const PinnedFolder& folder = lock_.folder();
  if (folder.removed())
    throw SystemError(ENOENT, fmt::format("{}: the folder was removed while the run wrote into it; nothing of the "
                                          "run can be kept",
                                          path_));
  const std::string now = folder.place();
  if (now == std::exchange(stands_at_, now)) return;
  if (now == path_) return warn(fmt::format("{} has its old name again", path_));
  warn(fmt::format("{} has become {}; the run goes on in there", path_,
                   now.empty() ? "a folder that no path leads to any more" : now));
}

std::string FolderWatch::now(const std::string& path) const {
  const bool moved = !stands_at_.empty() && stands_at_ != path_ && path.starts_with(path_);
  return moved ? stands_at_ + path.substr(path_.size()) : path;
}

}  // namespace heddle::session
