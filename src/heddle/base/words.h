// An enumeration with its words for people to write and read, stated once, beside the enumeration.
//
//   enum class Weave : uint8_t { off, layers, pairs };
//   constexpr auto words_of(Weave) {
//     return std::to_array<Word<Weave>>({{Weave::off, "off"}, {Weave::layers, "layers"}, {Weave::pairs, "pairs"}});
//   }
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/error.h"

namespace heddle {

template <class E>
struct Word {
  E value;
  std::string_view word;
};

/// A type beside which a words_of stands.
template <class E>
concept Worded = requires(E value) {
  words_of(value);
};

template <Worded E>
std::string_view word_of(E value) {
  for (const Word<E>& each : words_of(value)) {
    if (each.value == value) return each.word;
  }
  return "?";
}

/// In the order in which they are listed.
template <Worded E>
std::vector<std::string> all_words() {
  std::vector<std::string> words;
  for (const Word<E>& each : words_of(E{})) words.emplace_back(each.word);
  return words;
}

template <Worded E>
std::optional<E> find_word(std::string_view word) {
  for (const Word<E>& each : words_of(E{})) {
    if (each.word == word) return each.value;
  }
  return std::nullopt;
}

/// ConfigError, without a place, with what is accepted.
template <Worded E>
E from_word(std::string_view word) {
  if (const std::optional<E> value = find_word<E>(word)) return *value;
  const std::vector<std::string> words = all_words<E>();
  config_error("'{}', accepted: {}{}", word.substr(0, 60), fmt::join(words, ", "), did_you_mean(word, words));
}

}  // namespace heddle
