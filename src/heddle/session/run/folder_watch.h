// The folder that a run holds, and what becomes of it while the run trains.
#pragma once

#include <functional>
#include <string>

#include "heddle/base/files/folder_lock.h"
#include "heddle/session/run_folder.h"

namespace heddle::session {

class FolderWatch {
 public:
  /// Watches a folder that rank 0 holds for all. `made`: is removed with a run that never begins.
  FolderWatch(std::string path, FolderLock lock, NewFolder made);

  /// From here on the folder holds a run, and stays.
  void keep() { made_.keep(); }
  /// Tells `warn` once where the folder has another name than before: the run goes on in there. SystemError where
  /// it was removed: it takes nothing any more.
  void look(const std::function<void(const std::string&)>& warn);
  /// The path at which a file of the folder is found now.
  std::string now(const std::string& path) const;

 private:
  std::string path_, stands_at_;  // paths as the run began, and when it was last checked
  FolderLock lock_;
  NewFolder made_;
};

}  // namespace heddle::session
