// The form of a file's text, by its name and its beginning.
#pragma once

#include <string>
#include <string_view>

namespace heddle::data {

enum class TextForm {
  text,    // as it stands
  lines,   // a JSON object on each line
  list,    // one JSON list of objects
  values,  // JSON objects one after another, over several lines each
  other,   // JSON that holds no documents, or nothing that is read
};

/// True if its name, without .gz and .zst, is one of JSON: .jsonl, .ndjson, .jsonlines, .json.
bool is_json_name(const std::string& path);
/// True if is_json_name, or if the name ends in .txt: such files are read out of a folder.
bool is_text_name(const std::string& path);
/// The bytes of a beginning that form_of looks at.
inline constexpr size_t kHeadBytes = 1 << 20;
/// `key` is that of a document; empty: the object itself is one. A .txt file whose first line is an object with the
/// key is one of lines. So is any other file of no known name whose first line is an object.
TextForm form_of(const std::string& path, std::string_view head, const std::string& key);
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// ConfigError for forms that are asked for and can't be read, with what makes readable ones of them.
void refuse_other_forms(const std::string& path);

}  // namespace heddle::data
