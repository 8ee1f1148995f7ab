#include "heddle/data/prepare_data.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <unordered_set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/base/parallel.h"
#include "heddle/data/dataset.h"
#include "heddle/data/encode_documents.h"
#include "heddle/data/samples/read_sample.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kForm = 2;  // raised when what is written for the same input changes
constexpr int64_t kMostRecordBytes = 1 << 20;

// Of the one that is there, or of one that is to be trained.
std::string tokenizer_path(const std::string& folder) {
  const std::string kept = tokenizer_in(folder);
  return kept.empty() ? (fs::path(folder) / "tokenizer.json").string() : kept;
}

struct Places {
  std::string tokenizer, prefix, record;
  explicit Places(const std::string& folder)
      : tokenizer(tokenizer_path(folder)),
        prefix((fs::path(folder) / "text").string()),
        record((fs::path(folder) / "data.json").string()) {}
};

int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

bool exists(const std::string& path) { return size_of(path) >= 0; }

uint64_t hash_of_tokenizer(const std::string& path) { return hash_bytes(read_file(path, kMostTokenizerBytes)); }

Json to_json(const PreparedData& data) {
  Json packages = Json::array();
  for (const CorpusPackage& package : data.packages) {
    packages.push_back({{"name", package.name},
                        {"licence", package.licence},
                        {"files", package.files},
                        {"text_bytes", package.text_bytes},
                        {"repeated_paragraphs", package.repeated_paragraphs},
                        {"broken_documents", package.broken_documents}});
  }
  return {{"vocabulary", data.vocabulary},
          {"documents", data.documents},
          {"repeated_documents", data.repeated_documents},
          {"heldout_documents", data.heldout_documents},
          {"tokens", data.tokens},
          {"text_bytes", data.text_bytes},
          {"bytes_per_token", data.bytes_per_token},
          {"unigram_nats_per_token", data.unigram_nats_per_token},
          {"unigram_bits_per_byte", data.unigram_bits_per_byte},
          {"targets", data.targets},
          {"without_targets", data.without_targets},
          {"answers_left_out", data.answers_left_out},
          {"packages", packages}};
}

PreparedData from_json(const Json& record) {
  PreparedData data;
  record.at("vocabulary").get_to(data.vocabulary);
  record.at("documents").get_to(data.documents);
  record.at("repeated_documents").get_to(data.repeated_documents);
  record.at("heldout_documents").get_to(data.heldout_documents);
  record.at("tokens").get_to(data.tokens);
  record.at("text_bytes").get_to(data.text_bytes);
  record.at("bytes_per_token").get_to(data.bytes_per_token);
  record.at("unigram_nats_per_token").get_to(data.unigram_nats_per_token);
  record.at("unigram_bits_per_byte").get_to(data.unigram_bits_per_byte);
  data.targets = record.value("targets", int64_t{0});
  data.without_targets = record.value("without_targets", int64_t{0});
  data.answers_left_out = record.value("answers_left_out", int64_t{0});
  for (const Json& stored : record.at("packages")) {
    CorpusPackage package;
    stored.at("name").get_to(package.name);
    stored.at("licence").get_to(package.licence);
    stored.at("files").get_to(package.files);
    stored.at("text_bytes").get_to(package.text_bytes);
    stored.at("repeated_paragraphs").get_to(package.repeated_paragraphs);
    stored.at("broken_documents").get_to(package.broken_documents);
    data.packages.push_back(std::move(package));
  }
  return data;
}

// The record of an earlier run: null unless it can be read.
Json read_record(const std::string& path) {
  if (!exists(path)) return nullptr;
  try {
    return Json::parse(read_file(path, kMostRecordBytes));
  } catch (const std::exception&) {
    return nullptr;  // a damaged record only means that the work is done again
  }
}

// What the run would be made from; equal means that the files need not be made again.
Json inputs_of(const DocumentSource& source, const SampleTexts* samples, int64_t vocabulary, const Places& places) {
  Json inputs{{"form", kForm},
              {"text", source.fingerprint()},
              {"vocabulary", vocabulary},
              {"heldout_fraction", kHeldoutFraction},
              {"tokenizer", exists(places.tokenizer) ? hash_of_tokenizer(places.tokenizer) : 0},
              {"bin_bytes", size_of(places.prefix + ".bin")},
              {"idx_bytes", size_of(places.prefix + ".idx")}};
  if (samples != nullptr) {
    inputs["samples"] = samples->hash();
    inputs["weights_bytes"] = size_of(places.prefix + ".weights");
  }
  return inputs;
}

std::optional<PreparedData> up_to_date(const DocumentSource& source, const SampleTexts* samples, int64_t vocabulary,
                                       const Places& places) {
  const Json record = read_record(places.record);
  if (!record.is_object() || !record.contains("inputs") || !exists(places.tokenizer)) return {};
  if (record["inputs"] != inputs_of(source, samples, vocabulary, places)) return {};
  try {
    PreparedData data = from_json(record);
    data.was_up_to_date = true;
    return data;
  } catch (const Json::exception&) {
    return {};
  }
}

