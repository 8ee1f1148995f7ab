// A text continued by the model in training, token by token.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

struct Continuation {
  int64_t tokens = 64;     // at most; an end-of-text token ends it
  double temperature = 0;  // 0: always the likeliest token; else softmax(logits / temperature)
  uint64_t seed = 0;
};

/// The text after `prompt`. Each token sees the last sequence_length tokens. `look` gets each piece as it comes; a
/// letter whose bytes are spread over tokens comes with the last of them.
std::string continue_text(train::Trainer& trainer, const data::Tokenizer& tokenizer, std::string_view prompt,
                          const Continuation& how, const std::function<void(std::string_view)>& look = {});

/// Text from a model made fit for a terminal: control characters but newline and tab are dropped.
std::string terminal_text(std::string_view text);

}  // namespace heddle::session
