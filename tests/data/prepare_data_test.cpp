// Preparation end to end: what is written can be read, is left alone when up to date, and is made again when not.
#include "heddle/data/prepare_data.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/data/dataset.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

namespace fs = std::filesystem;

std::string story(uint64_t seed, int words) {
  static const char* const kWords[] = {"loom", "thread", "weaver", "shuttle", "the",
                                       "of",   "and",    "passes", "lifts"};
  std::string text;
  for (int i = 0; i < words; ++i) {
    text += kWords[RandomKey(seed).bits(static_cast<uint64_t>(i)) % std::size(kWords)];
    text += i % 13 == 12 ? ".\n\n" : " ";
  }
  return text;
}

void write_input(const std::string& path, uint64_t seed = 1) { std::ofstream(path) << story(seed, 60000); }

TEST(PrepareData, WritesWhatTheDatasetReads) {
  ScratchFolder folder;
  write_input(folder / "in.txt");
  std::vector<std::string> heard;
  const PreparedData data =
      prepare_text_data(folder / "in.txt", folder / "out", 300, [&](std::string_view doing, double fraction) {
        EXPECT_GE(fraction, 0);
        EXPECT_LE(fraction, 1);
        if (heard.empty() || heard.back() != doing) heard.emplace_back(doing);
      });
  EXPECT_EQ(heard,
            (std::vector<std::string>{"reading text", "counting words", "learning the vocabulary", "tokenizing"}));
  EXPECT_FALSE(data.was_up_to_date);

  // The token file holds the text.
  const Tokenizer tokenizer(read_tokenizer(data.tokenizer));
  EXPECT_EQ(tokenizer.vocabulary(), data.vocabulary);
  const TokenFile file(data.prefix);
  EXPECT_EQ(file.documents(), data.documents);
  EXPECT_EQ(file.tokens(), data.tokens);
  const auto source = open_text(folder / "in.txt");
  Document document;
  int64_t bytes = 0, heldout = 0;
  std::map<TokenId, double> counts;
  double train_tokens = 0, train_bytes = 0;
  for (int64_t d = 0; source->next(document); ++d) {
    std::vector<TokenId> ids(static_cast<size_t>(file.document_begin(d + 1) - file.document_begin(d)));
    file.read(file.document_begin(d), ids);
    ASSERT_EQ(ids.back(), tokenizer.end_of_text());
    ASSERT_EQ(tokenizer.decode(std::span(ids).first(ids.size() - 1)), document.text);
    bytes += static_cast<int64_t>(document.text.size());
    if (is_heldout(d, kHeldoutFraction)) {
      ++heldout;
      continue;
    }
    for (const TokenId id : ids) counts[id] += 1;
    train_tokens += static_cast<double>(ids.size());
    train_bytes += static_cast<double>(document.text.size());
  }
  double nats = 0;
  for (const auto& [id, count] : counts) nats -= count / train_tokens * std::log(count / train_tokens);
  EXPECT_EQ(data.text_bytes, bytes);
  EXPECT_EQ(data.heldout_documents, heldout);
  EXPECT_NEAR(data.unigram_nats_per_token, nats, 1e-12);
  EXPECT_NEAR(data.unigram_bits_per_byte, nats / std::log(2.0) * train_tokens / train_bytes, 1e-12);
  EXPECT_NEAR(data.bytes_per_token, static_cast<double>(bytes) / static_cast<double>(data.tokens), 1e-12);

  const Dataset dataset({.parts = {{data.prefix}}, .sequence_length = 64, .vocabulary = data.vocabulary});
  EXPECT_EQ(dataset.train_tokens(), static_cast<int64_t>(train_tokens));
}

TEST(PrepareData, LeavesAloneWhatIsUpToDate) {
  ScratchFolder folder;
  write_input(folder / "in.txt");
  const auto prepare = [&](int64_t vocabulary = 300) {
    return prepare_text_data(folder / "in.txt", folder / "out", vocabulary);
  };
  const PreparedData first = prepare();
  const auto time = fs::last_write_time(folder / "out/text.bin");
  const PreparedData second = prepare();
  EXPECT_TRUE(second.was_up_to_date);
  EXPECT_EQ(fs::last_write_time(folder / "out/text.bin"), time);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.unigram_nats_per_token, first.unigram_nats_per_token);
  EXPECT_EQ(second.prefix, first.prefix);

  for (const char* name : {"text.bin", "text.idx", "data.json", "tokenizer.json"}) {
    const std::string before = read_file(folder / ("out/" + std::string(name)), 1 << 30);
    fs::remove(folder / ("out/" + std::string(name)));
    EXPECT_FALSE(prepare().was_up_to_date) << name;
    EXPECT_EQ(read_file(folder / ("out/" + std::string(name)), 1 << 30), before) << name;
    EXPECT_TRUE(prepare().was_up_to_date) << name;
  }
  fs::resize_file(folder / "out/text.bin", 100);
  EXPECT_FALSE(prepare().was_up_to_date);
  std::ofstream(folder / "out/data.json") << "{\"inputs\": 3";
  EXPECT_FALSE(prepare().was_up_to_date);
  write_input(folder / "in.txt", 2);
  EXPECT_FALSE(prepare().was_up_to_date);
  EXPECT_THROW(prepare(299), ConfigError);  // the folder's tokenizer is another
  EXPECT_TRUE(prepare().was_up_to_date);
}

