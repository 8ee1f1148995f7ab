#include "heddle/data/samples/packed_samples.h"

#include <algorithm>
#include <map>
#include <set>

#include "heddle/base/error.h"
#include "heddle/data/samples/read_sample.h"

namespace heddle::data {

PackedSamples::PackedSamples(const TokenFile& file, int64_t sequence_length, LongSamples longer,
                             const std::function<bool(int64_t document)>& chosen)
    : file_(&file), most_(sequence_length + 1), longer_(longer), first_{0} {
  HEDDLE_CHECK(file.has_weights(), "{}: no samples", file.bin_path());
  pack(fitting(chosen));
}

// The samples that fit, as they will be read.
std::vector<PackedSamples::Sample> PackedSamples::fitting(const std::function<bool(int64_t)>& chosen) {
  constexpr int64_t kAtOnce = 1 << 14;
  std::vector<Sample> samples;
  std::vector<int64_t> begins;
  std::vector<float> weights;
  int64_t longest = 0, too_long = 0;
  for (int64_t document = 0; document < file_->documents(); ++document) {
    const auto at = static_cast<size_t>(document % kAtOnce);
    if (at == 0) {
      begins.resize(static_cast<size_t>(std::min(kAtOnce, file_->documents() - document)) + 1);
      file_->document_begins(document, begins);
    }
    if (!chosen(document)) continue;
    const int64_t size = begins[at + 1] - begins[at];
    if (size > most_) {
      ++too_long;
      longest = std::max(longest, size);
      if (longer_ != LongSamples::cut) continue;
      weights.resize(static_cast<size_t>(most_));
      file_->read_weights(begins[at], weights);
      if (!has_target(weights)) continue;
    }
    if (size > 0) samples.push_back({document, begins[at], std::min(size, most_)});
  }
  if (too_long > 0 && longer_ == LongSamples::refuse) {
    config_error(
        "{}: {} of the samples {} longer than a sequence, the longest has {} tokens: train.sequence_length = {} "
        "holds "
        "them all, data.long_samples = \"cut\" cuts their ends off and \"drop\" leaves them out",
        file_->bin_path(), too_long, too_long == 1 ? "is" : "are", longest, longest - 1);
  }
  changed_ = too_long;
  return samples;
}

void PackedSamples::pack(std::vector<Sample> samples) {
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.size > b.size; });
  std::map<int64_t, std::set<int64_t>> by_room;  // sequences with so many ids left
  std::vector<std::vector<int64_t>> packed;
  for (const Sample& sample : samples) {
    tokens_ += sample.size;
    const auto best = by_room.lower_bound(sample.size);
    int64_t sequence = std::ssize(packed), room = most_;
    if (best != by_room.end()) {
      room = best->first;
      sequence = *best->second.begin();
      best->second.erase(best->second.begin());
      if (best->second.empty()) by_room.erase(best);
    } else {
      packed.emplace_back();
    }
    packed[sequence].push_back(sample.document);
    if (room > sample.size) by_room[room - sample.size].insert(sequence);
  }
  for (const std::vector<int64_t>& documents : packed) {
    order_.insert(order_.end(), documents.begin(), documents.end());
    first_.push_back(std::ssize(order_));
  }
}

void PackedSamples::read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
                         const SequenceMarks& marks) const {
  HEDDLE_CHECK(sequence >= 0 && sequence < sequences() && std::ssize(tokens) >= most_,
               "sequence {} of {}, room for {} tokens", sequence, sequences(), tokens.size());
  int64_t done = 0;
  for (int64_t i = first_[sequence]; i < first_[static_cast<size_t>(sequence) + 1]; ++i) {
    done += read_sample(*file_, order_[i], vocabulary, most_ - done, static_cast<size_t>(done), tokens, marks);
  }
  pad_samples(static_cast<size_t>(done), tokens, marks);
}

}  // namespace heddle::data
