// Times of messages between ranks on links that were measured, and how much of their host's links they keep busy.
// Inside a host a message has that host's own time. Across hosts all bytes of a host go through its link, in each
// hop as many as the busiest host has.
#pragma once

#include "heddle/cost/machine_profile.h"
#include "heddle/plan/mesh.h"
#include "heddle/runtime/expected_rows.h"

namespace heddle::runtime {

struct MessageTime {
  double us = 0;
  simulate::LinkUse link;
};

class Messages {
 public:
  /// `rows` tells where ranks stand, too; all must outlive this. `cards`: PredictionInput.
  Messages(const plan::Mesh& mesh, const cost::MachineProfile& profile, cost::Link over, ExpectedRows& rows,
           int cards = 1);

  /// The time of an op on a communicating stream, without what its ranks copy. `message_bytes`: the bytes that a
  /// rank sends by its definition, where no exchange of experts' rows knows better.
  MessageTime of(int rank, const ir::Listing& listing, const ir::Op& op, double message_bytes);

 private:
  MessageTime exchange(int rank, const ir::Listing& listing, const ir::Op& op);
  MessageTime replicas(int rank, const ir::Listing& listing, const ir::Op& op);
  MessageTime collective(int rank, const ir::Op& op, double bytes);
  MessageTime letter(int rank, const ir::Op& op, double bytes);
  MessageTime hop(const comm::Hop& hop, const comm::Places& places, int position);
  double within_us(int ranks, double bytes) const;
  bool hosts() const { return over_ == cost::Link::nodes; }
  const std::vector<int>& group_of(const std::string& name, int rank);

  const plan::Mesh& mesh_;
  const cost::MachineProfile& profile_;
  const cost::Link over_;
  cost::Link within_ = cost::Link::threads;
  ExpectedRows& rows_;
  const double cards_;
  std::map<std::pair<std::string, int>, std::vector<int>> groups_;  // by name and rank
};

}  // namespace heddle::runtime
