// Text to train on: documents, one after another, out of what Debian packages have installed (novels, dictionaries,
// documentation), or out of the user's own files.
//
// Nothing is shipped or downloaded: the text is read where it lies, its licences come from the packages' copyright
// files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::data {

struct Document {
  std::string text;
  std::string source;  // the package, or the file's path
  int64_t line = 0;    // of .jsonl
};

/// Documents in a fixed order.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  /// The next document, or false after the last.
  virtual bool next(Document& document) = 0;
  virtual void rewind() = 0;
  /// How much of the source has been read, 0 to 1.
  virtual double progress() const = 0;
  /// Changes when the input files change (names, sizes, times of change); found without reading them.
  virtual uint64_t fingerprint() const = 0;
};

/// What a package gave.
struct CorpusPackage {
  std::string name;
  std::string licence;  // "GPL-2", "PostgreSQL, BSD-3-Clause"
  int64_t files = 0;
  int64_t text_bytes = 0;           // kept
  int64_t repeated_paragraphs = 0;  // dropped, as were whole documents that are not mostly UTF-8
  int64_t broken_documents = 0;
};

struct CorpusOptions {
  /// Where packages are unpacked (by ./dev) or installed; of each the first that has it.
  std::vector<std::string> roots = {"data/packages", "/"};
  /// Packages are read in order of preference until so much text is there; none gives more than a third of it, of a
  /// larger one documents from all over it.
  int64_t enough_bytes = 12'000'000;
};

/// Texts of installed packages: markup stripped, repeated paragraphs dropped, cut into documents at
/// paragraphs.
class Corpus : public DocumentSource {
 public:
  /// Finds the packages. ConfigError naming what to install if none is there.
  explicit Corpus(const CorpusOptions& options = {});
  bool next(Document& document) override;
  void rewind() override { next_ = 0; }
  double progress() const override;
  uint64_t fingerprint() const override { return fingerprint_; }

  /// The packages that gave text. Reads the text if it hasn't been.
  const std::vector<CorpusPackage>& packages();
  int64_t text_bytes();

  /// The packages a corpus is made of by preference; tools/corpus_packages.txt lists the same.
  static std::vector<std::string> preferred_packages();

 private:
  struct Found {
    size_t package;  // of the table
    std::string root;
    std::vector<std::string> files;
  };
  void read();

  CorpusOptions options_;
  std::vector<Found> found_;
  uint64_t fingerprint_ = 0;
  bool is_read_ = false;
  std::vector<Document> documents_;
  std::vector<CorpusPackage> packages_;
  size_t next_ = 0;
};

/// The licence names that /usr/share/doc/PACKAGE/copyright gives first, or a hint to that file.
std::string licence_of(const std::string& root, const std::string& package);

enum class Bytes : uint8_t { text, any };

/// How the user's own files are read.
struct TextOptions {
  Bytes bytes = Bytes::text;
  std::string key = "text";  // of a line of .jsonl, under which its document stands; empty: the line itself is it
};

/// A file, or every .txt and .jsonl (also .gz and .zst) below a folder. A line of .jsonl is an object whose key
/// holds a document; any other file is text, cut at blank lines into documents of at least kLeastDocumentBytes.
/// Memory is bounded by the longest document. ConfigError if there is nothing to read, or, while reading, naming
/// file and line; for bytes that are no text too, unless any will do.
std::unique_ptr<DocumentSource> open_text(const std::string& path, const TextOptions& options = {});

inline constexpr size_t kLeastDocumentBytes = 8 << 10;
inline constexpr size_t kMostDocumentBytes = 1 << 20;  // where no blank line comes
inline constexpr size_t kMostJsonLineBytes = 64 << 20;

}  // namespace heddle::data
