#include "heddle/data/content_hash.h"

#include <algorithm>
#include <vector>

#include "heddle/base/hash.h"

namespace heddle::data {

namespace {

constexpr int64_t kPart = 1 << 16;  // numbers hashed at once
constexpr int64_t kMostParts = kTokensHashedWhole / kPart;

template <class T>
uint64_t hash_of(const std::vector<T>& numbers, size_t count, uint64_t before) {
  return hash_bytes({reinterpret_cast<const char*>(numbers.data()), count * sizeof(T)}, before);
}

}  // namespace

uint64_t content_hash(const TokenFile& file) {
  uint64_t hash = static_cast<uint64_t>(file.tokens());
  std::vector<int64_t> begins(static_cast<size_t>(kPart));
  for (int64_t first = 0; first <= file.documents(); first += kPart) {
    const auto count = static_cast<size_t>(std::min(kPart, file.documents() + 1 - first));
    for (size_t i = 0; i < count; ++i) begins[i] = file.document_begin(first + static_cast<int64_t>(i));
    hash = hash_of(begins, count, hash);
  }
  const int64_t parts = (file.tokens() + kPart - 1) / kPart, hashed = std::min(parts, kMostParts);
  std::vector<TokenId> ids(static_cast<size_t>(kPart));
  std::vector<float> weights;
  for (int64_t i = 0; i < hashed; ++i) {
    const int64_t part =
        hashed == 1 ? 0 : static_cast<int64_t>(static_cast<__int128>(i) * (parts - 1) / (hashed - 1));
    const auto count = static_cast<size_t>(std::min(kPart, file.tokens() - part * kPart));
    file.read(part * kPart, std::span(ids).first(count));
    hash = hash_of(ids, count, hash);
    if (!file.has_weights()) continue;
    weights.resize(count);
    file.read_weights(part * kPart, weights);
    // Weights of 0 and 1 are hashed as the bytes that they are.
    hash = file.has_any_weights() ? hash_of(weights, count, hash)
                                  : hash_of(std::vector<uint8_t>(weights.begin(), weights.end()), count, hash);
  }
  return hash;
}

}  // namespace heddle::data
