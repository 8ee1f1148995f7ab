// Cost of one microbatch in one block of each kind, forward and backward, on one rank.
#pragma once

#include <algorithm>
#include <optional>

#include "heddle/cost/collective.h"
#include "heddle/cost/hot_experts.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

/// Seconds of one direction of a block, by cause. Communication counts what overlap leaves exposed.
struct Work {
  double products = 0, attention = 0, traffic = 0;
  double tensor = 0, exchange = 0, context = 0, data = 0;
  double ops = 0;              // launches, a number
  double hidden_exchange = 0;  // runs beside the compute of another microbatch, if there is as much

  Work& operator+=(const Work& w);
  Work scaled(double factor) const;
  double compute() const { return products + attention + traffic; }
  double device_s() const { return compute() + tensor + exchange + context + data; }
};

struct BlockWork {
  Work forward, backward;
  Work weights;  // the part of `backward` that only weight gradients need
};

/// Hops round rings, beside attention to the share before. Those in a fast domain and those that leave it have
/// links of their own.
struct Hops {
  double inside_s = 0, outside_s = 0;
  void add(const cost::Accelerator& device, cost::Group ring, double seconds) {
    (cost::ranks_inside(device, ring) == ring.size ? inside_s : outside_s) += seconds;
  }
  double exposed_s(double contention, double attention_s) const {
    return std::max(contention * (inside_s + outside_s), std::max(inside_s, outside_s) - attention_s);
  }
};

/// The priced blocks of a job. Jobs share them that differ only in stages, schedule, batch and recomputation (and,
/// where weights are sharded, have as many data ranks).
struct Prices {
  BlockWork attention, dense, moe, mamba, head;
  /// Bytes of a token without recomputation and with it, where the blocks are those of Heddle's own program:
  /// backwards then include what the job computes again, else not.
  struct Saved {
    SavedBytes whole, kept;
  };
  std::optional<Saved> saved;
  double kept_imbalance =
      1;  // rows of the fullest rank over the mean that memory has to hold, with copies of experts
};
Prices prices_of(const Job& job, const model::Parameters& parameters, const Behaviour& behaviour);
/// Without what the job's sharding adds, for jobs that differ in it too.
Prices unsharded_prices_of(const Job& job, const model::Parameters& parameters, const Behaviour& behaviour);

/// The mean layer and the ends of a model for one microbatch: the parts of an estimate.
struct Layers {
  Work layer;  // both directions
  double layer_s = 0, forward_s = 0, weight_s = 0;
  Work tail;  // the head and multi-token prediction
  double head_s = 0;
  // Copies to the host and back that the compute doesn't hide: of a layer's forward and backward, of the embedding
  // (with messages of its shards), of the head.
  double offload_out_s = 0, offload_back_s = 0, embedding_copies_s = 0, head_copies_s = 0;
  SavedBytes whole, kept;  // for a token, without recomputation and with it
};
Layers layers_of(const Job& job, const Prices& prices, const Behaviour& behaviour);

/// Returns the estimate of a possible job from its parts. No checks.
Estimate estimate(const Job& job, const model::Parameters& parameters, const Layers& layers,
                  const Behaviour& behaviour);
/// Fills all but the byte fields.
void estimate_time(const Job& job, const model::Parameters& parameters, const Layers& layers,
                   const Behaviour& behaviour, Estimate& into);
inline constexpr double kOffloaded = 0.15;  // part of the activations, where they are offloaded

/// The parts of a rank's memory.
struct LayerMemory {
  double fixed = 0;       // weights, gradients, states, with a schedule's second copies
  double fixed_once = 0;  // without
  double gathered = 0;    // beside them, where weights are sharded or come from the host: once a rank
  double kept = 0;        // a microbatch's bytes until its backward
  double hosted = 0;      // persistent bytes on the host
  // Bytes that come from the host for a microbatch, each time.
  double weights_cross = 0, gradients_cross = 0;
};
struct MemoryParts {
  LayerMemory mean, dense, moe;  // a hybrid's are all the mean
  double embedding_fixed = 0, head_fixed = 0;
  double head_layers = 1;  // layers that the last stage has fewer, for its head
  double embedding_hosted = 0, head_hosted = 0;
  double working = 0, head_working = 0, embedding_working = 0;
};
MemoryParts memory_parts(const Job& job, const model::Parameters& parameters, const Layers& layers);
/// Fills the byte fields alone.
void estimate_memory(const Job& job, const MemoryParts& parts, Estimate& into);
/// Fills only the bytes saved.
void saved_bytes_of(const Job& job, const Prices& prices, Layers& into);

class Pricing {
 public:
  Pricing(const Job& job, const Behaviour& behaviour);

  BlockWork attention() const;  // a mean over the blocks
  BlockWork dense() const;
  BlockWork moe() const;
  BlockWork mamba() const;
  BlockWork head() const;
  /// Adds the weights gathered and gradients scattered around a block (FSDP), less what its compute hides.
  void shard_weights(BlockWork& block, double parameters, cost::Group group) const;

 private:
  // A linear layer of m rows: forward, input gradient, weight gradient. `narrow`: in the job's precision.
  void linear(BlockWork& block, double m, double n, double k, double groups = 1, bool narrow = true) const;
  void moved(BlockWork& block, double forward_bytes, double backward_bytes) const;
  void elementwise(BlockWork& block, double forward_bytes, double backward_bytes) const;
  void norm_and_residual(BlockWork& block) const;
  void gated_norm(BlockWork& block) const;
  void tensor_parallel(BlockWork& block) const;
  void context_parallel(BlockWork& block) const;
  void scan(BlockWork& block, double flops_per_token, double numbers) const;
  BlockWork softmax_attention() const;
  BlockWork recurrence() const;

  const Job& j_;
  const Behaviour& b_;
  const plan::Degrees& l_;
  const model::Shape& s_;
  const Software& sw_;
  double h_;
  double tokens_;  // tokens of a microbatch on a context rank
  double rows_;    // tokens on which norms and residuals work
  model::ForwardFlops flops_;
};

/// Blends device and host time: the slower of the two counts, and a little more where they are close.
double block_s(const Work& work, const Job& job, const Behaviour& behaviour);

/// Adds the seconds of an exchange, split into what a pair or the overlap leaves exposed and what it hides.
void add_exchange(Work& to, double seconds, const Job& job, const Behaviour& behaviour);

/// Adds the transfers of replicas of hot experts in a mixture layer, where they are not hidden.
void add_copies(BlockWork& to, const cost::Evened& evened, const Job& job, const Behaviour& behaviour);

/// Kinds of blocks, and the backward of one with what it computes again.
enum class BlockKind { attention, dense, moe, mamba };
Work with_recompute(const BlockWork& block, const Recompute& recompute, BlockKind kind);
/// As above, for one of the job's blocks.
Work backward_of(const Prices& prices, const BlockWork& block, BlockKind kind, const Job& job);

}  // namespace heddle::search
