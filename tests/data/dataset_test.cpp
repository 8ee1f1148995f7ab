// Sequences: every token in its place, held-out documents apart, and orders that depend on nothing but numbers.
#include "heddle/data/dataset.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "heddle/base/error.h"
#include "heddle/data/shuffled_order.h"
#include "tests/support/scratch_folder.h"

namespace heddle::data {
namespace {

constexpr int32_t kVocabulary = 5000;

// Document d is `sizes(d)` tokens of value d and an end token 4999.
void write_numbered(const std::string& prefix, int documents) {
  TokenFileWriter writer(prefix, kVocabulary);
  for (int d = 0; d < documents; ++d) {
    std::vector<TokenId> ids(static_cast<size_t>(d * 37 % 23), d);
    ids.push_back(kVocabulary - 1);
    writer.add_document(ids);
  }
  writer.commit();
}

DatasetOptions options(const std::string& prefix, int64_t length, int64_t depths, double fraction) {
  return {.parts = {{prefix}},
          .sequence_length = length,
          .prediction_depths = depths,
          .vocabulary = kVocabulary,
          .heldout_fraction = fraction,
          .seed = 11};
}

// Sample d is `sizes[d]` ids of value d, of which every other one from the second on is a target.
void write_samples(const std::string& prefix, const std::vector<int64_t>& sizes) {
  TokenFileWriter writer(prefix, kVocabulary);
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto size = static_cast<size_t>(sizes[d]);
    std::vector<float> weights(size);
    for (size_t i = 0; i < size; ++i) weights[i] = i % 2 == 1 || i == 0 ? 1 : 0;
    writer.add_sample(std::vector<TokenId>(size, static_cast<TokenId>(d)), weights);
  }
  writer.commit();
}

TEST(PackedSamples, EachStandsWholeInOneSequenceOfAnEpoch) {
  ScratchFolder folder;
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < 400; ++d) sizes.push_back(1 + d * 37 % 33);
  write_samples(folder / "t", sizes);
  const Dataset data(options(folder / "t", 32, 2, 0.1));
  ASSERT_TRUE(data.masks());
  std::vector<int32_t> tokens(static_cast<size_t>(data.sequence_tokens()));
  std::vector<uint8_t> masked(tokens.size());
  std::set<int32_t> seen;
  int64_t ids = 0;
  for (int64_t i = 0; i < data.train_sequences(); ++i) {
    data.train_sequence(i, tokens, {.masked = masked});
    for (size_t at = 0; at < tokens.size();) {
      if (tokens[at] < 0) {
        ASSERT_TRUE(masked[at]);
        ++at;
        continue;
      }
      const int32_t sample = tokens[at];
      ASSERT_TRUE(seen.insert(sample).second) << sample;
      ASSERT_FALSE(is_heldout(sample, 0.1));
      for (int64_t j = 0; j < sizes[static_cast<size_t>(sample)]; ++j, ++at, ++ids) {
        ASSERT_EQ(tokens[at], sample);
        ASSERT_EQ(masked[at], j % 2 == 0) << "id " << j << " of sample " << sample;  // the first never counts
      }
    }
  }
  EXPECT_EQ(ids, data.train_tokens());
  int64_t trained = 0;
  for (int32_t d = 0; d < 400; ++d) trained += !is_heldout(d, 0.1);
  EXPECT_EQ(std::ssize(seen), trained);
  // Best fit leaves little: no more sequences than the ids need, and one in twenty.
  EXPECT_LE(data.train_sequences(), 1 + ids * 21 / 20 / 33);
  std::vector<int32_t> again(tokens.size());
  data.train_sequence(3, tokens);
  Dataset(options(folder / "t", 32, 2, 0.1)).train_sequence(3, again);
  EXPECT_EQ(tokens, again);
}

TEST(PackedSamples, NoneIsCutUnlessTold) {
  ScratchFolder folder;
  write_samples(folder / "t", {9, 40, 5, 12});
  DatasetOptions o = options(folder / "t", 10, 0, 0);
  try {
    const Dataset data(o);
    FAIL() << "a sample of 40 in sequences of 10";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("2 of the samples are longer than a sequence, the longest has 40"),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("train.sequence_length = 39"), std::string::npos) << error.what();
  }
  o.long_samples = LongSamples::drop;
  EXPECT_EQ(Dataset(o).train_tokens(), 14);
  o.long_samples = LongSamples::cut;
  EXPECT_EQ(Dataset(o).train_tokens(), 14 + 2 * 11);
  o.sequence_length = 39;
  o.long_samples = LongSamples::refuse;
  EXPECT_EQ(Dataset(o).train_tokens(), 66);
}

