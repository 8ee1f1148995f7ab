#include "heddle/passes/stands_for.h"

#include <algorithm>

#include "heddle/ops/ops.h"

namespace heddle::passes {

namespace {

using ir::none;
using ir::Op;
using ir::OpDef;
using ir::ValueId;
using Names = std::vector<std::string_view>;

using Line = Pattern::Line;

std::vector<Line> lines_of(std::string_view stands_for) {
  std::vector<Line> lines;
  for (size_t from = 0; from < stands_for.size();) {
    const size_t end = std::min(stands_for.find('\n', from), stands_for.size());
    Line& line = lines.emplace_back();
    Names* into = &line.in;
    for (const std::string_view word : ir::names_in(stands_for.substr(from, end - from))) {
      if (word == "=") {
        line.out = std::move(line.in);
        line.in.clear();
      } else if (word == "->") {
        into = &line.updates;
      } else {
        into->push_back(word);
      }
    }
    line.def = &ops::find(line.in.front());
    line.in.erase(line.in.begin());
    from = end + 1;
  }
  return lines;
}

bool shows(const OpDef& fused, std::string_view name) {
  return ir::place_of(name, fused.operands) >= 0 || ir::place_of(name, fused.results) >= 0 ||
         ir::place_of(name, fused.updates) >= 0;
}

// The attributes that a definition names.
ir::Attributes named_by(const OpDef& def, const ir::Attributes& attributes) {
  ir::Attributes own;
  for (const auto& [name, item] : attributes.items()) {
    if (ir::place_of(name, def.attributes) >= 0) own.set(name, item);
  }
  return own;
}

class Matcher {
 public:
  Matcher(const ir::Uses& uses, const Pattern& pattern)
      : uses_(uses), lines_(pattern.lines()), fused_(pattern.fused()) {}

  std::optional<Match> at(int last) {
    match_.ops.assign(lines_.size(), -1);
    if (!take(lines_.size() - 1, last)) return std::nullopt;
    for (size_t i = lines_.size() - 1; i-- > 0;) {
      if (!find(i)) return std::nullopt;
    }
    for (const Line& line : lines_) {
      for (const std::string_view name : line.out) {
        if (!shows(fused_, name) && read_elsewhere(match_.value_of.at(name))) return std::nullopt;
      }
    }
    return std::move(match_);
  }

 private:
  // Binds names to values; what has a name already must have this value.
  bool bind(const Names& names, const std::vector<ValueId>& values) {
    for (size_t i = names.size(); i < values.size(); ++i) {
      if (values[i] != none) return false;
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const ValueId value = i < values.size() ? values[i] : none;
      const auto [at, fresh] = match_.value_of.try_emplace(names[i], value);
      if (!fresh && at->second != value) return false;
    }
    return true;
  }

  bool take(size_t line, int index) {
    const Op& op = uses_.op(index);
    if (op.def != lines_[line].def || std::find(match_.ops.begin(), match_.ops.end(), index) != match_.ops.end())
      return false;
    if (match_.ops.back() >= 0 && op.chunk != uses_.op(match_.ops.back()).chunk) return false;
    const auto before = match_.value_of;
    if (!bind(lines_[line].in, op.in) || !bind(lines_[line].out, op.out) ||
        !bind(lines_[line].updates, op.updates)) {
      match_.value_of = before;
      return false;
    }
    match_.ops[line] = index;
    return true;
  }

  // By one of its results, or else by one of its operands.
  bool find(size_t line) {
    for (const std::string_view name : lines_[line].out) {
      const auto at = match_.value_of.find(name);
      if (at != match_.value_of.end())
        return uses_.writer_index(at->second) >= 0 && take(line, uses_.writer_index(at->second));
    }
    for (const std::string_view name : lines_[line].in) {
      const auto at = match_.value_of.find(name);
      if (at == match_.value_of.end() || at->second == none) continue;
      for (const int reader : uses_.readers(at->second)) {
        if (uses_.op(reader).layer == uses_.op(match_.ops.back()).layer && take(line, reader)) return true;
      }
    }
    return false;
  }

  bool read_elsewhere(ValueId id) const {
    const auto is_inside = [&](int reader) {
      return std::find(match_.ops.begin(), match_.ops.end(), reader) != match_.ops.end();
    };
    const auto readers = uses_.readers(id);
    return !uses_.mentions(id).empty() || !std::all_of(readers.begin(), readers.end(), is_inside);
  }