TEST(PrepareData, KeepsASmallVocabularyOfLittleText) {
  ScratchFolder folder;
  std::ofstream(folder / "in.txt") << "a few words, a few words";
  const PreparedData data = prepare_text_data(folder / "in.txt", folder / "out", 5000);
  EXPECT_LT(data.vocabulary, 300);
  EXPECT_TRUE(prepare_text_data(folder / "in.txt", folder / "out", 5000).was_up_to_date);
  std::ofstream(folder / "in.txt") << "a few words, a few other words";
  EXPECT_FALSE(prepare_text_data(folder / "in.txt", folder / "out", 5000).was_up_to_date);
}

TEST(PrepareData, UsesATokenizerThatIsThere) {
  ScratchFolder folder;
  write_input(folder / "in.txt");
  fs::create_directory(folder / "out");
  const std::string given = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/tokenizers/deepseek.json";
  fs::copy_file(given, folder / "out/tokenizer.json");
  const PreparedData data = prepare_text_data(folder / "in.txt", folder / "out", 422);
  EXPECT_EQ(data.vocabulary, 422);
  EXPECT_EQ(read_file(data.tokenizer, 1 << 20), read_file(given, 1 << 20));
}

TEST(PrepareData, DropsRepeatedDocuments) {
  ScratchFolder folder;
  std::ofstream input(folder / "in.jsonl");
  for (int i = 0; i < 40; ++i) input << "{\"text\": \"document number " << i % 25 << " of a few\"}\n";
  input.close();
  const PreparedData data = prepare_text_data(folder / "in.jsonl", folder / "out", 270);
  EXPECT_EQ(data.documents, 25);
  EXPECT_EQ(data.repeated_documents, 15);
}

TEST(PrepareData, RepeatedSamplesAreKeptOnTheirSideOfTheSplit) {
  ScratchFolder folder;
  std::ofstream input(folder / "in.jsonl");
  for (int i = 0; i < 900; ++i)
    input << "{\"prompt\": \"ask " << i % 300 << "?\", \"completion\": \" answer " << i % 300 << "\"}\n";
  input.close();
  const PreparedData kept = prepare_samples(folder / "in.jsonl", folder / "kept", 300, {});
  EXPECT_TRUE(kept.keeps_repeated);
  EXPECT_EQ(kept.documents, 900);
  EXPECT_EQ(kept.repeated_documents, 600);
  const PreparedData dropped =
      prepare_samples(folder / "in.jsonl", folder / "dropped", 300, {.repeated = Repeated::drop});
  EXPECT_EQ(dropped.documents, 300);
  EXPECT_EQ(dropped.repeated_documents, 600);
  EXPECT_EQ(kept.heldout_documents, 3 * dropped.heldout_documents);
  // Nothing stands on both sides, whatever share is held out.
  const TokenFile file(kept.prefix);
  std::map<std::vector<TokenId>, std::set<bool>> sides;
  for (int64_t document = 0; document < file.documents(); ++document) {
    std::vector<TokenId> ids(
        static_cast<size_t>(file.document_begin(document + 1) - file.document_begin(document)));
    file.read(file.document_begin(document), ids);
    sides[ids].insert(is_heldout(file.first_alike(document), 0.2));
  }
  EXPECT_EQ(sides.size(), 300u);
  for (const auto& [ids, both] : sides) EXPECT_EQ(both.size(), 1u);
  Dataset dataset(
      {.parts = {{.path = kept.prefix}}, .sequence_length = 64, .vocabulary = 300, .heldout_fraction = 0.2});
  EXPECT_GT(dataset.heldout_sequences(), 0);
  // Documents are dropped as before, unless they are to stay.
  std::ofstream text(folder / "in2.jsonl");
  for (int i = 0; i < 90; ++i) text << "{\"text\": \"document number " << i % 30 << "\"}\n";
  text.close();
  EXPECT_EQ(prepare_text_data(folder / "in2.jsonl", folder / "d", 270).documents, 30);
  EXPECT_EQ(prepare_text_data(folder / "in2.jsonl", folder / "k", 270, {}, {}, 0, Repeated::keep).documents, 90);
}

std::string warnings(const PreparedData& data) { return fmt::format("{}", fmt::join(warnings_of(data), "\n")); }

