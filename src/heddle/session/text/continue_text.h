// Texts continued by the model in training, token by token.
//
// A token sees at most `window` tokens before it. A text that becomes longer goes on from the later half of that
// many, which fills up again. So a cache is made anew once in half a window, and not for every token.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/session/text/next_logits.h"
#include "heddle/session/text/sampling.h"

namespace heddle::session {

struct Continuation {
  int64_t tokens = 64;  // number of tokens at most; an end-of-text token ends it
  Sampling sampling;
  uint64_t seed = 0;
  std::vector<std::string> stop;  // words of which the first that comes ends the text, which stops before it
  int64_t first_draw = 0;         // first draw of the seed: for a text that goes on, how many tokens it has drawn
};

/// Why a text ended.
enum class End : uint8_t { length, end_of_text, stop_word, interrupted };
std::string_view word_of(End end);

struct Continued {
  std::string text;
  std::vector<data::TokenId> ids;  // ids of the text, as they were drawn
  int64_t drawn = 0;               // tokens, those of a stop word and of the end among them
  End end = End::length;
};

/// Callbacks for all texts under way.
struct Watch {
  std::function<void(size_t text, std::string_view piece)> piece;  // whole letters, as they come
  std::function<void(size_t text, const Continued& whole)> ended;
  std::function<bool()> interrupted;
};

/// The first of `length` tokens that the next one sees.
size_t window_begin(size_t length, size_t window);

/// The ids of a prompt; for an empty one, the token that begins a text. ConfigError where there is no such.
std::vector<data::TokenId> prompt_ids(const data::Tokenizer& tokenizer, std::string_view prompt);

/// The text after each prompt, up to `at_once` side by side: as one ends, the next takes its place. A text does not
/// depend on those beside it.
std::vector<Continued> continue_texts(NextLogits& model, const data::Tokenizer& tokenizer, size_t window,
                                      std::span<const std::vector<data::TokenId>> prompts, size_t at_once,
                                      const Continuation& how, const Watch& watch = {});

/// The text after one prompt, without a cache.
std::string continue_text(train::Trainer& trainer, const data::Tokenizer& tokenizer, std::string_view prompt,
                          const Continuation& how);

/// Text from a model made fit for a terminal: control characters but newline and tab are dropped.
std::string terminal_text(std::string_view text);

}  // namespace heddle::session
