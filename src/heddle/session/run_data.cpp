#include "heddle/session/run_data.h"

#include <algorithm>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/observe/terminal/doing.h"

namespace heddle::session {

namespace {

namespace fs = std::filesystem;

bool is_token_file(const std::string& source) {
  std::error_code ignored;
  return fs::exists(source + ".idx", ignored);
}

bool is_missing(const std::string& source) {
  std::error_code ignored;
  return !source.empty() && source != "demo" && !is_token_file(source) && !fs::exists(source, ignored);
}

// The tokenizer of a run's texts, once it is known: the user's own, or the first text's.
struct Tokens {
  const config::RunConfig& config;
  std::string path;
  std::optional<data::TokenizerFiles> files;
  std::string chat;  // the place of the template of its samples, if they have one

  explicit Tokens(const config::RunConfig& of) : config(of), path(of.data.tokenizer) {
    if (!path.empty()) take(path, of.data.end_of_text);
    if (path.empty() && !of.data.end_of_text.empty())
      config_error(
          "data.end_of_text names a token of data.tokenizer, which is not set; a tokenizer that is trained ends "
          "documents by {}",
          data::kEndOfText);
  }
  void take(const std::string& from, const std::string& end_of_text = "") {
    files = data::load_tokenizer(from, end_of_text);
    path = fs::is_directory(from) ? data::tokenizer_in(from) : from;
    check_vocabulary(path, vocabulary(), config.model.vocab_size);
  }
  int64_t vocabulary() const { return data::Tokenizer(files->spec, path).vocabulary(); }

  // The prefix of a text's token file, prepared in `folder` unless it is one itself.
  std::string prefix_of(const std::string& source, const std::string& folder,
                        std::optional<data::PreparedData>& prepared) {
    if (is_token_file(source)) return source;
    int64_t vocabulary_asked = config.data.vocabulary > 0 ? config.data.vocabulary : config.model.vocab_size;
    if (files) {
      vocabulary_asked = vocabulary();
      data::place_tokenizer(*files, path, folder);
    }
    observe::Doing doing("reading text");
    const data::Progress progress = [&](std::string_view what, double share) { doing.now(what, share); };
    const config::RunConfig::Data& asked = config.data;
    if (asked.chat || config.plan.objective.of_pairs()) {
      prepared = data::prepare_samples(source, folder, vocabulary_asked,
                                       {.keys = {.prompt = asked.prompt_key,
                                                 .answer = asked.answer_key,
                                                 .messages = asked.messages_key,
                                                 .chosen = asked.chosen_key,
                                                 .rejected = asked.rejected_key,
                                                 .weight = asked.weight_key,
                                                 .pairs = config.plan.objective.of_pairs(),
                                                 .last_answer_only = asked.last_answer_only},
                                        .chat_template = asked.chat_template,
                                        .chat_arguments = asked.chat_arguments,
                                        .chat_date = asked.chat_date,
                                        .tokenizer = path,
                                        .bytes = asked.any_bytes ? data::Bytes::any : data::Bytes::text,
                                        .skip_bad_lines = asked.skip_bad_lines,
                                        .repeated = asked.repeated},
                                       progress);
      if (!files) take(prepared->tokenizer);
      if (chat.empty()) chat = data::chat_template_beside(prepared->tokenizer);
      return prepared->prefix;
    }
    const data::TextOptions how{asked.any_bytes ? data::Bytes::any : data::Bytes::text, asked.text_key,
                                asked.skip_bad_lines};
    prepared = source == "demo"
                   ? data::prepare_demo_data(folder, vocabulary_asked, progress)
                   : data::prepare_text_data(source, folder, vocabulary_asked, progress, how, 0, asked.repeated);
    if (!files) take(prepared->tokenizer);
    return prepared->prefix;
  }
};

// `count` sequences, each filled by `fill(i, tokens, marks)`.
template <class Fill>
train::Sequences sequences_of(const RunData& data, int64_t count, const Fill& fill) {
  const data::Dataset& dataset = *data.dataset;
  const auto size = static_cast<size_t>(dataset.sequence_tokens());
  const bool masks = dataset.masks(), weighs = dataset.weighs();
  train::Sequences all;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int32_t>& tokens = all.tokens.emplace_back(size);
    data::SequenceMarks marks;
    if (masks) marks.masked = all.masked.emplace_back(size);
    if (weighs) marks.weights = all.weights.emplace_back(size);
    if (masks || data.documents_apart) marks.begins = all.begins.emplace_back(size);
    fill(i, std::span(tokens), marks);
  }
  return all;
}

}  // namespace

