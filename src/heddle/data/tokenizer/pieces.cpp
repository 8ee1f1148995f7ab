#include "heddle/data/tokenizer/pieces.h"

#include <algorithm>

#include "heddle/data/tokenizer/byte_alphabet.h"

namespace heddle::data {
namespace {

using Behavior = SplitStep::Behavior;

struct Part {
  size_t begin, end;
  bool matched;
};

// Parts in order to pieces, as the `tokenizers` library joins them (tokenizer/normalizer.rs, `split`).
void join_parts(std::vector<Part>& parts, Behavior behavior) {
  std::vector<Part> joined;
  bool last_matched = false;
  const auto forward = [&](auto&& joins) {
    for (const Part& part : parts) {
      if (!joined.empty() && joins(part)) {
        joined.back().end = part.end;
      } else {
        joined.push_back(part);
      }
      last_matched = part.matched;
    }
  };
  switch (behavior) {
    case Behavior::isolated: return;
    case Behavior::removed: std::erase_if(parts, [](const Part& part) { return part.matched; }); return;
    case Behavior::merged_with_previous: forward([&](const Part& p) { return p.matched && !last_matched; }); break;
    case Behavior::contiguous: forward([&](const Part& p) { return p.matched == last_matched; }); break;
    case Behavior::merged_with_next:
      for (size_t i = parts.size(); i-- > 0;) {
        if (parts[i].matched && !last_matched && !joined.empty()) {
          joined.back().begin = parts[i].begin;
        } else {
          joined.push_back(parts[i]);
        }
        last_matched = parts[i].matched;
      }
      std::reverse(joined.begin(), joined.end());
      break;
  }
  parts = std::move(joined);
}

}  // namespace

Pieces::Pieces(const std::vector<PieceStep>& steps, const std::string& place) {
  for (const PieceStep& step : steps) {
    if (const auto* split = std::get_if<SplitStep>(&step)) {
      steps_.emplace_back(Split{SplitPattern(split->pattern, split->place.empty() ? place : split->place),
                                split->behavior, split->invert});
    } else if (const auto* metaspace = std::get_if<MetaspaceStep>(&step)) {
      steps_.emplace_back(*metaspace);
    } else if (std::holds_alternative<AlphabetStep>(step)) {
      steps_.emplace_back(AlphabetStep{});
      spells_ = true;
    } else {
      steps_.emplace_back(PrefixSpaceStep{});
    }
  }
}

void Pieces::cut(size_t level, std::string_view text, bool at_start, SplitPattern::Scratch& scratch,
                 const Use& use) const {
  if (text.empty()) return;
  if (level == steps_.size()) {
    if (!spells_) return use(text);
    std::string bytes;
    byte_alphabet::to_bytes(text, bytes);
    return use(bytes);
  }
  const auto& step = steps_[level];
  if (const auto* how = std::get_if<Split>(&step)) return split(*how, level, text, at_start, scratch, use);
  if (const auto* how = std::get_if<MetaspaceStep>(&step)) return mark(*how, level, text, at_start, scratch, use);
  if (std::holds_alternative<AlphabetStep>(step))
    return cut(level + 1, byte_alphabet::of_bytes(text), at_start, scratch, use);
  if (text[0] == ' ') return cut(level + 1, text, at_start, scratch, use);
  std::string spaced = " ";
  spaced += text;
  cut(level + 1, spaced, at_start, scratch, use);
}

void Pieces::split(const Split& how, size_t level, std::string_view text, bool at_start,
                   SplitPattern::Scratch& scratch, const Use& use) const {
  SplitPattern::Matches matches(how.pattern, text, scratch);
  size_t done = 0, begin = 0, end = 0;
  const bool last = level + 1 == steps_.size() && !spells_;
  const auto piece = [&](size_t from, size_t to) {
    if (from == to) return;
    const std::string_view part = text.substr(from, to - from);
    if (last) return use(part);
    cut(level + 1, part, at_start && from == 0, scratch, use);
  };
  if (how.behavior == Behavior::isolated) {
    while (matches.next(begin, end)) {
      piece(done, begin);
      piece(begin, end);
      done = end;
    }
    return piece(done, text.size());
  }
  std::vector<Part> parts;
  while (matches.next(begin, end)) {
    if (begin > done) parts.push_back({done, begin, how.invert});
    parts.push_back({begin, end, !how.invert});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size(), how.invert});
  join_parts(parts, how.behavior);
  for (const Part& part : parts) piece(part.begin, part.end);
}

void Pieces::mark(const MetaspaceStep& how, size_t level, std::string_view text, bool at_start,
                  SplitPattern::Scratch& scratch, const Use& use) const {
  std::string marked;
  marked.reserve(text.size() + text.size() / 2);
  const bool has_mark = text[0] == ' ' || text.starts_with(how.mark);
  const bool prepends =
      how.prepend == MetaspaceStep::Prepend::always || (how.prepend == MetaspaceStep::Prepend::first && at_start);
  if (prepends && !has_mark) marked += how.mark;
  for (const char c : text) {
    if (c == ' ') {
      marked += how.mark;
    } else {
      marked += c;
    }
  }
  if (!how.split) return cut(level + 1, marked, at_start, scratch, use);
  // Each mark begins a piece, also one behind another.
  const std::string_view whole = marked;
  for (size_t begin = 0; begin < whole.size();) {
    const size_t after = whole.substr(begin).starts_with(how.mark) ? begin + how.mark.size() : begin;
    const size_t end = std::min(whole.find(how.mark, after), whole.size());
    cut(level + 1, whole.substr(begin, end - begin), at_start && begin == 0, scratch, use);
    begin = end;
  }
}

}  // namespace heddle::data
