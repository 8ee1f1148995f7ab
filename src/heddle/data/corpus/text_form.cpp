#include "heddle/data/corpus/text_form.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/data/corpus/packed_reader.h"
#include "heddle/formats/python_json.h"

namespace heddle::data {

namespace {

constexpr std::string_view kSpaces = " \t\r\n";

bool ends_with_any(const std::string& path, std::initializer_list<std::string_view> endings) {
  const std::string name = without_packing(path);
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

// True if the first object of a text goes on behind its first line, which then ends between two members.
bool goes_on(std::string_view text) {
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return false;
  const std::string_view first = text.substr(0, line);
  if (formats::JsonValueEnd().find(first, false) != std::string_view::npos) return false;
  const size_t last = first.find_last_not_of(kSpaces);
  return last != std::string_view::npos && std::string_view("{[,:").find(first[last]) != std::string_view::npos;
}

// True if the first line is an object, and one with a text under the key.
bool is_object(std::string_view text, const std::string& key) {
  try {
    const auto object = formats::parse_python_json(text.substr(0, text.find('\n')), {.any_bytes = true});
    if (!object.is_object()) return false;
    return key.empty() || (object.contains(key) && object[key].is_string());
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

bool is_json_name(const std::string& path) {
  return ends_with_any(path, {".jsonl", ".ndjson", ".jsonlines", ".json"});
}

bool is_text_name(const std::string& path) { return is_json_name(path) || ends_with_any(path, {".txt"}); }

TextForm form_of(const std::string& path, std::string_view head, const std::string& key) {
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  const size_t first = head.find_first_not_of(kSpaces);
  const bool by_name = is_json_name(path), plain = ends_with_any(path, {".txt"});
  if (first == std::string_view::npos) return by_name ? TextForm::lines : TextForm::text;
  const std::string_view text = head.substr(first);
  const size_t second = text.find_first_not_of(kSpaces, 1);
  if (text[0] == '[' && (by_name || (!plain && second != std::string_view::npos && text[second] == '{')))
    return second != std::string_view::npos && (text[second] == '{' || text[second] == ']') ? TextForm::list
           : ends_with_any(path, {".json"})                                                 ? TextForm::other
                                                                                            : TextForm::lines;
  if (text[0] == '{') {
    if (!by_name) return is_object(text, plain ? key : "") ? TextForm::lines : TextForm::text;
    if (ends_with_any(path, {".json"}) && goes_on(text)) return TextForm::values;
    return TextForm::lines;
  }
  return !by_name ? TextForm::text : ends_with_any(path, {".json"}) ? TextForm::other : TextForm::lines;
}

void refuse_other_forms(const std::string& path) {
  const std::string name = without_packing(path);
  for (const std::string_view ending : {".parquet", ".arrow", ".feather"}) {
    if (!name.ends_with(ending)) continue;
    config_error(
        "{}: {} files are not read (Arrow is no package of Debian 12); make .jsonl of it: python3 -c \"import "
        "pandas; pandas.read_parquet('FILE')[['text']].to_json('FILE.jsonl', orient='records', lines=True, "
        "force_ascii=False)\"",
        path, ending);
  }
}

}  // namespace heddle::data
