// One writer at a time in a folder: a lock on the file FOLDER/.lock, which the system takes back when its holder
// ends, however that happens. Two holders of one process exclude each other as those of two do, and those of two
// machines where the file system is shared and knows locks.
//
// The file stays, for one that is removed could be locked by two; it says who holds it, for people to read, and is
// empty when nobody does (or still names one that was killed). A file system without locks gives none: the folder
// is then used unlocked, and `locked` says so.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace heddle {

class FolderLock {
 public:
  /// The lock of a folder that exists; nothing while another holds it, who is then told in `holder` ("process 12 on
  /// host a, since 2026-11-22 04:39:05 UTC"). SystemError when the file can't be made.
  static std::optional<FolderLock> take(const std::string& folder, std::string& holder);

  /// Of a folder that another process holds for this one: nothing is taken, and nothing given back.
  static FolderLock held_for_us() { return FolderLock(-1, true); }

  /// Waits for it. `waiting` is told once who holds it.
  static FolderLock wait(const std::string& folder, const std::function<void(const std::string& holder)>& waiting);

  /// Who holds the lock of a folder by what the file says, without touching it; "" when nobody does. One that was
  /// killed may still be named.
  static std::string holder_of(const std::string& folder);

  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;

  bool locked() const { return locked_; }

 private:
  FolderLock(int file, bool locked) : file_(file), locked_(locked) {}

  int file_;
  bool locked_;
};

}  // namespace heddle
