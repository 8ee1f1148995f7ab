#include "heddle/config/hardly_meant.h"

namespace heddle::config {

std::vector<Remark> hardly_meant(const RunConfig& c) {
  std::vector<Remark> remarks;
  const auto remark = [&]<class... Args>(std::string key, fmt::format_string<Args...> text, Args&&... args) {
    remarks.push_back({std::move(key), fmt::format(text, std::forward<Args>(args)...)});
  };
  const RunConfig::Train& t = c.train;
  const bool falls = t.schedule == RateShape::wsd;
  if (c.length().by_clock()) {
    if (t.warmup_fraction >= 1) {
      remark("train.warmup_fraction", "train.warmup_fraction is {}: the learning rate rises until the end",
             t.warmup_fraction);
    } else if (falls && t.warmup_fraction + t.decay_fraction > 1) {
      remark("train.decay_fraction",
             "train.warmup_fraction and train.decay_fraction ({} + {}) are more than the run: the decay is shorter",
             t.warmup_fraction, t.decay_fraction);
    }
  } else if (t.steps == 0) {
    // Epochs, of data that is not known yet.
  } else if (t.warmup_steps >= t.steps) {
    remark("train.warmup_steps",
           "train.warmup_steps is {}, the run has {} steps: the learning rate rises until the end, to {:.2g}",
           t.warmup_steps, t.steps,
           t.learning_rate * static_cast<double>(t.steps) / static_cast<double>(t.warmup_steps));
  } else if (falls && t.warmup_steps + t.decay_steps > t.steps) {
    remark("train.decay_steps",
           "train.warmup_steps and train.decay_steps ({} + {}) are more than the run's {} steps: the decay has {}",
           t.warmup_steps, t.decay_steps, t.steps, t.steps - t.warmup_steps);
  }
  if (t.roll_back_after > 0 && !c.plan.update.skips_outliers()) {
    remark("train.roll_back_after",
           "train.roll_back_after is {}, but neither train.skip_norm_above nor train.skip_loss_above leaves a step "
           "out",
           t.roll_back_after);
  } else if (t.roll_back_after > 0 && t.checkpoint_every == 0) {
    remark("train.roll_back_after",
           "train.roll_back_after is {}, but train.checkpoint_every is 0: there is nothing to go back to",
           t.roll_back_after);
  }
  if (c.plan.parallel.exchange.capacity_factor > 0 && c.plan.parallel.exchange.topology != ir::Topology::plain) {
    remark("parallel.exchange",
           "parallel.exchange is \"{}\", but with moe.capacity_factor rows go straight to their experts' ranks "
           "while training",
           word_of(c.plan.parallel.exchange.topology));
  }
  if (c.model.router_is_without_gradient()) {
    remark("model.norm_topk_prob",
           "model.norm_topk_prob with model.num_experts_per_tok = 1 makes every gate 1: the loss of tokens does "
           "not reach the router, which learns from balance losses alone");
  }
  return remarks;
}

}  // namespace heddle::config
