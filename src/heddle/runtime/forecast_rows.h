// The rows of experts before a step runs: how many each rank of a group can expect, which way they would take, and
// the bytes of every hop, from the shares of the experts. The topologies' hops and the choice of "auto" are those
// of the exchange itself (comm/exchange/choice.h).
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "heddle/comm/exchange/choice.h"
#include "heddle/cost/routing.h"
#include "heddle/ir/topology.h"
#include "heddle/plan/plan.h"
#include "heddle/simulate/recording.h"

namespace heddle::runtime {

/// Of each MoE layer, its experts' shares over the mean; a layer that is not there is balanced.
using ExpertShares = std::map<int, std::vector<double>>;

/// One draw of all MoE layers of a program.
ExpertShares drawn_shares(const ir::StepProgram& program, const cost::Routing& routing, uint64_t seed);
/// From rows that were counted, by layer in increasing order and expert. ConfigError, naming `from`, where they are
/// not those of the program's layers and experts.
ExpertShares counted_shares(const ir::StepProgram& program, const std::vector<std::vector<double>>& rows_LE,
                            const std::string& from);

struct ExpectedExchange {
  comm::Places places{0, {0}};
  ir::Topology topology = ir::Topology::plain;
  comm::SourceCounts<double> counts{1, 1};
  comm::Hops hops;                           // of rows and sums
  std::vector<std::array<int64_t, 3>> rows;  // of each rank: received, passing through, forwarded
  int64_t tokens = 0, chosen = 0;            // of a rank; of a token
  struct Copy {
    int owner, holder;  // ranks
  };
  std::vector<Copy> copies;  // of hot experts
  struct Handover {
    int from, to;  // ranks
    double part;   // of an expert's weights
    bool relayed;
  };
  std::vector<Handover> handovers;  // of the copies' weights
};

class ExpectedRows {
 public:
  /// `node_of` as ForecastInput; empty: all are on one node or, `apart`, each on its own.
  ExpectedRows(const model::ModelConfig& config, const plan::Plan& plan, const ir::StepProgram& program,
               const std::vector<int>& node_of, bool apart, ExpertShares shares);

  /// What counts_to_host counts on a rank.
  int64_t read(int rank, const ir::Issue& issue, size_t output);
  /// Of an op that moves rows, or share_counts.
  const ExpectedExchange& of(int rank, const ir::Listing& listing, const ir::Op& op);
  /// Of an op that moves copies of experts.
  const ExpectedExchange& of_copies(int rank, const ir::Listing& listing, const ir::Op& op);
  /// Where a rank stands in the group of its experts, and the groups that stand on nodes alike.
  int position(int rank) const { return position_[static_cast<size_t>(rank)]; }
  int pattern(int rank) const { return pattern_[static_cast<size_t>(rank)]; }
  int node_of(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  /// Of each rank, a number that differs where rows or hops do.
  std::vector<int> alike();

 private:
  struct Key {
    int pattern, layer;
    int64_t tokens, chosen, row_bytes, sum_bytes;
    std::string topology;
    auto operator<=>(const Key&) const = default;
  };
  /// `placing`: the op that chooses copies, or null.
  ExpectedExchange expect(const Key& key, const ir::Op& op, const ir::Op* placing) const;

  const ir::StepProgram& program_;
  const int64_t groups_, chosen_groups_;  // of the router's choice
  const ExpertShares shares_;
  std::vector<int> node_of_, position_, pattern_;
  std::vector<std::vector<int>> nodes_of_pattern_;
  std::map<Key, ExpectedExchange> known_;
};

}  // namespace heddle::runtime
