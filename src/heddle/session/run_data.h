// The text of a run: prepared where needed, opened for the trainer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/data/chat/chat_template.h"
#include "heddle/data/dataset.h"
#include "heddle/data/prepare_data.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/train/step/sequences.h"

namespace heddle::session {

/// The summed loss of each sequence under the model that pairs are held to: training ones by their number, held-out
/// ones from the first on. Empty where nothing is learnt from pairs.
struct PairReferences {
  std::vector<double> train, heldout;
};

struct RunData {
  std::string tokenizer;                 // its path, "" when the tokens come without one
  data::TokenizerFiles tokenizer_files;  // the files there
  std::optional<data::ChatTemplate> chat_template;
  std::optional<data::PreparedData> prepared;  // none when the tokens came ready
  std::vector<std::string> warnings;           // warnings of the preparation
  std::unique_ptr<data::Dataset> dataset;
  bool documents_apart = false;  // the program asks where they begin
  PairReferences references;

  /// `count` training sequences from `first` on.
  train::Sequences train(int64_t first, int64_t count) const;
  /// `count` of an epoch's sequences, from number `first` on (Dataset::train_number).
  train::Sequences numbered(int64_t first, int64_t count) const;
  /// The first `count` held-out sequences, or as many as there are.
  train::Sequences heldout(int64_t count) const;
};

/// ConfigError when the tokenizer of that path has `tokens` ids, more than the model's vocabulary.
void check_vocabulary(const std::string& path, int64_t tokens, int64_t vocabulary);

/// ConfigError when source, tokenizer and model don't fit each other.
RunData open_run_data(const config::RunConfig& config);

}  // namespace heddle::session
