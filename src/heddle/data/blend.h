// Several texts read in given shares: a place maps to a sequence of a text.
//
// It is a pure function of weights and place. The texts, heaviest first, are halved again and again as evenly by
// weight as that order allows. At each half the first n sequences are dealt so that the left side has n times its
// share, rounded. A side of several texts has at most 3/4 of what is halved. So after any number of sequences each
// text has had its share of them to within two. Nothing is drawn at random, and nothing is stored or replayed to go
// on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::data {

class Blend {
 public:
  struct Place {
    size_t part;
    int64_t index;  // among the part's own
  };

  /// Weights are whole numbers; only what they are to each other counts.
  explicit Blend(std::vector<int64_t> weights);

  Place at(int64_t place) const;
  /// Number of the first `places` that are the part's.
  int64_t count(size_t part, int64_t places) const;
  size_t parts() const { return weights_.size(); }
  double share(size_t part) const;

 private:
  struct Node {
    size_t begin, middle, end;  // ranks [begin, middle) are the left side
    size_t left = 0, right = 0;
  };
  size_t grow(size_t begin, size_t end);
  int64_t weight(size_t begin, size_t end) const;
  int64_t left_of(const Node& node, int64_t places) const;

  std::vector<int64_t> weights_;
  std::vector<size_t> part_of_, rank_of_;  // ranks by weight
  std::vector<int64_t> sums_;              // of the weights of the ranks before each
  std::vector<Node> nodes_;
};

/// A text of a blend as it is written: "0.7 PATH 0.3 PATH", as Megatron-LM's --data-path has it.
struct BlendPart {
  std::string path;
  int64_t weight = 1;
};

/// One part of weight 1 unless the text begins with a number and a space. ConfigError for what is neither.
std::vector<BlendPart> parse_blend(std::string_view text);

inline constexpr size_t kMostBlendParts = 256;

}  // namespace heddle::data
