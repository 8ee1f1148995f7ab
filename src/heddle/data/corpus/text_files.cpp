#include "heddle/data/corpus/text_files.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"
#include "heddle/data/corpus/held_text.h"
#include "heddle/data/corpus/text_form.h"
#include "heddle/formats/python_json.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMostJsonDepth = 64;
constexpr int kEnd = -1;  // of a file, where a sign of it is asked for
constexpr std::string_view kBlanks = " \t\r\n";

// Forms of files that begin with bytes of their own, and what reads them; "" for what may be text.
std::string other_than_text(std::string_view head) {
  struct Form {
    std::string_view begin;
    const char* what;
  };
  static constexpr Form kForms[] = {
      {"\xfd"
       "7zXZ",
       "packed by xz, which is not read: xz -d FILE unpacks it"},
      {"PK\x03\x04", "a zip archive, which is not read: unzip FILE unpacks it"},
      {"\x04\x22\x4d\x18", "packed by lz4, which is not read: lz4 -d FILE unpacks it"},
      {"7z\xbc\xaf", "a 7z archive, which is not read: 7z x FILE unpacks it"},
      {"\x1f\x8b", "packed twice, the second time by gzip: unpack it once"},
      {"\x28\xb5\x2f\xfd", "packed twice, the second time by zstd: unpack it once"},
  };
  static constexpr Form kOfTables[] = {
      {"PAR1", "Parquet, which is not read: pandas or pyarrow make .jsonl of it"},
      {"ARROW1", "Arrow, which is not read: pandas or pyarrow make .jsonl of it"},
  };
  for (const Form& form : kForms) {
    if (head.starts_with(form.begin)) return form.what;
  }
  for (const Form& form : kOfTables) {
    if (head.starts_with(form.begin) && head.find('\0') != std::string_view::npos) return form.what;
  }
  if (head.starts_with("BZh") && head.substr(std::min<size_t>(head.size(), 4)).starts_with("1AY&SY"))
    return "packed by bzip2, which is not read: bzip2 -d FILE unpacks it";
  constexpr size_t kTarMark = 257;
  if (head.size() > kTarMark && head.substr(kTarMark).starts_with("ustar"))
    return "a tar archive, which is not read: tar -xf FILE unpacks it";
  return "";
}

// The place of something that is no text: a byte that is no UTF-8, or a control character other than those that
// layout is made of. npos: nowhere.
size_t first_that_is_no_text(std::string_view text) {
  const size_t broken = valid_utf8_prefix(text);
  for (size_t at = 0; at < broken; ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte < 0x20 && (byte < '\t' || byte > '\r')) || byte == 0x7f) return at;
  }
  return broken == text.size() ? std::string_view::npos : broken;
}