TEST(PackedSamples, WeightsThatAreNone) {
  ScratchFolder folder;
  write_samples(folder / "t", {9, 7});
  std::ofstream(folder / "t.weights", std::ios::binary) << std::string(15, '\1');
  EXPECT_THROW(TokenFile{folder / "t"}, ConfigError);
  std::ofstream(folder / "t.weights", std::ios::binary) << std::string(15, '\1') << '\2';
  const Dataset data(options(folder / "t", 10, 0, 0));
  std::vector<int32_t> tokens(11);
  std::vector<uint8_t> masked(11);
  EXPECT_THROW(
      {
        data.train_sequence(0, tokens, {.masked = masked});
        data.train_sequence(1, tokens, {.masked = masked});
      },
      ConfigError);
  write_numbered(folder / "t", 5);  // documents instead of samples
  EXPECT_FALSE(TokenFile(folder / "t").has_weights());
}

TEST(ShuffledOrder, IsAPermutation) {
  for (const int64_t count : {1, 2, 3, 4, 5, 15, 16, 17, 1000, 4097}) {
    const ShuffledOrder order(RandomKey(5), count);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = order.at(i);
      ASSERT_GE(at, 0);
      ASSERT_LT(at, count);
      seen.insert(at);
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
  }
}

TEST(ShuffledOrder, IsSpreadEvenly) {
  // Mean distance of a random permutation's neighbours is count / 3; the order of places must not show through.
  const int64_t count = 20000;
  const ShuffledOrder order(RandomKey(6), count);
  double distance = 0, covariance = 0;
  for (int64_t i = 0; i + 1 < count; ++i) {
    distance += std::abs(static_cast<double>(order.at(i + 1) - order.at(i)));
    covariance += (static_cast<double>(i) / count - 0.5) * (static_cast<double>(order.at(i)) / count - 0.5);
  }
  EXPECT_NEAR(distance / (count - 1), count / 3.0, count * 0.01);
  EXPECT_NEAR(covariance / (count - 1) * 12, 0, 0.03);
}

TEST(Dataset, CoversEachSideOnceInOrder) {
  ScratchFolder folder;
  const int documents = 700;
  write_numbered(folder / "t", documents);
  const TokenFile file(folder / "t");
  for (const auto& [length, depths] : {std::pair<int64_t, int64_t>{16, 0}, {16, 2}, {1, 0}, {7, 5}, {300, 1}}) {
    const Dataset data(options(folder / "t", length, depths, 0.2));
    std::vector<TokenId> streams[2];
    for (int64_t d = 0; d < documents; ++d) {
      std::vector<TokenId> ids(static_cast<size_t>(file.document_begin(d + 1) - file.document_begin(d)));
      file.read(file.document_begin(d), ids);
      auto& stream = streams[is_heldout(d, 0.2) ? 1 : 0];
      stream.insert(stream.end(), ids.begin(), ids.end());
    }
    EXPECT_EQ(data.train_tokens(), static_cast<int64_t>(streams[0].size()));
    EXPECT_EQ(data.heldout_tokens(), static_cast<int64_t>(streams[1].size()));
    EXPECT_EQ(data.train_sequences(), (data.train_tokens() - 1 - depths) / length);
    EXPECT_EQ(data.heldout_sequences(), (data.heldout_tokens() - 1 - depths) / length);
    std::vector<int32_t> tokens(static_cast<size_t>(data.sequence_tokens()));
    for (int64_t i = 0; i < data.heldout_sequences(); ++i) {
      data.heldout_sequence(i, tokens);
      ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), streams[1].begin() + i * length));
    }
    // An epoch of training sequences is the stream's sequences, each once.
    std::multiset<std::vector<int32_t>> wanted, found;
    for (int64_t i = 0; i < data.train_sequences(); ++i) {
      const auto begin = streams[0].begin() + i * length;
      wanted.emplace(begin, begin + data.sequence_tokens());
      data.train_sequence(i, tokens);
      found.insert(tokens);
    }
    ASSERT_EQ(found, wanted);
  }
}

