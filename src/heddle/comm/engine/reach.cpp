#include "heddle/comm/engine/reach.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "heddle/comm/engine/copy_worker.h"

namespace heddle::comm {

namespace {

// Drawn once a process: a number of a process says nothing where hosts' spaces of them are apart.
uint64_t token_of_process() {
  static const uint64_t token = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return token;
}

struct ShownToken {
  uint64_t token = 0;
  const uint64_t* at = nullptr;
  int64_t process = 0;
};

struct Found {
  std::array<char, 200> why{};  // "": all is well
  bool ok() const { return why[0] == 0; }
};
Found found_of(const std::string& why) {
  Found found;
  std::strncpy(found.why.data(), why.c_str(), found.why.size() - 1);
  return found;
}

std::vector<int> everybody(const World& world) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  return ranks;
}

}  // namespace

Reach find_reach(World& world) {
  const auto group = world.communicator(everybody(world), "engine.reach");
#ifdef PR_SET_PTRACER
  // A process allows others of its user to read it, as Yama may ask; elsewhere this does nothing.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
  const uint64_t token = token_of_process();
  const auto n = static_cast<size_t>(world.size());
  const std::vector<ShownToken> shown =
      exchange_values(*group, std::vector<ShownToken>(n, {token, &token, getpid()}));
  std::vector<Found> found(n);
  for (int r = 0; r < world.size(); ++r) {
    const ShownToken& peer = shown[r];
    if (world.node_of(r) != world.node_of(world.rank()) || peer.token == token) continue;
    uint64_t read = 0;
    std::string why = read_process(static_cast<pid_t>(peer.process), reinterpret_cast<std::byte*>(&read),
                                   reinterpret_cast<const std::byte*>(peer.at), sizeof read);
    if (why.empty() && read != peer.token) why = fmt::format("process {} is another one here", peer.process);
    found[r] = found_of(why);
  }
  // Each peer needs to know what a rank reads of it, and nobody leaves while it is being read.
  const std::vector<Found> of_me = exchange_values(*group, found);
  Reach reach;
  Support mine = Support::yes();
  for (size_t r = 0; r < n; ++r) {
    Reach::Peer& peer = reach.peers.emplace_back();
    if (world.node_of(static_cast<int>(r)) != world.node_of(world.rank())) continue;
    if (shown[r].token == token) {
      peer.by = Reach::By::memory;
    } else if (found[r].ok() && of_me[r].ok()) {
      peer = {Reach::By::process, static_cast<pid_t>(shown[r].process)};
    } else {
      mine = Support::no((found[r].ok() ? of_me[r] : found[r]).why.data());
    }
  }
  reach.near = all_agree(world, mine);
  return reach;
}

Support all_agree(World& world, const Support& mine) {
  const auto group = world.communicator(everybody(world), "engine.agree");
  for (const Found& one :
       exchange_values(*group, std::vector<Found>(static_cast<size_t>(world.size()), found_of(mine.reason)))) {
    if (!one.ok()) return Support::no(one.why.data());
  }
  return Support::yes();
}

}  // namespace heddle::comm
