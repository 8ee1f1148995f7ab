// Finds links that are slower than others alike, by the exchanges of the steps themselves (link_times.h).
//
// In each window every link has a rate, fitted over its calls: the logarithm of the time, less what its bytes
// explain. Links within a node and between two are apart. Three excesses follow from medians of it:
//
//   pair  a link over the others of its busier end
//   rank  a rank's links over those without it, and over those of the ranks beside it on its node
//   node  a node's links to others over those without it
//
// So a slow node doesn't make its ranks slow, nor a slow rank its pairs. Excesses are compared with their own usual
// value, too: pieces have an order, and cables a length. Evidence adds up over windows by a sequential test (Page's
// CUSUM of the likelihood ratio, 15 % against none). It is capped, so that fewer than three windows never suffice.
// The bound counts all links, so that a thousand times as many windows as a run has raise no alarm by chance.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "heddle/session/slow/link_times.h"

namespace heddle::session {

enum class LinkScope : uint8_t { pair, rank, node };

struct SlowLink {
  LinkScope scope = LinkScope::pair;
  int a = 0, b = -1;  // two ranks; a rank; a node
  int64_t since = 0;  // the first step of the first window that counts against it
  double times = 1;   // its time over that of links alike, in the last window
  double transfer_s = 0;
};

class LinkFits {
 public:
  static constexpr double kSlow = 1.15;    // what the test looks for
  static constexpr double kLeast = 1.075;  // less counts for a link
  static constexpr int kWindows = 3;       // that are needed at least, and that end it
  static constexpr int kUsualWindows = 8;  // after which a link's own past is known

  /// `node_of`: each rank's node.
  explicit LinkFits(std::vector<int> node_of) : node_of_(std::move(node_of)) {}

  /// A window's times, and its first step.
  void add(int64_t first_step, std::span<const LinkTime> times);

  /// After a window: what was found slow with it, and what is so no more.
  const std::vector<SlowLink>& found() const { return found_; }
  const std::vector<SlowLink>& ended() const { return ended_; }
  /// All that are slow.
  std::vector<SlowLink> slow() const;

 private:
  using Key = std::tuple<bool, LinkScope, int, int>;  // between nodes, what, its numbers
  struct Excess {
    Key key;
    double log_times = 0, chance = 0, log_s = 0;
  };
  struct Track {
    double usual = 0;                            // of its excess
    int known = 0;                               // windows
    std::vector<double> first;                   // excesses of the first windows
    double scatter = 0;                          // of a window's excess
    double beside_others = 0, beside_usual = 0;  // evidence of both comparisons
    int windows = 0, quiet = 0;
    int64_t since = 0;
    std::optional<SlowLink> slow;
  };
  std::vector<Excess> excesses(bool across, std::span<const LinkTime> links) const;
  static void learn(Track& track, double log_times);
  void judge(int64_t first_step, const std::vector<Excess>& of_scope, double bound);

  std::vector<int> node_of_;
  std::map<Key, Track> tracks_;
  std::vector<SlowLink> found_, ended_;
};

}  // namespace heddle::session
