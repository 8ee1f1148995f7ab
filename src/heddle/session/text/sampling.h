// The next token, drawn from logits: softmax(logits ÷ temperature) over the likeliest tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/data/tokenizer/tokenizer.h"

namespace heddle::session {

struct Sampling {
  double temperature = 0;  // 0: always the likeliest
  int64_t top_k = 0;       // only so many of the likeliest; 0: all
  double top_p = 1;        // the fewest of these likeliest whose probabilities make up so much
};

/// A token that may come, and a number that its probability is proportional to.
struct Candidate {
  data::TokenId id = 0;
  double weight = 0;
};

/// Candidates in increasing id. Ids from `vocabulary` on, which the tokenizer lacks, are none; of two alike the
/// smaller id counts as likelier.
std::vector<Candidate> candidates(std::span<const float> logits, int64_t vocabulary, const Sampling& how);

/// The candidate that a number in [0, 1) falls to.
data::TokenId draw(std::span<const Candidate> candidates, double uniform);

}  // namespace heddle::session
