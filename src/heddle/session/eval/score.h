// Scores of texts and tasks: how likely a model finds them.
//
// A likelihood is a sum of training's next-token losses over the scored tokens. A text longer than the model's
// window is cut into windows (perplexity) or loses its beginning (tasks).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/session/eval/task.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// A mean with the standard error of it; `low` and `high` bound it with 95 %.
struct Estimate {
  double mean = 0, error = 0;
  double low = 0, high = 0;
};
/// The mean of independent values, by the normal approximation; one alone has no error.
Estimate estimate(std::span<const double> values);
/// The share `count` of `all`, bounded by Wilson's interval, which stays within 0 and 1.
Estimate share(int64_t count, int64_t all);

struct TextScore {
  Estimate loss;  // nats a token; the windows are the independent values
  int64_t tokens = 0, windows = 0;
  int64_t bytes = 0;  // bytes of the text; 0: unknown
  double perplexity() const;
  double bits_per_byte() const;
};

struct TaskScore {
  std::string name;
  int64_t items = 0;
  double chance = 0;              // the accuracy of a model that knows nothing
  Estimate accuracy, normalised;  // by the likelihood of a choice, and by that over its characters
  std::vector<size_t> chosen;     // the choice for each item, by likelihood
  int64_t cut = 0;                // choices whose context lost its beginning
};

/// Called after each batch with the number done, and of how many.
using Progressed = std::function<void(int64_t done, int64_t all)>;

/// Scores sequences as training has them, each of sequence_length + 1 + depths ids. The trainer's microbatch is one
/// sequence. All ranks call it together.
TextScore score_sequences(train::Trainer& trainer, const train::Sequences& sequences,
                          const Progressed& progressed = {});
/// Sequences that follow each other through a text, the last one padded.
std::vector<std::vector<int32_t>> windows_of(std::span<const data::TokenId> ids, const train::Trainer& trainer);

TaskScore score_task(train::Trainer& trainer, const data::Tokenizer& tokenizer, const Task& task,
                     const Progressed& progressed = {});

}  // namespace heddle::session
