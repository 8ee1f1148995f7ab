#include "heddle/train/step/moment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace heddle::train {

int stage_of(const plan::Lowered& lowered, int listing, int chunk) {
  const std::vector<int> stages = lowered.placement.stages_of(listing);
  return chunk >= 0 && chunk < std::ssize(stages) ? stages[chunk] : -1;
}

Moment moment_of(const plan::Lowered& lowered, int listing, const ir::Op& op, int microbatch, int64_t order,
                 int rank) {
  const bool forward = op.phase == ir::Phase::F;
  const int64_t when = !ir::once_a_step(op.phase)     ? microbatch
                       : op.phase == ir::Phase::begin ? -1
                                                      : Moment::kNever - 1;
  const int64_t stage = stage_of(lowered, listing, std::max(0, op.chunk));
  return {when, forward ? 0 : 1, forward ? stage : -stage, order, rank};
}

std::string place_text(const ir::Op& op, const std::string& value, int microbatch, const RankExchange& ranks) {
  return fmt::format("'{}' of {}{} (phase {}, microbatch {}{})", value, op.kind(),
                     op.layer >= 0 ? fmt::format(" in layer {}", op.layer) : "", ir::name_of(op.phase), microbatch,
                     ranks.size() > 1 ? fmt::format(", rank {}", ranks.rank()) : "");
}

std::string earliest(RankExchange& ranks, const Moment& found_at, const std::string& found,
                     const std::string& none) {
  constexpr size_t kNumbers = 5;                                                 // numbers of a Moment
  std::vector<double> moments(static_cast<size_t>(ranks.size()) * kNumbers, 0);  // a place for each rank
  const std::array<int64_t, kNumbers> own{found_at.microbatch, found_at.phase, found_at.listing, found_at.op,
                                          found_at.rank};
  std::copy(own.begin(), own.end(), moments.begin() + ranks.rank() * std::ssize(own));
  ranks.sum(moments);
  const std::vector<std::string> places = ranks.share(found);
  std::string first = none;
  Moment first_at;
  for (size_t r = 0; r < places.size(); ++r) {
    const auto number = [&](size_t i) { return static_cast<int64_t>(moments[r * kNumbers + i]); };
    const Moment moment{number(0), number(1), number(2), number(3), number(4)};
    if (places[r].empty() || moment >= first_at) continue;
    first_at = moment;
    first = places[r];
  }
  return first;
}

}  // namespace heddle::train
