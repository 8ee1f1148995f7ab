#include "heddle/data/prepare_data.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <unordered_map>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/fence.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/base/parallel.h"
#include "heddle/base/say.h"
#include "heddle/data/dataset.h"
#include "heddle/data/encode_documents.h"
#include "heddle/data/samples/read_sample.h"
#include "heddle/data/tokenizer/files/end_of_text.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kForm = 4;  // raised when what is written for the same input changes
constexpr int64_t kMostRecordBytes = 1 << 20;

// The path of the tokenizer that is there, or of one that is to be trained.
std::string tokenizer_path(const std::string& folder) {
  const std::string kept = tokenizer_in(folder);
  return kept.empty() ? (fs::path(folder) / "tokenizer.json").string() : kept;
}

struct Places {
  std::string tokenizer, end, prefix, record;
  explicit Places(const std::string& folder)
      : tokenizer(tokenizer_path(folder)),
        end((fs::path(folder) / kEndFile).string()),
        prefix((fs::path(folder) / "text").string()),
        record((fs::path(folder) / "data.json").string()) {}
};

int64_t size_of(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error.value() == EIO) throw SystemError(EIO, fmt::format("cannot read {}: {}", path, error.message()));
  return error ? -1 : static_cast<int64_t>(size);
}

bool exists(const std::string& path) { return size_of(path) >= 0; }

uint64_t hash_of_tokenizer(const std::string& path) { return hash_bytes(read_file(path, kMostTokenizerBytes)); }

Json to_json(const PreparedData& data) {
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
          {"keeps_repeated", data.keeps_repeated},
          {"unwritten_messages", data.unwritten_messages},
          {"first_unwritten", data.first_unwritten},
          {"unread", data.unread},
          {"passed_files", data.passed_over.files},
          {"first_passed_files", data.passed_over.first_files},
          {"bad_lines", data.passed_over.lines},
          {"first_bad_lines", data.passed_over.first_lines},
          {"chat_date", data.chat_date},
          {"end_of_text", data.end_of_text},
          {"packages", json_of(data.packages)}};
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
  record.at("keeps_repeated").get_to(data.keeps_repeated);
  record.at("unwritten_messages").get_to(data.unwritten_messages);
  record.at("first_unwritten").get_to(data.first_unwritten);
  record.at("unread").get_to(data.unread);
  record.at("passed_files").get_to(data.passed_over.files);
  record.at("first_passed_files").get_to(data.passed_over.first_files);
  record.at("bad_lines").get_to(data.passed_over.lines);
  record.at("first_bad_lines").get_to(data.passed_over.first_lines);
  record.at("chat_date").get_to(data.chat_date);
  record.at("end_of_text").get_to(data.end_of_text);
  data.packages = packages_of(record.at("packages"));
  return data;
}

// The record of an earlier run: null if there is none, or a damaged one, for which the work is done again.
// SystemError where the disk refuses to read it: what was asked for before is not known then.
Json read_record(const std::string& path) {
  if (!exists(path)) return nullptr;
  try {
    return Json::parse(read_file(path, kMostRecordBytes));
  } catch (const Json::exception&) {
    return nullptr;
  } catch (const ConfigError&) {  // larger than a record, or removed meanwhile
    return nullptr;
  }
}

// The inputs of a preparation, and its options.
struct Task {
  DocumentSource& source;
  const SampleTexts* samples;  // null: documents
  int64_t vocabulary;
  bool keeps_repeated, skips_bad_lines;
};

// The inputs that the run would be made from; equal means that the files need not be made again.
Json inputs_of(const Task& task, const Places& places) {
  Json inputs{{"form", kForm},
              {"text", task.source.fingerprint()},
              {"vocabulary", task.vocabulary},
              {"heldout_fraction", kHeldoutFraction},
              {"keeps_repeated", task.keeps_repeated},
              {"tokenizer", exists(places.tokenizer) ? hash_of_tokenizer(places.tokenizer) : 0},
              {"end_of_text", exists(places.end) ? hash_of_tokenizer(places.end) : 0},
              {"bin_bytes", size_of(places.prefix + ".bin")},
              {"idx_bytes", size_of(places.prefix + ".idx")}};
  if (task.keeps_repeated) inputs["firsts_bytes"] = size_of(places.prefix + ".firsts");
  if (task.samples != nullptr) {
    inputs["samples"] = task.samples->hash();
    inputs["weights_bytes"] = size_of(places.prefix + ".weights");
  }
  return inputs;
}

