#include "heddle/config/families/json_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

using KeyKind = model::Key::Kind;
using nlohmann::json;

JsonKeys::JsonKeys(const json& object, std::string place, std::string prefix)
    : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    config_error("{}: {} is {}, an object is expected", place_, prefix_, formats::shown(object));
  }
}

bool JsonKeys::contains(const char* key) const { return object_.contains(key); }

const json* JsonKeys::find(const char* key) const {
  const auto at = object_.find(key);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

model::KeyValue JsonKeys::required(const char* key, KeyKind kind) const {
  const json* found = find(key);
  if (found == nullptr) config_error("{}: '{}{}' is missing", place_, prefix_, key);
  const json& value = *found;
  const char* expected = nullptr;
  switch (kind) {
    case KeyKind::boolean:
      if (value.is_boolean()) return value.get<bool>();
      expected = "true or false";
      break;
    case KeyKind::number:
      if (value.is_number()) return value.get<double>();
      expected = "a number";
      break;
    case KeyKind::integer: {
      constexpr int64_t kMost = int64_t{1} << 40;  // products of a few sizes stay far from overflow
      expected = "a whole number";
      if (!value.is_number_integer()) break;
      expected = "a whole number below 2^40";
      if (value.is_number_unsigned() ? value.get<uint64_t>() > static_cast<uint64_t>(kMost)
                                     : value.get<int64_t>() < -kMost) {
        break;
      }
      return value.get<int64_t>();
    }
    case KeyKind::word:
      if (value.is_string()) return value.get<std::string>();
      expected = "a string";
      break;
  }
  config_error("{}: '{}{}' is {}, {} is expected", place_, prefix_, key, formats::shown(value), expected);
}

bool JsonKeys::boolean(const char* key, bool otherwise) const {
  return find(key) == nullptr ? otherwise : std::get<bool>(required(key, KeyKind::boolean));
}

std::string JsonKeys::word(const char* key, const std::string& otherwise) const {
  return find(key) == nullptr ? otherwise : std::get<std::string>(required(key, KeyKind::word));
}

double JsonKeys::positive(const char* key, double otherwise) const {
  const double value = number(key, 0);
  if (!(value >= 0)) config_error("{}: '{}{}' is {}, 0 or more is expected", place_, prefix_, key, value);
  return value == 0 ? otherwise : value;
}

void JsonKeys::refuse_others(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : object_.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = did_you_mean(key, known);
    config_error("{}: '{}{}' is not known{}", place_, prefix_, escaped(key, 60),
                 near.empty() ? fmt::format(", accepted: {}", fmt::join(known, ", ")) : near);
  }
}

}  // namespace heddle::config
