// The text form of a schedule: a line of names and numbers, then one line a rank.
//
//   zb_h1 ranks=3 stages=3 microbatches=4 placement=loop
//   r0 F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
//   r1 F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
//   r2 F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
//
// An action is a letter (F forward, I input gradient, W weight gradient, B both gradients) and a microbatch.
// Where the rank has several stages, its chunk and a dot come before the microbatch: F1.3. A fused pair is
// [F0.3|B1.0]. The placement is loop, v, two_way, or the ranks of all stages: 0,1,1,0 (with routes=2, those of the
// copies too). Empty lines and lines that begin with # mean nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// The names of a placement's actions in the text form.
class ActionNames {
 public:
  explicit ActionNames(const Placement& placement);
  std::string operator()(const Compute& compute) const;
  std::string operator()(const Action& action) const;
  int chunk_of(int stage) const { return chunk_of_[stage]; }

 private:
  std::vector<int> chunk_of_, chunks_;  // of each stage its chunk, and the chunks of its rank
};

/// One line, without the end of line.
std::string rank_text(const Schedule& schedule, int rank);
std::string text_of(const Schedule& schedule);

/// The schedule that text_of wrote. ConfigError of one line: where, what was found, what is accepted. The lists may
/// be incomplete or in an impossible order: that is for validate.
Schedule read_schedule(std::string_view text);

}  // namespace heddle::schedule
