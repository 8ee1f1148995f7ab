#include "heddle/simulate/fold.h"

#include <algorithm>
#include <numeric>

namespace heddle::simulate {

namespace {

using Signature = std::vector<int>;

// Numbers signatures in the order of the ranks that bear them.
class Numbers {
 public:
  int of(const Signature& signature) {
    return known_.try_emplace(signature, static_cast<int>(known_.size())).first->second;
  }
  size_t size() const { return known_.size(); }

 private:
  std::map<Signature, int> known_;
};

}  // namespace

bool is_line(const std::string& channel) { return channel.ends_with(".forward") || channel.ends_with(".backward"); }

Fold unfolded(size_t ranks) {
  Fold made;
  made.kind_of.resize(ranks);
  std::iota(made.kind_of.begin(), made.kind_of.end(), 0);
  made.first = made.kind_of;
  made.count.assign(ranks, 1);
  return made;
}

Fold fold(const std::vector<int>& alike, const Groups& groups, const std::vector<std::vector<int>>& shared) {
  const size_t ranks = alike.size();
  std::vector<int> kind(ranks);
  Numbers numbers;
  for (size_t r = 0; r < ranks; ++r) kind[r] = numbers.of({alike[r]});
  for (size_t before = 0; numbers.size() > before;) {
    before = numbers.size();
    std::vector<Signature> signature(ranks);
    for (size_t r = 0; r < ranks; ++r) signature[r].push_back(kind[r]);
    Numbers companies;  // the kinds of a group, a machine or a host
    for (const auto& [channel, of_channel] : groups) {
      std::vector<int> company(ranks, -1), place(ranks, 0);
      for (const std::vector<int>& members : of_channel) {
        Signature kinds;
        for (const int rank : members) kinds.push_back(kind[rank]);
        const int number = companies.of(kinds);
        for (size_t i = 0; i < members.size(); ++i) {
          company[members[i]] = number;
          if (is_line(channel)) place[members[i]] = static_cast<int>(i);
        }
      }
      for (size_t r = 0; r < ranks; ++r) {
        signature[r].push_back(company[r]);
        signature[r].push_back(place[r]);
      }
    }
    for (const std::vector<int>& place_of : shared) {
      if (place_of.empty()) continue;
      std::map<int, Signature> kinds_on;
      for (size_t r = 0; r < ranks; ++r) kinds_on[place_of[r]].push_back(kind[r]);
      for (auto& [place, kinds] : kinds_on) std::sort(kinds.begin(), kinds.end());
      for (size_t r = 0; r < ranks; ++r) signature[r].push_back(companies.of(kinds_on.at(place_of[r])));
    }
    numbers = {};
    for (size_t r = 0; r < ranks; ++r) kind[r] = numbers.of(signature[r]);
  }
  Fold made;
  made.kind_of = kind;
  made.count.assign(numbers.size(), 0);
  made.first.assign(numbers.size(), -1);
  for (size_t r = 0; r < ranks; ++r) {
    const auto k = static_cast<size_t>(kind[r]);
    if (made.count[k]++ == 0) made.first[k] = static_cast<int>(r);
  }
  return made;
}

}  // namespace heddle::simulate
