#include "heddle/session/text/next_logits.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/train/logits.h"

namespace heddle::session {

namespace {

class Anew : public NextLogits {
 public:
  explicit Anew(train::Trainer& trainer) : trainer_(trainer) {}
  std::vector<std::vector<float>> after(std::span<const Asked> asked) override {
    std::vector<std::vector<float>> logits;
    for (const Asked& each : asked) logits.push_back(train::next_logits(trainer_, each.tokens));
    return logits;
  }

 private:
  train::Trainer& trainer_;
};

// Reading the whole sequence_length at once costs about as much as so many runs for single tokens: these read all
// weights for little work.
constexpr int64_t kPrefillInDecodes = 16;

class Cached : public NextLogits {
 public:
  explicit Cached(train::Trainer& trainer)
      : trainer_(trainer), held_(static_cast<size_t>(trainer.options().plan.cached_sequences)) {}

  std::vector<std::vector<float>> after(std::span<const Asked> asked) override {
    std::vector<std::vector<float>> logits(asked.size());
    std::vector<train::Placed> rows;
    std::vector<size_t> of;  // request of each row; the later row of the same one counts
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto [text, tokens] = asked[i];
      HEDDLE_CHECK(text >= 0 && text < std::ssize(held_) && !tokens.empty(), "no text {} in the cache", text);
      std::vector<int32_t>& held = held_[static_cast<size_t>(text)];
      const auto last = tokens.end() - 1;  // is read in any case, for what comes after it
      auto same = std::mismatch(held.begin(), held.end(), tokens.begin(), last).second - tokens.begin();
      // A state, or a convolution's last rows, goes on from all that it has read, or begins anew.
      const model::ModelConfig& model = trainer_.options().model;
      if ((model.recurs() || model.has_ngrams()) && same < std::ssize(held)) same = 0;
      held.assign(tokens.begin(), tokens.end());
      if ((std::ssize(tokens) - same) * kPrefillInDecodes > trainer_.options().plan.sequence_length) {
        logits[i] = train::prefill(trainer_, text, tokens);
        continue;
      }
      for (int64_t at = same; at < std::ssize(tokens); ++at) {
        rows.push_back({text, at, tokens[static_cast<size_t>(at)], tokens.first(static_cast<size_t>(at))});
        of.push_back(i);
      }
    }
    for (size_t first = 0; first < rows.size(); first += held_.size()) {
      const size_t count = std::min(held_.size(), rows.size() - first);
      std::vector<std::vector<float>> made = train::decode(trainer_, std::span(rows).subspan(first, count));
      for (size_t r = 0; r < count; ++r) logits[of[first + r]] = std::move(made[r]);
    }
    return logits;
  }

 private:
  train::Trainer& trainer_;
  std::vector<std::vector<int32_t>> held_;  // tokens by text whose rows are in the cache, from its beginning
};

}  // namespace

std::unique_ptr<NextLogits> logits_anew(train::Trainer& trainer) { return std::make_unique<Anew>(trainer); }
std::unique_ptr<NextLogits> logits_from_cache(train::Trainer& trainer) { return std::make_unique<Cached>(trainer); }

}  // namespace heddle::session
