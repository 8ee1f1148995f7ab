// The statistics of a step that the host reads: sums that last to its end, of ir::Role::statistic. The maker of one
// says what it is; readers ask for that, never for the value's name. A further kind is a row here and the line that
// makes it. The trainer adds it up over the ranks, and a run's log has it where the row names a metric.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::model {

struct StatisticKind {
  /// The name of the values in the program's listing; the number of the layer or of the depth comes behind it.
  std::string_view name;
  /// True if every rank holds the same, instead of a part of the sum.
  bool same_on_ranks = false;
  /// Under which the log has it, summed over the layers. "": the log has a place of its own for it, or none.
  std::string_view metric = "";
  /// True if it is the loss that the step is about, by which it is judged.
  bool objective = false;
  /// True if the host reads it; else only ops at the step's end do.
  bool told = true;
  /// True if it is no sum: what the host reads is the largest of all its numbers but the last, over layers and
  /// ranks.
  bool largest = false;
};

inline constexpr StatisticKind kNextTokenLoss{.name = "loss.next_token", .objective = true};
inline constexpr StatisticKind kPreferenceLoss{.name = "loss.preference", .objective = true};
inline constexpr StatisticKind kChosenReward{.name = "reward.chosen", .metric = "reward_chosen"};
inline constexpr StatisticKind kRejectedReward{.name = "reward.rejected", .metric = "reward_rejected"};
inline constexpr StatisticKind kRewardMargin{.name = "reward.margin", .metric = "reward_margin"};
inline constexpr StatisticKind kRewardAccuracy{.name = "reward.accuracy", .metric = "reward_accuracy"};
inline constexpr StatisticKind kSequenceLoss{.name = "loss.sequence"};  // [B]: summed over the labels of each
inline constexpr StatisticKind kLogitZLoss{.name = "loss.logit_z", .metric = "logit_z_loss"};
inline constexpr StatisticKind kDepthLoss{.name = "loss.depth"};
inline constexpr StatisticKind kSequenceAuxLoss{.name = "loss.sequence_aux"};
inline constexpr StatisticKind kZLoss{.name = "loss.z", .metric = "z_loss"};
inline constexpr StatisticKind kIndexLoss{.name = "loss.index", .metric = "index_loss"};
inline constexpr StatisticKind kLoad{.name = "load"};        // [E]: rows routed to each expert
inline constexpr StatisticKind kDropped{.name = "dropped"};  // choices that found no place (moe.capacity_factor)
inline constexpr StatisticKind kBeyond{.name = "beyond"};    // how often rows found no room (moe.room_factor)
inline constexpr StatisticKind kPlaced{.name = "placed"};    // of copies of experts: ir/placed_figures.h
inline constexpr StatisticKind kMargins{.name = "margins", .told = false};  // [E, bins]: ops/balance.cpp
inline constexpr StatisticKind kMaxLogits{.name = "max_logits", .told = false, .largest = true};  // ops/qk_clip.cpp
inline constexpr StatisticKind kGradientNorm{.name = "grad_norm", .same_on_ranks = true};         // before clipping
inline constexpr StatisticKind kSkipped{.name = "step_skipped", .same_on_ranks = true};           // 1: was left out
inline constexpr StatisticKind kLogits{.name = "logits"};  // [T, V]: of the next token

struct Statistic {
  const StatisticKind* kind = nullptr;
  int of = -1;  // the layer, or the depth; −1 where there is one of the kind
  /// The scale of a loss: which factor of the batch makes a mean of the sum (model/loss_scale.h), and the weight
  /// that the factor has in it besides.
  int scale = -1;
  double weight = 1;
  ir::ValueId value = ir::none;
};

std::string name_of(const Statistic& statistic);

/// Adds the value of a statistic to a listing, and what it means to the list.
ir::ValueId add_statistic(ir::Listing& listing, std::vector<Statistic>& statistics, Statistic statistic,
                          ir::Shape shape, Dtype dtype);

/// The value of the statistic of that kind, and layer or depth; none where there is no such.
ir::ValueId value_of(const std::vector<Statistic>& statistics, const StatisticKind& kind, int of = -1);

}  // namespace heddle::model