class TextFiles : public DocumentSource {
 public:
  TextFiles(const std::string& path, const TextOptions& options) : options_(options) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) config_error("{}: no such file or folder", path);
    if (fs::is_directory(status)) {
      fs::recursive_directory_iterator at(path, error), end;
      std::vector<std::string> others;
      for (; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (!at->is_regular_file(ignored)) continue;
        const std::string file = at->path().string();
        (is_read_in_folder(file) ? files_ : others).push_back(file);
      }
      if (error) config_error("{}: cannot list the folder: {}", path, error.message());
      std::sort(others.begin(), others.end());
      if (files_.empty()) {
        for (const std::string& other : others) refuse_other_forms(other);
        config_error(
            "{}: no .txt or .jsonl, .ndjson, .jsonlines, .json of documents (or .gz or .zst of them) in the folder",
            path);
      }
      std::sort(files_.begin(), files_.end());
      passed_.files = std::ssize(others);
      others.resize(std::min(others.size(), PassedOver::kMostNamed));
      passed_.first_files = std::move(others);
    } else {
      if (!fs::is_regular_file(status)) config_error("{} is neither a file nor a folder", path);
      refuse_other_forms(path);
      files_ = {path};
    }
    if (options_.key != TextOptions().key) fingerprint_ = hash_bytes(options_.key);
    if (options_.skip_bad_lines) fingerprint_ = hash_bytes("skip bad lines", fingerprint_);
    for (const std::string& file : files_) {
      fingerprint_ = fingerprint_of(file, fingerprint_);
      const auto size = fs::file_size(file, error);
      total_bytes_ += error ? 0 : static_cast<int64_t>(size);
    }
    Document first;
    if (!next(first)) {
      config_error("{}: holds no text{}", path,
                   passed_.lines == 0 ? ""
                                      : fmt::format("; {} bad lines were skipped, the first: {}", passed_.lines,
                                                    passed_.first_lines[0]));
    }
    rewind();
  }

  bool next(Document& document) override {
    while (true) {
      if (!held_) {
        if (file_ == files_.size()) return false;
        open();
      }
      if (form_ == TextForm::text ? next_text(document) : next_object(document)) {
        document.source = files_[file_];
        document.line = form_ == TextForm::text ? 0 : line_;
        return true;
      }
      before_bytes_ += held_->consumed_bytes();
      held_.reset();
      ++file_;
    }
  }

  void rewind() override {
    held_.reset();
    file_ = 0;
    before_bytes_ = 0;
    passed_.lines = 0;
    passed_.first_lines.clear();
  }

  PassedOver passed_over() const override { return passed_; }

  double progress() const override {
    const int64_t done = before_bytes_ + (held_ ? held_->consumed_bytes() : 0);
    return total_bytes_ == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_bytes_));
  }

  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  static bool is_read_in_folder(const std::string& file) {
    if (!is_text_name(file)) return false;
    if (!without_packing(file).ends_with(".json")) return true;
    HeldText held(file);
    const TextForm form = form_of(file, held.head(kHeadBytes), "");
    return form == TextForm::lines || form == TextForm::list;
  }

  void open() {
    held_.emplace(files_[file_]);
    line_ = 0;
    lines_between_ = 0;
    next_line_ = 1;
    in_list_ = InList::before;
    const std::string_view head = held_->head(kHeadBytes);
    const std::string reason = other_than_text(head);
    if (!reason.empty()) config_error("{}: {}", files_[file_], reason);
    form_ = form_of(files_[file_], head, options_.key);
    if (form_ == TextForm::other)
      config_error(
          "{}: JSON that holds no documents: it begins with '{}', accepted are an object on each line and one list "
          "of objects",
          files_[file_], escaped(head.substr(std::min(head.find_first_not_of(kBlanks), head.size()), 20), 20));
    if (form_ == TextForm::text && options_.key.empty())
      config_error("{}: samples are JSON objects, one on each line or all in one list", files_[file_]);
    if (form_ != TextForm::text && head.starts_with(kByteOrderMark)) held_->give(kByteOrderMark.size());
  }

  // The place in a plain file is counted in lines, from where the text begins; the line of an object is known.
  void refuse_other_than_text(std::string_view text, bool is_plain) const {
    const size_t at = first_that_is_no_text(text);
    if (at == std::string_view::npos) return;
    const int64_t line =
        line_ + (is_plain ? 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n') : 0);
    const bool control = first_letter(text.substr(at)).valid;
    const bool wide = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
    config_error(
        "{}:{}: no text: holds the {} '{}'{}; --any-bytes (data.any_bytes = true) trains on it all the same",
        files_[file_], line, control ? "control character" : "byte", escaped(text.substr(at, 1)),
        wide      ? ", and begins as UTF-16 does (iconv -f UTF-16 -t UTF-8 makes text of it)"
        : control ? ""
                  : ", which is no UTF-8");
  }

  void count_lines(std::string_view text) {
    line_ += std::count(text.begin(), text.end(), '\n') + lines_between_;
    lines_between_ = 0;
  }

  // The end of a line that a blank one follows, from `begin` on.
  static size_t blank_line(std::string_view text, size_t begin) {
    for (size_t at = text.find('\n', begin); at != std::string_view::npos; at = text.find('\n', at + 1)) {
      if (text.compare(at + 1, 1, "\n") == 0 || text.compare(at + 1, 2, "\r\n") == 0) return at;
    }
    return std::string_view::npos;
  }

  bool next_text(Document& document) {
    if (!cut_text(document)) return false;
    if (options_.bytes == Bytes::text) refuse_other_than_text(document.text, true);
    count_lines(document.text);
    return true;
  }

  bool cut_text(Document& document) {
    size_t searched = kLeastDocumentBytes;
    while (true) {
      const std::string_view text = held_->left();
      const size_t end = blank_line(text, searched);
      if (end != std::string_view::npos) {
        document.text = text.substr(0, end + 1);
        const size_t next = std::min(text.find_first_not_of("\r\n", end), text.size());
        lines_between_ = std::count(text.begin() + static_cast<ptrdiff_t>(end + 1),
                                    text.begin() + static_cast<ptrdiff_t>(next), '\n');
        held_->give(next);
        return true;
      }
      if (text.size() > kMostDocumentBytes) {
        // At a line's end if there is one in the latter half, else between two characters.
        size_t cut = text.rfind('\n', kMostDocumentBytes - 1);
        if (cut == std::string_view::npos || cut < kMostDocumentBytes / 2) {
          cut = kMostDocumentBytes;
          while (cut > kMostDocumentBytes - 4 && (text[cut] & 0xc0) == 0x80) --cut;
        } else {
          ++cut;
        }
        document.text = text.substr(0, cut);
        held_->give(cut);
        return true;
      }
      searched = std::max(kLeastDocumentBytes, text.size() < 3 ? 0 : text.size() - 3);
      if (held_->hold_more()) continue;
      if (held_->left().find_first_not_of(" \t\r\n") == std::string_view::npos) return false;
      document.text = held_->left();
      held_->give(document.text.size());
      return true;
    }
  }

  // The next object that can be read, of whichever form; `line_` is that on which it begins.
  bool next_object(Document& document) {
    while (true) {
      const std::optional<std::string_view> object = form_ == TextForm::lines ? next_line() : next_value();
      if (!object) return false;
      try {
        document.text = text_of(*object);
        if (!document.text.empty() && options_.bytes == Bytes::text && !options_.key.empty())
          refuse_other_than_text(document.text, false);
      } catch (const ConfigError& error) {
        if (!options_.skip_bad_lines) throw;
        passed_.add_line(error.what());
        document.text.clear();
      }
      held_->give(object_bytes_);
      if (!document.text.empty()) return true;
    }
  }

  [[noreturn]] void refuse_long() const {
    config_error("{}:{}: {} of more than {} bytes", files_[file_], next_line_,
                 form_ == TextForm::lines ? "a line" : "an object", kMostJsonLineBytes);
  }

  // A line that is not blank. It is given out with its end, once it is read.
  std::optional<std::string_view> next_line() {
    size_t searched = 0;
    while (true) {
      const std::string_view text = held_->left();
      size_t end = text.find('\n', searched);
      if (end == std::string_view::npos) {
        searched = text.size();
        if (text.size() > kMostJsonLineBytes) refuse_long();
        if (held_->hold_more()) continue;
        if (held_->left().empty()) return std::nullopt;
        end = held_->left().size();  // the last line lacks its end
      }
      const std::string_view line = held_->left().substr(0, end);
      object_bytes_ = std::min(end + 1, held_->left().size());
      line_ = next_line_++;
      if (line.find_first_not_of(kBlanks) != std::string_view::npos) return line;
      held_->give(object_bytes_);
      searched = 0;
    }
  }

  // The next byte that is no blank; kEnd: there is none.
  int next_sign() {
    while (true) {
      const std::string_view text = held_->left();
      const size_t at = std::min(text.find_first_not_of(kBlanks), text.size());
      next_line_ += std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
      held_->give(at);
      if (at < text.size()) return static_cast<unsigned char>(text[at]);
      if (!held_->hold_more()) return kEnd;
    }
  }

  // An item of the list, or one of the objects that stand one after another.
  std::optional<std::string_view> next_value() {
    int sign = next_sign();
    if (form_ == TextForm::list) {
      if (in_list_ == InList::before) {  // it begins with one
        held_->give(1);
        sign = next_sign();
        if (sign == ']') in_list_ = InList::behind;
      } else if (in_list_ == InList::within) {
        if (sign != ',' && sign != ']')
          config_error("{}:{}: {}", files_[file_], next_line_,
                       sign == kEnd ? "cut short: the list has no end"
                                    : fmt::format("'{}', where ',' or the end of the list is expected",
                                                  escaped(held_->left().substr(0, 1))));
        if (sign == ']') in_list_ = InList::behind;
        if (sign == ',') {
          held_->give(1);
          sign = next_sign();
        }
      }
      if (in_list_ == InList::behind) {
        if (sign == ']') {
          held_->give(1);
          sign = next_sign();
        }
        if (sign != kEnd)
          config_error("{}:{}: '{}' follows the end of the list", files_[file_], next_line_,
                       escaped(held_->left().substr(0, 1)));
        return std::nullopt;
      }
      in_list_ = InList::within;
    }
    if (sign == kEnd) {
      if (form_ == TextForm::list) config_error("{}:{}: cut short: the list has no end", files_[file_], next_line_);
      return std::nullopt;
    }
    formats::JsonValueEnd value;
    size_t end = value.find(held_->left(), false);
    while (end == std::string_view::npos) {
      if (held_->left().size() > kMostJsonLineBytes) refuse_long();
      const bool more = held_->hold_more();
      end = value.find(held_->left(), !more);
      if (!more && end == std::string_view::npos)
        config_error("{}:{}: cut short: an object has no end", files_[file_], next_line_);
    }
    const std::string_view object = held_->left().substr(0, end);
    object_bytes_ = end;
    line_ = next_line_;
    next_line_ += std::count(object.begin(), object.end(), '\n');
    return object;
  }

  std::string text_of(std::string_view line) const {
    nlohmann::ordered_json object;
    try {
      object = formats::parse_python_json(
          line, {.most_depth = kMostJsonDepth, .any_bytes = options_.bytes == Bytes::any});
    } catch (const ConfigError& error) {
      config_error("{}:{}: not a JSON object: {}", files_[file_], line_, error.what());
    }
    if (!object.is_object()) config_error("{}:{}: not a JSON object", files_[file_], line_);
    if (options_.key.empty()) return std::string(line);
    const auto text = object.find(options_.key);
    if (text == object.end() || !text->is_string()) {
      std::vector<std::string> strings;
      for (const auto& [key, value] : object.items()) {
        if (value.is_string() && strings.size() < 5) strings.push_back(fmt::format("\"{}\"", escaped(key, 40)));
      }
      const std::string there =
          strings.empty() ? "" : fmt::format("; there are {} (--key, data.text_key)", fmt::join(strings, ", "));
      config_error("{}:{}: no string under the key \"{}\"{}", files_[file_], line_, escaped(options_.key, 40),
                   there);
    }
    return text->get<std::string>();
  }

  enum class InList { before, within, behind };

  TextOptions options_;
  std::vector<std::string> files_;
  PassedOver passed_;
  int64_t total_bytes_ = 0, before_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  size_t file_ = 0;
  std::optional<HeldText> held_;
  TextForm form_ = TextForm::text;
  InList in_list_ = InList::before;
  size_t object_bytes_ = 0;    // of the object that was found, not given out yet
  int64_t line_ = 0;           // of a plain file: lines before the document; of objects: the last one's
  int64_t next_line_ = 1;      // of JSON: at which what is left begins
  int64_t lines_between_ = 0;  // blank ones behind a document
};

}  // namespace

std::unique_ptr<DocumentSource> open_text(const std::string& path, const TextOptions& options) {
  return std::make_unique<TextFiles>(path, options);
}

}  // namespace heddle::data
