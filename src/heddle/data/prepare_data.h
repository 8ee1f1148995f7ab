// From text to what training reads: tokenizer.json, text.bin and text.idx, and data.json with what is known of
// them.
//
// Done once: a folder that is up to date (same input files, same settings, files of the sizes written) is left
// alone. Each file appears whole or not at all, and data.json is complete only when the others are, so that an
// interrupted preparation is simply done again. One process prepares a folder at a time; others wait for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/files/folder_lock.h"
#include "heddle/data/corpus/corpus.h"
#include "heddle/data/samples/sample_texts.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"

namespace heddle::data {

/// Called now and then with what is being done and how much of it is, 0 to 1.
using Progress = std::function<void(std::string_view doing, double fraction)>;

struct PreparedData {
  std::string tokenizer;                // path of tokenizer.json
  std::string prefix;                   // of the token file, for Dataset
  std::vector<CorpusPackage> packages;  // of the demo's text, with their licences; empty for the user's own
  int64_t vocabulary = 0;
  int64_t documents = 0, repeated_documents = 0;  // kept; dropped since their text came before
  int64_t tokens = 0;                             // one end-of-text token a document included
  int64_t text_bytes = 0;
  int64_t heldout_documents = 0;
  double bytes_per_token = 0;
  /// Of the training documents' tokens, each drawn by its frequency: the loss of a model that knows nothing else.
  double unigram_nats_per_token = 0;
  double unigram_bits_per_byte = 0;
  int64_t targets = 0;           // of samples: ids that are targets of the loss
  int64_t without_targets = 0;   // samples without an answer, which are dropped
  int64_t answers_left_out = 0;  // that the template writes otherwise where more follows
  bool was_up_to_date = false;
};

/// Prepares the texts of installed packages in `folder` (made if missing). An existing tokenizer.json is used;
/// otherwise one of `vocabulary` tokens is trained. ConfigError if no such text is there or an existing tokenizer
/// has another vocabulary; SystemError if a file can't be written.
PreparedData prepare_demo_data(const std::string& folder, int64_t vocabulary, const Progress& progress = {},
                               const CorpusOptions& options = {});

/// The same from a file or folder of .txt or .jsonl, on so many threads (0: one a core). The tokenizer is trained
/// on the first kTokenizerTextBytes.
PreparedData prepare_text_data(const std::string& input, const std::string& folder, int64_t vocabulary,
                               const Progress& progress = {}, const TextOptions& options = {}, int threads = 0);

/// Samples for fine-tuning: lines of .jsonl.
struct SampleOptions {
  SampleKeys keys;
  std::string chat_template;  // a file; empty: the one beside the tokenizer, if any
  std::string tokenizer;      // where that was named, if it was
  Bytes bytes = Bytes::text;
};
/// The same of samples, with text.weights beside the token file; the template is kept in the folder. Encoded on one
/// thread.
PreparedData prepare_samples(const std::string& input, const std::string& folder, int64_t vocabulary,
                             const SampleOptions& options, const Progress& progress = {});

/// Puts a tokenizer where the preparation of `folder` (made if missing) looks for one. ConfigError if another one
/// is there; `path` is the tokenizer's own, for the message.
void place_tokenizer(const TokenizerFiles& tokenizer, const std::string& path, const std::string& folder);

/// The folder for this process alone to prepare. Waits for another that does so, and says that on standard error.
FolderLock hold_data_folder(const std::string& folder);

inline constexpr int64_t kTokenizerTextBytes = 256 << 20;

}  // namespace heddle::data
