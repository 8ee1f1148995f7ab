#include "heddle/train/model_dump.h"

#include <algorithm>
#include <map>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/formats/safetensors.h"
#include "heddle/runtime/microbatch.h"
#include "heddle/train/released_model.h"
#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

using Numbers = std::vector<double>;

// A tensor of the file, in f64 until it is written.
struct Dumped {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  Numbers values;
};

std::vector<int64_t> dims_of(const device::TensorView& view) {
  return {view.dims.begin(), view.dims.begin() + view.rank};
}

// Ids that a step wants beyond the sequence are none: they are embedded as nothing and are no labels.
Sequences completed(const Sequences& sequences, int64_t width) {
  Sequences all = sequences;
  for (std::vector<int32_t>& sequence : all.tokens) sequence.resize(static_cast<size_t>(width), -1);
  for (std::vector<uint8_t>& mask : all.masked) mask.resize(static_cast<size_t>(width), 1);
  return all;
}

// [S, V] of one sequence after the other.
Numbers logits_of(Trainer& trainer, const Sequences& sequences) {
  const plan::Lowered& lowered = trainer.lowered();
  const int listing = lowered.program.listing_of(0, ir::Purpose::predict);
  const ir::ValueId id = model::value_of(lowered.statistics[listing], model::kLogits);
  Numbers all;
  for (const std::vector<int32_t>& sequence : sequences.tokens) {
    runtime::Microbatch microbatch;
    microbatch.tokens = sequence;
    microbatch.tokens.push_back(-1);
    runtime::Executor& executor = trainer.executor();
    executor.run_step(runtime::inputs_of(microbatch, executor.listing(ir::Purpose::predict), executor.place()),
                      ir::Purpose::predict);
    const device::TensorView logits = executor.view(listing, id);
    for (int64_t i = 0; i < logits.elements(); ++i) all.push_back(number(logits, i));
  }
  return all;
}

// The sums of a step for each trained parameter, in released tensors.
std::vector<Dumped> gradients_of(Trainer& trainer, Dtype dtype) {
  const config::Family& family = config::family_of(trainer.options().model);
  const plan::Lowered& lowered = trainer.lowered();
  const int index = lowered.program.listing_of(0, ir::Purpose::train);
  const ir::Listing& listing = lowered.program.listings[index];
  std::vector<ParameterTensor> tensors;
  std::vector<Numbers> sums;
  for (const model::Parameter& p : lowered.parameters[0]) {
    if (!p.trained) continue;
    Numbers sum;
    std::vector<int64_t> shape;
    for (const ir::ValueId use : listing.accumulators.at(p.value)) {
      const device::TensorView part = trainer.executor().view(index, use);
      shape = dims_of(part);
      sum.resize(static_cast<size_t>(part.elements()), 0.0);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += number(part, static_cast<int64_t>(i));
    }
    tensors.push_back({p, {.name = p.name, .dtype = Dtype::f64, .shape = std::move(shape), .pieces = {}}});
    sums.push_back(std::move(sum));
  }
  std::vector<Dumped> gradients;
  for (const ReleasedTensor& tensor : released_tensors(family, released_slices(tensors))) {
    Dumped& gradient = gradients.emplace_back("grad." + tensor.name, dtype, tensor.shape);
    for (const auto& [slice, place] : tensor.parts) gradient.values.resize(gradient.values.size() + slice.count);
    for (const auto& [slice, place] : tensor.parts) {
      const auto first = sums[slice.parameter].begin() + slice.first;
      for (int64_t i = 0; i < slice.count; ++i)
        gradient.values[static_cast<size_t>(place.at(i, slice.columns()))] = first[i];
    }
  }
  return gradients;
}

Dumped scalar(std::string name, double value) { return {std::move(name), Dtype::f64, {}, {value}}; }

std::vector<Dumped> losses_of(const StepResult& step, const model::ModelConfig& model) {
  std::vector<Dumped> losses{scalar("loss.next_token", step.next_token_loss())};
  double sum = step.next_token_loss();
  const std::vector<double> depths = step.depth_losses();
  for (size_t d = 0; d < depths.size(); ++d) {
    losses.push_back(scalar(fmt::format("loss.depth.{}", d + 1), depths[d]));
    sum += model.depth_loss_weight() * depths[d];
  }
  if (model.sequence_aux_loss_alpha > 0) {
    losses.push_back(scalar("loss.sequence_aux", step.sequence_aux_loss()));
    sum += step.sequence_aux_loss();
  }
  if (model.z_loss_weight > 0) {
    losses.push_back(scalar("loss.z", step.z_loss()));
    sum += step.z_loss();
  }
  if (model.selects() && model.index_stage != model::IndexStage::off) {
    losses.push_back(scalar("loss.index", step.total(model::kIndexLoss)));
    sum += step.total(model::kIndexLoss);
  }
  losses.push_back(scalar("loss", sum));
  return losses;
}

void write(const std::string& path, std::vector<Dumped> tensors) {
  std::vector<formats::TensorHeading> headings;
  std::map<std::string, const Dumped*> by_name;
  for (const Dumped& tensor : tensors) {
    headings.push_back({tensor.name, tensor.dtype, tensor.shape});
    by_name[tensor.name] = &tensor;
  }
  formats::sort_for_file(headings);
  formats::SafetensorsWriter writer(path, headings, {{"format", "pt"}});
  for (const formats::TensorHeading& heading : headings) {
    const Numbers& values = by_name.at(heading.name)->values;
    if (heading.dtype == Dtype::f64) {
      writer.write(values.data(), values.size() * sizeof(double));
    } else {
      const std::vector<float> narrow(values.begin(), values.end());
      writer.write(narrow.data(), narrow.size() * sizeof(float));
    }
  }
  writer.commit();
}

}  // namespace

StepResult dump_model(const std::string& path, Trainer& trainer, const Sequences& sequences) {
  const TrainerOptions& options = trainer.options();
  HEDDLE_CHECK(trainer.mesh().ranks() == 1, "a dump of {} ranks", trainer.mesh().ranks());
  const Dtype dtype = options.plan.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const auto count = static_cast<int64_t>(sequences.size());
  std::vector<Dumped> tensors{{.name = "logits",
                               .dtype = dtype,
                               .shape = {count, options.plan.sequence_length, options.model.vocab_size},
                               .values = logits_of(trainer, sequences)}};
  const StepResult step = trainer.step(completed(sequences, trainer.sequence_tokens()));
  for (std::vector<Dumped> some : {losses_of(step, options.model), gradients_of(trainer, dtype)}) {
    std::move(some.begin(), some.end(), std::back_inserter(tensors));
  }
  write(path, std::move(tensors));
  return step;
}

}  // namespace heddle::train
