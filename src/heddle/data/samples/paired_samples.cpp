#include "heddle/data/samples/paired_samples.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/data/samples/read_sample.h"

namespace heddle::data {

PairedSamples::PairedSamples(const TokenFile& file, int64_t sequence_length, LongSamples longer,
                             const std::function<bool(int64_t)>& chosen)
    : file_(&file), most_(sequence_length + 1), longer_(longer) {
  if (!file.has_weights() || file.documents() % 2 != 0) {
    config_error("{}: no pairs of answers, which train.objective \"dpo\" learns from: {} documents{}",
                 file.bin_path(), file.documents(), file.has_weights() ? "" : " without the weights of samples");
  }
  int64_t longest = 0, too_long = 0;
  for (int64_t pair = 0; pair < file.documents() / 2; ++pair) {
    if (!chosen(pair)) continue;
    int64_t begins[3];
    file.document_begins(2 * pair, begins);
    int64_t longer_one = 0;
    const bool takes = fits(pair, begins, longer_one);
    too_long += longer_one > most_;
    longest = std::max(longest, longer_one);
    if (!takes) continue;
    pairs_.push_back(pair);
    for (int i = 0; i < 2; ++i) tokens_ += std::min(begins[i + 1] - begins[i], most_);
  }
  if (too_long > 0 && longer_ == LongSamples::refuse) {
    config_error(
        "{}: {} of the pairs {} an answer longer than a sequence, the longest has {} tokens: train.sequence_length "
        "= "
        "{} holds them all, data.long_samples = \"cut\" cuts their ends off and \"drop\" leaves the pairs out",
        file.bin_path(), too_long, too_long == 1 ? "has" : "have", longest, longest - 1);
  }
}

// True if a pair is taken, of which both answers must have a target left; and the longer answer's ids.
bool PairedSamples::fits(int64_t pair, std::span<const int64_t> begins, int64_t& longest) const {
  longest = std::max(begins[1] - begins[0], begins[2] - begins[1]);
  if (longest > most_ && longer_ == LongSamples::drop) return false;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<float> weights(static_cast<size_t>(std::min(begins[i + 1] - begins[i], most_)));
    file_->read_weights(begins[i], weights);
    if (has_target(weights)) continue;
    if (longest > most_) return false;
    config_error("{}: document {} has no target: not a pair of answers", file_->bin_path(),
                 2 * pair + static_cast<int64_t>(i));
  }
  return true;
}

void PairedSamples::read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
                         const SequenceMarks& marks) const {
  HEDDLE_CHECK(sequence >= 0 && sequence < sequences() && std::ssize(tokens) >= most_,
               "sequence {} of {}, room for {} tokens", sequence, sequences(), tokens.size());
  const int64_t document = 2 * pairs_[sequence / 2] + sequence % 2;
  const int64_t size = read_sample(*file_, document, vocabulary, most_, 0, tokens, marks);
  pad_samples(static_cast<size_t>(size), tokens, marks);
}

}  // namespace heddle::data
