#include "heddle/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "heddle/kernels/registry.h"

namespace heddle::train {

namespace {

constexpr int kTrainStage = 0, kEvaluateStage = 1, kPredictStage = 2;

bool is_finite(const device::TensorView& view) {
  for (int64_t i = 0; i < view.elements(); ++i) {
    switch (view.dtype) {
      case Dtype::f64:
        if (!std::isfinite(view.as<double>()[i])) return false;
        break;
      case Dtype::f32:
        if (!std::isfinite(view.as<float>()[i])) return false;
        break;
      case Dtype::bf16:
        if (!std::isfinite(static_cast<float>(view.as<bf16>()[i]))) return false;
        break;
      default: return true;
    }
  }
  return true;
}

TrainerOptions completed(TrainerOptions options) {
  options.plan.evaluates = true;
  options.plan.predicts = true;
  if (options.pack_weights) {
    options.plan.packed_bytes = [backend = options.backend](const ir::Value& weight) {
      return kernels::packed_weight_bytes(backend, weight);
    };
  }
  return options;
}

}  // namespace

double StepResult::imbalance() const {
  double worst = 1;
  for (const std::vector<double>& load : load_LE) {
    double sum = 0, most = 0;
    for (const double rows : load) {
      sum += rows;
      most = std::max(most, rows);
    }
    if (sum > 0) worst = std::max(worst, most * static_cast<double>(load.size()) / sum);
  }
  return worst;
}

Trainer::Trainer(TrainerOptions options)
    : options_(completed(std::move(options))), lowered_(plan::lower(options_.model, options_.plan)) {
  HEDDLE_CHECK(options_.plan.ranks() == 1, "the trainer runs one rank, the plan has {}", options_.plan.ranks());
  runtime::ExecutorOptions executor;
  executor.backend = options_.backend;
  executor.threads = options_.threads;
  executor.capacity_bytes = options_.memory_bytes;
  executor_ = std::make_unique<runtime::Executor>(lowered_.program, executor);
  const ir::Stage& stage = lowered_.program.stages[kTrainStage];
  for (const ir::Op& op : stage.ops) {
    const double times = ir::once_a_step(op.phase) ? 1 : options_.plan.microbatches;
    flops_per_step_ += times * op.def->cost(stage, op, ir::FixedRows()).flops;
  }
}

Trainer::~Trainer() = default;

void Trainer::initialise() {
  train::initialise(options_.model, lowered_, *executor_, options_.seed);
  steps_done_ = 0;
}

std::vector<StateTensor> Trainer::state() { return state_tensors(lowered_, *executor_); }

int64_t Trainer::sequence_tokens() const {
  return options_.plan.sequence_length + 1 + options_.model.num_nextn_predict_layers;
}

int64_t Trainer::sequences_per_step() const { return options_.plan.microbatches * options_.plan.sequences; }

model::ParameterCount Trainer::parameter_count() const {
  return model::count_parameters(options_.model, lowered_.parameters[0], lowered_.program.stages[kTrainStage]);
}

double Trainer::statistic(int stage, const std::string& name) const {
  const ir::ValueId id = lowered_.program.stages[static_cast<size_t>(stage)].find(name);
  HEDDLE_CHECK(id != ir::none, "no statistic '{}'", name);
  return executor_->view(stage, id).as<const double>()[0];
}

device::Batch Trainer::batch_of(const std::vector<std::vector<int32_t>>& sequences, int microbatches) const {
  const int64_t width = sequence_tokens(), each = options_.plan.sequences;
  const int64_t depths = options_.model.num_nextn_predict_layers;
  device::Batch batch;
  batch.microbatches.resize(static_cast<size_t>(microbatches));
  std::vector<double> labels(static_cast<size_t>(depths) + 1, 0);
  for (size_t i = 0; i < static_cast<size_t>(microbatches * each); ++i) {
    std::vector<int32_t>& tokens = batch.microbatches[i / static_cast<size_t>(each)].tokens;
    if (i >= sequences.size()) {  // padding of a last, smaller batch
      tokens.insert(tokens.end(), static_cast<size_t>(width), -1);
      continue;
    }
    HEDDLE_CHECK(std::ssize(sequences[i]) == width, "a sequence has {} ids, {} are expected", sequences[i].size(),
                 width);
    tokens.insert(tokens.end(), sequences[i].begin(), sequences[i].end());
    for (int64_t d = 0; d <= depths; ++d) {
      for (int64_t t = 0; t < options_.plan.sequence_length; ++t) {
        labels[static_cast<size_t>(d)] += sequences[i][static_cast<size_t>(t + d + 1)] >= 0;
      }
    }
  }
  const auto count =
      static_cast<double>(std::min<size_t>(sequences.size(), static_cast<size_t>(microbatches * each)));
  const auto one_over = [](double x) { return x > 0 ? 1 / x : 0; };
  batch.scales = {one_over(labels[0]), one_over(count),
                  one_over(count * static_cast<double>(options_.plan.sequence_length))};
  for (int64_t d = 1; d <= depths; ++d) {
    batch.scales.push_back(options_.model.mtp_loss_weight / static_cast<double>(depths) *
                           one_over(labels[static_cast<size_t>(d)]));
  }
  return batch;
}

StepResult Trainer::step(const std::vector<std::vector<int32_t>>& sequences) {
  HEDDLE_CHECK(std::ssize(sequences) == sequences_per_step(), "a step takes {} sequences, {} given",
               sequences_per_step(), sequences.size());
  device::Batch batch = batch_of(sequences, options_.plan.microbatches);
  const passes::UpdateOptions& update = options_.plan.update;
  const double rate = options_.learning_rate.at(steps_done_);
  const auto t = static_cast<double>(steps_done_ + 1);
  batch.hyper = {rate, 1 - std::pow(update.beta1, t), 1 - std::pow(update.beta2, t)};

  const auto start = std::chrono::steady_clock::now();
  executor_->run_step(batch);
  StepResult result;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.flops = flops_per_step_;
  result.learning_rate = rate;
  result.tokens = sequences_per_step() * options_.plan.sequence_length;
  result.gradient_norm = statistic(kTrainStage, "grad_norm");
  result.next_token_loss = statistic(kTrainStage, "loss.next_token") * batch.scales[model::kScaleNextToken];
  const ir::Stage& stage = lowered_.program.stages[kTrainStage];
  for (size_t v = 0; v < stage.values.size(); ++v) {
    const ir::Value& value = stage.values[v];
    if (value.role != ir::Role::statistic) continue;
    if (value.name.starts_with("loss.sequence_aux.")) {
      result.sequence_aux_loss += statistic(kTrainStage, value.name) * batch.scales[model::kScaleSequenceAux];
    } else if (value.name.starts_with("loss.z.")) {
      result.z_loss += statistic(kTrainStage, value.name) * batch.scales[model::kScaleZ];
    } else if (value.name.starts_with("loss.depth.")) {
      const size_t depth = result.depth_losses.size();
      const double weight =
          options_.model.mtp_loss_weight / static_cast<double>(options_.model.num_nextn_predict_layers);
      const double scale = batch.scales[model::kScaleDepth + depth];
      result.depth_losses.push_back(weight == 0 ? 0 : statistic(kTrainStage, value.name) * scale / weight);
    } else if (value.name.starts_with("load.")) {
      const device::TensorView load = executor_->view(kTrainStage, static_cast<ir::ValueId>(v));
      result.load_layers.push_back(std::stoi(value.name.substr(5)));
      result.load_LE.emplace_back(load.as<const double>(), load.as<const double>() + load.elements());
    }
  }
  result.peak_live_bytes = executor_->walk().storage().peak_live_bytes();
  result.reserved_bytes = executor_->walk().storage().reserved_bytes();
  if (!std::isfinite(result.next_token_loss) || !std::isfinite(result.gradient_norm))
    explain_not_finite(batch, result);
  ++steps_done_;
  return result;
}

void Trainer::explain_not_finite(const device::Batch& batch, const StepResult& result) {
  const int64_t step = steps_done_ + 1;
  const ir::Stage& stage = lowered_.program.stages[kTrainStage];
  std::string where = "no single op; the sum over microbatches overflows";
  bool found = false;
  executor_->run_step(batch, [&](const ir::Issue& issue, const device::KernelCall& call) {
    if (found) return;
    const auto look = [&](std::span<const device::TensorView> views, const std::vector<ir::ValueId>& ids) {
      for (size_t i = 0; i < views.size() && !found; ++i) {
        if (views[i].layout == ir::Layout::packed || is_finite(views[i])) continue;
        found = true;
        where = fmt::format("'{}' of {}{} (phase {}, microbatch {})", stage.value(ids[i]).name, issue.op->kind(),
                            issue.op->layer >= 0 ? fmt::format(" in layer {}", issue.op->layer) : "",
                            ir::name_of(issue.op->phase), issue.microbatch);
      }
    };
    look(call.out, issue.op->out);
    look(call.updates, issue.op->updates);
  });
  throw Error(fmt::format("step {}: loss {}, gradient norm {}: the first value that is not finite is {}", step,
                          result.next_token_loss, result.gradient_norm, where));
}

double Trainer::evaluate(const std::vector<std::vector<int32_t>>& sequences) {
  const auto each = static_cast<size_t>(options_.plan.sequences);
  double sum = 0, labels = 0;
  for (size_t first = 0; first < sequences.size(); first += each) {
    const size_t count = std::min(each, sequences.size() - first);
    const device::Batch batch = batch_of(
        {sequences.begin() + static_cast<long>(first), sequences.begin() + static_cast<long>(first + count)}, 1);
    executor_->run_step(batch, ir::Purpose::evaluate);
    sum += statistic(kEvaluateStage, "loss.next_token");
    if (batch.scales[0] > 0) labels += 1 / batch.scales[0];
  }
  return labels > 0 ? sum / labels : 0;
}

std::vector<float> Trainer::next_logits(std::span<const int32_t> tokens) {
  const int64_t length = options_.plan.sequence_length, vocabulary = options_.model.vocab_size;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= length, "{} tokens, 1 to {} fit", tokens.size(), length);
  device::Batch batch;
  std::vector<int32_t>& row = batch.microbatches.emplace_back().tokens;
  row.assign(tokens.begin(), tokens.end());
  row.resize(static_cast<size_t>(length) + 1, -1);
  batch.scales.assign(model::kScaleDepth, 0);
  executor_->run_step(batch, ir::Purpose::predict);
  const ir::Stage& stage = lowered_.program.stages[kPredictStage];
  const device::TensorView logits = executor_->view(kPredictStage, stage.find("logits"));
  std::vector<float> last(static_cast<size_t>(vocabulary));
  const int64_t at = (std::ssize(tokens) - 1) * vocabulary;
  for (int64_t v = 0; v < vocabulary; ++v) {
    last[static_cast<size_t>(v)] =
        logits.dtype == Dtype::f64 ? static_cast<float>(logits.as<double>()[at + v]) : logits.as<float>()[at + v];
  }
  return last;
}

}  // namespace heddle::train