TEST(Dataset, HeldOutDocumentsAreNeverTrainedOn) {
  ScratchFolder folder;
  write_numbered(folder / "t", 900);
  const Dataset data(options(folder / "t", 32, 1, 0.1));
  std::vector<int32_t> tokens(static_cast<size_t>(data.sequence_tokens()));
  for (int64_t i = 0; i < data.train_sequences(); ++i) {
    data.train_sequence(i, tokens);
    for (const int32_t id : tokens) ASSERT_TRUE(id == kVocabulary - 1 || !is_heldout(id, 0.1));
  }
  for (int64_t i = 0; i < data.heldout_sequences(); ++i) {
    data.heldout_sequence(i, tokens);
    for (const int32_t id : tokens) ASSERT_TRUE(id == kVocabulary - 1 || is_heldout(id, 0.1));
  }
  int64_t heldout = 0;
  for (int64_t d = 0; d < 100000; ++d) heldout += is_heldout(d, 0.02);
  EXPECT_NEAR(static_cast<double>(heldout), 2000, 150);
}

TEST(Dataset, ResumesFromOneNumber) {
  ScratchFolder folder;
  write_numbered(folder / "t", 300);
  const Dataset first(options(folder / "t", 8, 0, 0.1)), second(options(folder / "t", 8, 0, 0.1));
  DatasetOptions other = options(folder / "t", 8, 0, 0.1);
  other.seed = 12;
  const Dataset third(other);
  const int64_t epoch = first.train_sequences();
  std::vector<int32_t> a(9), b(9);
  int64_t same_as_first_epoch = 0, same_as_other_seed = 0;
  for (int64_t i = epoch - 20; i < 2 * epoch; ++i) {
    first.train_sequence(i, a);
    second.train_sequence(i, b);
    ASSERT_EQ(a, b);
    third.train_sequence(i, b);
    same_as_other_seed += a == b;
    if (i < epoch) continue;
    first.train_sequence(i - epoch, b);
    same_as_first_epoch += a == b;
  }
  EXPECT_LT(same_as_first_epoch, epoch / 10);
  EXPECT_LT(same_as_other_seed, epoch / 10);
}

TEST(Dataset, RefusesIdsBeyondTheModel) {
  ScratchFolder folder;
  write_numbered(folder / "t", 300);
  DatasetOptions small = options(folder / "t", 8, 0, 0.1);
  small.vocabulary = 4999;
  try {
    Dataset data(small);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    for (const char* part : {"t.bin", "position 0", "4999"}) EXPECT_NE(what.find(part), std::string::npos) << what;
  }
}

TEST(Dataset, ChecksIdsAgainAsSequencesAreRead) {
  ScratchFolder folder;
  write_numbered(folder / "t", 300);
  const Dataset data(options(folder / "t", 8, 0, 0));
  std::vector<int32_t> tokens(9);
  EXPECT_NO_THROW(data.train_sequence(0, tokens));
  // What a file too long to be checked when opened may hold: every id becomes 65535.
  std::string bytes(static_cast<size_t>(data.tokens()) * 2, '\xff');
  std::fstream(folder / "t.bin", std::ios::in | std::ios::out | std::ios::binary)
      .write(bytes.data(), 2 * data.tokens());
  try {
    data.train_sequence(0, tokens);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("65535"), std::string::npos) << error.what();
  }
}

TEST(Dataset, RefusesLessThanOneSequence) {
  ScratchFolder folder;
  write_numbered(folder / "t", 3);
  EXPECT_THROW(Dataset(options(folder / "t", 1000, 0, 0)), ConfigError);
  const TokenFile file(folder / "t");
  EXPECT_EQ(Dataset(options(folder / "t", file.tokens() - 1, 0, 0)).train_sequences(), 1);
  EXPECT_EQ(Dataset(options(folder / "t", file.tokens() - 3, 2, 0)).train_sequences(), 1);
  EXPECT_THROW(Dataset(options(folder / "t", file.tokens() - 2, 2, 0)), ConfigError);
  EXPECT_THROW(Dataset(options(folder / "t", file.tokens(), 0, 0)), ConfigError);
  EXPECT_THROW(Dataset(options(folder / "t", 0, 0, 0)), ConfigError);
  EXPECT_THROW(Dataset(options(folder / "t", 4, -1, 0)), ConfigError);
  EXPECT_THROW(Dataset(options(folder / "t", 4, 0, 1.0)), ConfigError);
  EXPECT_THROW(Dataset(options(folder / "none", 4, 0, 0)), ConfigError);
}

// What the sequence at each place is made of: the ids of a part's documents lie apart.
struct Blended {
  ScratchFolder folder;
  DatasetOptions options;

