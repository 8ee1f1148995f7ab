// Makes rows of the table of model keys (model/keys.cpp). `member` is the key's member of ModelConfig.
#pragma once

#include <limits>

#include "heddle/model/keys.h"

namespace heddle::model::key_rows {

constexpr double kMostCount = 1 << 30;  // keeps products of two counts within 64 bits
constexpr double kTiny = std::numeric_limits<double>::min();

using C = ModelConfig;
using Kind = Key::Kind;
using Of = Key::Of;

template <class T>
constexpr Kind kind_of() {
  return std::is_same_v<T, bool>          ? Kind::boolean
         : std::is_same_v<T, double>      ? Kind::number
         : std::is_same_v<T, std::string> ? Kind::word
                                          : Kind::integer;
}

template <auto member>
Key row(std::string name, double least, double most, std::string meaning, Of of = Of::any) {
  using T = std::decay_t<decltype(std::declval<C&>().*member)>;
  return {.name = std::move(name),
          .kind = kind_of<T>(),
          .least = least,
          .most = most,
          .meaning = std::move(meaning),
          .get = [](const C& c) { return KeyValue(c.*member); },
          .set = [](C& c, const KeyValue& v) { c.*member = std::get<T>(v); },
          .of = of};
}
template <auto member>
Key flag(std::string name, std::string meaning, Of of = Of::any) {
  return row<member>(std::move(name), 0, 1, std::move(meaning), of);
}
template <auto member>
Key scaling(Of of, const std::string& name, double least, std::string meaning) {
  using T = std::decay_t<decltype(std::declval<RopeScaling&>().*member)>;
  return {.name = "rope_scaling." + name,
          .kind = kind_of<T>(),
          .least = least,
          .most = 1e9,
          .meaning = std::move(meaning),
          .get = [](const C& c) { return KeyValue(c.rope_scaling.value_or(RopeScaling{}).*member); },
          .set =
              [](C& c, const KeyValue& v) {
                if (!c.rope_scaling) c.rope_scaling.emplace();
                (*c.rope_scaling).*member = std::get<T>(v);
              },
          .of = of,
          .given = [](const C& c) { return c.rope_scaling.has_value(); },
          .open = "off"};
}

inline Key rope_type() {
  return {
      .name = "rope_scaling.type",
      .kind = Kind::word,
      .meaning =
          "Stretching of rotary frequencies: yarn; linear, all by the factor; llama3, long waves by the "
          "factor and short ones not at all; longrope, each pair by a factor of its own.",
      .get = [](const C& c) { return KeyValue(std::string(word_of(c.rope_scaling.value_or(RopeScaling{}).type))); },
      .set =
          [](C& c, const KeyValue& v) {
            if (!c.rope_scaling) c.rope_scaling.emplace();
            c.rope_scaling->type = find_word<RopeType>(std::get<std::string>(v)).value_or(RopeType::yarn);
          },
      .of = Of::scaling,
      .words = all_words<RopeType>(),
      .given = [](const C& c) { return c.rope_scaling.has_value(); },
      .open = "off",
      .synonyms = {"rope_type"}};
}

// A key of longrope: a list of numbers. It is held in one form, however it was written.
template <std::string RopeScaling::*member>
Key factors(const std::string& name, std::string meaning) {
  Key key = scaling<member>(Of::longrope, name, 0, std::move(meaning));
  key.set = [](C& c, const KeyValue& v) {
    if (!c.rope_scaling) c.rope_scaling.emplace();
    const auto& text = std::get<std::string>(v);
    const std::optional<std::vector<double>> numbers = factors_of(text);
    (*c.rope_scaling).*member = numbers ? text_of_factors(*numbers) : text;
  };
  return key;
}

/// A text of letters, one a layer, or of numbers.
template <auto member>
Key letters(std::string name, std::string meaning, Of of = Of::any) {
  return row<member>(std::move(name), 0, 0, std::move(meaning), of);
}

/// A list of numbers with commas between. It is held in one form, however it was written.
template <auto member>
Key numbers(std::string name, std::string meaning, Of of = Of::any) {
  Key key = letters<member>(std::move(name), std::move(meaning), of);
  key.set = [](C& c, const KeyValue& v) {
    const auto& text = std::get<std::string>(v);
    const std::optional<std::vector<double>> numbers = factors_of(text);
    c.*member = numbers ? text_of_factors(*numbers) : text;
  };
  return key;
}

/// A word of an enumeration.
template <auto member>
Key word(std::string name, std::string meaning, Of of = Of::any) {
  using T = std::decay_t<decltype(std::declval<C&>().*member)>;
  return {
      .name = std::move(name),
      .kind = Kind::word,
      .meaning = std::move(meaning),
      .get = [](const C& c) { return KeyValue(std::string(word_of(c.*member))); },
      .set = [](C& c,
                const KeyValue& v) { c.*member = find_word<T>(std::get<std::string>(v)).value_or(C().*member); },
      .of = of,
      .words = all_words<T>()};
}

inline Key of_training(Key key) {
  key.trains = true;
  return key;
}

inline Key also_called(std::vector<std::string> names, Key key) {
  key.synonyms = std::move(names);
  return key;
}

}  // namespace heddle::model::key_rows
