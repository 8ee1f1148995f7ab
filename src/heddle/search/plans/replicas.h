// Replicas of hot experts (moe.replicas) in the closed forms: the imbalance of a job's routing that they leave,
// their cost, and where they are worth having. See docs/features/expert_replicas.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cost/hot_experts.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

/// Slots of a rank for replicas; 0 beside a capacity.
int replica_slots(const Job& job);

/// Rows of the fullest rank over the mean, where by routing alone they are `imbalance`. With a capacity every rank
/// computes all places, filled or not: no more of an expert than there are tokens.
double fullest_rows(const Job& job, double imbalance);

/// Seconds of one way of the experts' exchange with rows spread evenly; 0 without expert ranks.
double even_exchange_s(const Job& job, const Behaviour& behaviour);

/// True if experts' ranks stand on several nodes. Replicas leave the traffic between nodes as it is, for most stand
/// on their owners' node.
bool crosses_nodes(const Job& job);

/// Rows of the fullest rank over the mean, where by routing alone they are `imbalance`, and what replicas take of a
/// layer's microbatch.
cost::Evened evened_rows(const Job& job, const Behaviour& behaviour, double imbalance);

/// Bytes of a rank's slots: weights, and gradients in fp32, of the layer that is under way, in each microbatch that
/// is.
double replica_bytes(const Job& job);

/// "off", "auto" or the number of slots; and from such a word.
std::string replicas_word(int replicas);
std::optional<int> replicas_of(std::string_view word);

/// Returns the value of moe.replicas with which the job's mixture layer takes least time, the first of equals.
int cheapest_replicas(const Job& job, const Behaviour& behaviour, const std::vector<int>& values);

}  // namespace heddle::search
