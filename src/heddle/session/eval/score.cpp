#include "heddle/session/eval/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/base/error.h"
#include "heddle/train/evaluate.h"

namespace heddle::session {

namespace {

constexpr double kBound = 1.96;  // standard deviations within which 95 % of a normal distribution lie

// A sequence whose labels are not all asked for.
struct Scored {
  std::vector<int32_t> tokens;  // sequence_length + 1 + depths ids, padded by −1
  std::vector<uint8_t> masked;  // empty, or of each id: nonzero where it must not be predicted
};

// Ids of a context and what follows it, cut at the left to what the model sees. Blanks at the end of a context
// belong to what follows, for there tokenizers put them.
Scored scored(const TaskItem::Choice& choice, const data::Tokenizer& tokenizer, data::Encoder& encoder,
              size_t window, size_t width, bool& cut) {
  std::string context = choice.context, continuation = choice.continuation;
  const size_t end = context.find_last_not_of(' ');
  const size_t blanks = context.size() - (end == std::string::npos ? 0 : end + 1);
  continuation.insert(0, blanks, ' ');
  context.resize(context.size() - blanks);
  std::vector<data::TokenId> before = encoder.encode(context), ids = encoder.encode(context + continuation);
  if (before.empty()) {
    if (tokenizer.end_of_text() < 0)
      config_error("a choice without a context, and the tokenizer has no token that begins a text");
    before = {tokenizer.end_of_text()};
    ids.insert(ids.begin(), before[0]);
  }
  const size_t counted = std::min(ids.size() - std::min(before.size(), ids.size() - 1), window);
  cut = ids.size() > window + 1;
  if (cut) ids.erase(ids.begin(), ids.end() - static_cast<long>(window + 1));
  Scored row{.tokens = std::move(ids), .masked = {}};
  row.masked.assign(row.tokens.size() - counted, 1);
  row.tokens.resize(width, -1);
  row.masked.resize(width, 0);
  return row;
}

std::vector<double> scores(train::Trainer& trainer, std::span<const Scored> rows, const Progressed& progressed) {
  const auto at_once = static_cast<size_t>(std::max(1, trainer.options().plan.mesh.dp));
  std::vector<double> all;
  for (size_t first = 0; first < rows.size(); first += at_once) {
    train::Sequences some;
    for (const Scored& row : rows.subspan(first, std::min(at_once, rows.size() - first))) {
      some.tokens.push_back(row.tokens);
      some.masked.push_back(row.masked);
    }
    const std::vector<double> sums = train::score(trainer, some);
    all.insert(all.end(), sums.begin(), sums.end());
    if (progressed) progressed(std::ssize(all), std::ssize(rows));
  }
  return all;
}

// The first of the likeliest.
size_t likeliest(std::span<const double> losses) {
  return static_cast<size_t>(std::min_element(losses.begin(), losses.end()) - losses.begin());
}

}  // namespace

Estimate estimate(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Estimate e;
  if (values.empty()) return e;
  e.mean = e.low = e.high = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return e;
  double squares = 0;
  for (const double value : values) squares += (value - e.mean) * (value - e.mean);
  e.error = std::sqrt(squares / (n - 1) / n);
  e.low = e.mean - kBound * e.error;
  e.high = e.mean + kBound * e.error;
  return e;
}

Estimate share(int64_t count, int64_t all) {
  Estimate e;
  if (all <= 0) return e;
  const auto n = static_cast<double>(all);
  e.mean = static_cast<double>(count) / n;
  if (all > 1) e.error = std::sqrt(e.mean * (1 - e.mean) / (n - 1));
  const double z = kBound * kBound / n, middle = (e.mean + z / 2) / (1 + z);
  const double half = kBound / (1 + z) * std::sqrt(e.mean * (1 - e.mean) / n + z / (4 * n));
  e.low = std::max(0.0, middle - half);
  e.high = std::min(1.0, middle + half);
  return e;
}

double TextScore::perplexity() const { return std::exp(loss.mean); }
double TextScore::bits_per_byte() const {
  return bytes == 0 ? 0 : loss.mean * static_cast<double>(tokens) / std::log(2.0) / static_cast<double>(bytes);
}

std::vector<std::vector<int32_t>> windows_of(std::span<const data::TokenId> ids, const train::Trainer& trainer) {
  const int64_t length = trainer.options().plan.sequence_length, width = trainer.sequence_tokens();
  std::vector<std::vector<int32_t>> windows;
  for (int64_t first = 0; first + 1 < std::ssize(ids); first += length) {
    std::vector<int32_t>& window = windows.emplace_back(static_cast<size_t>(width), -1);
    // The depths of multi-token prediction are not asked for.
    const int64_t count = std::min(length + 1, std::ssize(ids) - first);
    std::copy_n(ids.begin() + first, count, window.begin());
  }
  return windows;
}

TextScore score_sequences(train::Trainer& trainer, const train::Sequences& sequences,
                          const Progressed& progressed) {
  const int64_t length = trainer.options().plan.sequence_length;
  std::vector<Scored> rows;
  std::vector<double> counts;
  TextScore score;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<uint8_t>* mask = sequences.mask_of(i);
    rows.push_back({.tokens = sequences.tokens[i], .masked = mask == nullptr ? std::vector<uint8_t>() : *mask});
    int64_t labels = 0;
    for (int64_t t = 1; t <= length; ++t) labels += sequences.is_target(i, static_cast<size_t>(t));
    counts.push_back(static_cast<double>(labels));
    score.tokens += labels;
  }
  score.windows = std::ssize(sequences.tokens);
  if (score.tokens == 0) config_error("no token to predict");
  const std::vector<double> losses = scores(trainer, rows, progressed);
  // A ratio of sums: each window's share of what its tokens have beyond the mean (the linearised ratio estimator).
  const auto tokens = static_cast<double>(score.tokens), windows = static_cast<double>(score.windows);
  const double mean = std::accumulate(losses.begin(), losses.end(), 0.0) / tokens;
  std::vector<double> beyond;
  for (size_t i = 0; i < losses.size(); ++i) beyond.push_back((losses[i] - mean * counts[i]) * windows / tokens);
  const double error = estimate(beyond).error;
  score.loss = {mean, error, mean - kBound * error, mean + kBound * error};
  return score;
}

