#include "heddle/train/evaluate.h"

#include <algorithm>
#include <array>

#include "heddle/base/error.h"
#include "heddle/model/loss_scale.h"
#include "heddle/runtime/executor.h"
#include "heddle/train/step/batch.h"
#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

void run(Trainer& trainer, const Sequences& sequences) {
  runtime::Executor& executor = trainer.executor();
  const ir::Purpose purpose = ir::Purpose::evaluate;
  executor.run_step(batch_of(sequences, 1, trainer.options().model, trainer.options().plan,
                             executor.listing(purpose), executor.place()),
                    purpose);
}

}  // namespace

double evaluate(Trainer& trainer, const Sequences& sequences) {
  const plan::Degrees& mesh = trainer.options().plan.mesh;
  const auto each = static_cast<size_t>(trainer.options().plan.sequences * mesh.dp);
  std::array<double, 1> sum{0};
  double labels = 0;
  for (size_t first = 0; first < sequences.size(); first += each) {
    const size_t count = std::min(each, sequences.size() - first);
    const Sequences part = sequences.part(first, count);
    run(trainer, part);
    const device::TensorView loss = trainer.statistic(ir::Purpose::evaluate, model::kNextTokenLoss);
    if (loss) sum[0] += number(loss, 0);
    const double scale = scales_of(part, trainer.options().model, trainer.options().plan)[model::kScaleNextToken];
    if (scale > 0) labels += 1 / scale;
  }
  trainer.ranks().sum(sum);
  return labels > 0 ? sum[0] / labels : 0;
}

std::vector<double> score(Trainer& trainer, const Sequences& sequences) {
  const int dp = trainer.options().plan.mesh.dp;
  HEDDLE_CHECK(trainer.options().plan.sequences == 1 && std::ssize(sequences.tokens) <= dp,
               "{} sequences to score on {} copies", sequences.size(), dp);
  const auto own = static_cast<size_t>(trainer.executor().place().at(ir::Axis::dp));
  run(trainer, sequences);
  std::vector<double> sums(static_cast<size_t>(dp), 0);
  const device::TensorView loss = trainer.statistic(ir::Purpose::evaluate, model::kNextTokenLoss);
  if (loss) sums[own] = number(loss, 0);
  trainer.ranks().sum(sums);
  sums.resize(sequences.size());
  return sums;
}

std::vector<double> sequence_losses(Trainer& trainer, const Sequences& sequences) {
  const plan::Degrees& mesh = trainer.options().plan.mesh;
  const auto own =
      static_cast<size_t>(trainer.executor().place().at(ir::Axis::dp) * trainer.options().plan.sequences);
  const auto each = static_cast<size_t>(trainer.options().plan.sequences * mesh.dp);
  std::vector<double> all;
  for (size_t first = 0; first < sequences.size(); first += each) {
    const size_t count = std::min(each, sequences.size() - first);
    run(trainer, sequences.part(first, count));
    std::vector<double> sums(each, 0);
    const device::TensorView held = trainer.statistic(ir::Purpose::evaluate, model::kSequenceLoss);
    for (int64_t b = 0; held && b < held.elements(); ++b) sums[own + static_cast<size_t>(b)] = number(held, b);
    trainer.ranks().sum(sums);
    all.insert(all.end(), sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return all;
}

}  // namespace heddle::train
