// Random layouts × model options × switches, each with its batch: what must not depend on how a step is spread over
// ranks.
#pragma once

#include <string>

#include "heddle/base/random.h"
#include "heddle/model/parameter.h"
#include "heddle/plan/plan.h"
#include "tests/runtime/batch.h"

namespace heddle::parity {

/// How the routers' weights are drawn.
enum class Routing : uint8_t {
  spread,  // like everything else
  ties,    // experts in pairs of equal rows
  zeros,   // half of the experts have scores of exactly zero for most tokens, and some of them are chosen
};

struct Draw {
  uint64_t seed = 0;
  model::ModelConfig model;
  plan::Plan plan;           // of all ranks
  std::vector<int> node_of;  // the node that each thread rank stands for
  std::string backend = "reference";
  int microbatches = 8;  // of the global batch
  int token_kinds = 48;  // 1: every token takes the same experts
  Routing routing = Routing::spread;
  double tolerance = 1e-10;       // relative norm, a tensor; see parity.h for bf16
  double loss_tolerance = 1e-10;  // of losses and loads
  bool same_bits = false;         // of losses and gradients
  bool same_state = false;        // and of all that the step leaves
  /// One line: what was drawn.
  std::string text() const;
  /// The same step on one rank.
  plan::Plan one_rank() const;
  /// The microbatches of a data rank, of the same global batch for every layout.
  test::Batch batch(const plan::Plan& layout, int data_rank) const;
  double parameter(const model::Parameter& p, int64_t element, const std::vector<double>& rope_table) const;
};

/// Draw number `number`, at most `most_ranks` ranks; `ranks` > 0 asks for exactly so many.
Draw draw(uint64_t number, int most_ranks, int ranks = 0);

/// How a layout's bf16 numbers are held to one rank's.
enum class Rounding : uint8_t {
  same,    // every activation and its gradient has one rank's bits: no product and no token's sum is cut over ranks
  others,  // tp, cp, etp or another tree of experts: what is cut is rounded in parts
};

/// A draw in bf16 with this rounding: number `number` of those, which depends on nothing else.
Draw draw_bf16(uint64_t number, int most_ranks, Rounding rounding, int ranks = 0);

}  // namespace heddle::parity
