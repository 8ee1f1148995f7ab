#include "heddle/train/step/batch.h"

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/loss_scale.h"
#include "heddle/runtime/microbatch.h"

namespace heddle::train {

namespace {

// One entry for each id of a microbatch, from what is known of each of its sequences; empty where nothing is.
template <class Entry>
std::vector<Entry> marks_from(const std::vector<std::vector<Entry>>& of, size_t first, size_t count, size_t width) {
  std::vector<Entry> all;
  for (size_t i = first; i < first + count; ++i) {
    const bool known = i < of.size() && !of[i].empty();
    HEDDLE_CHECK(!known || of[i].size() == width, "{} marks for {} ids", of[i].size(), width);
    if (!known && all.empty()) continue;
    all.resize((i - first) * width);  // the sequences before have none
    if (known) all.insert(all.end(), of[i].begin(), of[i].end());
  }
  if (!all.empty()) all.resize(count * width);
  return all;
}

// The tokens of a microbatch that begins with the sequence `first`, and what is known of them.
runtime::Microbatch microbatch_from(const Sequences& sequences, int64_t first, int64_t count, int64_t width,
                                    bool of_pairs) {
  runtime::Microbatch micro;
  micro.first_sequence = first;
  for (int64_t i = first; i < first + count; ++i) {
    if (i >= std::ssize(sequences.tokens)) {  // a last, smaller batch
      micro.tokens.insert(micro.tokens.end(), static_cast<size_t>(width), -1);
    } else {
      const std::vector<int32_t>& sequence = sequences.tokens[static_cast<size_t>(i)];
      HEDDLE_CHECK(std::ssize(sequence) == width, "a sequence has {} ids, {} are expected", sequence.size(), width);
      micro.tokens.insert(micro.tokens.end(), sequence.begin(), sequence.end());
    }
    if (of_pairs) micro.references.push_back(sequences.reference(static_cast<size_t>(i)));
  }
  const auto from = static_cast<size_t>(first), of = static_cast<size_t>(count), each = static_cast<size_t>(width);
  micro.masked = marks_from(sequences.masked, from, of, each);
  micro.weights = marks_from(sequences.weights, from, of, each);
  micro.begins = marks_from(sequences.begins, from, of, each);
  return micro;
}

// The weight of all labels `distance` after each position.
double weigh_labels(const Sequences& sequences, int64_t length, int64_t distance) {
  double labels = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (int64_t t = 0; t < length; ++t)
      labels += sequences.label_weight(i, static_cast<size_t>(t), static_cast<size_t>(distance));
  }
  return labels;
}

double count_pairs(const Sequences& sequences) {
  double pairs = 0;
  for (size_t i = 0; i + 1 < sequences.size(); i += 2)
    pairs += !std::isnan(sequences.reference(i)) && !std::isnan(sequences.reference(i + 1));
  return pairs;
}

}  // namespace

int64_t sequence_tokens(const model::ModelConfig& model, const plan::Plan& plan) {
  return plan.sequence_length + 1 + model.num_nextn_predict_layers;
}

std::vector<double> scales_of(const Sequences& sequences, const model::ModelConfig& model, const plan::Plan& plan) {
  const int64_t length = plan.sequence_length;
  const bool of_pairs = plan.objective.of_pairs();
  const auto one_over = [](double x) { return x > 0 ? 1 / x : 0; };
  const auto count = static_cast<double>(sequences.size());
  std::vector<double> scales(static_cast<size_t>(model::kScaleDepth));
  scales[model::kScaleNextToken] = one_over(of_pairs ? count_pairs(sequences) : weigh_labels(sequences, length, 1));
  scales[model::kScaleSequenceAux] = one_over(count);
  scales[model::kScaleZ] = one_over(count * static_cast<double>(length));
  for (int64_t d = 1; d <= model.num_nextn_predict_layers; ++d) {
    scales.push_back(model.depth_loss_weight() * one_over(weigh_labels(sequences, length, d + 1)));
  }
  return scales;
}

int microbatches_of(int64_t sequences, const plan::Plan& plan) {
  const int64_t each = plan.sequences * plan.mesh.dp;
  const auto microbatches = static_cast<int>(sequences / each);
  const std::vector<int>& fewer = plan.fewer_microbatches;
  const bool known =
      microbatches == plan.microbatches || std::find(fewer.begin(), fewer.end(), microbatches) != fewer.end();
  HEDDLE_CHECK(known && sequences % each == 0, "a step takes {} sequences, {} given", plan.microbatches * each,
               sequences);
  return microbatches;
}

device::Inputs batch_of(const Sequences& sequences, int microbatches, const model::ModelConfig& model,
                        const plan::Plan& plan, const ir::Listing& listing, const ir::Coordinates& place) {
  device::Inputs inputs(microbatches);
  for (int m = 0; m < microbatches; ++m) {
    const int64_t first = (int64_t{m} * plan.mesh.dp + place.at(ir::Axis::dp)) * plan.sequences;
    const runtime::Microbatch microbatch =
        microbatch_from(sequences, first, plan.sequences, sequence_tokens(model, plan), plan.objective.of_pairs());
    runtime::set_microbatch(inputs, m, microbatch, listing, place);
  }
  runtime::set_scales(inputs, scales_of(sequences, model, plan), listing);
  return inputs;
}

}  // namespace heddle::train
