// Exchanges a few numbers or lines between the ranks of a training job between steps. They go by way of rank 0, so
// that all hold the same bits and take the same decisions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace heddle::comm {
class Communicator;
class World;
}  // namespace heddle::comm

namespace heddle::train {

class RankExchange {
 public:
  /// Every rank of the world makes one; null: a rank that is alone. The world must outlive it.
  explicit RankExchange(comm::World* world);
  ~RankExchange();

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool leads() const { return rank_ == 0; }

  // All ranks call these together, and wait for one another.

  /// Each number becomes the sum of all ranks', added in rank order.
  void sum(std::span<double> values);
  /// True if `mine` is true on any rank.
  bool any(bool mine);
  /// Returns each rank's text, by rank.
  std::vector<std::string> share(const std::string& mine);
  /// Returns rank 0's text.
  std::string from_first_rank(const std::string& mine) { return share(leads() ? mine : "")[0]; }

  /// All ranks in their order; null for a rank that is alone.
  comm::Communicator* communicator() { return communicator_.get(); }

 private:
  int rank_ = 0, size_ = 1;
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace heddle::train
