// One writer at a time in a folder: a lock on the file FOLDER/.lock, which the system takes back when its holder
// ends, however that happens. Two holders of one process exclude each other as those of two do, and those of two
// machines where the file system is shared and knows locks. Whoever holds it writes into that folder and no other:
// it is pinned (pinned_folder.h), whatever name it is given meanwhile.
//
// The file stays, for one that is removed could be locked by two. It says who holds it, for people to read. It is
// empty when nobody does (or still names one that was killed). A file system without locks gives none: the folder
// is then used unlocked, and `locked` says so.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "heddle/base/files/pinned_folder.h"

namespace heddle {

class FolderLock {
 public:
  /// The lock of a folder that exists; nothing while another holds it, who is then told in `holder` ("process 12 on
  /// host a, since 2026-11-22 04:39:05 UTC"). SystemError when the file can't be made.
  static std::optional<FolderLock> take(const std::string& folder, std::string& holder);

  /// The lock of a folder that another process holds for this one: nothing is taken, and nothing given back.
  static FolderLock held_for_us(const std::string& folder) { return FolderLock(PinnedFolder(folder), -1, true); }

  /// Waits for it. `waiting` gets the holder once.
  static FolderLock wait(const std::string& folder, const std::function<void(const std::string& holder)>& waiting);

  /// The holder of a folder's lock now, by what the file says; "" when nobody holds it. Nothing is written.
  static std::string holder_of(const std::string& folder);

  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

  bool locked() const { return locked_; }
  const PinnedFolder& folder() const { return folder_; }

 private:
  FolderLock(PinnedFolder folder, int file, bool locked)
      : folder_(std::move(folder)), file_(file), locked_(locked) {}

  PinnedFolder folder_;
  int file_;
  bool locked_;
};

}  // namespace heddle
