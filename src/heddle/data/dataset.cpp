#include "heddle/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/data/shuffled_order.h"

namespace heddle::data {
namespace {

constexpr int64_t kStride = 64;  // documents between the marks of Side::tokens_before
constexpr int64_t kMostTokensCheckedAtOnce = 64 << 20;
constexpr int64_t kMostSequenceTokens = 1 << 30;

}  // namespace

bool is_heldout(int64_t document, double fraction) {
  static constexpr RandomKey key = RandomKey(0).with("held-out documents");
  return document > 0 && key.uniform(static_cast<uint64_t>(document)) < fraction;
}

Dataset::Dataset(const DatasetOptions& options) : options_(options), file_(options.prefix) {
  const auto& [prefix, length, depths, vocabulary, fraction, seed] = options_;
  if (length < 1 || length > kMostSequenceTokens) {
    config_error("sequence length {}: accepted are 1 to {}", length, kMostSequenceTokens);
  }
  if (depths < 0 || depths > kMostSequenceTokens) {
    config_error("{} prediction depths: accepted are 0 to {}", depths, kMostSequenceTokens);
  }
  if (vocabulary < 1 || vocabulary > std::numeric_limits<int32_t>::max()) {
    config_error("vocabulary of {} tokens: accepted are 1 to {}", vocabulary, std::numeric_limits<int32_t>::max());
  }
  if (!(fraction >= 0 && fraction < 1))
    config_error("held-out fraction {}: accepted are 0 up to below 1", fraction);

  constexpr int64_t kDocumentsAtOnce = 256 * kStride;
  std::vector<int64_t> begins;
  for (int64_t document = 0; document < file_.documents(); ++document) {
    const auto at = static_cast<size_t>(document % kDocumentsAtOnce);
    if (at == 0) {
      begins.resize(static_cast<size_t>(std::min(kDocumentsAtOnce, file_.documents() - document)) + 1);
      file_.document_begins(document, begins);
    }
    if (document % kStride == 0) {
      train_.tokens_before.push_back(train_.tokens);
      heldout_.tokens_before.push_back(heldout_.tokens);
    }
    (is_heldout(document, fraction) ? heldout_ : train_).tokens += begins[at + 1] - begins[at];
  }
  for (Side* side : {&train_, &heldout_}) {
    side->sequences = std::max<int64_t>(0, (side->tokens - 1 - depths) / length);
  }
  if (train_.sequences == 0) {
    config_error("{}: {} training tokens, one sequence of length {} with {} prediction depths needs {}",
                 file_.bin_path(), train_.tokens, length, depths, sequence_tokens());
  }
  if (file_.tokens() <= kMostTokensCheckedAtOnce) file_.check_ids(0, file_.tokens(), vocabulary);
}

void Dataset::train_sequence(int64_t global_index, std::span<int32_t> tokens) const {
  HEDDLE_CHECK(global_index >= 0, "training sequence {}", global_index);
  const int64_t epoch = global_index / train_.sequences;
  const RandomKey key = RandomKey(options_.seed).with("order of sequences").with(static_cast<uint64_t>(epoch));
  const int64_t sequence = ShuffledOrder(key, train_.sequences).at(global_index % train_.sequences);
  fill(train_, sequence * options_.sequence_length, tokens);
}

void Dataset::heldout_sequence(int64_t index, std::span<int32_t> tokens) const {
  HEDDLE_CHECK(index >= 0 && index < heldout_.sequences, "held-out sequence {} of {}", index, heldout_.sequences);
  fill(heldout_, index * options_.sequence_length, tokens);
}

void Dataset::fill(const Side& side, int64_t position, std::span<int32_t> tokens) const {
  HEDDLE_CHECK(static_cast<int64_t>(tokens.size()) == sequence_tokens(), "room for {} tokens, a sequence has {}",
               tokens.size(), sequence_tokens());
  // The last mark at or before the position; from there on document by document.
  const auto after = std::upper_bound(side.tokens_before.begin(), side.tokens_before.end(), position);
  const auto mark = static_cast<int64_t>(after - side.tokens_before.begin()) - 1;
  int64_t skip = position - side.tokens_before[static_cast<size_t>(mark)];
  size_t done = 0;
  std::array<int64_t, kStride + 1> begins;
  for (int64_t document = mark * kStride; done < tokens.size(); ++document) {
    HEDDLE_CHECK(document < file_.documents(), "sequence at {} runs past the last document", position);
    const auto at = static_cast<size_t>(document % kStride);
    if (at == 0) {
      const auto held = static_cast<size_t>(std::min(kStride, file_.documents() - document)) + 1;
      file_.document_begins(document, {begins.data(), held});
    }
    if (is_heldout(document, options_.heldout_fraction) != side.heldout) continue;
    const int64_t begin = begins[at], size = begins[at + 1] - begin;
    if (skip >= size) {
      skip -= size;
      continue;
    }
    const auto part = std::min<int64_t>(size - skip, static_cast<int64_t>(tokens.size() - done));
    const auto room = tokens.subspan(done, static_cast<size_t>(part));
    file_.read(begin + skip, room);
    for (const int32_t id : room) {
      if (id < 0 || id >= options_.vocabulary) file_.check_ids(begin + skip, part, options_.vocabulary);
    }
    done += static_cast<size_t>(part);
    skip = 0;
  }
}

}  // namespace heddle::data
