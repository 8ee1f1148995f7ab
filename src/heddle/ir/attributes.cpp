#include "heddle/ir/attributes.h"

#include <algorithm>

#include "heddle/base/error.h"

namespace heddle::ir {

Attributes::Attributes(std::initializer_list<std::pair<std::string, Item>> items) {
  for (const auto& [name, item] : items) set(name, item);
}

Attributes& Attributes::set(std::string name, Item item) {
  const auto at = std::lower_bound(items_.begin(), items_.end(), name,
                                   [](const auto& entry, const std::string& key) { return entry.first < key; });
  if (at != items_.end() && at->first == name) {
    at->second = std::move(item);
  } else {
    items_.insert(at, {std::move(name), std::move(item)});
  }
  return *this;
}

const Attributes::Item* Attributes::find(std::string_view name) const {
  for (const auto& [key, item] : items_) {
    if (key == name) return &item;
  }
  return nullptr;
}

bool Attributes::has(std::string_view name) const { return find(name) != nullptr; }

int64_t Attributes::integer(std::string_view name) const {
  const Item* item = find(name);
  HEDDLE_CHECK(item != nullptr && std::holds_alternative<int64_t>(*item), "no integer attribute '{}'", name);
  return std::get<int64_t>(*item);
}

double Attributes::number(std::string_view name) const {
  const Item* item = find(name);
  HEDDLE_CHECK(item != nullptr && !std::holds_alternative<std::string>(*item), "no number attribute '{}'", name);
  return std::holds_alternative<double>(*item) ? std::get<double>(*item)
                                               : static_cast<double>(std::get<int64_t>(*item));
}

const std::string& Attributes::word(std::string_view name) const {
  const Item* item = find(name);
  HEDDLE_CHECK(item != nullptr && std::holds_alternative<std::string>(*item), "no word attribute '{}'", name);
  return std::get<std::string>(*item);
}

int64_t Attributes::integer_or(std::string_view name, int64_t otherwise) const {
  return has(name) ? integer(name) : otherwise;
}

double Attributes::number_or(std::string_view name, double otherwise) const {
  return has(name) ? number(name) : otherwise;
}

}  // namespace heddle::ir
