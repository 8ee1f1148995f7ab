// The rows of experts before a step runs, from the shares of the experts. They are as many as each rank of a group
// can expect, with the way that they would take and the bytes of every hop. The topologies' hops and the choice of
// "auto" are those of the exchange itself (comm/exchange/choice.h).
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

/// The experts' shares over the mean, by MoE layer; a layer that is not there is balanced.
using ExpertShares = std::map<int, std::vector<double>>;

/// One draw of all MoE layers of a program.
ExpertShares drawn_shares(const ir::StepProgram& program, const cost::Routing& routing, uint64_t seed);
/// Shares from rows that were counted, by layer in increasing order and expert. ConfigError, naming `from`, where
/// they are not those of the program's layers and experts.
ExpertShares counted_shares(const ir::StepProgram& program, const std::vector<std::vector<double>>& rows_LE,
                            const std::string& from);

struct ExpectedExchange {
  comm::Places places{0, {0}};
  ir::Topology topology = ir::Topology::plain;
  comm::SourceCounts<double> counts{1, 1};
  comm::Hops hops;                           // hops of rows and sums
  std::vector<std::array<int64_t, 3>> rows;  // each rank's: received, passing through, forwarded
  int64_t tokens = 0, chosen = 0;            // tokens of a rank; choices of a token
  struct Replica {
    int owner, holder;  // ranks
  };
  std::vector<Replica> replicas;  // replicas of hot experts
  struct Handover {
    int from, to;  // ranks
    double part;   // share of an expert's weights
    bool relayed;
  };
  std::vector<Handover> handovers;  // transfers of the replicas' weights
};

class ExpectedRows {
 public:
  /// `node_of` as PredictionInput; empty: all are on one node or, `apart`, each on its own.
  ExpectedRows(const model::ModelConfig& config, const plan::Plan& plan, const ir::StepProgram& program,
               const std::vector<int>& node_of, bool apart, ExpertShares shares);

  /// Rows that counts_to_host counts on a rank.
  int64_t read(int rank, const ir::Issue& issue, size_t output);
  /// The exchange of an op that moves rows, or share_counts.
  const ExpectedExchange& of(int rank, const ir::Listing& listing, const ir::Op& op);
  /// The exchange of an op that moves replicas of experts.
  const ExpectedExchange& of_copies(int rank, const ir::Listing& listing, const ir::Op& op);
  /// A rank's place in the group of its experts; groups that stand on nodes alike have one pattern.
  int position(int rank) const { return position_[rank]; }
  int pattern(int rank) const { return pattern_[rank]; }
  int node_of(int rank) const { return node_of_[rank]; }
  /// A number for each rank that differs where rows or hops do.
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
  const int64_t groups_, chosen_groups_;  // groups of the router's choice
  const ExpertShares shares_;
  std::vector<int> node_of_, position_, pattern_;
  std::vector<std::vector<int>> nodes_of_pattern_;
  std::map<Key, ExpectedExchange> known_;
};

}  // namespace heddle::runtime
