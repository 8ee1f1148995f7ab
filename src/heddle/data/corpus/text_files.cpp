// The user's own text, streamed: see open_text in corpus.h.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/hash.h"
#include "heddle/base/utf8.h"
#include "heddle/data/corpus/corpus.h"
#include "heddle/data/corpus/packed_reader.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMostJsonDepth = 64;
constexpr size_t kReadBytes = 1 << 18;

bool is_jsonl(const std::string& path) { return without_packing(path).ends_with(".jsonl"); }

bool is_text(const std::string& path) { return is_jsonl(path) || without_packing(path).ends_with(".txt"); }

// Forms of text that are asked for and can't be read, with what makes readable ones of them.
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

// Where something stands that is no text: a byte that is no UTF-8, or a control character other than those that
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
      for (; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (!at->is_regular_file(ignored)) continue;
        const std::string file = at->path().string();
        if (is_text(file)) files_.push_back(file);
        if (!is_text(file)) other_ = file;
      }
      if (error) config_error("{}: cannot list the folder: {}", path, error.message());
      if (files_.empty()) {
        refuse_other_forms(other_);
        config_error("{}: no .txt or .jsonl (or .gz or .zst of them) in the folder", path);
      }
      std::sort(files_.begin(), files_.end());
    } else {
      if (!fs::is_regular_file(status)) config_error("{} is neither a file nor a folder", path);
      refuse_other_forms(path);
      files_ = {path};
    }
    if (options_.key != TextOptions().key) fingerprint_ = hash_bytes(options_.key);
    for (const std::string& file : files_) {
      fingerprint_ = fingerprint_of(file, fingerprint_);
      const auto size = fs::file_size(file, error);
      total_bytes_ += error ? 0 : static_cast<int64_t>(size);
    }
    Document first;
    if (!next(first)) config_error("{}: holds no text", path);
    rewind();
  }

  bool next(Document& document) override {
    while (true) {
      if (!reader_) {
        if (file_ == files_.size()) return false;
        reader_ = std::make_unique<PackedReader>(files_[file_]);
        line_ = 0;
      }
      const bool is_plain = !is_jsonl(files_[file_]);
      if (is_plain && options_.key.empty()) config_error("{}: samples are lines of .jsonl", files_[file_]);
      if (is_plain ? next_text(document) : next_object(document)) {
        document.source = files_[file_];
        document.line = is_plain ? 0 : line_;
        if (options_.bytes == Bytes::text) refuse_other_than_text(document.text, is_plain);
        if (is_plain) count_lines(document.text);
        return true;
      }
      before_bytes_ += reader_->consumed_bytes();
      reader_.reset();
      let_go();
      ++file_;
    }
  }

  void rewind() override {
    reader_.reset();
    let_go();
    file_ = 0;
    before_bytes_ = 0;
  }

  double progress() const override {
    const int64_t done = before_bytes_ + (reader_ ? reader_->consumed_bytes() : 0);
    return total_bytes_ == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total_bytes_));
  }

  uint64_t fingerprint() const override { return fingerprint_; }

 private:
  // Where in a plain file the text begins is counted in lines, of an object its line is known.
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

  // Reads more of the file behind what is held. False at the end.
  bool hold_more() {
    if (held_end_) return false;
    held_.erase(0, given_);
    given_ = 0;
    const size_t before = held_.size();
    held_.resize(before + kReadBytes);
    const size_t got = reader_->read(held_.data() + before, kReadBytes);
    held_.resize(before + got);
    held_end_ = got == 0;
    return got > 0;
  }

  // What is read and not yet given out; good until more is held.
  std::string_view left() const { return std::string_view(held_).substr(given_); }

  void let_go() {
    held_.clear();
    given_ = 0;
    held_end_ = false;
  }

  // Where a line ends that a blank one follows, from `begin` on.
  static size_t blank_line(std::string_view text, size_t begin) {
    for (size_t at = text.find('\n', begin); at != std::string_view::npos; at = text.find('\n', at + 1)) {
      if (text.compare(at + 1, 1, "\n") == 0 || text.compare(at + 1, 2, "\r\n") == 0) return at;
    }
    return std::string_view::npos;
  }

  bool next_text(Document& document) {
    size_t searched = kLeastDocumentBytes;
    while (true) {
      const std::string_view text = left();
      const size_t end = blank_line(text, searched);
      if (end != std::string_view::npos) {
        document.text = text.substr(0, end + 1);
        const size_t next = std::min(text.find_first_not_of("\r\n", end), text.size());
        lines_between_ = std::count(text.begin() + static_cast<ptrdiff_t>(end + 1),
                                    text.begin() + static_cast<ptrdiff_t>(next), '\n');
        given_ += next;
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
        given_ += cut;
        return true;
      }
      searched = std::max(kLeastDocumentBytes, text.size() < 3 ? 0 : text.size() - 3);
      if (hold_more()) continue;
      if (left().find_first_not_of(" \t\r\n") == std::string_view::npos) return false;
      document.text = left();
      given_ = held_.size();
      return true;
    }
  }

  bool next_object(Document& document) {
    size_t searched = 0;
    while (true) {
      const std::string_view text = left();
      const size_t end = text.find('\n', searched);
      if (end == std::string_view::npos) {
        searched = text.size();
        if (text.size() > kMostJsonLineBytes) {
          config_error("{}:{}: a line of more than {} bytes", files_[file_], line_ + 1, kMostJsonLineBytes);
        }
        if (hold_more()) continue;
        if (left().empty()) return false;
        held_ += '\n';  // the last line lacks its end
        continue;
      }
      ++line_;
      const std::string_view line = text.substr(0, end);
      const bool blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
      bool found = false;
      if (!blank) {
        document.text = text_of(line);
        found = !document.text.empty();
      }
      given_ += end + 1;
      searched = 0;
      if (found) return true;
    }
  }

  std::string text_of(std::string_view line) const {
    using Json = nlohmann::json;
    const auto watch = [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kMostJsonDepth)
        config_error("{}:{}: nested more than {} deep", files_[file_], line_, kMostJsonDepth);
      return true;
    };
    Json object;
    try {
      object = Json::parse(line.begin(), line.end(), watch);
    } catch (const Json::exception&) {
      config_error("{}:{}: not a JSON object", files_[file_], line_);
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

  TextOptions options_;
  std::string other_;  // a file of the folder that is no text
  std::vector<std::string> files_;
  int64_t total_bytes_ = 0, before_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  size_t file_ = 0;
  std::unique_ptr<PackedReader> reader_;
  std::string held_;  // read; from `given_` on not yet given out
  size_t given_ = 0;
  bool held_end_ = false;
  int64_t line_ = 0;           // of a plain file: lines before the document; of objects: the last one's
  int64_t lines_between_ = 0;  // blank ones behind a document
};

}  // namespace

std::unique_ptr<DocumentSource> open_text(const std::string& path, const TextOptions& options) {
  return std::make_unique<TextFiles>(path, options);
}

}  // namespace heddle::data
