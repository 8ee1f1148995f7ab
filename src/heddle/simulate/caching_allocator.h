// Memory of a device that a caching allocator would hold for a program's lifetimes. It has the rules of PyTorch's
// default one (its documentation and its source, c10/cuda/CUDACachingAllocator), written anew, without memory of
// its own.
//
// Requests are rounded up to 512 bytes. Up to 1 MiB they are served from segments of 2 MiB, above from segments of
// 20 MiB, from 10 MiB on from one of their own, rounded up to 2 MiB. A request takes the smallest free block of the
// same kind and stream that holds it, of equal ones the lowest. The block is split where the rest is of use: 512
// bytes of a small block, more than 1 MiB of a large one. A freed block joins its free neighbours in the segment.
// Segments are kept; those that are wholly free are given back only when the device is full.
//
// A block belongs to the stream that asked for it. One that others have read as well can only be given out again
// when they have got so far, which depends on times. As in our own arena's rule, it counts as free after 64 further
// requests.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace heddle::simulate {

class CachingAllocator {
 public:
  /// `capacity` in bytes; 0 means unlimited.
  explicit CachingAllocator(int64_t capacity = 0) : capacity_(capacity) {}

  using Id = int64_t;
  /// Returns a block for `bytes` on a stream; of no bytes, none (-1). A block that doesn't fit is given all the
  /// same, and counted.
  Id allocate(int64_t bytes, int stream);
  /// Gives it back; `others`: streams other than its own have used it.
  void free(Id block, bool others);

  int64_t reserved_bytes() const { return reserved_; }
  int64_t peak_reserved_bytes() const { return peak_reserved_; }
  int64_t allocated_bytes() const { return allocated_; }  // rounded
  int64_t peak_allocated_bytes() const { return peak_allocated_; }
  int64_t segments() const { return static_cast<int64_t>(segments_.size()); }
  /// Requests that found the device full even after everything free had been given back.
  int64_t failures() const { return failures_; }

  static int64_t rounded(int64_t bytes);
  static int64_t segment_bytes(int64_t rounded);

 private:
  struct Block {
    int64_t bytes = 0;
    Id segment = 0;
    int stream = 0;
    bool small = false;
    bool used = false;
  };
  using Pool = std::set<std::tuple<int, bool, int64_t, Id>>;  // stream, small, bytes, block

  void make_free(Id block);
  void settle(bool all);
  void give_back_segments();
  Id new_segment(int64_t bytes, int stream, bool small);
  Pool::value_type key_of(Id block) const;

  int64_t capacity_;
  std::map<Id, Block> blocks_;  // by address: a segment's blocks lie side by side, segments apart
  std::map<Id, int64_t> segments_;
  Pool pool_;
  std::deque<std::pair<uint64_t, Id>> pending_;  // when it was freed, block
  uint64_t clock_ = 0;
  Id next_ = 0;
  int64_t reserved_ = 0, peak_reserved_ = 0, allocated_ = 0, peak_allocated_ = 0, failures_ = 0;
};

}  // namespace heddle::simulate
