// A JSON object of which it is known which fields were read.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace heddle::data {

class Fields {
 public:
  using Json = nlohmann::ordered_json;

  explicit Fields(const Json& object) : object_(&object) {}

  /// The value under a key, which then counts as read; null where there is none, or null.
  const Json* read(const std::string& key) {
    const Json* found = look(key);
    if (found != nullptr) read_.insert(key);
    return found;
  }
  /// Looks up a value likewise, but does not count it as read.
  const Json* look(const std::string& key) const {
    const auto at = object_->find(key);
    return at == object_->end() || at->is_null() ? nullptr : &*at;
  }
  /// Keys of values that nobody read, but for null.
  std::vector<std::string> not_read() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object_->items()) {
      if (!value.is_null() && !read_.contains(key)) keys.push_back(key);
    }
    return keys;
  }
  const Json& object() const { return *object_; }

 private:
  const Json* object_;
  std::set<std::string> read_;
};

}  // namespace heddle::data
