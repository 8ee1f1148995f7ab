// The objective that a training step minimises, besides the losses of a model's own parts (balance, router).
#pragma once

#include "heddle/base/words.h"

namespace heddle::model {

enum class Learns : uint8_t {
  next_token,  // the likelihood of the next token, and of those that the depths predict
  dpo,         // which of two answers is preferred (ops/preference)
};
constexpr auto words_of(Learns) {
  return std::to_array<Word<Learns>>({{Learns::next_token, "next_token"}, {Learns::dpo, "dpo"}});
}

struct Objective {
  Learns learns = Learns::next_token;
  double beta = 0.1;           // of dpo: how far the model may go from the reference
  double label_smoothing = 0;  // of dpo: how often the preference is wrong
  double logit_z_loss = 0;     // weight of the squares of the logits' log-sum-exp; 0: none
  bool of_pairs() const { return learns == Learns::dpo; }
  bool operator==(const Objective&) const = default;
};

}  // namespace heddle::model
