// The proof that a schedule may be run, from the order alone: no durations, no machine.
//
//   complete:   Every stage runs F once on each of its microbatches, and B once, or I and W once each, on its rank.
//   can go on:  The dependencies and the ranks' orders have no cycle, also when only so many messages fit between
//               two ranks.
//   same sums:  Each stage adds up its weight gradients in increasing order of microbatches.
//   peak:       The most activations each rank ever holds; no timing can change it.
//
// Messages: what F or I hands to another rank goes through a channel, one for each (from, to, activations or
// gradients). Messages arrive in the order sent, and a receiver takes those before the one it needs too. A channel
// holds `buffers` messages; a rank whose message finds no room does not begin its next action.
#pragma once

#include <string>
#include <vector>

#include "heddle/schedule/links.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// The bytes that a stage keeps of a microbatch from its F on: until its I, and until its W. Any unit.
struct StageBytes {
  double until_input_grad = 0;
  double until_weight_grad = 1;
};

/// Equal stages: `rank` is what all stages of one rank keep together.
std::vector<StageBytes> even_bytes(const Placement& placement, const StageBytes& rank = {});

struct Peak {
  double bytes = 0;
  double for_weight_grad = 0;  // of these: whose I had run already, so that only W still reads them
};

/// The peaks of each rank. A forward's activations count from its start, a backward's until its end; in a pair
/// both.
std::vector<Peak> peaks_of(const Schedule& schedule, const std::vector<StageBytes>& of_stage);

struct Channel {
  int from = 0, to = 0;
  Kind kind = Kind::F;  // F: activations, I: gradients
  int messages = 0;
  int most_early = 0;  // received and not yet used, because another behind it was needed first
};

struct Certificate {
  std::vector<Peak> peaks;  // of each rank
  std::vector<Channel> channels;
  int least_buffers = 0;     // messages a channel must hold; 0 when there are none
  std::string out_of_order;  // the first sum of weight gradients in another order, or empty
};

struct Requirements {
  std::vector<StageBytes> bytes;  // of each stage of the model; empty: even_bytes
  int buffers = 0;                // messages a channel holds; 0: as many as it takes
  bool same_sums = true;          // refuse a schedule that adds weight gradients in another order
};

/// Throws ConfigError with what is wrong and where; a schedule that can't go on with the picture.
Certificate validate(const Schedule& schedule, const Requirements& requirements = {});

}  // namespace heddle::schedule
