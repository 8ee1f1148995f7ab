// Figures that Heddle computes for the settings of published claims: by closed forms, by the timing of schedules,
// by simulating the step program, or from rated figures alone. A table in claim.cpp names the row of the book that
// each function answers. Gains are parts: 0.15 is +15 %.
#pragma once

#include <cstdint>

namespace heddle::advisor {

// ---- by_estimate.cpp
double gain_of_merging();
double gain_of_dual_pipe_v(bool over_overlap);
double memory_of_dual_pipe_v();
double memory_of_swap();
double exchange_share();
double moe_over_dense();
double activations_of_experts();
/// Returns the gain of an even load over one whose fullest rank has `imbalance` of the mean: Qwen3-235B on 256
/// H100.
double gain_of_balance(double sequence, double imbalance);
/// Returns the gain of copies of hot experts under that imbalance, as a run would place them.
double gain_of_copies(const char* model, const char* device, double imbalance);
double memory_of_light_recompute();
double time_of_light_recompute();
double gain_of_one_launch();
/// Everything on, in 0.7 of the memory, over what Megatron-LM does by default: DeepSeek-V3 on 2,048 H800.
double memory_of_everything();
double gain_of_everything();

// ---- by_schedule.cpp
/// ZB-H1 over 1F1B by the Zero Bubble paper's times: ranks, microbatches, milliseconds of a forward, an input
/// gradient, a weight gradient and a hop.
double gain_of_zero_bubble(int ranks, int microbatches, double f, double i, double w, double hop);
double bubble_of_zero_bubble();
double stage_0_of_zero_bubble();
double gain_of_empty_layers(int microbatches);

// ---- by_program.cpp
double gain_of_list_reuse();
double stalls_of_a_layer();
/// The exchanges of one stage beside the compute of its own layers, on C500s whose 8 expert ranks share a node.
double hidden_in_layer();
double hidden_in_layer_over_none();
/// Returns the gain over exchanges of which nothing is hidden.
double gain_of_weaving();
/// The exchange that pairs of microbatches hide: DeepSeek-V3's width, DualPipeV on 4 stages, 16 expert ranks.
double hidden_by_pairs(const char* device);
/// Exchanges beside another microbatch's compute over exchanges that nothing hides: Qwen3-30B-A3B on 16 H100.
double gain_of_overlap();
/// Fused ops over element-wise ones as an eager framework runs them.
double gain_of_fusions();
double memory_of_fusions();
/// Four layers of LLaMA-2-70B, tp 8 by NVLink: `fused` products over whole ones, `engine` over the usual transport.
double gain_of_tensor_overlap(bool fused, bool engine);
double gain_of_copy_engine();
double communication_of_fused_products();
double gain_of_offload();

// ---- by_rates.cpp
double bandwidth_of_super_node();
double seconds_of_checkpoint();
double lost_time_of_memory_copies();

// ---- replicas.cpp
/// Ranks that share experts, what their devices and links do, and rows (a source's, of a microbatch) whose fullest
/// rank has so many times the mean.
struct CopiesOfHotExperts {
  int64_t ranks = 1, ranks_on_node = 1, experts = 1, hidden = 1, width = 1, rows = 1;
  int64_t replicas = 2;                                                    // slots of a rank for them
  double flops_per_s = 0, within_bytes_per_s = 0, across_bytes_per_s = 0;  // a rank's; a node's
  double imbalance = 1;
};
/// Imbalance that copies leave, by the choice that a run makes (comm/placement); mean of drawn loads.
double imbalance_with_replicas(const CopiesOfHotExperts& of);

}  // namespace heddle::advisor
