// Ranks as threads of one process: a group is a shared board on which ranks show their buffers to each other, and
// each copies what it is to receive. Waiting ranks sleep.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "heddle/comm/world.h"

namespace heddle::comm {

class ThreadGroup;

/// The board that the ranks of one process share.
class ThreadWorlds {
 public:
  /// `node_of[r]`: the node that rank r stands for, so that topologies can be tried in one process. Ranks of a node
  /// need not be neighbours.
  explicit ThreadWorlds(std::vector<int> node_of);
  explicit ThreadWorlds(int ranks) : ThreadWorlds(std::vector<int>(static_cast<size_t>(ranks), 0)) {}
  ~ThreadWorlds();

  int size() const { return static_cast<int>(node_of_.size()); }
  /// The world as `rank` sees it; the board must outlive it.
  std::unique_ptr<World> world(int rank);
  void abort(const std::string& reason, bool input = false);

 private:
  friend class ThreadWorld;
  ThreadGroup& group(const std::vector<int>& ranks, const std::string& name);

  std::vector<int> node_of_;
  std::vector<std::string> hosts_;
  std::mutex mutex_;
  std::map<std::pair<std::vector<int>, std::string>, std::unique_ptr<ThreadGroup>> groups_;
  std::string reason_;
  bool input_ = false;                 // to blame for it
  std::atomic<double> patience_s_{0};  // 0: without end
};

/// Calls `body` once for each rank, each on a thread of its own. A failure on one rank ends all; then the first
/// failure is thrown. It is that of a rank that failed by itself, where there is one, for those that it stopped
/// only say so. `node_of`: the node that each stands for; empty: all one.
void run_on_threads(int ranks, const std::function<void(World&)>& body, std::vector<int> node_of = {});

}  // namespace heddle::comm
