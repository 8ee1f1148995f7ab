#include "heddle/data/dataset.h"

#include <algorithm>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/data/samples/packed_samples.h"
#include "heddle/data/samples/paired_samples.h"
#include "heddle/data/shuffled_order.h"

namespace heddle::data {
namespace {

constexpr int64_t kMostTokensCheckedAtOnce = 64 << 20;
constexpr int64_t kMostSequenceTokens = 1 << 30;

// A stream of documents cut into sequences that overlap by what is target only.
class CutStream : public SequenceSource {
 public:
  CutStream(DocumentStream stream, int64_t length, int64_t depths)
      : stream_(std::move(stream)),
        length_(length),
        sequences_(std::max<int64_t>(0, (stream_.tokens() - 1 - depths) / length)) {}

  int64_t sequences() const override { return sequences_; }
  int64_t tokens() const override { return stream_.tokens(); }
  void read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
            const SequenceMarks& marks) const override {
    stream_.read(sequence * length_, vocabulary, tokens, marks.begins);
    std::fill(marks.masked.begin(), marks.masked.end(), uint8_t{0});
    std::fill(marks.weights.begin(), marks.weights.end(), 1.0F);
  }

 private:
  DocumentStream stream_;
  int64_t length_, sequences_;
};

Blend blend_of(const std::vector<BlendPart>& parts) {
  std::vector<int64_t> weights;
  for (const BlendPart& part : parts) weights.push_back(part.weight);
  return Blend(std::move(weights));
}

}  // namespace

bool is_heldout(int64_t document, double fraction) {
  static constexpr RandomKey key = RandomKey(0).with("held-out documents");
  return document > 0 && key.uniform(static_cast<uint64_t>(document)) < fraction;
}

Dataset::Dataset(const DatasetOptions& options) : options_(options), blend_(blend_of(options.parts)) {
  const int64_t length = options_.sequence_length, depths = options_.prediction_depths;
  const int64_t vocabulary = options_.vocabulary;
  if (length < 1 || length > kMostSequenceTokens) {
    config_error("sequence length {}: accepted are 1 to {}", length, kMostSequenceTokens);
  }
  if (depths < 0 || depths > kMostSequenceTokens) {
    config_error("{} prediction depths: accepted are 0 to {}", depths, kMostSequenceTokens);
  }
  if (vocabulary < 1 || vocabulary > std::numeric_limits<int32_t>::max()) {
    config_error("vocabulary of {} tokens: accepted are 1 to {}", vocabulary, std::numeric_limits<int32_t>::max());
  }
  if (!(options_.heldout_fraction >= 0 && options_.heldout_fraction < 1))
    config_error("held-out fraction {}: accepted are 0 up to below 1", options_.heldout_fraction);
  open_parts();
}

void Dataset::open_parts() {
  const bool own = !options_.validation.empty();
  const double fraction = own ? 0 : options_.heldout_fraction;
  std::vector<Source> heldout;
  for (const BlendPart& part : options_.parts) {
    files_.push_back(std::make_unique<TokenFile>(part.path));
    const TokenFile& file = *files_.back();
    // A repeated one stands where its first one does, so that nothing is on both sides.
    const auto heldout_of = [fraction, &file, each = together()](int64_t number) {
      return is_heldout(file.first_alike(number * each) / each, fraction);
    };
    std::vector<Source> sides =
        cut(file, {[heldout_of](int64_t number) { return !heldout_of(number); }, heldout_of});
    train_.push_back(std::move(sides[0]));
    if (train_.back()->sequences() == 0) {
      config_error("{}: {} training tokens, one sequence of length {} with {} prediction depths needs {}",
                   file.bin_path(), train_.back()->tokens(), options_.sequence_length, options_.prediction_depths,
                   sequence_tokens());
    }
    heldout.push_back(std::move(sides[1]));
    check(file);
  }
  if (own) {
    validation_ = std::make_unique<TokenFile>(options_.validation);
    check(*validation_);
    heldout = cut(*validation_, {[](int64_t) { return true; }});
    if (heldout[0]->sequences() == 0) {
      config_error("{}: {} tokens, one sequence of the validation set needs {}", validation_->bin_path(),
                   validation_->tokens(), sequence_tokens());
    }
  }
  open_heldout(std::move(heldout));
}

