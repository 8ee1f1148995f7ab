// The pieces of one exchange, given by address.
#pragma once

#include <vector>

#include "heddle/comm/communicator.h"

namespace heddle::comm {

class PieceList {
 public:
  void send(int64_t peer, const void* data, int64_t bytes) { add(sends_, peer, data, bytes); }
  void receive(int64_t peer, void* data, int64_t bytes) { add(receives_, peer, data, bytes); }
  template <class T>
  void send(int64_t peer, const T* data, int64_t count) {
    send(peer, static_cast<const void*>(data), count * static_cast<int64_t>(sizeof(T)));
  }
  template <class T>
  void receive(int64_t peer, T* data, int64_t count) {
    receive(peer, static_cast<void*>(data), count * static_cast<int64_t>(sizeof(T)));
  }

  void exchange(Communicator& communicator) {
    communicator.exchange(base_of(sends_), sends_.pieces, base_of(receives_), receives_.pieces);
  }

 private:
  struct Side {
    std::byte* base = nullptr;
    std::vector<Piece> pieces;
  };
  static std::byte* base_of(const Side& side) { return side.base; }
  static void add(Side& side, int64_t peer, const void* data, int64_t bytes) {
    if (bytes == 0) return;
    auto* at = static_cast<std::byte*>(const_cast<void*>(data));  // a side only sends or only receives
    if (side.base == nullptr) side.base = at;
    side.pieces.push_back({static_cast<int>(peer), at - side.base, bytes});
  }
  Side sends_, receives_;
};

}  // namespace heddle::comm
