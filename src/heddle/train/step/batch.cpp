#include "heddle/train/step/batch.h"

#include "heddle/base/error.h"
#include "heddle/model/loss_scale.h"

namespace heddle::train {

namespace {

// The tokens of a microbatch that begins with the sequence `first`, and what of them is masked.
device::Microbatch microbatch_from(const Sequences& sequences, int64_t first, int64_t count, int64_t width) {
  device::Microbatch micro;
  micro.first_sequence = first;
  for (int64_t i = first; i < first + count; ++i) {
    if (i >= std::ssize(sequences.tokens)) {  // a last, smaller batch
      micro.tokens.insert(micro.tokens.end(), static_cast<size_t>(width), -1);
      continue;
    }
    const std::vector<int32_t>& sequence = sequences.tokens[static_cast<size_t>(i)];
    HEDDLE_CHECK(std::ssize(sequence) == width, "a sequence has {} ids, {} are expected", sequence.size(), width);
    if (const std::vector<uint8_t>* mask = sequences.mask_of(static_cast<size_t>(i))) {
      HEDDLE_CHECK(mask->size() == sequence.size(), "a mask of {} entries for {} ids", mask->size(),
                   sequence.size());
      micro.masked.resize(micro.tokens.size(), 0);
      micro.masked.insert(micro.masked.end(), mask->begin(), mask->end());
    }
    micro.tokens.insert(micro.tokens.end(), sequence.begin(), sequence.end());
  }
  if (!micro.masked.empty()) micro.masked.resize(micro.tokens.size(), 0);
  return micro;
}

// Labels of the tokens `distance` after each position.
double count_labels(const Sequences& sequences, int64_t length, int64_t distance) {
  double labels = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (int64_t t = 0; t < length; ++t) labels += sequences.is_target(i, static_cast<size_t>(t + distance));
  }
  return labels;
}

std::vector<double> scales_of(const Sequences& sequences, const model::ModelConfig& model, int64_t length) {
  const auto one_over = [](double x) { return x > 0 ? 1 / x : 0; };
  const auto count = static_cast<double>(sequences.size());
  std::vector<double> scales(static_cast<size_t>(model::kScaleDepth));
  scales[model::kScaleNextToken] = one_over(count_labels(sequences, length, 1));
  scales[model::kScaleSequenceAux] = one_over(count);
  scales[model::kScaleZ] = one_over(count * static_cast<double>(length));
  for (int64_t d = 1; d <= model.num_nextn_predict_layers; ++d) {
    scales.push_back(model.depth_loss_weight() * one_over(count_labels(sequences, length, d + 1)));
  }
  return scales;
}

}  // namespace

int64_t sequence_tokens(const model::ModelConfig& model, const plan::Plan& plan) {
  return plan.sequence_length + 1 + model.num_nextn_predict_layers;
}

device::Batch batch_of(const Sequences& sequences, int microbatches, const model::ModelConfig& model,
                       const plan::Plan& plan, const ir::Coordinates& place) {
  device::Batch batch;
  for (int64_t m = 0; m < microbatches; ++m) {
    const int64_t first = (m * plan.mesh.dp + place.at(ir::Axis::dp)) * plan.sequences;
    batch.microbatches.push_back(microbatch_from(sequences, first, plan.sequences, sequence_tokens(model, plan)));
  }
  batch.scales = scales_of(sequences, model, plan.sequence_length);
  return batch;
}

}  // namespace heddle::train
