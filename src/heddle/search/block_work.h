// What one microbatch costs in one block of each kind, forward and backward, on one rank.
#pragma once

#include "heddle/search/estimate.h"

namespace heddle::search {

/// Seconds of one direction of a block, by cause. Communication counts what overlap leaves exposed.
struct Work {
  double products = 0, attention = 0, traffic = 0;
  double tensor = 0, exchange = 0, context = 0, data = 0;
  double ops = 0;  // launches, a number

  Work& operator+=(const Work& w);
  Work scaled(double factor) const;
  double compute() const { return products + attention + traffic; }
  double device_s() const { return compute() + tensor + exchange + context + data; }
};

struct BlockWork {
  Work forward, backward;
};

class Pricing {
 public:
  Pricing(const Job& job, const Behaviour& behaviour);

  BlockWork attention() const;
  BlockWork dense() const;
  BlockWork moe() const;
  BlockWork mamba() const;
  BlockWork head() const;
  /// Adds the weights gathered and gradients scattered around a block (FSDP), less what its compute hides.
  void shard_weights(BlockWork& block, double parameters, cost::Group group) const;
  /// Device and host time blended: the slower of the two counts, and a little more where they are close.
  double seconds(const Work& work) const;

 private:
  // A linear layer of m rows: forward, input gradient, weight gradient. `narrow`: in the job's precision.
  void linear(BlockWork& block, double m, double n, double k, double groups = 1, bool narrow = true) const;
  void moved(BlockWork& block, double forward_bytes, double backward_bytes) const;
  void elementwise(BlockWork& block, double forward_bytes, double backward_bytes) const;
  void norm_and_residual(BlockWork& block) const;
  void tensor_parallel(BlockWork& block) const;
  void context_parallel(BlockWork& block) const;

  const Job& j_;
  const Behaviour& b_;
  const Layout& l_;
  const model::Shape& s_;
  const Software& sw_;
  double h_;
  double tokens_;  // of a microbatch on a context rank
  double rows_;    // of them where norms and residuals work
  model::ForwardFlops flops_;
};

/// The backward with what it computes again.
enum class BlockKind { attention, dense, moe, mamba };
Work with_recompute(const BlockWork& block, const model::Recompute& recompute, BlockKind kind);

}  // namespace heddle::search
