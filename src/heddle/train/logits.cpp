#include "heddle/train/logits.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/runtime/executor.h"
#include "heddle/runtime/microbatch.h"
#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

void run(Trainer& trainer, ir::Purpose purpose, const runtime::Microbatch& microbatch) {
  runtime::Executor& executor = trainer.executor();
  executor.run_step(runtime::inputs_of(microbatch, executor.listing(purpose), executor.place()), purpose);
}

}  // namespace

std::vector<float> next_logits(Trainer& trainer, std::span<const int32_t> tokens) {
  const plan::Plan& plan = trainer.options().plan;
  const int64_t length = plan.sequence_length;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= length, "{} tokens, 1 to {} fit", tokens.size(), length);
  runtime::Microbatch microbatch;
  microbatch.tokens.assign(tokens.begin(), tokens.end());
  microbatch.tokens.resize(static_cast<size_t>(length) + 1, -1);
  run(trainer, ir::Purpose::predict, microbatch);
  // Each column is taken from the one rank of the first copy that holds the token's position and this part of the
  // vocabulary.
  std::vector<double> all(static_cast<size_t>(trainer.options().model.vocab_size), 0);
  const ir::Coordinates& place = trainer.executor().place();
  const int cp = place.of(ir::Axis::cp);
  const device::TensorView logits = trainer.statistic(ir::Purpose::predict, model::kLogits);
  if (logits && place.at(ir::Axis::dp) == 0) {
    const int64_t part = logits.dim(1);
    for (int64_t j = 0; j < logits.dim(0); ++j) {
      if (ir::position(j, length, place.at(ir::Axis::cp), cp) != std::ssize(tokens) - 1) continue;
      for (int64_t v = 0; v < part; ++v) {
        all[static_cast<size_t>(place.at(ir::Axis::tp) * part + v)] = number(logits, j * part + v);
      }
    }
  }
  trainer.ranks().sum(all);
  return {all.begin(), all.end()};
}

namespace {

void run_cached(Trainer& trainer, ir::Purpose purpose, std::vector<int32_t> tokens, std::vector<int32_t> places,
                std::vector<int32_t> before = {}) {
  HEDDLE_CHECK(trainer.options().plan.cached_sequences > 0, "this trainer has no cache");
  runtime::Microbatch microbatch;
  microbatch.tokens = std::move(tokens);
  microbatch.places = std::move(places);
  microbatch.before = std::move(before);
  run(trainer, purpose, microbatch);
}

// A row of the logits of such a run.
std::vector<float> cached_logits(const Trainer& trainer, ir::Purpose purpose, int64_t row) {
  const device::TensorView logits = trainer.statistic(purpose, model::kLogits);
  const int64_t count = logits.dim(1);
  std::vector<float> all(static_cast<size_t>(count));
  for (int64_t v = 0; v < count; ++v)
    all[static_cast<size_t>(v)] = static_cast<float>(number(logits, row * count + v));
  return all;
}

}  // namespace

std::vector<float> prefill(Trainer& trainer, int64_t sequence, std::span<const int32_t> tokens) {
  const plan::Plan& plan = trainer.options().plan;
  const int64_t length = plan.sequence_length;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= length, "{} tokens, 1 to {} fit", tokens.size(), length);
  HEDDLE_CHECK(sequence >= 0 && sequence < plan.cached_sequences, "no sequence {} in the cache", sequence);
  std::vector<int32_t> row(tokens.begin(), tokens.end()), places(static_cast<size_t>(length), -1);
  row.resize(static_cast<size_t>(length) + 1, -1);
  std::iota(places.begin(), places.begin() + std::ssize(tokens), static_cast<int32_t>(sequence * length));
  run_cached(trainer, ir::Purpose::prefill, std::move(row), std::move(places));
  return cached_logits(trainer, ir::Purpose::prefill, 0);
}

std::vector<std::vector<float>> decode(Trainer& trainer, std::span<const Placed> tokens) {
  const plan::Plan& plan = trainer.options().plan;
  const int64_t length = plan.sequence_length, rows = plan.cached_sequences;
  HEDDLE_CHECK(!tokens.empty() && std::ssize(tokens) <= rows, "{} tokens, 1 to {} fit", tokens.size(), rows);
  std::vector<int32_t> ids(static_cast<size_t>(2 * rows), -1),
      places(static_cast<size_t>(rows), -1);  // id and label
  const auto seen =
      static_cast<size_t>(trainer.options().model.has_ngrams() ? trainer.options().model.ngram_size - 1 : 0);
  std::vector<int32_t> before(static_cast<size_t>(rows) * seen, -1);
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Placed& at = tokens[t];
    HEDDLE_CHECK(at.sequence >= 0 && at.sequence < rows && at.position >= 0 && at.position < length,
                 "no place for position {} of sequence {} in the cache", at.position, at.sequence);
    ids[2 * t] = at.token;
    places[t] = static_cast<int32_t>(at.sequence * length + at.position);
    for (size_t i = 0; i < std::min(seen, at.before.size()); ++i)
      before[t * seen + i] = at.before[at.before.size() - 1 - i];
  }
  run_cached(trainer, ir::Purpose::decode, std::move(ids), std::move(places), std::move(before));
  std::vector<std::vector<float>> logits;
  for (size_t t = 0; t < tokens.size(); ++t)
    logits.push_back(cached_logits(trainer, ir::Purpose::decode, static_cast<int64_t>(t)));
  return logits;
}

}  // namespace heddle::train
