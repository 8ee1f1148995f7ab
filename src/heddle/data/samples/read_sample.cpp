#include "heddle/data/samples/read_sample.h"

#include <algorithm>
#include <vector>

namespace heddle::data {

bool has_target(std::span<const float> weights) {
  return !weights.empty() && std::any_of(weights.begin() + 1, weights.end(), [](float w) { return w > 0; });
}

int64_t read_sample(const TokenFile& file, int64_t document, int64_t vocabulary, int64_t most, size_t at,
                    std::span<int32_t> tokens, const SequenceMarks& marks) {
  int64_t ends[2];
  file.document_begins(document, ends);
  const int64_t size = std::min(ends[1] - ends[0], most);
  if (size <= 0) return 0;
  const auto count = static_cast<size_t>(size);
  const auto ids = tokens.subspan(at, count);
  file.read(ends[0], ids);
  if (std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocabulary; }))
    file.check_ids(ends[0], size, vocabulary);
  if (!marks.masked.empty() || !marks.weights.empty()) {
    std::vector<float> weights(count);
    file.read_weights(ends[0], weights);
    weights[0] = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!marks.masked.empty()) marks.masked[at + i] = weights[i] == 0;
      if (!marks.weights.empty()) marks.weights[at + i] = weights[i];
    }
  }
  if (!marks.begins.empty()) {
    std::fill_n(marks.begins.begin() + static_cast<std::ptrdiff_t>(at), count, Begins::nothing);
    marks.begins[at] = Begins::sample;
  }
  return size;
}

void pad_samples(size_t at, std::span<int32_t> tokens, const SequenceMarks& marks) {
  const auto from = static_cast<std::ptrdiff_t>(at);
  std::fill(tokens.begin() + from, tokens.end(), -1);
  if (!marks.masked.empty()) std::fill(marks.masked.begin() + from, marks.masked.end(), uint8_t{1});
  if (!marks.weights.empty()) std::fill(marks.weights.begin() + from, marks.weights.end(), 0.0F);
  if (marks.begins.empty() || at == tokens.size()) return;
  std::fill(marks.begins.begin() + from, marks.begins.end(), Begins::nothing);
  marks.begins[at] = Begins::sample;
}

}  // namespace heddle::data
