// Text to train on: documents, one after another, out of files of text or of JSON.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace heddle::data {

struct Document {
  std::string text;
  std::string source;  // the file's path
  int64_t line = 0;    // of JSON, on which it begins
};

/// Files and lines that a source passed over since it was opened or rewound.
struct PassedOver {
  static constexpr size_t kMostNamed = 5;

  int64_t files = 0, lines = 0;
  std::vector<std::string> first_files;  // of a folder: neither text nor JSON of documents
  std::vector<std::string> first_lines;  // "file:line: why"

  void add_line(std::string why) {
    ++lines;
    if (first_lines.size() < kMostNamed) first_lines.push_back(std::move(why));
  }
};

/// Documents in a fixed order.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  /// The next document, or false after the last.
  virtual bool next(Document& document) = 0;
  virtual void rewind() = 0;
  /// The part of the source that has been read, 0 to 1.
  virtual double progress() const = 0;
  /// Changes when the input files change (names, sizes, times of change); found without reading them.
  virtual uint64_t fingerprint() const = 0;
  virtual PassedOver passed_over() const { return {}; }
};

enum class Bytes : uint8_t { text, any };

/// Options of reading the user's own files.
struct TextOptions {
  Bytes bytes = Bytes::text;
  std::string key = "text";     // of a JSON object, under which its document stands; empty: the object itself is it
  bool skip_bad_lines = false;  // objects that cannot be read are counted and passed over
};

/// Opens a file, or every .txt, .jsonl, .ndjson, .jsonlines and .json (also .gz and .zst) below a folder. A .json
/// counts that begins with an object on a line or a list of objects. In JSON each line, or each item of one list,
/// is an object whose key holds a document, written as Python's json module writes it. Other text is cut at blank
/// lines into documents of at least kLeastDocumentBytes. The beginning of a file says its form (form_of). Memory is
/// bounded by the longest document. ConfigError if there is nothing to read, or, while reading, naming file and
/// line; for bytes that are no text too, unless any will do.
std::unique_ptr<DocumentSource> open_text(const std::string& path, const TextOptions& options = {});

inline constexpr size_t kLeastDocumentBytes = 8 << 10;
inline constexpr size_t kMostDocumentBytes = 1 << 20;  // without a blank line
inline constexpr size_t kMostJsonLineBytes = 64 << 20;

}  // namespace heddle::data