train::Sequences RunData::train(int64_t first, int64_t count) const {
  train::Sequences all =
      sequences_of(*this, count, [&](int64_t i, std::span<int32_t> tokens, const data::SequenceMarks& marks) {
        dataset->train_sequence(first + i, tokens, marks);
      });
  for (int64_t i = 0; i < count && !references.train.empty(); ++i)
    all.references.push_back(references.train.at(static_cast<size_t>(dataset->train_number(first + i))));
  return all;
}

train::Sequences RunData::numbered(int64_t first, int64_t count) const {
  return sequences_of(*this, count, [&](int64_t i, std::span<int32_t> tokens, const data::SequenceMarks& marks) {
    dataset->numbered_sequence(first + i, tokens, marks);
  });
}

train::Sequences RunData::heldout(int64_t count) const {
  count = std::min(count, dataset->heldout_sequences());
  return sequences_of(*this, count, [&](int64_t i, std::span<int32_t> tokens, const data::SequenceMarks& marks) {
    dataset->heldout_sequence(i, tokens, marks);
  });
}

void check_vocabulary(const std::string& path, int64_t tokens, int64_t vocabulary) {
  if (tokens > vocabulary) {
    config_error("{}: has token ids up to {}, model.vocab_size is {}: at least {} is needed", path, tokens - 1,
                 vocabulary, tokens);
  }
}

RunData open_run_data(const config::RunConfig& config) {
  RunData data;
  const config::RunConfig::Data& asked = config.data;
  if (asked.source.empty())
    config_error("data.source is empty: a text, a folder or the prefix of a token file is expected");
  if (asked.source == kStandardInput)
    config_error(
        "data.source is -: a run may go on later, so its text must stay; `heddle data - --out DIR` keeps it");
  Tokens tokens(config);
  data::DatasetOptions options;
  options.parts = data::parse_blend(asked.source);
  const bool blend = options.parts.size() > 1;
  // A missing text is reported before hours go into the others.
  for (size_t i = 0; i <= options.parts.size(); ++i) {
    const std::string& source = i < options.parts.size() ? options.parts[i].path : asked.validation;
    std::optional<data::PreparedData> none;
    if (is_missing(source)) (void)tokens.prefix_of(source, asked.folder, none);  // which says so
  }
  for (size_t i = 0; i < options.parts.size(); ++i) {
    std::optional<data::PreparedData> prepared;
    const std::string folder = blend ? fmt::format("{}/{}", asked.folder, i + 1) : asked.folder;
    const std::string text = options.parts[i].path;
    options.parts[i].path = tokens.prefix_of(text, folder, prepared);
    if (prepared) {
      for (const std::string& warning : data::warnings_of(*prepared))
        data.warnings.push_back(text + ": " + warning);
    }
    if (!blend) data.prepared = std::move(prepared);
  }
  if (!asked.validation.empty()) {
    std::optional<data::PreparedData> prepared;
    options.validation = tokens.prefix_of(asked.validation, asked.folder + "/validation", prepared);
  }
  if (tokens.files) {
    data.tokenizer = tokens.path;
    data.tokenizer_files = std::move(*tokens.files);
  }
  // Token files that were prepared before may have their template beside them.
  if (tokens.chat.empty() && options.parts.size() == 1)
    tokens.chat = data::chat_template_beside(options.parts[0].path);
  if (!tokens.chat.empty())
    data.chat_template =
        data::with_told(data::load_chat_template(tokens.chat), asked.chat_arguments, asked.chat_date);
  options.sequence_length = config.train.sequence_length;
  options.prediction_depths = config.model.num_nextn_predict_layers;
  options.vocabulary = config.model.vocab_size;
  options.heldout_fraction = asked.heldout_fraction;
  options.seed = static_cast<uint64_t>(config.seed);
  options.long_samples = asked.long_samples;
  options.pairs = config.plan.objective.of_pairs();
  data.documents_apart = !asked.attend_across_documents && asked.document_end < 0;
  data.dataset = std::make_unique<data::Dataset>(options);
  if (data.dataset->weighs() && asked.weight_key.empty() && !options.pairs) {
    config_error(
        "{}: its targets have weights: set data.weight_key, to any word where the file holds the weights already",
        options.parts[0].path);
  }
  return data;
}

}  // namespace heddle::session