  const ir::Uses& uses_;
  const std::vector<Line>& lines_;
  const OpDef& fused_;
  Match match_;
};

std::vector<ValueId> values_of(const Match& match, std::string_view list) {
  std::vector<ValueId> values;
  for (std::string_view name : ir::names_in(list)) {
    if (name.ends_with('?')) name.remove_suffix(1);
    const auto at = match.value_of.find(name);
    values.push_back(at == match.value_of.end() ? none : at->second);
  }
  while (!values.empty() && values.back() == none) values.pop_back();
  return values;
}

const Op* first_reader_in_F(const ir::Uses& uses, const Op& op) {
  for (const ValueId id : op.out) {
    const Op* reader = uses.first_reader(id);
    if (reader != nullptr && reader->phase == ir::Phase::F) return reader;
  }
  return nullptr;
}

}  // namespace

Pattern::Pattern(const OpDef& fused, std::string_view stands_for) : fused_(fused), lines_(lines_of(stands_for)) {
  HEDDLE_CHECK(!lines_.empty(), "op '{}' stands for no others", fused.kind);
}

std::optional<Match> Pattern::find(const ir::Uses& uses, int last) const {
  if (uses.op(last).def != lines_.back().def) return std::nullopt;  // so it is for most ops of a listing
  return Matcher(uses, *this).at(last);
}

Op Pattern::fused_op(const ir::Uses& uses, const Match& match) const {
  const auto own_kind =
      std::find_if(match.ops.begin(), match.ops.end(), [&](int index) { return uses.op(index).def == &fused_; });
  const Op& first = uses.op(own_kind == match.ops.end() ? match.ops.front() : *own_kind);
  Op op;
  op.def = &fused_;
  op.in = values_of(match, fused_.operands);
  op.out = values_of(match, fused_.results);
  op.updates = values_of(match, fused_.updates);
  op.phase = first.phase;
  op.layer = first.layer;
  op.chunk = first.chunk;
  op.part = first.part;
  for (const int index : match.ops) {
    const Op& part = uses.op(index);
    if (op.group.empty()) op.group = part.group;
    if (part.def == &fused_) op.mentions = part.mentions;  // of the same gradient rule
    const ir::Attributes own = named_by(fused_, part.attributes);
    for (const auto& [name, item] : own.items()) op.attributes.set(name, item);
  }
  return op;
}

std::vector<Op> shown_ops(const ir::Uses& uses, const Op& fused) {
  std::vector<Op> shown;
  for (const Line& line : lines_of(fused.def->stands_for)) {
    const auto all_shown = [&](const Names& names) {
      return std::all_of(names.begin(), names.end(), [&](std::string_view n) { return shows(*fused.def, n); });
    };
    if (!all_shown(line.in) || !all_shown(line.out)) continue;
    const auto value_of = [&](std::string_view name) {
      return ir::place_of(name, fused.def->operands) >= 0 ? fused.operand(name) : fused.result(name);
    };
    Op op = fused;
    op.def = line.def;
    if (line.def != fused.def) op.mentions.clear();
    op.in.clear();
    op.out.clear();
    for (const std::string_view name : line.in) op.in.push_back(value_of(name));
    for (const std::string_view name : line.out) op.out.push_back(value_of(name));
    op.attributes = named_by(*line.def, fused.attributes);
    const auto is_made_here = [&](ValueId id) {
      return std::find(fused.out.begin(), fused.out.end(), id) != fused.out.end();
    };
    const bool after = std::all_of(op.in.begin(), op.in.end(), [&](ValueId id) {
      return id == none || uses.writer(id) == nullptr || is_made_here(id);
    });
    if (const Op* reader = first_reader_in_F(uses, op); after && reader != nullptr) {
      op.layer = reader->layer;
      op.part = reader->part == "head" ? reader->part : op.part;
    }
    shown.push_back(std::move(op));
  }
  return shown;
}

Op maker_of(const ir::Uses& uses, const Op& fused, size_t output) {
  for (const Op& op : shown_ops(uses, fused)) {
    if (std::find(op.out.begin(), op.out.end(), fused.out[output]) != op.out.end()) return op;
  }
  return fused;
}

}  // namespace heddle::passes
