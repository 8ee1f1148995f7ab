// Prepares text for training: tokenizer.json, text.bin and text.idx, and data.json with what is known of them.
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
#include "heddle/base/repeated_samples.h"
#include "heddle/data/corpus/demo_text.h"
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
  int64_t documents = 0;           // or samples, written
  int64_t repeated_documents = 0;  // text came before: kept or dropped
  bool keeps_repeated = false;
  int64_t tokens = 0;  // one end-of-text token a document included
  int64_t text_bytes = 0;
  int64_t heldout_documents = 0;
  double bytes_per_token = 0;
  /// Entropy of the training documents' tokens, each drawn by its frequency: the loss of a model that knows nothing
  /// else.
  double unigram_nats_per_token = 0;
  double unigram_bits_per_byte = 0;
  int64_t targets = 0;                // of samples: ids that are targets of the loss
  int64_t without_targets = 0;        // samples without an answer, which are dropped
  int64_t answers_left_out = 0;       // that cannot be told apart in what the template writes
  int64_t unwritten_messages = 0;     // of whose content the template writes nothing
  std::string first_unwritten;        // the place of the first of them: file:line
  std::vector<std::string> unread;    // fields of samples that mean nothing here
  std::vector<std::string> speakers;  // of conversations without an assistant; not kept
  PassedOver passed_over;             // files and lines
  std::string chat_date;              // the template's day; "": none
  std::string end_of_text;            // the token behind each document; "" where no sample has it
  bool was_up_to_date = false;
};

/// Prepares the demonstration's text in `folder` (made if missing). An existing tokenizer.json is used;
/// otherwise one of `vocabulary` tokens is trained. ConfigError if no such text is there or an existing tokenizer
/// has another vocabulary; SystemError if a file can't be written.
PreparedData prepare_demo_data(const std::string& folder, int64_t vocabulary, const Progress& progress = {},
                               const std::string& text = kDemoFolder);

/// Prepares a file or folder of text or JSON, on so many threads (0: one a core). The tokenizer is trained on the
/// first kTokenizerTextBytes.
PreparedData prepare_text_data(const std::string& input, const std::string& folder, int64_t vocabulary,
                               const Progress& progress = {}, const TextOptions& options = {}, int threads = 0,
                               Repeated repeated = Repeated::automatic);

/// Samples for fine-tuning: JSON objects.
struct SampleOptions {
  SampleKeys keys;
  std::string chat_template;   // a file; empty: the one beside the tokenizer, if any
  std::string chat_arguments;  // of the template; empty: those that are kept with it, if any
  std::string chat_date;       // likewise
  std::string tokenizer;       // the place that named it, if any
  Bytes bytes = Bytes::text;
  bool skip_bad_lines = false;
  Repeated repeated = Repeated::automatic;
};
/// Warnings about the prepared data, for people: lines for standard error.
std::vector<std::string> warnings_of(const PreparedData& data);

/// Prepares samples, with text.weights beside the token file; the template is kept in the folder. Encoded on one
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
