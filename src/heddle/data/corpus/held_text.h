// A file that may be packed, held as far as its reader needs it.
#pragma once

#include <string>
#include <string_view>

#include "heddle/data/corpus/packed_reader.h"

namespace heddle::data {

class HeldText {
 public:
  /// ConfigError if the file can't be opened.
  explicit HeldText(const std::string& path) : reader_(path) {}

  /// Text that is read and not yet given out; good until more is held.
  std::string_view left() const { return std::string_view(held_).substr(given_); }
  void give(size_t bytes) { given_ += bytes; }
  /// Reads more behind it. False at the end of the file.
  bool hold_more() {
    if (ended_) return false;
    held_.erase(0, given_);
    given_ = 0;
    const size_t before = held_.size();
    held_.resize(before + kReadBytes);
    const size_t got = reader_.read(held_.data() + before, kReadBytes);
    held_.resize(before + got);
    ended_ = got == 0;
    return got > 0;
  }
  /// The beginning, as much of it as is asked for, or all of it.
  std::string_view head(size_t bytes) {
    while (left().size() < bytes && hold_more()) {
    }
    return left().substr(0, bytes);
  }
  int64_t consumed_bytes() const { return reader_.consumed_bytes(); }

 private:
  static constexpr size_t kReadBytes = 1 << 18;

  PackedReader reader_;
  std::string held_;
  size_t given_ = 0;
  bool ended_ = false;
};

}  // namespace heddle::data