std::optional<PreparedData> up_to_date(const Task& task, const Places& places) {
  const Json record = read_record(places.record);
  if (!record.is_object() || !record.contains("inputs") || !exists(places.tokenizer)) return {};
  if (record["inputs"] != inputs_of(task, places)) return {};
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

// The texts of an object's samples; nothing where it is a bad one and these are passed over.
std::vector<SampleText> texts_of(const Document& line, const Task& task, SampleNotes* notes, PassedOver* passed) {
  try {
    return task.samples->of(line, notes);
  } catch (const ConfigError& error) {
    if (!task.skips_bad_lines) throw;
    if (passed != nullptr) passed->add_line(error.what());
    return {};
  }
}

// The tokenizer in the folder, or one trained on the text.
TokenizerSpec tokenizer_for(const Task& task, const Places& places, const Progress& progress) {
  DocumentSource& source = task.source;
  const int64_t vocabulary = task.vocabulary;
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
    if (task.samples == nullptr) {
      counts.add(document.text);
    } else {
      for (const SampleText& sample : texts_of(document, task, nullptr, nullptr)) counts.add(sample.text);
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

// Documents that stand on one side of the split together: a document, a sample, or both answers of a pair.
// `weights` is empty for documents.
struct Unit {
  std::vector<EncodedDocument> documents;
  std::vector<const std::vector<float>*> weights;
  uint64_t hash = 0;
};

void encode_samples(const Task& task, const Tokenizer& tokenizer, PreparedData& data,
                    const std::function<void(const Unit&)>& use) {
  Encoder encoder(tokenizer);
  Document line;
  SampleNotes notes;
  while (task.source.next(line)) {
    const std::vector<SampleText> texts = texts_of(line, task, &notes, &data.passed_over);
    if (texts.empty()) continue;
    std::vector<EncodedSample> made;
    bool learns = true;
    for (const SampleText& sample : texts) {
      made.push_back(encode(sample, tokenizer, encoder));
      data.answers_left_out += sample.left_out;
      if (sample.unwritten > 0 && data.unwritten_messages == 0)
        data.first_unwritten = fmt::format("{}:{}", line.source, line.line);
      data.unwritten_messages += sample.unwritten;
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
      // A text with other targets is another sample.
      unit.hash = hash_bytes(
          {reinterpret_cast<const char*>(made[i].weights.data()), made[i].weights.size() * sizeof(float)},
          unit.hash);
    }
    use(unit);
  }
  data.unread.assign(notes.fields.begin(), notes.fields.end());
  data.speakers.assign(notes.speakers.begin(), notes.speakers.end());
}

// Why no sample is left.
[[noreturn]] void refuse_no_samples(const PreparedData& data, const std::string& folder) {
  std::string why;
  if (!data.speakers.empty())
    why += fmt::format("; no message has the role assistant, there are {}",
                       escaped(fmt::format("{}", fmt::join(data.speakers, ", ")), 200));
  if (data.answers_left_out > 0)
    why += fmt::format(
        "; the template marks none of {} answers so that it can be distinguished from the rest: one with {{% "
        "generation %}} around answers does (--chat-template, data.chat_template)",
        data.answers_left_out);
  if (data.passed_over.lines > 0)
    why += fmt::format("; {} bad lines were skipped, the first: {}", data.passed_over.lines,
                       data.passed_over.first_lines[0]);
  config_error("{}: no sample has an answer to learn{}", folder, why);
}

PreparedData prepare(const Task& task, const std::string& folder, const Progress& wanted_progress, int threads,
                     std::vector<CorpusPackage> packages = {}) {
  DocumentSource& source = task.source;
  const SampleTexts* const samples = task.samples;
  const Progress progress = wanted_progress ? wanted_progress : [](std::string_view, double) {};
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw SystemError(error.value(), fmt::format("cannot make the folder {}: {}", folder, error.message()));
  const Places places(folder);
  const auto made = [&]() -> std::optional<PreparedData> {
    std::optional<PreparedData> done = up_to_date(task, places);
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
  const Tokenizer tokenizer(tokenizer_for(task, places, progress), places.tokenizer);
  if (tokenizer.end_of_text() < 0) {
    config_error(
        "{}: nothing says which token ends a text: no added token has a known name (such as {}), and none of "
        "tokenizer_config.json, special_tokens_map.json, generation_config.json and config.json beside it names "
        "one; data.end_of_text (--end-of-text) does",
        places.tokenizer, kEndOfText);
  }

  PreparedData data;
  data.tokenizer = places.tokenizer;
  data.prefix = places.prefix;
  data.vocabulary = tokenizer.vocabulary();
  const bool any_weights = samples != nullptr && !samples->keys().weight.empty();
  TokenFileWriter writer(places.prefix, tokenizer.vocabulary(), any_weights);
  data.keeps_repeated = task.keeps_repeated;
  data.end_of_text = tokenizer.token_bytes(tokenizer.end_of_text());
  // Units by hash, with the number of their first document, by which a repeated one stands on the same side.
  std::unordered_map<uint64_t, int64_t> seen;
  std::vector<int64_t> train_counts(static_cast<size_t>(tokenizer.vocabulary()));
  int64_t train_bytes = 0, train_tokens = 0;
  const auto take = [&](const Unit& unit) {
    const int64_t each = std::ssize(unit.documents);
    const auto [known, fresh] = seen.emplace(unit.hash, writer.documents());
    if (!fresh) {
      ++data.repeated_documents;
      if (!task.keeps_repeated) return;
    }
    const bool heldout = is_heldout(known->second / each, kHeldoutFraction);
    for (size_t i = 0; i < unit.documents.size(); ++i) {
      const EncodedDocument& d = unit.documents[i];
      if (unit.weights.empty()) {
        writer.add_document(d.ids);
      } else {
        const std::vector<float>& weights = *unit.weights[i];
        writer.add_sample(d.ids, weights);
        data.targets += std::count_if(weights.begin() + 1, weights.end(), [](float w) { return w > 0; });
      }
      if (!fresh) writer.repeats(known->second + static_cast<int64_t>(i));
      data.text_bytes += static_cast<int64_t>(d.text.size());
      data.heldout_documents += heldout;
      if (heldout) continue;
      train_bytes += static_cast<int64_t>(d.text.size());
      train_tokens += static_cast<int64_t>(d.ids.size());
      for (const TokenId id : d.ids) ++train_counts[id];
    }
    progress("tokenizing", source.progress());
  };
  if (samples == nullptr) {
    encode_documents(source, tokenizer, threads > 0 ? threads : hardware_threads(), [&](const EncodedDocument& d) {
      take({{d}, {}, d.hash});
    });
  } else {
    encode_samples(task, tokenizer, data, take);
    if (writer.documents() == 0) refuse_no_samples(data, folder);
    if (samples->chat()) {
      keep_chat_template(*samples->chat(), folder);
      data.chat_date = samples->chat()->day();
    }
  }
  PassedOver passed = source.passed_over();
  for (std::string& line : data.passed_over.first_lines) passed.first_lines.push_back(std::move(line));
  passed.first_lines.resize(std::min(passed.first_lines.size(), PassedOver::kMostNamed));
  passed.lines += data.passed_over.lines;
  data.passed_over = std::move(passed);
  data.documents = writer.documents();
  data.tokens = writer.tokens();
  data.bytes_per_token = static_cast<double>(data.text_bytes) / static_cast<double>(data.tokens);
  data.unigram_nats_per_token = entropy_nats(train_counts);
  data.unigram_bits_per_byte = data.unigram_nats_per_token / std::numbers::ln2 * static_cast<double>(train_tokens) /
                               static_cast<double>(train_bytes);
  data.packages = std::move(packages);

  // From here to its return the record must not describe files that it doesn't know.
  begin_record(task.vocabulary, places);
  writer.commit();
  Json record = to_json(data);
  record["inputs"] = inputs_of(task, places);
  write_file(places.record, record.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  return data;
}

}  // namespace

FolderLock hold_data_folder(const std::string& folder) {
  // In a run's own folder, which the supervisor of its job holds for it.
  std::error_code ignored;
  if (own_fence() && fs::equivalent(own_fence()->folder, folder, ignored)) return FolderLock::held_for_us(folder);
  return FolderLock::wait(
      folder, [&](const std::string& holder) { say(stderr, "waiting: {} prepares {}\n", holder, folder); });
}

PreparedData prepare_demo_data(const std::string& folder, int64_t vocabulary, const Progress& progress,
                               const std::string& text) {
  DemoText demo = open_demo_text(text);
  return prepare({*demo.documents, nullptr, vocabulary, false, false}, folder, progress, 0,
                 std::move(demo.packages));
}

PreparedData prepare_text_data(const std::string& input, const std::string& folder, int64_t vocabulary,
                               const Progress& progress, const TextOptions& options, int threads,
                               Repeated repeated) {
  const std::unique_ptr<DocumentSource> source = open_text(input, options);
  return prepare({*source, nullptr, vocabulary, repeated == Repeated::keep, options.skip_bad_lines}, folder,
                 progress, threads);
}

PreparedData prepare_samples(const std::string& input, const std::string& folder, int64_t vocabulary,
                             const SampleOptions& options, const Progress& progress) {
  std::string chat = options.chat_template;
  if (chat.empty() && !options.tokenizer.empty()) chat = chat_template_beside(options.tokenizer);
  if (chat.empty()) chat = chat_template_beside(folder + "/");
  std::optional<ChatTemplate> loaded;
  if (!chat.empty()) {
    loaded.emplace(with_told(load_chat_template(chat), options.chat_arguments, options.chat_date));
  } else if (!options.chat_arguments.empty() || !options.chat_date.empty()) {
    config_error("data.chat_arguments and data.chat_date go to a chat template, and there is none");
  }
  const SampleTexts samples(options.keys, std::move(loaded));
  const std::unique_ptr<DocumentSource> source = open_text(input, {options.bytes, "", options.skip_bad_lines});
  return prepare({*source, &samples, vocabulary, options.repeated != Repeated::drop, options.skip_bad_lines},
                 folder, progress, 1);
}

std::vector<std::string> warnings_of(const PreparedData& data) {
  std::vector<std::string> lines;
  const auto listed = [](int64_t count, const std::vector<std::string>& first) {
    return fmt::format("{}{}", fmt::join(first, ", "), count > std::ssize(first) ? ", …" : "");
  };
  const PassedOver& passed = data.passed_over;
  if (passed.files > 0)
    lines.push_back(
        fmt::format("{} files of the folder are neither text nor JSON of documents and were skipped: {}",
                    passed.files, listed(passed.files, passed.first_files)));
  if (passed.lines > 0)
    lines.push_back(fmt::format("{} bad lines were skipped (skip_bad_lines): {}", passed.lines,
                                listed(passed.lines, passed.first_lines)));
  if (!data.unread.empty())
    lines.push_back(fmt::format("fields of samples that were ignored: {}", fmt::join(data.unread, ", ")));
  if (data.answers_left_out > 0)
    lines.push_back(fmt::format(
        "{} answers are no targets, for they cannot be distinguished from the rest of what the template writes",
        data.answers_left_out));
  if (data.unwritten_messages > 0)
    lines.push_back(fmt::format("the template omits the content of {} messages, the first at {}",
                                data.unwritten_messages, data.first_unwritten));
  const int64_t kept = data.documents - (data.keeps_repeated ? data.repeated_documents : 0);
  if (data.targets > 0 && data.repeated_documents > kept)
    lines.push_back(
        fmt::format("most samples are the same text as an earlier one: {} of {}; the template may omit the part in "
                    "which they differ",
                    data.repeated_documents, data.repeated_documents + kept));
  return lines;
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