// By the shares of the blend, as far as the first of them to end reaches.
void Dataset::open_heldout(std::vector<Source> sides) {
  std::vector<int64_t> weights;
  for (size_t i = 0; i < sides.size(); ++i) {
    if (sides[i]->sequences() == 0) continue;
    heldout_.push_back(std::move(sides[i]));
    weights.push_back(validation_ != nullptr ? 1 : options_.parts[i].weight);
  }
  if (heldout_.empty()) return;
  heldout_blend_ = Blend(std::move(weights));
  int64_t most = 0;
  for (const Source& side : heldout_) most += side->sequences() / together();
  const auto reaches = [&](int64_t count) {
    for (size_t i = 0; i < heldout_.size(); ++i) {
      if (heldout_blend_.count(i, count) > heldout_[i]->sequences() / together()) return false;
    }
    return true;
  };
  int64_t least = 0;
  while (least < most) {
    const int64_t middle = least + (most - least + 1) / 2;
    if (reaches(middle)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  heldout_sequences_ = least * together();
}

std::vector<Dataset::Source> Dataset::cut(const TokenFile& file,
                                          const std::vector<DocumentStream::Chosen>& choices) const {
  std::vector<Source> sides;
  if (options_.pairs) {
    for (const DocumentStream::Chosen& chosen : choices) {
      sides.push_back(
          std::make_unique<PairedSamples>(file, options_.sequence_length, options_.long_samples, chosen));
    }
    return sides;
  }
  if (file.has_weights()) {
    for (const DocumentStream::Chosen& chosen : choices) {
      sides.push_back(
          std::make_unique<PackedSamples>(file, options_.sequence_length, options_.long_samples, chosen));
    }
    return sides;
  }
  for (DocumentStream& stream : DocumentStream::of(file, choices)) {
    sides.push_back(
        std::make_unique<CutStream>(std::move(stream), options_.sequence_length, options_.prediction_depths));
  }
  return sides;
}

bool Dataset::masks() const {
  const auto has = [](const std::unique_ptr<TokenFile>& file) { return file && file->has_weights(); };
  return has(validation_) || std::any_of(files_.begin(), files_.end(), has);
}

bool Dataset::weighs() const {
  const auto has = [](const std::unique_ptr<TokenFile>& file) { return file && file->has_any_weights(); };
  return has(validation_) || std::any_of(files_.begin(), files_.end(), has);
}

void Dataset::check(const TokenFile& file) const {
  if (file.tokens() <= kMostTokensCheckedAtOnce) file.check_ids(0, file.tokens(), options_.vocabulary);
}

int64_t Dataset::train_sequences() const {
  int64_t sum = 0;
  for (const Source& part : train_) sum += part->sequences();
  return sum;
}

double Dataset::most_epochs(double sequences) const {
  double most = 0;
  for (size_t i = 0; i < train_.size(); ++i) {
    most = std::max(most, sequences * blend_.share(i) / static_cast<double>(train_[i]->sequences()));
  }
  return most;
}

int64_t Dataset::train_tokens() const {
  int64_t sum = 0;
  for (const Source& part : train_) sum += part->tokens();
  return sum;
}

int64_t Dataset::heldout_tokens() const {
  int64_t sum = 0;
  for (const Source& part : heldout_) sum += part->tokens();
  return sum;
}

int64_t Dataset::documents() const {
  int64_t sum = 0;
  for (const auto& file : files_) sum += file->documents();
  return sum;
}

int64_t Dataset::tokens() const {
  int64_t sum = 0;
  for (const auto& file : files_) sum += file->tokens();
  return sum;
}

int64_t Dataset::train_number(int64_t global_index) const {
  HEDDLE_CHECK(global_index >= 0, "training sequence {}", global_index);
  const auto [part, index] = blend_.at(global_index / together());
  const int64_t units = train_[part]->sequences() / together(), epoch = index / units;
  RandomKey key = RandomKey(options_.seed).with("order of sequences").with(static_cast<uint64_t>(epoch));
  if (part > 0) key = key.with("part").with(part);
  int64_t before = 0;
  for (size_t i = 0; i < part; ++i) before += train_[i]->sequences();
  return before + ShuffledOrder(key, units).at(index % units) * together() + global_index % together();
}

void Dataset::numbered_sequence(int64_t number, std::span<int32_t> tokens, const SequenceMarks& marks) const {
  HEDDLE_CHECK(number >= 0 && number < train_sequences(), "sequence {} of {}", number, train_sequences());
  size_t part = 0;
  for (; number >= train_[part]->sequences(); ++part) number -= train_[part]->sequences();
  fill(*train_[part], number, tokens, marks);
}

void Dataset::train_sequence(int64_t global_index, std::span<int32_t> tokens, const SequenceMarks& marks) const {
  numbered_sequence(train_number(global_index), tokens, marks);
}

void Dataset::heldout_sequence(int64_t index, std::span<int32_t> tokens, const SequenceMarks& marks) const {
  HEDDLE_CHECK(index >= 0 && index < heldout_sequences_, "held-out sequence {} of {}", index, heldout_sequences_);
  const auto [part, unit] = heldout_blend_.at(index / together());
  fill(*heldout_[part], unit * together() + index % together(), tokens, marks);
}

void Dataset::fill(const SequenceSource& from, int64_t sequence, std::span<int32_t> tokens,
                   const SequenceMarks& marks) const {
  HEDDLE_CHECK(static_cast<int64_t>(tokens.size()) == sequence_tokens(), "room for {} tokens, a sequence has {}",
               tokens.size(), sequence_tokens());
  for (const size_t size : {marks.masked.size(), marks.weights.size(), marks.begins.size()})
    HEDDLE_CHECK(size == 0 || size == tokens.size(), "marks of {} for {} tokens", size, tokens.size());
  from.read(sequence, options_.vocabulary, tokens, marks);
}

}  // namespace heddle::data
