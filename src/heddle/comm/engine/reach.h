// The ranks whose memory each rank can read. Those of one process read each other's. Those of one host do where the
// system lets them (process_vm_readv; a container or Yama may forbid it). None reads another host's.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "heddle/base/error.h"
#include "heddle/comm/world.h"

namespace heddle::comm {

struct Reach {
  enum class By : uint8_t { transport, process, memory };  // memory: of one's own process
  struct Peer {
    By by = By::transport;
    pid_t process = 0;  // as CopyWorker::Job has it
  };
  std::vector<Peer> peers;  // by rank of the world; the same way for both of a pair
  /// Support::yes if all ranks of a host reach each other, else why one can't; the same on every rank.
  Support near = Support::yes();
};

/// All ranks call it together, and try.
Reach find_reach(World& world);

/// Support::yes if all ranks say yes, else what the first says that doesn't; all call it together.
Support all_agree(World& world, const Support& mine);

}  // namespace heddle::comm
