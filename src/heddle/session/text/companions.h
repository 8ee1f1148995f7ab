// Files of a released model beside config.json, weights and tokenizer, for programs that talk to the model. They
// say how its tokenizer is used, which tokens are special, the chat template, and how it is to generate. A run
// keeps these from what it begins from, so that what leaves it opens as what came in did.
#pragma once

#include <string>

#include "heddle/train/released_model.h"

namespace heddle::session {

/// Puts the companions of a released model's folder into a run's, where this has none yet. Which tokens are
/// special, said by config.json alone, is put where generation's settings stand.
void keep_companions(const std::string& from, const std::string& run);

/// Keeps the companions of a new run. They come from where its weights came (`start`: a released folder, a run, a
/// checkpoint, or "") and from its tokenizer. Those of the tokenizer come from beside it, or from beside weights
/// that were trained with the same.
void keep_companions(const std::string& start, const std::string& tokenizer, const std::string& run);

/// The tokenizer and the companions that a run leaves with, made where it has none. The template of a run that was
/// trained on conversations takes the place of another one, and what ends its answers ends a generated text.
/// `most_tokens`: of a sequence.
void add_companions(const std::string& run, int64_t most_tokens, train::Release& release);

}  // namespace heddle::session
