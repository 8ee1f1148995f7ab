#include "jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/utf8.h"

namespace heddle::jinja {

namespace {

void bound(int depth, int64_t weight) {
  if (depth > Value::kMostDepth) config_error("a value is nested more than {} deep", Value::kMostDepth);
  if (weight > Value::kMostWeight) config_error("a value of more than {} parts", Value::kMostWeight);
}

std::string real_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  const double size = std::abs(x);
  std::array<char, 400> room;
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(room.data(), room.data() + room.size(), x,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(room.data(), end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void json_string(const std::string& text, bool ascii, std::string& out) {
  out += '"';
  std::string_view left = text;
  while (!left.empty()) {
    const Letter letter = first_letter(left);
    const auto c = static_cast<unsigned char>(left[0]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += left[0];
    } else if (c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f') {
      out += '\\';
      out += c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c == '\b' ? 'b' : 'f';
    } else if (c < 0x20 || (ascii && letter.valid && letter.code >= 0x7f)) {
      if (letter.code > 0xffff) {
        out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((letter.code - 0x10000) >> 10),
                           0xdc00 + ((letter.code - 0x10000) & 0x3ff));
      } else {
        out += fmt::format("\\u{:04x}", static_cast<uint32_t>(letter.code));
      }
    } else {
      out += left.substr(0, letter.bytes);
    }
    left.remove_prefix(letter.bytes);
  }
  out += '"';
}

std::string json_key(const Value& key) {
  if (key.is_text()) return key.text();
  if (key.is_none()) return "null";
  if (key.is_boolean()) return key.truth() ? "true" : "false";
  if (key.is_number()) return text_of(key);
  config_error("tojson: {} is no key of an object", key.kind());
}

void write_json(const Value& value, const JsonForm& form, int level, std::string& out) {
  const auto line = [&](int at) {
    if (form.indent >= 0) out += "\n" + std::string(static_cast<size_t>(form.indent * at), ' ');
  };
  if (value.is_none()) {
    out += "null";
  } else if (value.is_boolean()) {
    out += value.truth() ? "true" : "false";
  } else if (value.is_real() && !std::isfinite(value.real())) {
    out += std::isnan(value.real()) ? "NaN" : value.real() < 0 ? "-Infinity" : "Infinity";
  } else if (value.is_number()) {
    out += text_of(value);
  } else if (value.is_text()) {
    json_string(value.text(), form.ascii, out);
  } else if (value.is_list()) {
    out += '[';
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i > 0) out += form.comma;
      line(level + 1);
      write_json(value.items()[i], form, level + 1, out);
    }
    if (!value.items().empty()) line(level);
    out += ']';
  } else if (value.is_map()) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : value.entries()) entries.push_back(&entry);
    if (form.sorted) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return json_key(a->first) < json_key(b->first); });
    }
    out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += form.comma;
      line(level + 1);
      json_string(json_key(entries[i]->first), form.ascii, out);
      out += form.colon;
      write_json(entries[i]->second, form, level + 1, out);
    }
    if (!entries.empty()) line(level);
    out += '}';
  } else {
    config_error("tojson: {} is no JSON", value.kind());
  }
}

}  // namespace

Value Value::list(Values items, bool tuple, bool lazy) {
  auto made = std::make_shared<List>();
  for (const Value& item : items) {
    made->depth = std::max(made->depth, 1 + item.depth());
    made->weight += item.weight();
  }
  bound(made->depth, made->weight);
  made->items = std::move(items);
  made->tuple = tuple;
  made->lazy = lazy;
  Value value;
  value.v_ = std::shared_ptr<const List>(std::move(made));
  return value;
}

Value Value::safe(std::string text) {
  Value value(std::move(text));
  value.safe_ = true;
  return value;
}

Value Value::map(Entries entries) {
  auto made = std::make_shared<Map>();
  for (const auto& [key, item] : entries) {
    made->depth = std::max({made->depth, 1 + key.depth(), 1 + item.depth()});
    made->weight += key.weight() + item.weight();
  }
  bound(made->depth, made->weight);
  made->entries = std::move(entries);
  Value value;
  value.v_ = std::shared_ptr<const Map>(std::move(made));
  return value;
}

int Value::depth() const {
  if (is_list()) return std::get<std::shared_ptr<const List>>(v_)->depth;
  return is_map() ? std::get<std::shared_ptr<const Map>>(v_)->depth : 0;
}

