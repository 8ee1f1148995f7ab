// The runs of neighbours into which `hybrid` and `double_ring` of parallel.context cut the ranks of cp. Within a
// run attention changes rows for heads, or keys and values go round; across runs keys and values go round.
#pragma once

#include <cstdint>

namespace heddle::model {
struct ModelConfig;
}

namespace heddle::plan {

struct Degrees;
struct Parallel;

/// The length of a run: parallel.context_inner, or the largest that divides mesh.cp, is less, and in `hybrid`
/// divides the heads of each rank of tp. 1 where there is none, or where parallel.context is another way.
int context_inner(const model::ModelConfig& config, const Parallel& parallel, const Degrees& mesh);

/// Heads of queries, and of keys and values where they are grouped: a run must divide each tp rank's of all layers.
int64_t common_heads(const model::ModelConfig& config);

}  // namespace heddle::plan
