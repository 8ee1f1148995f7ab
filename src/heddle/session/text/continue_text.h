// Texts continued by the model in training, token by token.
//
// A token sees at most `window` tokens before it. When a text becomes longer, it goes on from the later half of
// that many, which fills up again: so a cache is made anew once in half a window, and not for every token.
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
  int64_t tokens = 64;  // at most; an end-of-text token ends it
  Sampling sampling;
  uint64_t seed = 0;
  std::vector<std::string> stop;  // words of which the first that comes ends the text, which stops before it
  int64_t first_draw = 0;         // of the seed's: of a text that goes on, how many tokens it has drawn
};

/// Why a text ended.
enum class End : uint8_t { length, end_of_text, stop_word, interrupted };
std::string_view word_of(End end);

struct Continued {
  std::string text;
  std::vector<data::TokenId> ids;  // of the text, as they were drawn
  int64_t drawn = 0;               // tokens, those of a stop word and of the end among them
  End end = End::length;
};

/// What has been asked of all texts under way.
struct Watch {
  std::function<void(size_t text, std::string_view piece)> piece;  // whole letters, as they come
  std::function<void(size_t text, const Continued& whole)> ended;
  std::function<bool()> interrupted;
};

/// Where those of `length` tokens begin that the next one sees.
size_t window_begin(size_t length, size_t window);

/// The ids of a prompt; of an empty one, the token that begins a text. ConfigError where there is no such.
std::vector<data::TokenId> prompt_ids(const data::Tokenizer& tokenizer, std::string_view prompt);

/// What follows each prompt, up to `at_once` texts side by side: as one ends, the next takes its place. A text is
/// the same whatever stands beside it.
std::vector<Continued> continue_texts(NextLogits& model, const data::Tokenizer& tokenizer, size_t window,
                                      std::span<const std::vector<data::TokenId>> prompts, size_t at_once,
                                      const Continuation& how, const Watch& watch = {});

/// The text after one prompt, without a cache.
std::string continue_text(train::Trainer& trainer, const data::Tokenizer& tokenizer, std::string_view prompt,
                          const Continuation& how);

/// Text from a model made fit for a terminal: control characters but newline and tab are dropped.
std::string terminal_text(std::string_view text);

}  // namespace heddle::session
