// The forms that rows of switches.cpp have beside those of every table of settings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/passes/op_groups.h"
#include "heddle/plan/choices.h"
#include "heddle/plan/setting_table.h"

namespace heddle::plan {

class SwitchTable : public SettingTable<Choices> {
 public:
  /// Bytes, or a share of what the owner of `share` knows.
  template <auto bytes, auto share>
  Setting<Choices>& bytes_or_share(std::string key, std::string meaning) {
    Setting<Choices>& s = add(std::move(key), Row::Kind::bytes_or_share, std::move(meaning));
    s.most = 9e18;
    s.get = [](const Choices& c) {
      const double of_all = c.memory.*share;
      return of_all > 0 ? Value(fmt::format("{:.10g}%", 100 * of_all)) : Value(c.memory.*bytes);
    };
    s.set = [](Choices& c, const Value& value) {
      const auto* text = std::get_if<std::string>(&value);
      c.memory.*share = text != nullptr ? std::stod(*text) / 100 : 0;
      c.memory.*bytes = text != nullptr ? 0 : std::get<int64_t>(value);
    };
    return s;
  }
  /// A list of groups of ops, refused as a whole where `parse` refuses it. `nothing`: a word for none of them.
  template <auto member>
  Setting<Choices>& groups(std::string key, std::string meaning, std::vector<std::string> words,
                           std::vector<passes::OpGroup> (*parse)(std::string_view), std::string nothing = "") {
    Setting<Choices>& s = add(std::move(key), Row::Kind::list, std::move(meaning));
    s.words = std::move(words);
    s.check = [parse](const std::string& text) { parse(text); };
    s.get = [nothing](const Choices& c) {
      return Value((c.memory.*member).empty() ? nothing : passes::text_of(c.memory.*member));
    };
    s.set = [parse](Choices& c, const Value& value) { c.memory.*member = parse(std::get<std::string>(value)); };
    return s;
  }
  /// Words that stand for numbers, or a number from 1 to `most`.
  Setting<Choices>& word_or_number(std::string key, std::string meaning,
                                   std::vector<std::pair<std::string, int>> words, int most,
                                   int& (*member)(Choices&)) {
    Setting<Choices>& s = add(std::move(key), Row::Kind::word, std::move(meaning));
    for (const auto& [word, number] : words) s.words.push_back(word);
    s.numbers = true;
    s.least = 1;
    s.most = most;
    s.get = [words, member](const Choices& c) {
      Choices copy = c;
      const int value = member(copy);
      for (const auto& [word, number] : words) {
        if (number == value) return Value(word);
      }
      return Value(std::to_string(value));
    };
    s.set = [words, member](Choices& c, const Value& value) {
      const std::string& text = std::get<std::string>(value);
      for (const auto& [word, number] : words) {
        if (word == text) return void(member(c) = number);
      }
      member(c) = std::stoi(text);
    };
    return s;
  }
  Setting<Choices>& fusion(const std::string& name, MathsClass maths, const std::string& effect, std::string cost,
                           std::string page) {
    Setting<Choices>& s = add("fusions." + name, Row::Kind::boolean, effect);
    s.acts(maths, effect, std::move(cost), std::move(page));
    s.get = [name](const Choices& c) { return Value(c.fusions.contains(name)); };
    s.set = [name](Choices& c, const Value& value) {
      if (std::get<bool>(value)) {
        c.fusions.insert(name);
      } else {
        c.fusions.erase(name);
      }
    };
    return s;
  }
};

}  // namespace heddle::plan
