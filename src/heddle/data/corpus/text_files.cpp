// The user's own text, streamed: see open_text in corpus.h.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/utf8.h"
#include "heddle/data/corpus/corpus.h"
#include "heddle/data/corpus/gzip_reader.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

constexpr int kMostJsonDepth = 64;

bool is_jsonl(const std::string& path) {
  fs::path name = path;
  if (name.extension() == ".gz") name.replace_extension();
  return name.extension() == ".jsonl";
}

bool is_text(const std::string& path) {
  fs::path name = path;
  if (name.extension() == ".gz") name.replace_extension();
  return name.extension() == ".txt" || name.extension() == ".jsonl";
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
  TextFiles(const std::string& path, Bytes bytes) : bytes_(bytes) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) config_error("{}: no such file or folder", path);
    if (fs::is_directory(status)) {
      fs::recursive_directory_iterator at(path, error), end;
      for (; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (at->is_regular_file(ignored) && is_text(at->path().string())) files_.push_back(at->path().string());
      }
      if (error) config_error("{}: cannot list the folder: {}", path, error.message());
      if (files_.empty()) config_error("{}: no .txt or .jsonl (or .gz of them) in the folder", path);
      std::sort(files_.begin(), files_.end());
    } else {
      if (!fs::is_regular_file(status)) config_error("{} is neither a file nor a folder", path);
      files_ = {path};
    }
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
        reader_ = std::make_unique<GzipReader>(files_[file_]);
        line_ = 0;
      }
      const bool is_plain = !is_jsonl(files_[file_]);
      if (is_plain ? next_text(document) : next_object(document)) {
        document.source = files_[file_];
        if (bytes_ == Bytes::text) refuse_other_than_text(document.text, is_plain);
        if (is_plain) count_lines(document.text);
        return true;
      }
      before_bytes_ += reader_->consumed_bytes();
      reader_.reset();
      held_.clear();
      held_end_ = false;
      ++file_;
    }
  }

  void rewind() override {
    reader_.reset();
    held_.clear();
    held_end_ = false;
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
    char piece[1 << 16];
    const size_t got = reader_->read(piece, sizeof piece);
    held_.append(piece, got);
    held_end_ = got == 0;
    return got > 0;
  }

  // Where a line ends that a blank one follows, from `begin` on.
  size_t blank_line(size_t begin) const {
    for (size_t at = held_.find('\n', begin); at != std::string::npos; at = held_.find('\n', at + 1)) {
      if (held_.compare(at + 1, 1, "\n") == 0 || held_.compare(at + 1, 2, "\r\n") == 0) return at;
    }
    return std::string::npos;
  }

  bool next_text(Document& document) {
    size_t searched = kLeastDocumentBytes;
    while (true) {
      const size_t end = blank_line(searched);
      if (end != std::string::npos) {
        document.text = held_.substr(0, end + 1);
        const size_t next = std::min(held_.find_first_not_of("\r\n", end), held_.size());
        lines_between_ = std::count(held_.begin() + static_cast<ptrdiff_t>(end + 1),
                                    held_.begin() + static_cast<ptrdiff_t>(next), '\n');
        held_.erase(0, next);
        return true;
      }
      if (held_.size() > kMostDocumentBytes) {
        // At a line's end if there is one in the latter half, else between two characters.
        size_t cut = held_.rfind('\n', kMostDocumentBytes - 1);
        if (cut == std::string::npos || cut < kMostDocumentBytes / 2) {
          cut = kMostDocumentBytes;
          while (cut > kMostDocumentBytes - 4 && (held_[cut] & 0xc0) == 0x80) --cut;
        } else {
          ++cut;
        }
        document.text = held_.substr(0, cut);
        held_.erase(0, cut);
        return true;
      }
      searched = std::max(kLeastDocumentBytes, held_.size() < 3 ? 0 : held_.size() - 3);
      if (hold_more()) continue;
      if (held_.find_first_not_of(" \t\r\n") == std::string::npos) return false;
      document.text = std::move(held_);
      held_.clear();
      return true;
    }
  }

  bool next_object(Document& document) {
    size_t searched = 0;
    while (true) {
      const size_t end = held_.find('\n', searched);
      if (end == std::string::npos) {
        searched = held_.size();
        if (held_.size() > kMostJsonLineBytes) {
          config_error("{}:{}: a line of more than {} bytes", files_[file_], line_ + 1, kMostJsonLineBytes);
        }
        if (hold_more()) continue;
        if (held_.empty()) return false;
        held_ += '\n';  // the last line lacks its end
        continue;
      }
      ++line_;
      const std::string_view line = std::string_view(held_).substr(0, end);
      const bool blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
      bool found = false;
      if (!blank) {
        document.text = text_of(line);
        found = !document.text.empty();
      }
      held_.erase(0, end + 1);
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
    const auto text = object.find("text");
    if (text == object.end() || !text->is_string()) {
      config_error("{}:{}: no string under the key \"text\"", files_[file_], line_);
    }
    return text->get<std::string>();
  }

  Bytes bytes_;
  std::vector<std::string> files_;
  int64_t total_bytes_ = 0, before_bytes_ = 0;
  uint64_t fingerprint_ = 0;
  size_t file_ = 0;
  std::unique_ptr<GzipReader> reader_;
  std::string held_;  // read, not yet given out
  bool held_end_ = false;
  int64_t line_ = 0;           // of a plain file: lines before the document; of objects: the last one's
  int64_t lines_between_ = 0;  // blank ones behind a document
};

}  // namespace

std::unique_ptr<DocumentSource> open_text(const std::string& path, Bytes bytes) {
  return std::make_unique<TextFiles>(path, bytes);
}

}  // namespace heddle::data
