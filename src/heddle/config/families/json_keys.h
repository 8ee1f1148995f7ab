// The keys of a JSON object of a configuration, each asked for with the type that it must have.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/model/keys.h"

namespace heddle::config {

/// ConfigError names place, key, what was found and what is expected.
class JsonKeys {
 public:
  /// `prefix` stands before the keys' names in messages: "rope_scaling.".
  JsonKeys(const nlohmann::json& object, std::string place, std::string prefix);

  const std::string& place() const { return place_; }
  bool contains(const char* key) const;  // null counts
  /// Null stands for absent.
  const nlohmann::json* find(const char* key) const;

  /// The value of a key of that kind, which must be there.
  model::KeyValue required(const char* key, model::Key::Kind kind) const;
  int64_t whole(const char* key) const { return std::get<int64_t>(required(key, model::Key::Kind::integer)); }
  int64_t whole(const char* key, int64_t otherwise) const { return find(key) == nullptr ? otherwise : whole(key); }
  double number(const char* key) const { return std::get<double>(required(key, model::Key::Kind::number)); }
  double number(const char* key, double otherwise) const { return find(key) == nullptr ? otherwise : number(key); }
  bool boolean(const char* key, bool otherwise) const;
  std::string word(const char* key, const std::string& otherwise) const;
  /// Zero stands for absent too.
  double positive(const char* key, double otherwise) const;

  void refuse_others(const std::vector<std::string>& known) const;

 private:
  const nlohmann::json& object_;
  std::string place_, prefix_;
};

}  // namespace heddle::config
