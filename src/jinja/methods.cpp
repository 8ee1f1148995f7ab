// Methods of texts, mappings and lists, as Python has them.
#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "heddle/base/utf8.h"
#include "jinja/letters.h"
#include "jinja/machine.h"

namespace heddle::jinja {

Letters::Letters(std::string_view text) : text_(text), count_(std::ssize(text)) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return;
  for (size_t at = 0; at < text.size(); at += first_letter(text.substr(at)).bytes)
    begins_.push_back(static_cast<uint32_t>(at));
  count_ = std::ssize(begins_);
  begins_.push_back(static_cast<uint32_t>(text.size()));
}

std::string_view Letters::part(int64_t begin, int64_t end) const {
  if (begins_.empty()) return text_.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  const size_t first = begins_[begin];
  return text_.substr(first, begins_[end] - first);
}

bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_letter(uint32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

std::string upper(std::string_view text) {
  constexpr uint32_t kSharpS = 0xdf;  // Python makes two letters of it
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t code = next_code_point(text, at);
    append_utf8(
        out, code == kSharpS ? code : static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code))));
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();)
    append_utf8(out,
                static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(next_code_point(text, at)))));
  return out;
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = first_letter(text).bytes;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

std::string_view stripped(std::string_view text, const std::string* letters, bool left, bool right) {
  const auto goes = [&](std::string_view letter) {
    return letters != nullptr ? letters->find(letter) != std::string::npos : is_space(first_letter(letter).code);
  };
  while (left && !text.empty()) {
    const size_t size = first_letter(text).bytes;
    if (!goes(text.substr(0, size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    size_t at = text.size() - 1;
    while (at > 0 && (text[at] & 0xc0) == 0x80) --at;
    if (!goes(text.substr(at))) break;
    text.remove_suffix(text.size() - at);
  }
  return text;
}

std::string replaced(Machine& machine, const std::string& text, const std::string& from, const std::string& to,
                     int64_t most) {
  std::string out;
  size_t at = 0;
  for (; most != 0; --most) {
    const size_t found = text.find(from, at);
    if (found == std::string::npos || (from.empty() && found >= text.size())) break;
    machine.step();
    machine.make(std::ssize(to));
    const size_t next =
        found + (from.empty() ? first_letter(std::string_view(text).substr(found)).bytes : from.size());
    out.append(text, at, found - at);
    out += to;
    if (from.empty()) out.append(text, found, next - found);
    at = next;
  }
  if (from.empty() && most != 0 && at == text.size()) out += to;
  return out + text.substr(std::min(at, text.size()));
}

namespace {

using MethodArgs = Arguments;

// Letters to strip; null: white space.
const std::string* letters_of(Machine& machine, const MethodArgs& arguments) {
  const Value* given = arguments.find(0, "chars");
  return given == nullptr || given->is_none() ? nullptr : &machine.want_text(*given, "strip");
}
template <bool left, bool right>
Value strip(Machine& machine, const Value& self, const MethodArgs& arguments) {
  return machine.text(std::string(stripped(self.text(), letters_of(machine, arguments), left, right)));
}

// The part of a text that a method looks at, bounded by its second and third argument, and the letters before it;
// nothing where it begins behind the end.
std::optional<std::pair<std::string_view, int64_t>> part_of(Machine& machine, const std::string& text,
                                                            const MethodArgs& arguments) {
  if (arguments.count() < 2) return std::pair(std::string_view(text), int64_t{0});
  const Letters letters(text);
  machine.step(1 + std::ssize(text) / 8);
  const auto bound = [&](size_t place, std::string_view name, int64_t otherwise) {
    const Value given = arguments.get(place, name, None());
    const int64_t at = given.is_none() ? otherwise : machine.want_integer(given, name);
    return at < 0 ? std::max<int64_t>(0, at + letters.count()) : at;
  };
  const int64_t begin = bound(1, "start", 0), end = std::min(bound(2, "end", letters.count()), letters.count());
  if (begin > end) return std::nullopt;
  return std::pair(letters.part(begin, end), begin);
}

// Tests for one text or a tuple of them.
template <bool at_end>
Value affixed(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const auto part = part_of(machine, self.text(), arguments);
  const Value given = arguments.get(0, at_end ? "suffix" : "prefix", Value());
  const Values all = given.is_tuple() ? given.items() : Values{given};
  return std::any_of(all.begin(), all.end(), [&](const Value& each) {
    const std::string& text = machine.want_text(each, at_end ? "endswith" : "startswith");
    return part && (at_end ? part->first.ends_with(text) : part->first.starts_with(text));
  });
}

template <bool at_end>
Value removed_affix(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const std::string& affix = machine.want_text(arguments.get(0, "affix", Value()), "removeprefix, removesuffix");
  std::string_view text = self.text();
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return machine.text(std::string(text));
}

Value split(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const Value by = arguments.get(0, "sep", None());
  int64_t most = machine.want_integer(arguments.get(1, "maxsplit", int64_t{-1}), "split");
  std::string_view text = self.text();
  Values parts;
  machine.make(std::ssize(text));
  const auto add = [&](std::string_view part) {
    machine.step();
    machine.make(96);
    parts.emplace_back(std::string(part));
  };
  if (by.is_none()) {
    while (!(text = stripped(text, nullptr, true, false)).empty()) {
      size_t end = 0;
      while (end < text.size() && !is_space(first_letter(text.substr(end)).code))
        end += first_letter(text.substr(end)).bytes;
      if (most-- == 0) {
        add(stripped(text, nullptr, false, true));
        break;
      }
      add(text.substr(0, end));
      text.remove_prefix(end);
    }
    return machine.list(std::move(parts));
  }
  const std::string& separator = machine.want_text(by, "split");
  if (separator.empty()) machine.fail("split: an empty separator");
  for (size_t found; most-- != 0 && (found = text.find(separator)) != std::string_view::npos;) {
    add(text.substr(0, found));
    text.remove_prefix(found + separator.size());
  }
  add(text);
  return machine.list(std::move(parts));
}

Value rsplit(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const Value by = arguments.get(0, "sep", None());
  int64_t most = machine.want_integer(arguments.get(1, "maxsplit", int64_t{-1}), "rsplit");
  if (by.is_none() || most < 0) return split(machine, self, arguments);
  const std::string& separator = machine.want_text(by, "rsplit");
  if (separator.empty()) machine.fail("rsplit: an empty separator");
  std::string_view text = self.text();
  Values parts;
  machine.make(std::ssize(text));
  for (size_t found; most-- != 0 && (found = text.rfind(separator)) != std::string_view::npos;) {
    machine.step();
    machine.make(96);
    parts.emplace_back(std::string(text.substr(found + separator.size())));
    text = text.substr(0, found);
  }
  parts.emplace_back(std::string(text));
  std::reverse(parts.begin(), parts.end());
  return machine.list(std::move(parts));
}

Value splitlines(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const bool keep = arguments.get(0, "keepends", false).truth();
  std::string_view text = self.text();
  Values lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n\r\v\f"), text.size());
    const size_t sign = end == text.size() ? 0 : text.substr(end).starts_with("\r\n") ? 2 : 1;
    machine.step();
    machine.make(96 + static_cast<int64_t>(end));
    lines.emplace_back(std::string(text.substr(0, end + (keep ? sign : 0))));
    text.remove_prefix(end + sign);
  }
  return machine.list(std::move(lines));
}

template <bool from_end>
Value partition(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const std::string& by = machine.want_text(arguments.get(0, "sep", Value()), "partition");
  const std::string& text = self.text();
  const size_t found = by.empty() ? std::string::npos : from_end ? text.rfind(by) : text.find(by);
  machine.make(std::ssize(text));
  if (found == std::string::npos) return machine.list(from_end ? Values{"", "", text} : Values{text, "", ""}, true);
  return machine.list({text.substr(0, found), by, text.substr(found + by.size())}, true);
}

template <bool from_end>
Value found(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const std::string& what = machine.want_text(arguments.get(0, "sub", Value()), "find");
  const auto part = part_of(machine, self.text(), arguments);
  if (!part) return int64_t{-1};
  const size_t at = from_end ? part->first.rfind(what) : part->first.find(what);
  if (at == std::string::npos) return int64_t{-1};
  return part->second + Letters(part->first.substr(0, at)).count();
}

Value counted(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const std::string& what = machine.want_text(arguments.get(0, "sub", Value()), "count");
  const auto part = part_of(machine, self.text(), arguments);
  if (!part) return int64_t{0};
  if (what.empty()) return Letters(part->first).count() + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = part->first.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

Value text_replace(Machine& machine, const Value& self, const MethodArgs& arguments) {
  const std::string& from = machine.want_text(arguments.get(0, "old", Value()), "replace");
  const std::string& to = machine.want_text(arguments.get(1, "new", Value()), "replace");
  return machine.text(replaced(machine, self.text(), from, to,
                               machine.want_integer(arguments.get(2, "count", int64_t{-1}), "replace")));
}

Value text_join(Machine& machine, const Value& self, const MethodArgs& arguments) {
  std::string all;
  bool first = true;
  for (const Value& each : machine.items_of(arguments.get(0, "iterable", Value()))) {
    if (!first) all += self.text();
    machine.make(std::ssize(self.text()));
    all += machine.want_text(each, "join");
    first = false;
  }
  return machine.text(std::move(all));
}

Value title(Machine& machine, const Value& self, const MethodArgs&) {
  std::string out;
  bool begins = true;
  for (size_t at = 0; at < self.text().size();) {
    const size_t before = at;
    const uint32_t code = next_code_point(self.text(), at);
    const std::string_view letter = std::string_view(self.text()).substr(before, at - before);
    out += begins ? upper(letter) : lower(letter);
    begins = !is_letter(code);
  }
  return machine.text(std::move(out));
}

template <std::string (*change)(std::string_view)>
Value text_changed(Machine& machine, const Value& self, const MethodArgs&) {
  return machine.text(change(self.text()));
}

template <bool (*holds)(uint32_t)>
Value all_are(Machine&, const Value& self, const MethodArgs&) {
  if (self.text().empty()) return false;
  for (size_t at = 0; at < self.text().size();) {
    if (!holds(next_code_point(self.text(), at))) return false;
  }
  return true;
}
bool is_digit(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND; }

template <int which>  // 0: keys, 1: values, 2: both
Value parts(Machine& machine, const Value& self, const MethodArgs&) {
  Values all;
  machine.step(std::ssize(self.entries()));
  for (const auto& [key, value] : self.entries())
    all.push_back(which == 0 ? key : which == 1 ? value : machine.list({key, value}, true));
  return machine.list(std::move(all));
}
Value get(Machine& machine, const Value& self, const MethodArgs& arguments) {
  machine.step(1 + std::ssize(self.entries()) / 8);
  const Value* found = self.find(arguments.get(0, "key", None()));
  return found == nullptr ? arguments.get(1, "default", None()) : *found;
}
Value count_of(Machine& machine, const Value& self, const MethodArgs& arguments) {
  int64_t count = 0;
  for (const Value& each : self.items()) count += machine.equal(each, arguments.get(0, "value", None()));
  return count;
}
Value index_of(Machine& machine, const Value& self, const MethodArgs& arguments) {
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (machine.equal(self.items()[i], arguments.get(0, "value", None()))) return static_cast<int64_t>(i);
  }
  machine.fail("index: the list holds no such value");
}

constexpr NamedFunction kText[] = {{"strip", strip<true, true>, 1},
                                   {"lstrip", strip<true, false>, 1},
                                   {"rstrip", strip<false, true>, 1},
                                   {"startswith", affixed<false>, 3},
                                   {"endswith", affixed<true>, 3},
                                   {"removeprefix", removed_affix<false>, 1},
                                   {"removesuffix", removed_affix<true>, 1},
                                   {"split", split, 2},
                                   {"rsplit", rsplit, 2},
                                   {"splitlines", splitlines, 1},
                                   {"partition", partition<false>, 1},
                                   {"rpartition", partition<true>, 1},
                                   {"find", found<false>, 3},
                                   {"rfind", found<true>, 3},
                                   {"count", counted, 3},
                                   {"replace", text_replace, 3},
                                   {"join", text_join, 1},
                                   {"title", title},
                                   {"upper", text_changed<upper>},
                                   {"lower", text_changed<lower>},
                                   {"capitalize", text_changed<capitalized>},
                                   {"isspace", all_are<is_space>},
                                   {"isdigit", all_are<is_digit>},
                                   {"isalpha", all_are<is_letter>}};
constexpr NamedFunction kMap[] = {{"keys", parts<0>}, {"values", parts<1>}, {"items", parts<2>}, {"get", get, 2}};
constexpr NamedFunction kList[] = {{"count", count_of, 1}, {"index", index_of, 1}};

}  // namespace

std::span<const NamedFunction> text_methods() { return kText; }
std::span<const NamedFunction> map_methods() { return kMap; }
std::span<const NamedFunction> list_methods() { return kList; }

}  // namespace heddle::jinja