// A record that describes no files, and only says which vocabulary was asked for. It stands while they are made, so
// that after a crash the tokenizer in the folder is known for the one that was asked for, though it has fewer
// tokens.
void begin_record(int64_t vocabulary, const Places& places) {
  const Json record{{"inputs", {{"vocabulary", vocabulary}}}};
  write_file(places.record, record.dump(1) + "\n");
}

// The tokenizer in the folder, or one trained on the text.
TokenizerSpec tokenizer_for(DocumentSource& source, const SampleTexts* samples, int64_t vocabulary,
                            const Places& places, const Progress& progress) {
  if (exists(places.tokenizer)) {
    TokenizerSpec spec = read_tokenizer(places.tokenizer);
    const Tokenizer tokenizer(spec, places.tokenizer);
    // A tokenizer trained on little text may have fewer tokens than asked for; the record tells so.
    const Json record = read_record(places.record);
    const bool asked_before = record.is_object() && record.contains("inputs") && record["inputs"].is_object() &&
                              record["inputs"].contains("vocabulary") &&
                              record["inputs"]["vocabulary"] == vocabulary;
    if (tokenizer.vocabulary() != vocabulary && !asked_before) {
      config_error("{} has {} tokens, {} are asked for: remove it, name another folder, or ask for {}",
                   places.tokenizer, tokenizer.vocabulary(), vocabulary, tokenizer.vocabulary());
    }
    return spec;
  }
  WordCounts counts;
  Document document;
  int64_t bytes = 0;
  while (bytes < kTokenizerTextBytes && source.next(document)) {
    if (samples == nullptr) {
      counts.add(document.text);
    } else {
      for (const SampleText& sample : samples->of(document)) counts.add(sample.text);
    }
    bytes += static_cast<int64_t>(document.text.size());
    progress("counting words", source.progress());
  }
  source.rewind();
  progress("learning the vocabulary", 0);
  TokenizerSpec spec = train_tokenizer(counts, vocabulary);
  begin_record(vocabulary, places);
  write_tokenizer(places.tokenizer, spec);
  return spec;
}

double entropy_nats(const std::vector<int64_t>& counts) {
  double total = 0, sum = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  for (const int64_t count : counts) {
    if (count > 0) sum -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
  }
  return sum;
}

// What stands on one side of the split together: a document, a sample, or both answers of a pair. `weights` is
// empty for documents.
struct Unit {
  std::vector<EncodedDocument> documents;
  std::vector<const std::vector<float>*> weights;
  uint64_t hash = 0;
};

void encode_samples(DocumentSource& source, const SampleTexts& samples, const Tokenizer& tokenizer,
                    PreparedData& data, const std::function<void(const Unit&)>& use) {
  Encoder encoder(tokenizer);
  Document line;
  while (source.next(line)) {
    const std::vector<SampleText> texts = samples.of(line);
    std::vector<EncodedSample> made;
    bool learns = true;
    for (const SampleText& sample : texts) {
      made.push_back(encode(sample, tokenizer, encoder));
      data.answers_left_out += sample.left_out;
      learns = learns && has_target(made.back().weights);
    }
    if (!learns) {
      ++data.without_targets;
      continue;
    }
    Unit unit;
    for (size_t i = 0; i < texts.size(); ++i) {
      unit.documents.push_back({texts[i].text, made[i].ids, hash_bytes(texts[i].text)});
      unit.weights.push_back(&made[i].weights);
      unit.hash = i == 0 ? unit.documents[0].hash : hash_bytes(texts[i].text, unit.hash);
    }
    use(unit);
  }
}

