// Every tensor of the step in fp64, as one rank computes it; and how far a step in the dump's dtype may be from it.
//
// The bound is a running error analysis by random rounding (Vignes, "A stochastic arithmetic for reliable
// scientific computation", 1993; Parker, "Monte Carlo arithmetic", 1997). The program is run again in fp64. Each
// number that an op makes is then off by a random part of itself, at most u + √k·2⁻²⁴. The first term is the
// rounding of a store in the dtype. The second is that of a sum of k terms in fp32, which grows with √k (Higham and
// Mary, "A new approach to probabilistic rounding error analysis", 2019). So the distance of such a run from the
// plain one follows from dtype, length of sums, depth and the condition of the values. A step is held to kMargin
// times the largest of kRuns such distances.
//
// A router chooses: where two experts' logits are as near as rounding, either choice is right. The choices that the
// dump tells are taken over (choices.h). Of others, two more runs turn all and half round, so that what follows is
// allowed too.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "check/choices.h"
#include "check/dump.h"
#include "check/modules.h"
#include "check/program_run.h"

namespace heddle::check {

inline constexpr int kRuns = 4;
inline constexpr double kMargin = 4;
inline constexpr double kRowMargin = 2 * kMargin;

/// Stage, name, and the microbatch's number in the whole step (−1: of the step).
using Key = std::tuple<Stage, std::string, int>;

struct Whole {
  std::vector<int64_t> dims;
  Numbers values;
  std::vector<Numbers> rounded;  // the same of each run with random rounding
  int order = 0;                 // in the program
};

class Reference {
 public:
  /// Runs the program for all that the dump's tensors are compared with. ConfigError for a tensor that the model
  /// does not have, and where Heddle does not train the model.
  explicit Reference(const Dump& dump);

  /// The whole tensor that a record is compared with.
  const Whole& of(const Record& record) const;
  Key key_of(const Record& record) const;
  /// A router's gradient where the one gate is divided by itself: nothing but rounding.
  bool cancels(const Record& record) const;
  const Whole* find(const Key& key) const;
  const model::ModelConfig& model() const { return dump_.layout.model; }
  const Dump& dump() const { return dump_; }
  const ReleasedNames& names() const { return names_; }
  const Weights& weights() const { return weights_; }
  const std::vector<Module>& modules() const { return modules_; }
  const Module* module(const std::string& name) const;
  /// Sequences with the weights of labels that the dump's loss asks for.
  const train::Sequences& sequences() const { return sequences_; }
  /// The factor of the next-token loss, and labels that count, by sequence.
  double loss_scale() const { return loss_scale_; }
  const std::vector<double>& labels() const { return labels_; }
  /// u + √k·2⁻²⁴ of the dump's dtype.
  double noise() const { return noise_; }
  /// Choices of experts that rounding decides and the dump does not tell.
  int64_t near_choices() const { return near_choices_; }
  /// Choices in which the reference follows the dump, for rounding decides them.
  int64_t taken_choices() const { return taken_choices_; }
  /// Makes the logits of a router on the rank at `at` give the choices of the reference.
  void keep_choices(std::string_view value, int microbatch, const ir::Coordinates& at, Captured& logits) const;
  /// The listing of one rank, whose ops have no fusion.
  const plan::Lowered& lowered() const { return lowered_; }

 private:
  void check_names() const;
  using Route = std::function<void(std::string_view value, int microbatch, Captured& logits)>;
  std::map<Key, Numbers> run(double noise, uint64_t seed, const Route& route) const;
  void run_all();
  void add_rounded();
  bool take_choices(const ChosenRows& given);
  void turn_choices();
  double near(const Whole& logits, size_t row) const;
  void take(std::map<Key, Numbers>& all, RankValues& values) const;
  void add_updates(std::map<Key, Numbers>& all) const;

  const Dump& dump_;
  ReleasedNames names_;
  Weights weights_;
  plan::Plan plan_;
  plan::Lowered lowered_;
  std::vector<Module> modules_;
  std::map<std::string, std::string> gradients_;  // of values, by the value
  train::Sequences sequences_;
  std::vector<double> labels_;
  double loss_scale_ = 0, noise_ = 0;
  int64_t near_choices_ = 0, taken_choices_ = 0;
  ChosenRows choices_;  // of the plain run, where the dump tells its own
  std::map<Key, Whole> wholes_;
};

/// AdamW's first step: what a gradient and a norm of all gradients make of a weight.
Numbers updated(const Numbers& weight, const Numbers& gradient, double norm, const Adamw& rule, bool decays);

}  // namespace heddle::check
