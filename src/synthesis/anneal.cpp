#include "synthesis/anneal.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace heddle::schedule {

namespace {

bool is_forward(const Token& token) { return token.forward >= 0 && token.backward < 0; }
bool is_pair(const Token& token) { return token.forward >= 0 && token.backward >= 0; }
bool is_lone(const Token& token, Kind kind) { return token.forward < 0 && token.kind == kind; }

/// The forward at `f` and the input gradient at `i` with the weight gradient it lets run, as a pair where the later
/// of the two stood. False where there is no such weight gradient.
bool fuse(Word& word, size_t f, size_t i) {
  const auto at = [&](size_t place) { return word.begin() + static_cast<std::ptrdiff_t>(place); };
  const Token pair{word[f].forward, word[i].backward, Kind::B};
  const auto w = std::find(at(i), word.end(), Token{-1, pair.backward, Kind::W});
  if (w == word.end()) return false;
  word[std::max(f, i)] = pair;
  const size_t first = std::min<size_t>(std::min(f, i), static_cast<size_t>(w - word.begin()));
  const size_t second = std::max<size_t>(std::min(f, i), static_cast<size_t>(w - word.begin()));
  word.erase(at(second));
  word.erase(at(first));
  return true;
}

void take_apart(Word& word, size_t at, bool forward_first) {
  const Token token = word[at];
  Word parts{{-1, token.backward, Kind::I}, {-1, token.backward, Kind::W}};
  if (token.kind != Kind::B) parts = {{-1, token.backward, token.kind}};
  if (token.forward >= 0) parts.insert(forward_first ? parts.begin() : parts.end(), {token.forward, -1, Kind::F});
  word.erase(word.begin() + static_cast<std::ptrdiff_t>(at));
  word.insert(word.begin() + static_cast<std::ptrdiff_t>(at), parts.begin(), parts.end());
}

class Annealer {
 public:
  Annealer(Orders& orders, Words words, const AnnealOptions& options)
      : orders_(orders), words_(std::move(words)), options_(options), random_(options.seed) {}

  Words run() {
    now_ = cost(Orders::kNever);
    Words best = words_;
    double least = now_, sum = 0, tokens = 0;
    for (size_t r = 0; r < words_.size(); ++r) {
      for (const Token& token : words_[r]) sum += orders_.duration(static_cast<int>(r), token);
      tokens += static_cast<double>(words_[r].size());
    }
    constexpr double kHot = .03, kCold = .003;
    for (int64_t step = 0; step < options_.steps && tokens > 0; ++step) {
      if (options_.watch != nullptr && !options_.watch->goes_on(static_cast<int64_t>(tokens))) break;
      const double part = static_cast<double>(step) / static_cast<double>(options_.steps);
      const double heat = sum / tokens * kHot * std::pow(kCold / kHot, part);
      if (!propose()) continue;
      const double limit = now_ - heat * std::log(1 - uniform());
      const double then = cost(limit);
      if (then > limit) {
        std::swap(words_[rank_], before_);
        continue;
      }
      now_ = then;
      if (now_ < least) {
        least = now_;
        best = words_;
        if (options_.watch != nullptr) options_.watch->found(makespan_);
      }
    }
    return best;
  }

 private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  int below(size_t n) { return static_cast<int>(random_() % n); }

  /// A little of every rank's end, so that there is a slope where the last to end stays the same.
  double cost(double limit) {
    constexpr double kShare = .05;
    makespan_ = orders_.time(words_, limit);
    return makespan_ + kShare * orders_.sum_of_ends() / static_cast<double>(words_.size());
  }

  /// Changes one rank's word and keeps the former in before_; false, and nothing changed, where that isn't legal.
  bool propose() {
    rank_ = below(words_.size());
    Word& word = words_[rank_];
    if (word.size() < 2) return false;
    before_ = word;
    const bool changed = options_.pairs && below(4) == 0 ? change_pair(word) : move(word);
    if (changed && orders_.legal(rank_, word)) return true;
    std::swap(word, before_);
    return false;
  }
  int distance() {
    int distance = 1;
    while (distance < 12 && below(3) > 0) ++distance;
    return below(2) ? distance : -distance;
  }
  bool move(Word& word) {
    const int from = below(word.size()), to = from + distance();
    if (to < 0 || to >= std::ssize(word)) return false;
    const auto at = [&](int i) { return word.begin() + i; };
    if (*at(from) == *at(to)) return false;
    if (from < to) {
      std::rotate(at(from), at(from + 1), at(to + 1));
    } else {
      std::rotate(at(to), at(from), at(from + 1));
    }
    return true;
  }
  bool change_pair(Word& word) {
    const int at = below(word.size()), other = at + distance();
    const Token token = word[at];
    if (is_pair(token)) {
      take_apart(word, static_cast<size_t>(at), below(2) == 0);
      return true;
    }
    if (!is_forward(token) || other < 0 || other >= std::ssize(word)) return false;
    if (!is_lone(word[other], Kind::I)) return false;
    return fuse(word, static_cast<size_t>(at), static_cast<size_t>(other));
  }

  Orders& orders_;
  Words words_;
  AnnealOptions options_;
  std::mt19937_64 random_;
  int rank_ = 0;
  Word before_;
  double now_ = 0, makespan_ = 0;
};

}  // namespace

Words anneal(Orders& orders, Words words, const AnnealOptions& options) {
  return Annealer(orders, std::move(words), options).run();
}

Words taken_apart(Words words, bool pairs) {
  for (Word& word : words) {
    for (size_t at = 0; at < word.size(); ++at) {
      if (is_lone(word[at], Kind::B) || (is_pair(word[at]) && !pairs)) take_apart(word, at, true);
    }
  }
  return words;
}

Words fused(Orders& orders, Words words) {
  double least = orders.time(words);
  for (int r = 0; r < orders.ranks(); ++r) {
    Word& word = words[r];
    for (size_t at = 0; at + 1 < word.size(); ++at) {
      const size_t next = at + 1;
      const bool forward_first = is_forward(word[at]) && is_lone(word[next], Kind::I);
      if (!forward_first && !(is_forward(word[next]) && is_lone(word[at], Kind::I))) continue;
      Word before = word;
      if (!fuse(word, forward_first ? at : next, forward_first ? next : at)) continue;
      const double then = orders.legal(r, word) ? orders.time(words, least) : Orders::kNever;
      if (then <= least) {
        least = then;
      } else {
        word = std::move(before);
      }
    }
  }
  return words;
}

}  // namespace heddle::schedule
