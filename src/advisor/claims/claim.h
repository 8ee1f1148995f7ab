// The book of claims: figures that other systems publish about training large models, each beside what Heddle
// computes for its setting and what was measured here. The rows are data (claims.json), which the build puts into
// the program. What is computed is computed at every call, by a function of the row's name (computed.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/words.h"

namespace heddle::advisor {

/// The text of claims.json.
extern const std::string_view kBuiltInClaims;

/// How a figure is read: 0.15 is +15 % as a gain, 15 % as a share.
enum class ClaimUnit : uint8_t { gain, share, times, count, seconds };
constexpr auto words_of(ClaimUnit) {
  return std::to_array<Word<ClaimUnit>>({{ClaimUnit::gain, "gain"},
                                         {ClaimUnit::share, "share"},
                                         {ClaimUnit::times, "times"},
                                         {ClaimUnit::count, "count"},
                                         {ClaimUnit::seconds, "seconds"}});
}

/// Which of two figures is ahead; `same` is a fact that a prediction should meet.
enum class BetterWhen : uint8_t { higher, lower, same };
constexpr auto words_of(BetterWhen) {
  return std::to_array<Word<BetterWhen>>(
      {{BetterWhen::higher, "higher"}, {BetterWhen::lower, "lower"}, {BetterWhen::same, "same"}});
}

enum class Verdict : uint8_t { beyond, level, weaker };
constexpr auto words_of(Verdict) {
  return std::to_array<Word<Verdict>>(
      {{Verdict::beyond, "beyond"}, {Verdict::level, "level"}, {Verdict::weaker, "weaker"}});
}

struct Range {
  double low = 0, high = 0;
};

struct Measured : Range {
  std::string setting;  // what ran
  std::string command;  // that measures it again
  std::string page;     // where its figures stand, below docs/
  std::string date;     // of the measurement, or of the page's
};

struct Claim {
  std::string name;     // "merging"
  std::string system;   // that publishes it: MindSpeed, MindSpore, MXMACA, others
  std::string what;     // ratio of what over what
  std::string setting;  // model, devices, layout: ours where the source doesn't say, and then marked "(ours)"
  std::string source;
  ClaimUnit unit = ClaimUnit::gain;
  BetterWhen better = BetterWhen::higher;
  Range published;
  std::string by;  // estimate, schedule, program, rates; empty: not computed
  std::optional<Measured> measured;
  std::string reason;  // of the verdict, where figures alone don't explain it
};

/// All rows of the book. InternalError where the book is no list of claims.
const std::vector<Claim>& claims();

/// A row's figure as Heddle computes it; nothing where it computes none.
std::optional<double> compute(const Claim& claim);

/// Returns how ours stands beside the published figure. Ours is what was measured, or else what is computed. Each
/// end counts as met from 95 % of it on; `beyond` is more than 5 % ahead of the better end. A fact is met within a
/// quarter of it.
Verdict verdict_of(const Claim& claim, std::optional<double> computed);

}  // namespace heddle::advisor
