// Hashes of n-grams, against numbers of the released rule written again in another language; and what is refused.
#include "heddle/model/ngrams.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"

namespace heddle::model {
namespace {

using Numbers = std::vector<int64_t>;

TEST(Ngrams, HashesAreThoseOfTheReleasedRule) {
  const NgramHashes large =
      ngram_hashes({.vocabulary = 248320, .size = 3, .heads = 2, .base = 20'000'000, .seed = 1234, .index = 0});
  EXPECT_EQ(large.multipliers, (Numbers{23703573157769, 20109073645365, 8052911324071}));
  EXPECT_EQ(large.rows, (Numbers{20000003, 20000023, 20000033, 20000047}));
  EXPECT_EQ(large.first, (Numbers{0, 20000003, 40000026, 60000059}));
  EXPECT_EQ(large.total, 80000106);
  const NgramHashes second =
      ngram_hashes({.vocabulary = 31, .size = 2, .heads = 2, .base = 50, .seed = 7, .index = 1});
  EXPECT_EQ(second.multipliers, (Numbers{14206226878780547, 119264564013205143}));
  EXPECT_EQ(second.rows, (Numbers{61, 67})) << "primes behind those of the first layer";
}

ModelConfig model() {
  ModelConfig c;
  c.attention = ModelConfig::Attention::grouped;
  c.hyper_connections = 2;
  c.hyper_connections_kind = HyperConnection::gated;
  c.num_hidden_layers = 4;
  c.ngram_layers = "3,1";
  c.ngram_vocab_size = 50;
  return c;
}

TEST(Ngrams, LayersCountFromOne) {
  const ModelConfig c = model();
  EXPECT_EQ(ngram_layers_of(c), (Numbers{0, 2}));
  EXPECT_EQ(ngram_index(c, 2), 1);
  EXPECT_EQ(ngram_index(c, 1), -1);
  EXPECT_EQ(ngram_rows(c, 0) % c.ngram_vocab_multiple, 0);
  EXPECT_NO_THROW(validate(c));
}

TEST(Ngrams, RefuseWhatIsNoTable) {
  const auto refused = [](const auto& change, const std::string& key) {
    ModelConfig c = model();
    change(c);
    try {
      validate(c);
      ADD_FAILURE() << key << " is accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  for (const char* layers : {"5", "0", "1,,2", "1,", "one", "1,1", "1;2"})
    refused([&](ModelConfig& c) { c.ngram_layers = layers; }, "model.ngram_layers");
  refused([](ModelConfig& c) { c.hyper_connections = 0; }, "model.hyper_connections");
  refused([](ModelConfig& c) { c.ngram_embedding_size = 20; }, "model.ngram_embedding_size");
  refused([](ModelConfig& c) { c.ngram_end_token = c.vocab_size; }, "model.ngram_end_token");
  refused([](ModelConfig& c) { c.ngram_vocab_size = 1 << 29; }, "model.ngram_vocab_size");
  refused([](ModelConfig& c) { c.ngram_parts = 1 << 20; }, "model.ngram_parts");
}

}  // namespace
}  // namespace heddle::model
