#include "heddle/ir/op.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/ir/listing.h"

namespace heddle::ir {

namespace {

std::string_view bare(std::string_view name) {
  return name.ends_with('?') || name.ends_with('*') ? name.substr(0, name.size() - 1) : name;
}

ValueId named(const Op& op, std::string_view name, std::string_view list, const std::vector<ValueId>& values) {
  const int place = place_of(name, list);
  HEDDLE_CHECK(place >= 0, "'{}' has no '{}' among '{}'", op.kind(), name, list);
  return static_cast<size_t>(place) < values.size() ? values[place] : none;
}

// Without a list of them: every op is checked after every pass.
template <class Visit>
void each_name(std::string_view list, const Visit& visit) {
  for (size_t from = 0; from < list.size();) {
    const size_t end = std::min(list.find(' ', from), list.size());
    visit(list.substr(from, end - from));
    from = end + 1;
  }
}

void check_count(const Op& op, std::string_view what, std::string_view list, const std::vector<ValueId>& values) {
  size_t names = 0;
  each_name(list, [&](std::string_view name) {
    const bool may_lack = name.ends_with('?') || name.ends_with('*');
    HEDDLE_CHECK(may_lack || (names < values.size() && values[names] != none), "'{}' lacks '{}' of its {}",
                 op.kind(), name, what);
    ++names;
  });
  HEDDLE_CHECK(values.size() <= names || list.ends_with('*'), "'{}' has {} {}, at most '{}'", op.kind(),
               values.size(), what, list);
}

}  // namespace

std::vector<std::string_view> names_in(std::string_view list) {
  std::vector<std::string_view> names;
  each_name(list, [&](std::string_view name) { names.push_back(name); });
  return names;
}

int place_of(std::string_view name, std::string_view list) {
  int place = 0;  // without a list of them: ops are asked for their operands all the time
  for (size_t from = 0; from < list.size(); ++place) {
    const size_t end = std::min(list.find(' ', from), list.size());
    if (bare(list.substr(from, end - from)) == bare(name)) return place;
    from = end + 1;
  }
  return -1;
}

namespace {
bool is_named(const Op& op, size_t u, std::string_view list) {
  const std::vector<std::string_view> names = names_in(op.def->updates);
  return place_of(names[std::min(u, names.size() - 1)], list) >= 0;
}
}  // namespace

bool overwrites(const Op& op, size_t u) { return is_named(op, u, op.def->overwrites); }
bool reaches_host(const Op& op, size_t u) { return is_named(op, u, op.def->reaches_host); }

ValueId Op::operand(std::string_view name) const { return named(*this, name, def->operands, in); }
ValueId Op::result(std::string_view name) const { return named(*this, name, def->results, out); }
ValueId Op::updated(std::string_view name) const { return named(*this, name, def->updates, updates); }

Cost operand_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  // A packed weight counts as its elements: a product reads one of its blockings.
  const auto bytes = [&](ValueId id) {
    return id == none ? 0.0 : static_cast<double>(listing.elements(id, rows) * size_of(listing.value(id).dtype));
  };
  Cost cost;
  for (const ValueId id : op.in) cost.bytes += bytes(id);
  for (const ValueId id : op.out) cost.bytes += bytes(id);
  for (const ValueId id : op.updates) cost.bytes += 2.0 * bytes(id);
  return cost;
}

int64_t pieces_of(const Op& op) {
  if (!op.def->by_pieces) return 1;
  const Attributes& a = op.attributes;
  return a.integer("ranks") * a.integer("runs") * a.integer("pieces");
}

void check_names(const Op& op) {
  check_count(op, "operands", op.def->operands, op.in);
  check_count(op, "updates", op.def->updates, op.updates);
  for (const auto& [name, item] : op.attributes.items()) {
    HEDDLE_CHECK(place_of(name, op.def->attributes) >= 0, "'{}' has no attribute '{}', only '{}'", op.kind(), name,
                 op.def->attributes);
  }
  each_name(op.def->attributes, [&](std::string_view name) {
    HEDDLE_CHECK(name.ends_with('?') || op.attributes.has(name), "'{}' lacks the attribute '{}'", op.kind(), name);
  });
}

}  // namespace heddle::ir
