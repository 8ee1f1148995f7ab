#include "heddle/session/run_data.h"

#include <algorithm>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/data/tokenizer/tokenizer_json.h"
#include "heddle/observe/terminal/doing.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;

// A tokenizer of the user's own goes where the preparation looks for one.
int64_t place_tokenizer(const config::RunConfig& config) {
  const std::string text = read_file(config.data.tokenizer, kMostTokenizerBytes);
  const data::Tokenizer tokenizer(data::parse_tokenizer_json(text, config.data.tokenizer), config.data.tokenizer);
  check_vocabulary(config.data.tokenizer, tokenizer.vocabulary(), config.model.vocab_size);
  const std::string place = config.data.folder + "/tokenizer.json";
  std::error_code error;
  fs::create_directories(config.data.folder, error);
  if (fs::exists(place, error) && read_file(place, kMostTokenizerBytes) == text) return tokenizer.vocabulary();
  const FolderLock lock = data::hold_data_folder(config.data.folder);
  if (!fs::exists(place, error)) {
    write_file(place, text);
  } else if (read_file(place, kMostTokenizerBytes) != text) {
    config_error("data.folder: {} was made with another tokenizer than data.tokenizer ({}); name another folder",
                 config.data.folder, config.data.tokenizer);
  }
  return tokenizer.vocabulary();
}

}  // namespace

std::vector<std::vector<int32_t>> RunData::train(int64_t first, int64_t count) const {
  std::vector<std::vector<int32_t>> sequences(
      static_cast<size_t>(count), std::vector<int32_t>(static_cast<size_t>(dataset->sequence_tokens())));
  for (int64_t i = 0; i < count; ++i) dataset->train_sequence(first + i, sequences[static_cast<size_t>(i)]);
  return sequences;
}

std::vector<std::vector<int32_t>> RunData::heldout(int64_t count) const {
  count = std::min(count, dataset->heldout_sequences());
  std::vector<std::vector<int32_t>> sequences(
      static_cast<size_t>(count), std::vector<int32_t>(static_cast<size_t>(dataset->sequence_tokens())));
  for (int64_t i = 0; i < count; ++i) dataset->heldout_sequence(i, sequences[static_cast<size_t>(i)]);
  return sequences;
}

void check_vocabulary(const std::string& path, int64_t tokens, int64_t vocabulary) {
  if (tokens > vocabulary) {
    config_error("{}: has token ids up to {}, model.vocab_size is {}: at least {} is needed", path, tokens - 1,
                 vocabulary, tokens);
  }
}

RunData open_run_data(const config::RunConfig& config) {
  RunData data;
  std::error_code ignored;
  const std::string& source = config.data.source;
  if (source == kStandardInput)
    config_error(
        "data.source is -: a run may go on later, so its text must stay; `heddle data - --out DIR` keeps it");
  std::string prefix = source;
  if (fs::exists(source + ".idx", ignored)) {
    data.tokenizer = config.data.tokenizer;
    if (!data.tokenizer.empty()) {
      const data::Tokenizer tokenizer(data::read_tokenizer(data.tokenizer), data.tokenizer);
      check_vocabulary(data.tokenizer, tokenizer.vocabulary(), config.model.vocab_size);
    }
  } else {
    int64_t vocabulary = config.data.vocabulary > 0 ? config.data.vocabulary : config.model.vocab_size;
    if (!config.data.tokenizer.empty()) vocabulary = place_tokenizer(config);
    observe::Doing doing("reading text");
    const data::Progress progress = [&](std::string_view what, double share) { doing.now(what, share); };
    data.prepared = source == "demo"
                        ? data::prepare_demo_data(config.data.folder, vocabulary, progress)
                        : data::prepare_text_data(source, config.data.folder, vocabulary, progress,
                                                  config.data.any_bytes ? data::Bytes::any : data::Bytes::text);
    data.tokenizer = data.prepared->tokenizer;
    prefix = data.prepared->prefix;
    check_vocabulary(data.tokenizer, data.prepared->vocabulary, config.model.vocab_size);
  }
  data::DatasetOptions options;
  options.prefix = prefix;
  options.sequence_length = config.train.sequence_length;
  options.prediction_depths = config.model.num_nextn_predict_layers;
  options.vocabulary = config.model.vocab_size;
  options.heldout_fraction = config.data.heldout_fraction;
  options.seed = static_cast<uint64_t>(config.seed);
  data.dataset = std::make_unique<data::Dataset>(options);
  return data;
}

}  // namespace heddle::session
