// Asks a transport, on the thread that makes an exchange, when each peer's last byte had come.
#pragma once

#include <algorithm>
#include <vector>

namespace heddle::comm {

struct Arrivals {
  std::vector<double> come_s;  // by peer in the group, on the clock of now_s(); 0: it is not known

  void note(int peer, double s) {
    come_s[static_cast<size_t>(peer)] = std::max(come_s[static_cast<size_t>(peer)], s);
  }
};

/// The exchange under way on this thread notes its arrivals here; null: nobody asks.
inline thread_local Arrivals* asked_arrivals = nullptr;

}  // namespace heddle::comm
