// A value of a JSON document together with its path, so that each complaint can name it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"
#include "heddle/formats/json_text.h"

namespace heddle::data {

struct JsonNode {
  const nlohmann::json* value;
  std::string path;
  const std::string* file;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    config_error("{}: {}: {}", *file, escaped(path, 200), escaped(fmt::format(text, std::forward<Args>(args)...)));
  }
  // The member, or a null value if there is none.
  JsonNode at(const char* key) const {
    static const nlohmann::json null;
    if (!value->is_object()) refuse("an object is expected, found {}", formats::shown(*value));
    const auto found = value->find(key);
    return {found == value->end() ? &null : &*found, path == "$" ? std::string(key) : path + "." + key, file};
  }
  JsonNode at(size_t index) const { return {&(*value)[index], fmt::format("{}[{}]", path, index), file}; }
  std::string place() const { return *file + ": " + path; }

  bool is_null() const { return value->is_null(); }
  size_t array_size() const {
    if (!value->is_array()) refuse("an array is expected, found {}", formats::shown(*value));
    return value->size();
  }
  const std::string& string() const {
    if (!value->is_string()) refuse("a string is expected, found {}", formats::shown(*value));
    return value->get_ref<const std::string&>();
  }
  bool boolean(bool otherwise) const {
    if (is_null()) return otherwise;
    if (!value->is_boolean()) refuse("true or false is expected, found {}", formats::shown(*value));
    return value->get<bool>();
  }
  TokenId token_id() const {
    // Compared unsigned, so that no number wraps.
    if (!value->is_number_unsigned() || value->get<uint64_t>() >= static_cast<uint64_t>(kMostTokens)) {
      refuse("a token id from 0 to {} is expected, found {}", kMostTokens - 1, formats::shown(*value));
    }
    return static_cast<TokenId>(value->get<uint64_t>());
  }
};

}  // namespace heddle::data
