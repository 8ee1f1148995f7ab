// Writes rows: type, words and member follow from a pointer to the member (of a member …).
#pragma once

#include <type_traits>
#include <utility>

#include "heddle/base/words.h"
#include "heddle/plan/setting.h"

namespace heddle::plan {

template <class Owner>
class SettingTable {
 public:
  template <auto... members>
  Setting<Owner>& integer(std::string key, double least, double most, std::string meaning) {
    return bounded<members...>(std::move(key), Row::Kind::integer, std::move(meaning), least, most);
  }
  template <auto... members>
  Setting<Owner>& number(std::string key, double least, double most, std::string meaning) {
    return bounded<members...>(std::move(key), Row::Kind::number, std::move(meaning), least, most);
  }
  template <auto... members>
  Setting<Owner>& bytes(std::string key, double least, double most, std::string meaning) {
    return bounded<members...>(std::move(key), Row::Kind::bytes, std::move(meaning), least, most);
  }
  template <auto... members>
  Setting<Owner>& boolean(std::string key, std::string meaning) {
    return bound<members...>(std::move(key), Row::Kind::boolean, std::move(meaning));
  }
  /// An enumeration brings its words along; a text accepts these, or any.
  template <auto... members>
  Setting<Owner>& word(std::string key, std::string meaning, std::vector<std::string> accepted = {}) {
    Setting<Owner>& s = bound<members...>(std::move(key), Row::Kind::word, std::move(meaning));
    using Member = MemberOf<members...>;
    if constexpr (Worded<Member>) {
      s.words = all_words<Member>();
    } else {
      s.words = std::move(accepted);
    }
    return s;
  }
  /// A row without a member yet.
  Setting<Owner>& add(std::string key, Row::Kind kind, std::string meaning) {
    Setting<Owner>& s = all_.emplace_back();
    s.key = std::move(key);
    s.kind = kind;
    s.meaning = std::move(meaning);
    return s;
  }
  std::vector<Setting<Owner>> take() { return std::move(all_); }

 protected:
  std::vector<Setting<Owner>> all_;

 private:
  template <auto... members>
  using MemberOf = std::decay_t<decltype((std::declval<Owner&>().*....*members))>;

  template <auto... members>
  Setting<Owner>& bound(std::string key, Row::Kind kind, std::string meaning) {
    using Member = MemberOf<members...>;
    Setting<Owner>& s = add(std::move(key), kind, std::move(meaning));
    s.get = [](const Owner& owner) {
      const Member& member = (owner.*....*members);
      if constexpr (Worded<Member>) {
        return Value(std::string(word_of(member)));
      } else if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>) {
        return Value(int64_t{member});
      } else {
        return Value(member);
      }
    };
    s.set = [](Owner& owner, const Value& value) {
      Member& member = (owner.*....*members);
      if constexpr (Worded<Member>) {
        member = from_word<Member>(std::get<std::string>(value));
      } else if constexpr (std::is_integral_v<Member> && !std::is_same_v<Member, bool>) {
        member = static_cast<Member>(std::get<int64_t>(value));  // within the row's bounds
      } else {
        member = std::get<Member>(value);
      }
    };
    return s;
  }
  template <auto... members>
  Setting<Owner>& bounded(std::string key, Row::Kind kind, std::string meaning, double least, double most) {
    Setting<Owner>& s = bound<members...>(std::move(key), kind, std::move(meaning));
    s.least = least;
    s.most = most;
    return s;
  }
};

}  // namespace heddle::plan
