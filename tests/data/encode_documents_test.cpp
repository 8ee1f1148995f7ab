// Encoding on several threads: the same documents in the same order, and errors of either side come out.
#include "heddle/data/encode_documents.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/data/tokenizer/tokenizer_train.h"

namespace heddle::data {
namespace {

class Made : public DocumentSource {
 public:
  explicit Made(int count, int fails_at = -1) : count_(count), fails_at_(fails_at) {}
  bool next(Document& document) override {
    if (at_ == fails_at_) config_error("made:{}: broken", at_);
    if (at_ == count_) return false;
    const RandomKey key(static_cast<uint64_t>(at_++));
    document.text.clear();
    for (uint64_t i = 0; i < key.bits(0) % 4000; ++i) document.text += "aeinst \n"[key.bits(1 + i) % 8];
    return true;
  }
  void rewind() override { at_ = 0; }
  double progress() const override { return 0; }
  uint64_t fingerprint() const override { return 0; }

 private:
  int count_, fails_at_, at_ = 0;
};

const Tokenizer& tokenizer() {
  static const Tokenizer one = [] {
    WordCounts counts;
    Made made(50);
    for (Document document; made.next(document);) counts.add(document.text);
    return Tokenizer(train_tokenizer(counts, 300));
  }();
  return one;
}

TEST(EncodeDocuments, GivesTheSameOnAnyNumberOfThreads) {
  std::vector<std::vector<TokenId>> alone;
  Made one(2500);
  encode_documents(one, tokenizer(), 1, [&](const EncodedDocument& document) {
    ASSERT_EQ(tokenizer().decode(document.ids.first(document.ids.size() - 1)), document.text);
    alone.emplace_back(document.ids.begin(), document.ids.end());
  });
  ASSERT_EQ(alone.size(), 2500u);
  for (const int threads : {2, 5}) {
    Made made(2500);
    size_t at = 0;
    encode_documents(made, tokenizer(), threads, [&](const EncodedDocument& document) {
      ASSERT_LT(at, alone.size());
      ASSERT_TRUE(std::equal(document.ids.begin(), document.ids.end(), alone[at].begin(), alone[at].end())) << at;
      ++at;
    });
    EXPECT_EQ(at, alone.size()) << threads;
  }
}

TEST(EncodeDocuments, ErrorsEndAll) {
  for (const int threads : {1, 3}) {
    Made made(3000, 2000);
    EXPECT_THROW(encode_documents(made, tokenizer(), threads, [](const EncodedDocument&) {}), ConfigError);
    Made whole(3000);
    EXPECT_THROW(
        encode_documents(whole, tokenizer(), threads, [](const EncodedDocument&) { config_error("full"); }),
        ConfigError);
  }
  TokenizerSpec slow = tokenizer().spec();
  slow.steps = {split_at("(a+)+$")};  // ends under its limit of steps
  const Tokenizer hostile(slow);
  struct Hostile : Made {
    Hostile() : Made(20) {}
    bool next(Document& document) override {
      const bool more = Made::next(document);
      document.text = std::string(60, 'a') + "b";
      return more;
    }
  } made;
  EXPECT_THROW(encode_documents(made, hostile, 2, [](const EncodedDocument&) {}), ConfigError);
}

}  // namespace
}  // namespace heddle::data
