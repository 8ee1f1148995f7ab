// Programs written by hand, for tests: ops that do nothing but stand on a stream, with durations in the text.
#pragma once

#include <string>
#include <vector>

#include "heddle/ops/ops.h"
#include "heddle/plan/plan.h"
#include "heddle/schedule/lower.h"
#include "heddle/simulate/simulate.h"

namespace heddle::test {

inline std::vector<ir::Value> one_number(const ir::Listing&, const ir::Op&) {
  ir::Value value;
  value.shape = {{32, ir::none}};
  return {value};
}

inline const ir::OpDef work{
    .kind = "work", .operands = "in*", .results = "out", .attributes = "us", .infer = one_number};
inline const ir::OpDef fetch{.kind = "fetch",
                             .operands = "in*",
                             .results = "out",
                             .attributes = "us",
                             .stream = ir::StreamKind::copy_in,
                             .infer = one_number};
inline const ir::OpDef stall{.kind = "stall",
                             .operands = "in*",
                             .results = "out",
                             .attributes = "us",
                             .stream = ir::StreamKind::copy_out,
                             .host_stall = true,
                             .infer = one_number};
inline const ir::OpDef meet{.kind = "meet",
                            .operands = "in*",
                            .results = "out",
                            .attributes = "us",
                            .stream = ir::StreamKind::comm,
                            .collective = true,
                            .infer = one_number};

/// A message whose duration stands in the text.
inline const ir::OpDef& timed(std::string_view kind) {
  static const auto with_us = [](std::string_view of, std::string_view attributes) {
    ir::OpDef def = ops::find(of);
    def.attributes = attributes;
    return def;
  };
  static const ir::OpDef send = with_us("send", "step us"),
                         receive = with_us("receive", "step us dtype rows columns");
  return kind == "send" ? send : receive;
}

/// Appends an op that lasts `us`; returns its output.
inline ir::ValueId put(ir::Listing& listing, const ir::OpDef& def, ir::Phase phase, std::vector<ir::ValueId> in,
                       double us, const std::string& name, const std::string& group = "") {
  ir::Op op;
  op.def = &def;
  op.in = std::move(in);
  op.phase = phase;
  op.group = group;
  op.attributes.set("us", us);
  return listing.append(std::move(op), {name})[0];
}

/// Appends a send (of `value`) or, without a value, a receive, to or from the neighbour `step` away.
inline ir::ValueId message(ir::Listing& listing, ir::Phase phase, ir::ValueId value, int64_t step, double us) {
  ir::Op op;
  op.def = &timed(value == ir::none ? "receive" : "send");
  op.phase = phase;
  op.group = "pp";
  op.attributes = {{"step", step}, {"us", us}};
  if (value != ir::none) {
    op.in = {value};
    listing.append(std::move(op), {});
    return ir::none;
  }
  op.attributes.set("dtype", std::string("f32")).set("rows", int64_t{1}).set("columns", int64_t{32});
  return listing.append(std::move(op), {"received"})[0];
}

/// A pipeline of `ranks` equal listings under 1F1B: forward, backward and message times in microseconds.
inline ir::StepProgram pipeline(int ranks, int microbatches, double forward_us, double backward_us,
                                double message_us) {
  ir::StepProgram program;
  program.microbatches = microbatches;
  program.class_of_rank.clear();
  for (int s = 0; s < ranks; ++s) {
    ir::Listing listing;
    listing.name = fmt::format("listing {}", s);
    std::vector<ir::ValueId> in;
    if (s > 0) in.push_back(message(listing, ir::Phase::F, ir::none, -1, message_us));
    const ir::ValueId y = put(listing, work, ir::Phase::F, in, forward_us, "y");
    if (s + 1 < ranks) message(listing, ir::Phase::F, y, 1, message_us);
    std::vector<ir::ValueId> back{y};
    if (s + 1 < ranks) back.push_back(message(listing, ir::Phase::I, ir::none, 1, message_us));
    const ir::ValueId dx = put(listing, work, ir::Phase::I, back, backward_us, "dx");
    if (s > 0) message(listing, ir::Phase::I, dx, -1, message_us);
    program.listings.push_back(std::move(listing));
    program.class_of_rank.push_back(s);
  }
  plan::Plan plan;
  plan.mesh.pp = ranks;
  plan.microbatches = microbatches;
  schedule::lower(program, program.actions[0], plan::schedule_of(plan));
  return program;
}

/// Each listing forward on one microbatch, one rank a listing.
inline ir::StepProgram forward_only(std::vector<ir::Listing> listings) {
  ir::StepProgram program;
  program.class_of_rank.clear();
  const auto ranks = static_cast<int>(listings.size());
  for (int r = 0; r < ranks; ++r) program.class_of_rank.push_back(r);
  program.listings = std::move(listings);
  schedule::lower(program, program.actions[0], schedule::forward_only(schedule::loop_placement(ranks)));
  return program;
}

inline simulate::SimulationInput written_durations() {
  simulate::SimulationInput input;
  input.duration_us = [](int, const ir::Issue& issue) { return issue.op->attributes.number("us"); };
  return input;
}

inline simulate::Groups pipeline_groups(int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  return {{"comm.pp.forward", {all}}, {"comm.pp.backward", {all}}};
}

}  // namespace heddle::test
