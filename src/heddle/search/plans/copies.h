// Copies of hot experts (moe.replicas) in the closed forms: what they leave of the imbalance of a job's routing,
// what they take, and where they are worth having. See docs/features/expert_replicas.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cost/hot_experts.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

/// Seconds of one way of the experts' exchange with rows spread evenly; 0 without expert ranks.
double even_exchange_s(const Job& job, const Behaviour& behaviour);

/// Whether experts' ranks stand on several nodes. What these send each other copies leave as it is, for most stand
/// on their owners' node.
bool crosses_nodes(const Job& job);

/// Rows of the fullest rank over the mean, where by routing alone they are `imbalance`, and what copies take of a
/// layer's microbatch.
cost::Evened evened_rows(const Job& job, const Behaviour& behaviour, double imbalance);

/// Bytes of a rank's slots: weights, and gradients in fp32, of the layer that is under way, in each microbatch that
/// is.
double copies_bytes(const Job& job);

/// "off", "auto" or the number of slots; and from such a word.
std::string replicas_word(int replicas);
std::optional<int> replicas_of(std::string_view word);

/// Of values of moe.replicas the one with which the job's mixture layer takes least time, of equals the first.
int cheapest_replicas(const Job& job, const Behaviour& behaviour, const std::vector<int>& values);

}  // namespace heddle::search
