// Pipeline schedules as the estimate knows them: which there are, and in closed form what bubble each leaves and
// how many microbatches a rank holds. The schedules themselves, action by action, are in schedule/generators.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace heddle::search {

/// `usual`: dual_pipe where the software says so, else interleaved where vpp > 1, else 1f1b.
enum class Pipeline : uint8_t {
  usual,
  one_f_one_b,
  interleaved,
  interleaved_fused,
  zb_h1,
  zb_h2,
  zb_v,
  dual_pipe,
  dual_pipe_v,
};

/// The name in schedule/generators; "usual".
std::string_view name_of(Pipeline pipeline);
std::optional<Pipeline> pipeline_named(std::string_view name);
/// All but `usual`.
const std::vector<Pipeline>& pipelines();

/// Forward and backward of two microbatches run as one, so that each hides the other's exchange.
bool pairs(Pipeline pipeline);
/// A rank holds a stage and its mirror image: the first rank has both ends of the model.
bool folded(Pipeline pipeline);
/// Chunks a rank; 0: any number from 2 on (interleaved_fused: from 1 on).
int chunks_of(Pipeline pipeline);
/// Why so many ranks, chunks and microbatches can't be; "" when they can.
std::string_view misfit(Pipeline pipeline, int ranks, int chunks, double microbatches);

/// Of one microbatch through all layers of a rank.
struct RankTimes {
  double forward = 0, input_grad = 0, weight_grad = 0;
  double sum() const { return forward + input_grad + weight_grad; }
};

/// Synchronous bubble of a step on equal ranks.
double bubble_s(Pipeline pipeline, int ranks, int chunks, const RankTimes& of);

/// Microbatches whose activations of a rank's layers that rank holds at once; a part of one where chunks are
/// interleaved.
double in_flight(Pipeline pipeline, int ranks, int chunks, double microbatches, int rank);

/// Microbatches of a rank that no other one's backward runs beside, in schedules of pairs: warm-up and cool-down.
double unpaired(Pipeline pipeline, int ranks, int chunks, double microbatches);

/// Copies of weights and gradients that a rank holds.
inline double copies(Pipeline pipeline) { return pipeline == Pipeline::dual_pipe ? 2 : 1; }

}  // namespace heddle::search
