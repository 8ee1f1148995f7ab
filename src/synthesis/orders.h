// All ranks' orders as words, for search: fast to change, to check and to time.
//
// A rank's microbatches are alike, so an order is a word of tokens (a forward of a chunk, a backward of a chunk, or
// both fused). The microbatch of each follows by counting. A rank must keep each microbatch's F before I before W
// and the cap in bytes by itself; this is checked word by word. The timing shows that all ranks can go on.
#pragma once

#include <limits>

#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"

namespace heddle::schedule {

struct OrderTask {
  Placement placement;  // with one route
  int microbatches = 1;
  Times times;
  std::vector<StageBytes> bytes;  // of each stage
  std::vector<double> cap_bytes;  // of each rank

  double activation_bytes(int stage) const {
    const StageBytes& of = bytes[stage];
    return of.until_input_grad + of.until_weight_grad;
  }
};

/// ConfigError unless there is a time and a size for each stage, and each rank's cap holds one microbatch of all
/// its stages.
void check(const OrderTask& task);

/// One action of a rank: a forward, a backward (I, W or B), or both.
struct Token {
  int8_t forward = -1, backward = -1;  // chunks
  Kind kind = Kind::F;                 // of the backward, if there is one
  bool operator==(const Token&) const = default;
};
using Word = std::vector<Token>;
using Words = std::vector<Word>;  // of each rank

Words words_of(const Schedule& schedule);
Schedule schedule_of(const OrderTask& task, const Words& words, std::string name);

class Orders {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  explicit Orders(const OrderTask& task);

  /// True if the word can be: F before I before W, a stage's Ws in order, no more bytes than the cap.
  bool legal(int rank, const Word& word) const {
    return peak_bytes(rank, word) <= task_.cap_bytes[rank] * (1 + 1e-9);
  }
  /// The most that the rank holds at a time; kNever for a word that can't be.
  double peak_bytes(int rank, const Word& word) const;
  /// The makespan; kNever if the ranks can't go on, or once it is sure to be above `limit`. All words must be
  /// legal.
  double time(const Words& words, double limit = kNever);
  /// The sum of ends of the words timed last.
  double sum_of_ends() const { return sum_of_ends_; }

  const OrderTask& task() const { return task_; }
  int ranks() const { return task_.placement.ranks; }
  int chunks(int rank) const { return static_cast<int>(stages_[rank].size()); }
  int stage(int rank, int chunk) const { return stages_[rank][chunk]; }
  double duration(int rank, const Token& token) const {
    const auto r = static_cast<size_t>(rank);
    return lengths_[r][length_at(token, stages_[r].size() + 1)];
  }
  /// Ranks on which a stage's F and I need something else first, or −1.
  int forward_from(int stage) const { return forward_from_[stage]; }
  int gradient_from(int stage) const { return gradient_from_[stage]; }

 private:
  struct Counts {
    int f = 0, i = 0, w = 0;
  };
  struct Lane {
    std::vector<Counts> counts;  // of each chunk
    size_t next = 0;
    double now = 0, left = 0;  // time; time of the tokens to come
  };
  /// The time when the needs of the token are there; negative where one isn't known yet, and then `rank` is noted
  /// for it.
  double ready(int rank, const Token& token);
  size_t cell(int stage, int microbatch) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(task_.microbatches) + static_cast<size_t>(microbatch);
  }

  static size_t length_at(const Token& token, size_t kinds) {
    const auto f = static_cast<size_t>(token.forward + 1), b = static_cast<size_t>(token.backward + 1);
    return (f * kinds + b) * 4 + static_cast<size_t>(token.kind);
  }

  const OrderTask& task_;
  std::vector<std::vector<double>> lengths_;  // of each rank's tokens
  std::vector<std::vector<int>> stages_;
  std::vector<int> forward_from_, gradient_from_;
  std::vector<Lane> lanes_;
  std::vector<double> end_f_, end_i_;   // by stage and microbatch, negative: not yet
  std::vector<int> waits_f_, waits_i_;  // the rank that waits for it, or −1
  std::vector<int> ready_ranks_;
  mutable std::vector<Counts> scan_;
  double sum_of_ends_ = 0;
};

}  // namespace heddle::schedule