  explicit Blended(const std::vector<int64_t>& weights, double fraction) {
    for (size_t part = 0; part < weights.size(); ++part) {
      const std::string prefix = folder / fmt::format("part{}", part);
      TokenFileWriter writer(prefix, kVocabulary);
      for (int d = 0; d < 60 + 30 * static_cast<int>(part); ++d)
        writer.add_document(std::vector<TokenId>(40, static_cast<TokenId>(1000 * part) + d));
      writer.commit();
      options.parts.push_back({prefix, weights[part]});
    }
    options.sequence_length = 8;
    options.vocabulary = kVocabulary;
    options.heldout_fraction = fraction;
    options.seed = 5;
  }
};

TEST(DatasetBlend, TakesTurnsByWeightAndGoesOnAnywhere) {
  const Blended blend({3, 5, 2}, 0.1);
  const Dataset data(blend.options), again(blend.options);
  std::vector<std::vector<int32_t>> first;
  std::vector<int64_t> counts(3);
  std::vector<int32_t> tokens(static_cast<size_t>(data.sequence_tokens()));
  for (int64_t i = 0; i < 3000; ++i) {
    data.train_sequence(i, tokens);
    const auto part = static_cast<size_t>(tokens[0] / 1000);
    ++counts[part];
    for (size_t p = 0; p < 3; ++p) {
      const double wanted = static_cast<double>(blend.options.parts[p].weight) / 10 * static_cast<double>(i + 1);
      ASSERT_LT(std::abs(static_cast<double>(counts[p]) - wanted), 2) << i;
    }
    first.push_back(tokens);
  }
  for (int64_t i = 2999; i >= 0; i -= 7) {  // any place, in any order
    again.train_sequence(i, tokens);
    ASSERT_EQ(tokens, first[static_cast<size_t>(i)]);
  }
  // Part 0 in its own order is what it is alone: its sequences, each once an epoch.
  const int64_t epoch = Dataset({.parts = {blend.options.parts[0]},
                                 .sequence_length = 8,
                                 .vocabulary = kVocabulary,
                                 .heldout_fraction = 0.1,
                                 .seed = 5})
                            .train_sequences();
  std::map<std::vector<int32_t>, int> seen;
  int64_t taken = 0;
  for (const auto& sequence : first) {
    if (sequence[0] < 1000 && taken++ < epoch) ++seen[sequence];
  }
  EXPECT_GE(taken, epoch);
  EXPECT_NEAR(data.most_epochs(static_cast<double>(10 * epoch) / 3), 1, 0.5);
}

TEST(DatasetBlend, HoldsOutByTheSameShares) {
  const Blended blend({1, 1, 2}, 0.3);
  const Dataset data(blend.options);
  ASSERT_GT(data.heldout_sequences(), 20);
  std::vector<int64_t> counts(3);
  std::vector<int32_t> tokens(static_cast<size_t>(data.sequence_tokens()));
  std::set<std::vector<int32_t>> train;
  for (int64_t i = 0; i < data.train_sequences(); ++i) {
    data.train_sequence(i, tokens);
    train.insert(tokens);
  }
  for (int64_t i = 0; i < data.heldout_sequences(); ++i) {
    data.heldout_sequence(i, tokens);
    ++counts[static_cast<size_t>(tokens[0] / 1000)];
    EXPECT_FALSE(train.contains(tokens));
  }
  EXPECT_NEAR(static_cast<double>(counts[2]), static_cast<double>(data.heldout_sequences()) / 2, 1.5);
}

TEST(DatasetValidation, IsHeldOutWholeAndNothingElse) {
  const Blended blend({1, 1}, 0.3);
  DatasetOptions options = blend.options;
  const std::string validation = options.parts[1].path;
  options.parts.pop_back();
  options.validation = validation;
  const Dataset data(options);
  EXPECT_EQ(data.train_tokens(), TokenFile(options.parts[0].path).tokens());
  EXPECT_EQ(data.heldout_tokens(), TokenFile(validation).tokens());
  std::vector<int32_t> tokens(static_cast<size_t>(data.sequence_tokens()));
  for (int64_t i = 0; i < data.heldout_sequences(); ++i) {
    data.heldout_sequence(i, tokens);
    EXPECT_GE(tokens[0], 1000);
  }
  options.sequence_length = 100'000;
  EXPECT_THROW(Dataset{options}, ConfigError);
}

}  // namespace
}  // namespace heddle::data
