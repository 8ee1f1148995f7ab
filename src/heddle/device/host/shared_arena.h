// Memory that outlives the process: a file that is mapped, in a file system that lies in memory (/dev/shm) or on
// disk.
//
// The next process that opens the file finds what was written, even if the process before was killed in between. A
// page at the beginning says of which layout it is; one process has it at a time. It goes when somebody deletes the
// file.
#pragma once

#include <string>

#include "heddle/device/arena.h"

namespace heddle::device {

class SharedArena : public Arena {
 public:
  /// The place in the file where the memory begins.
  static constexpr int64_t kDataAt = 4096;
  /// `layout` tells what lies where. SystemError, in one line, where the file holds memory of another layout or
  /// size, is another user's or no plain file, or is in use. Also where there is no room for it: room is taken at
  /// once.
  SharedArena(const std::string& path, int64_t bytes, uint64_t layout);
  ~SharedArena() override;
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  std::byte* base() const override;
  int64_t capacity_bytes() const override { return bytes_; }
  void reach(int64_t) override {}
  int64_t held_bytes() const override { return bytes_; }
  /// Does nothing: what an executor before has left is not to be lost.
  void poison() override {}
  /// True if the file was there, with what was left in it. A new one holds zeros.
  bool found() const { return found_; }

 private:
  int64_t bytes_;
  int file_ = -1;
  std::byte* mapped_ = nullptr;
  bool found_ = false;
};

}  // namespace heddle::device