TEST(PrepareData, SaysWhatItPassedOver) {
  ScratchFolder folder;
  std::ofstream input(folder / "in.jsonl");
  for (int i = 0; i < 30; ++i)
    input << "{\"prompt\": \"ask " << i
          << "?\", \"completion\": \" answer\", \"score\": NaN}\n{\"prompt\": \"no answer\"}\nbroken\n";
  input.close();
  EXPECT_THROW(prepare_samples(folder / "in.jsonl", folder / "out", 300, {}), ConfigError);
  const PreparedData data = prepare_samples(folder / "in.jsonl", folder / "out", 300, {.skip_bad_lines = true});
  EXPECT_EQ(data.documents, 30);
  EXPECT_EQ(data.passed_over.lines, 60);
  EXPECT_EQ(data.unread, std::vector<std::string>{"score"});
  EXPECT_NE(warnings(data).find("60 bad lines were skipped"), std::string::npos) << warnings(data);
  EXPECT_NE(warnings(data).find("in.jsonl:3: not a JSON object"), std::string::npos) << warnings(data);
  EXPECT_NE(warnings(data).find("fields of samples that were ignored: score"), std::string::npos) << warnings(data);
  const PreparedData again = prepare_samples(folder / "in.jsonl", folder / "out", 300, {.skip_bad_lines = true});
  EXPECT_TRUE(again.was_up_to_date);
  EXPECT_EQ(warnings(again), warnings(data));
}

TEST(PrepareData, WarnsWhereTheTemplateLosesWhatDiffers) {
  ScratchFolder folder;
  std::ofstream(folder / "t.jinja") << "{% for m in messages %}<{{ m.role }}>{{ m.text }}</s>{% endfor %}";
  std::ofstream input(folder / "in.jsonl");
  for (int i = 0; i < 40; ++i)
    input << "{\"messages\": [{\"role\": \"user\", \"content\": \"question" << i
          << "\"}, {\"role\": \"assistant\", \"content\": \"answer" << i << "\"}]}\n";
  input.close();
  const PreparedData data =
      prepare_samples(folder / "in.jsonl", folder / "out", 300, {.chat_template = folder / "t.jinja"});
  EXPECT_EQ(data.unwritten_messages, 80);
  EXPECT_NE(warnings(data).find("the template omits the content of 80 messages, the first at"), std::string::npos)
      << warnings(data);
  EXPECT_NE(warnings(data).find("most samples are the same text as an earlier one: 39 of 40"), std::string::npos)
      << warnings(data);
}

TEST(PrepareData, ADiskThatFillsUpLeavesNoHalf) {
  ScratchFolder folder;
  write_input(folder / "in.txt");
  const PreparedData before = prepare_text_data(folder / "in.txt", folder / "out", 300);
  const std::string bin = read_file(before.prefix + ".bin", 1 << 30);
  write_input(folder / "in.txt", 5);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 16, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(prepare_text_data(folder / "in.txt", folder / "out", 300), SystemError);
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_EQ(read_file(before.prefix + ".bin", 1 << 30), bin);
  EXPECT_NO_THROW(TokenFile(before.prefix));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "out")) names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{".lock", "data.json", "text.bin", "text.idx", "tokenizer.json"}));
  EXPECT_FALSE(prepare_text_data(folder / "in.txt", folder / "out", 300).was_up_to_date);
}

TEST(PrepareData, TwoAtOnceMakeItOnce) {
  ScratchFolder folder;
  write_input(folder / "in.txt");
  std::atomic<int> made = 0;
  std::vector<std::thread> both;
  for (int i = 0; i < 2; ++i) {
    both.emplace_back([&] { made += !prepare_text_data(folder / "in.txt", folder / "out", 300).was_up_to_date; });
  }
  for (std::thread& one : both) one.join();
  EXPECT_EQ(made, 1);
}

TEST(PrepareData, TheDemoComesFromPackages) {
  ScratchFolder folder;
  const std::string text = folder / "corpus";
  fs::create_directories(text);
  const std::string document = story(3, 30000);
  std::ofstream(text + "/documents.jsonl") << nlohmann::json{{"text", document}}.dump() << "\n";
  std::ofstream(text + "/packages.json")
      << R"([{"name": "jargon-text", "licence": "public domain", "files": 1, "text_bytes": 5}])";
  for (int round = 0; round < 2; ++round) {
    const PreparedData data = prepare_demo_data(folder / "out", 300, {}, text);
    EXPECT_EQ(data.was_up_to_date, round == 1);
    ASSERT_EQ(data.packages.size(), 1u);
    EXPECT_EQ(data.packages[0].name, "jargon-text");
    EXPECT_EQ(data.packages[0].licence, "public domain");
    EXPECT_EQ(data.packages[0].text_bytes, 5);
    EXPECT_EQ(data.text_bytes, std::ssize(document));
  }
  for (const char* list : {"[{\"name\": 3}]", "{", "{\"name\": 3}"}) {
    std::ofstream(text + "/packages.json") << list;
    EXPECT_THROW(prepare_demo_data(folder / "out", 300, {}, text), ConfigError) << list;
  }
  try {
    prepare_demo_data(folder / "out", 300, {}, folder / "nowhere");
    FAIL() << "found text";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("tools/make_corpus.py"), std::string::npos) << error.what();
  }
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(prepare_text_data(folder / "file", folder / "file", 300), SystemError);
}

}  // namespace
}  // namespace heddle::data
