#include "heddle/train/agreement.h"

#include <algorithm>
#include <map>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"

namespace heddle::train {

namespace {

// Between a name, its value and the next: control characters, which settings have escaped.
constexpr char kBetween = '\x1f', kEnd = '\x1e';

std::string joined_lines(const NamedInputs& inputs) {
  std::string text;
  for (const auto& [name, value] : inputs) text += name + kBetween + value + kEnd;
  return text;
}

NamedInputs parted(const std::string& text) {
  NamedInputs inputs;
  for (size_t at = 0; at < text.size();) {
    const size_t between = std::min(text.find(kBetween, at), text.size());
    const size_t end = std::min(text.find(kEnd, between), text.size());
    inputs.emplace_back(text.substr(at, between - at), text.substr(std::min(between + 1, end), end - between - 1));
    at = end + 1;
  }
  return inputs;
}

}  // namespace

std::string difference(RankExchange& ranks, const NamedInputs& inputs) {
  if (ranks.size() == 1) return "";
  const std::string mine = joined_lines(inputs);
  const auto hash = static_cast<double>(hash_bytes(mine) >> 11);  // exact in a double
  std::vector<double> hashes(static_cast<size_t>(ranks.size()), 0);
  hashes[static_cast<size_t>(ranks.rank())] = hash;
  ranks.sum(hashes);
  if (std::ranges::all_of(hashes, [&](double other) { return other == hashes[0]; })) return "";
  const std::vector<std::string> all = ranks.share(mine);
  const NamedInputs first = parted(all[0]);
  for (int r = 1; r < ranks.size(); ++r) {
    const NamedInputs other = parted(all[static_cast<size_t>(r)]);
    const std::map<std::string, std::string> here(first.begin(), first.end()), there(other.begin(), other.end());
    const auto shown = [](const std::map<std::string, std::string>& values, const std::string& name) {
      const auto at = values.find(name);
      return at == values.end() ? "nothing" : at->second;
    };
    for (const NamedInputs* names : {&first, &other}) {
      for (const auto& [name, value] : *names) {
        if (shown(here, name) == shown(there, name)) continue;
        return fmt::format("{} is {} on rank 0 and {} on rank {}", name, shown(here, name), shown(there, name), r);
      }
    }
  }
  internal_error("what ranks received differs in its hash alone");
}

void agree(RankExchange& ranks, const NamedInputs& inputs) {
  if (const std::string found = difference(ranks, inputs); !found.empty())
    config_error("the ranks received different things: {}", found);
}

}  // namespace heddle::train
