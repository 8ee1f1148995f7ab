// A folder that stays the same one while it is written into, whatever name it is given meanwhile. Paths below the
// name that it had (as it was given, and its whole path) lead into it. They never lead into another that has been
// put in its place.
//
// Functions that open, make, name or remove a file by its path pass the path through held_path. It gives a path
// from the folder's descriptor where a pinned folder is meant, and the path itself elsewhere. Messages keep the
// path as it was. Where the system shows no descriptors (no /proc), paths stay as they are.
#pragma once

#include <string>

namespace heddle {

class PinnedFolder {
 public:
  /// SystemError where there is no folder of that path, or it can't be opened.
  explicit PinnedFolder(const std::string& path);
  ~PinnedFolder();
  PinnedFolder(PinnedFolder&& other) noexcept;
  PinnedFolder& operator=(PinnedFolder&&) = delete;

  int descriptor() const { return folder_; }
  const std::string& path() const { return path_; }

  /// The path as it was given while it leads here; another that does now; "": none that is known.
  std::string place() const;
  /// Nothing can be made in it any more.
  bool removed() const;

 private:
  std::string path_;
  int folder_ = -1;
};

/// The path that the system is to be given for `path`.
std::string held_path(const std::string& path);

/// The text for a failed call on `path`: errno's text, or that the folder which holds it was removed.
std::string disk_error(const std::string& path, int code);

}  // namespace heddle
