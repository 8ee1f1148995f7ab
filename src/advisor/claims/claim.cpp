#include "advisor/claims/claim.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "advisor/claims/computed.h"
#include "heddle/base/error.h"

namespace heddle::advisor {

namespace {

using PlainJson = nlohmann::json;
constexpr double kMet = 0.05;   // of a published figure, that ours may lack
constexpr double kNear = 0.25;  // of a published fact, by which ours may differ

// The function of each row that is computed.
const std::map<std::string, std::function<double()>>& functions() {
  constexpr double kEarly = 1.42, kNatural = 1.15, kWorst = 2.65;  // rows of the fullest rank over the mean
  static const std::map<std::string, std::function<double()>> all{
      {"swap_memory", memory_of_swap},
      {"hidden_ordinary", [] { return hidden_by_pairs("Ascend-910B"); }},
      {"hidden_super_node", [] { return hidden_by_pairs("Ascend-910C"); }},
      {"exchange_share", exchange_share},
      {"super_node_bandwidth", bandwidth_of_super_node},
      {"moe_memory", moe_over_dense},
      {"moe_activations", activations_of_experts},
      {"merging", gain_of_merging},
      {"stalls", stalls_of_a_layer},
      {"list_reuse", gain_of_list_reuse},
      {"exchange_together", [] { return (1 + gain_of_merging()) * (1 + gain_of_list_reuse()) - 1; }},
      {"hot_experts", [] { return gain_of_copies("DeepSeek-V3", "C500", kEarly); }},
      {"levels_memory", memory_of_light_recompute},
      {"levels_time", time_of_light_recompute},
      {"batched_products", gain_of_one_launch},
      {"copy_engine", gain_of_copy_engine},
      {"fused_communication", communication_of_fused_products},
      {"fused_products", [] { return gain_of_tensor_overlap(true, true); }},
      {"utilisation", [] { return gain_of_tensor_overlap(true, false); }},
      {"in_layer_hidden", hidden_in_layer},
      {"in_layer_times", hidden_in_layer_over_none},
      {"in_layer_overlap", gain_of_weaving},
      {"offload", gain_of_offload},
      {"dual_pipe_v", [] { return gain_of_dual_pipe_v(true); }},
      {"dual_pipe_v_bare", [] { return gain_of_dual_pipe_v(false); }},
      {"dual_pipe_v_memory", memory_of_dual_pipe_v},
      {"checkpoint", seconds_of_checkpoint},
      {"lost_time", lost_time_of_memory_copies},
      {"fusions", gain_of_fusions},
      {"fusions_memory", memory_of_fusions},
      {"zb_h1_bubble", bubble_of_zero_bubble},
      {"zb_h1_stage_0", stage_0_of_zero_bubble},
      {"zb_h1", [] { return gain_of_zero_bubble(8, 24, 29.718, 29.444, 19.927, 0.527); }},
      {"zb_h1_small", [] { return gain_of_zero_bubble(8, 24, 18.522, 18.086, 9.337, 0.601); }},
      {"zb_h1_large", [] { return gain_of_zero_bubble(32, 96, 10.419, 10.207, 7.715, 0.408); }},
      {"empty_layers", [] { return gain_of_empty_layers(64); }},
      {"everything_memory", memory_of_everything},
      {"everything_speed", gain_of_everything},
      {"exchange_overlap", gain_of_overlap},
      {"hot_experts_16k", [] { return gain_of_balance(16384, kNatural); }},
      {"hot_experts_worst", [] { return gain_of_balance(4096, kWorst); }},
      {"hot_experts_copies", [] { return gain_of_copies("Qwen3-235B-A22B", "H100", kWorst); }},
  };
  return all;
}

Range range_of(const PlainJson& json) { return {json.at(0).get<double>(), json.at(1).get<double>()}; }

Claim claim_of(const PlainJson& json) {
  Claim c;
  c.name = json.at("claim");
  c.system = json.at("system");
  c.what = json.at("what");
  c.setting = json.at("setting");
  c.source = json.at("source");
  c.unit = from_word<ClaimUnit>(json.at("unit").get<std::string>());
  c.better = from_word<BetterWhen>(json.at("better").get<std::string>());
  c.published = range_of(json.at("published"));
  c.by = json.value("by", "");
  c.reason = json.value("reason", "");
  if (json.contains("measured")) {
    const PlainJson& m = json.at("measured");
    c.measured = Measured{range_of(m.at("figure")), m.at("setting"), m.at("command"), m.at("page"), m.at("date")};
  }
  HEDDLE_CHECK(c.by.empty() != functions().contains(c.name), "claim '{}': 'by' and its function don't agree",
               c.name);
  HEDDLE_CHECK(c.measured || !c.by.empty(), "claim '{}' is neither computed nor measured", c.name);
  return c;
}

}  // namespace

const std::vector<Claim>& claims() {
  static const std::vector<Claim> all = [] {
    std::vector<Claim> rows;
    try {
      for (const PlainJson& row : PlainJson::parse(kBuiltInClaims)) rows.push_back(claim_of(row));
    } catch (const PlainJson::exception& error) {
      internal_error("claims.json, after {} rows: {}", rows.size(), error.what());
    }
    return rows;
  }();
  return all;
}

std::optional<double> compute(const Claim& claim) {
  const auto function = functions().find(claim.name);
  return function == functions().end() ? std::nullopt : std::optional(function->second());
}

Verdict verdict_of(const Claim& claim, std::optional<double> computed) {
  HEDDLE_CHECK(claim.measured || computed, "claim '{}' has no figure of ours", claim.name);
  const Range ours = claim.measured ? Range(*claim.measured) : Range{*computed, *computed};
  const Range& theirs = claim.published;
  const double spared = claim.better == BetterWhen::same ? kNear : kMet;
  const auto spare = [spared](double figure) { return spared * std::abs(figure); };
  if (claim.better == BetterWhen::same) {
    const bool meets = ours.high >= theirs.low - spare(theirs.low) && ours.low <= theirs.high + spare(theirs.high);
    return meets ? Verdict::level : Verdict::weaker;
  }
  // From here on more is better.
  const double sign = claim.better == BetterWhen::higher ? 1 : -1;
  const double worst = std::min(sign * ours.low, sign * ours.high);
  const double least = std::min(sign * theirs.low, sign * theirs.high),
               most = std::max(sign * theirs.low, sign * theirs.high);
  if (worst > most + spare(most)) return Verdict::beyond;
  return worst >= least - spare(least) ? Verdict::level : Verdict::weaker;
}

}  // namespace heddle::advisor