TaskScore score_task(train::Trainer& trainer, const data::Tokenizer& tokenizer, const Task& task,
                     const Progressed& progressed) {
  const auto window = static_cast<size_t>(trainer.options().plan.sequence_length);
  const auto width = static_cast<size_t>(trainer.sequence_tokens());
  data::Encoder encoder(tokenizer);
  TaskScore score{.name = task.name, .items = std::ssize(task.items), .chosen = {}};
  std::vector<Scored> rows;
  for (const TaskItem& item : task.items) {
    for (const TaskItem::Choice& choice : item.choices) {
      bool cut = false;
      rows.push_back(scored(choice, tokenizer, encoder, window, width, cut));
      score.cut += cut;
    }
    score.chance += 1.0 / static_cast<double>(item.choices.size());
  }
  score.chance /= static_cast<double>(score.items);
  const std::vector<double> losses = scores(trainer, rows, progressed);
  int64_t right = 0, right_by_length = 0;
  size_t first = 0;
  for (const TaskItem& item : task.items) {
    const auto own = std::span(losses).subspan(first, item.choices.size());
    first += item.choices.size();
    std::vector<double> by_length;
    for (size_t i = 0; i < own.size(); ++i)
      by_length.push_back(own[i] / static_cast<double>(std::max<size_t>(1, item.choices[i].characters)));
    score.chosen.push_back(likeliest(own));
    right += score.chosen.back() == item.gold;
    right_by_length += likeliest(by_length) == item.gold;
  }
  score.accuracy = share(right, score.items);
  score.normalised = share(right_by_length, score.items);
  return score;
}

}  // namespace heddle::session