PreparedData prepare(DocumentSource& source, Corpus* corpus, const SampleTexts* samples, const std::string& folder,
                     int64_t vocabulary, const Progress& wanted_progress, int threads) {
  const Progress progress = wanted_progress ? wanted_progress : [](std::string_view, double) {};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw SystemError(error.value(), fmt::format("cannot make the folder {}: {}", folder, error.message()));
  const Places places(folder);
  const auto made = [&]() -> std::optional<PreparedData> {
    std::optional<PreparedData> done = up_to_date(source, samples, vocabulary, places);
    if (!done) return done;
    done->tokenizer = places.tokenizer;
    done->prefix = places.prefix;
    return done;
  };
  if (const auto done = made()) return *done;  // even where nothing can be written
  const FolderLock lock = hold_data_folder(folder);
  if (const auto done = made()) return *done;  // by the process that held it
  remove_temporaries(folder);
  progress("reading text", 0);
  const Tokenizer tokenizer(tokenizer_for(source, samples, vocabulary, places, progress), places.tokenizer);
  if (tokenizer.end_of_text() < 0) {
    config_error("{}: no added token ends a text (such as {})", places.tokenizer, kEndOfText);
  }

  PreparedData data;
  data.tokenizer = places.tokenizer;
  data.prefix = places.prefix;
  data.vocabulary = tokenizer.vocabulary();
  const bool any_weights = samples != nullptr && !samples->keys().weight.empty();
  TokenFileWriter writer(places.prefix, tokenizer.vocabulary(), any_weights);
  std::unordered_set<uint64_t> seen;  // documents by hash: a repeated one could stand on both sides of the split
  std::vector<int64_t> train_counts(static_cast<size_t>(tokenizer.vocabulary()));
  int64_t train_bytes = 0, train_tokens = 0;
  const auto take = [&](const Unit& unit) {
    if (!seen.insert(unit.hash).second) {
      ++data.repeated_documents;
      return;
    }
    const bool heldout = is_heldout(writer.documents() / std::ssize(unit.documents), kHeldoutFraction);
    for (size_t i = 0; i < unit.documents.size(); ++i) {
      const EncodedDocument& d = unit.documents[i];
      if (unit.weights.empty()) {
        writer.add_document(d.ids);
      } else {
        const std::vector<float>& weights = *unit.weights[i];
        writer.add_sample(d.ids, weights);
        data.targets += std::count_if(weights.begin() + 1, weights.end(), [](float w) { return w > 0; });
      }
      data.text_bytes += static_cast<int64_t>(d.text.size());
      data.heldout_documents += heldout;
      if (heldout) continue;
      train_bytes += static_cast<int64_t>(d.text.size());
      train_tokens += static_cast<int64_t>(d.ids.size());
      for (const TokenId id : d.ids) ++train_counts[static_cast<size_t>(id)];
    }
    progress("tokenizing", source.progress());
  };
  if (samples == nullptr) {
    encode_documents(source, tokenizer, threads > 0 ? threads : hardware_threads(), [&](const EncodedDocument& d) {
      take({{d}, {}, d.hash});
    });
  } else {
    encode_samples(source, *samples, tokenizer, data, take);
    if (writer.documents() == 0) config_error("{}: no sample has an answer to learn", folder);
    if (samples->chat()) keep_chat_template(*samples->chat(), folder);
  }
  data.documents = writer.documents();
  data.tokens = writer.tokens();
  data.bytes_per_token = static_cast<double>(data.text_bytes) / static_cast<double>(data.tokens);
  data.unigram_nats_per_token = entropy_nats(train_counts);
  data.unigram_bits_per_byte = data.unigram_nats_per_token / std::numbers::ln2 * static_cast<double>(train_tokens) /
                               static_cast<double>(train_bytes);
  if (corpus != nullptr) data.packages = corpus->packages();

  // From here to its return the record must not describe files that it doesn't know.
  begin_record(vocabulary, places);
  writer.commit();
  Json record = to_json(data);
  record["inputs"] = inputs_of(source, samples, vocabulary, places);
  write_file(places.record, record.dump(1) + "\n");
  return data;
}

}  // namespace

FolderLock hold_data_folder(const std::string& folder) {
  return FolderLock::wait(
      folder, [&](const std::string& holder) { fmt::print(stderr, "waiting: {} prepares {}\n", holder, folder); });
}

PreparedData prepare_demo_data(const std::string& folder, int64_t vocabulary, const Progress& progress,
                               const CorpusOptions& options) {
  Corpus corpus(options);
  return prepare(corpus, &corpus, nullptr, folder, vocabulary, progress, 0);
}

PreparedData prepare_text_data(const std::string& input, const std::string& folder, int64_t vocabulary,
                               const Progress& progress, const TextOptions& options, int threads) {
  const std::unique_ptr<DocumentSource> source = open_text(input, options);
  return prepare(*source, nullptr, nullptr, folder, vocabulary, progress, threads);
}

PreparedData prepare_samples(const std::string& input, const std::string& folder, int64_t vocabulary,
                             const SampleOptions& options, const Progress& progress) {
  std::string chat = options.chat_template;
  if (chat.empty() && !options.tokenizer.empty()) chat = chat_template_beside(options.tokenizer);
  if (chat.empty()) chat = chat_template_beside(folder + "/");
  std::optional<ChatTemplate> loaded;
  if (!chat.empty()) loaded = load_chat_template(chat);
  const SampleTexts samples(options.keys, std::move(loaded));
  const std::unique_ptr<DocumentSource> source = open_text(input, {options.bytes, ""});
  return prepare(*source, nullptr, &samples, folder, vocabulary, progress, 1);
}

void place_tokenizer(const TokenizerFiles& tokenizer, const std::string& path, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  const auto same = [&](const std::string& kept) { return load_tokenizer(kept).hash() == tokenizer.hash(); };
  std::string kept = tokenizer_in(folder);
  if (!kept.empty() && same(kept)) return;  // even where nothing can be written
  const FolderLock lock = hold_data_folder(folder);
  kept = tokenizer_in(folder);
  if (kept.empty()) {
    keep_tokenizer(tokenizer, folder);
  } else if (!same(kept)) {
    config_error("data.folder: {} was made with another tokenizer than data.tokenizer ({}); name another folder",
                 folder, path);
  }
}

}  // namespace heddle::data