int64_t Value::weight() const {
  if (is_text()) return 1 + std::ssize(text()) / 8;
  if (is_list()) return std::get<std::shared_ptr<const List>>(v_)->weight;
  return is_map() ? std::get<std::shared_ptr<const Map>>(v_)->weight : 1;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_boolean()) return std::get<bool>(v_);
  if (is_integer()) return std::get<int64_t>(v_) != 0;
  if (is_real()) return std::get<double>(v_) != 0;
  if (is_text()) return !text().empty();
  if (is_list()) return is_lazy() || !items().empty();
  return !is_map() || !entries().empty();
}

std::string_view Value::kind() const {
  if (is_undefined()) return "what is undefined";
  if (is_none()) return "none";
  if (is_boolean()) return "a boolean";
  if (is_number()) return "a number";
  if (is_text()) return "a text";
  if (is_list()) return is_tuple() ? "a tuple" : "a list";
  if (is_map()) return "a mapping";
  return space() != nullptr ? "a namespace" : "a function";
}

const Value* Value::find(const Value& key) const {
  for (const auto& [own, value] : entries()) {
    if (equal(own, key)) return &value;
  }
  return nullptr;
}

const Value* Value::find_word(std::string_view key) const {
  for (const auto& [own, value] : entries()) {
    if (own.is_text() && own.text() == key) return &value;
  }
  return nullptr;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.large() != nullptr && b.large() != nullptr) return *a.large() == *b.large();
    return a.is_real() || b.is_real() ? a.real() == b.real() : a.integer() == b.integer();
  }
  if (a.is_text() && b.is_text()) return a.text() == b.text();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_list() && b.is_list()) {
    return a.is_tuple() == b.is_tuple() &&
           std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
  }
  if (a.is_map() && b.is_map()) {
    return a.entries().size() == b.entries().size() &&
           std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
             const Value* other = b.find(entry.first);
             return other != nullptr && equal(entry.second, *other);
           });
  }
  if (a.space() != nullptr || b.space() != nullptr) return a.space() == b.space();
  return a.callable() != nullptr && a.callable() == b.callable();
}

std::optional<int> compared(const Value& a, const Value& b) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number() && b.is_number()) {
    return a.is_real() || b.is_real() ? order(a.real(), b.real()) : order(a.integer(), b.integer());
  }
  if (a.is_text() && b.is_text()) return order(a.text().compare(b.text()), 0);
  if (!a.is_list() || !b.is_list() || a.is_tuple() != b.is_tuple()) return std::nullopt;
  for (size_t i = 0; i < std::min(a.items().size(), b.items().size()); ++i) {
    if (!equal(a.items()[i], b.items()[i])) return compared(a.items()[i], b.items()[i]);
  }
  return order(a.items().size(), b.items().size());
}

std::string text_of(const Value& value) {
  if (value.is_text()) return value.text();
  return value.is_undefined() ? "" : repr_of(value);
}

std::string repr_of(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_boolean()) return value.truth() ? "True" : "False";
  if (value.is_integer()) return fmt::format("{}", value.integer());
  if (const uint64_t* large = value.large()) return fmt::format("{}", *large);
  if (value.is_real()) return real_text(value.real());
  if (value.is_text()) {
    const std::string& text = value.text();
    const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
    std::string out(1, quote);
    for (const char c : text) {
      if (c == quote || c == '\\') {
        out += {'\\', c};
      } else if (c == '\n' || c == '\r' || c == '\t') {
        out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        out += c;
      }
    }
    return out + quote;
  }
  if (value.is_list()) {
    std::string out = value.is_tuple() ? "(" : "[";
    for (size_t i = 0; i < value.items().size(); ++i) out += (i > 0 ? ", " : "") + repr_of(value.items()[i]);
    if (value.is_tuple() && value.items().size() == 1) out += ",";
    return out + (value.is_tuple() ? ")" : "]");
  }
  if (value.is_map()) {
    std::string out = "{";
    for (const auto& [key, item] : value.entries())
      out += (out.size() > 1 ? ", " : "") + repr_of(key) + ": " + repr_of(item);
    return out + "}";
  }
  config_error("{} cannot be written as text", value.kind());
}

std::string json_of(const Value& value, const JsonForm& form) {
  std::string out;
  write_json(value, form, 0, out);
  return out;
}

}  // namespace heddle::jinja
