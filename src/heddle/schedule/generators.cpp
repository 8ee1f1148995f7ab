#include "heddle/schedule/generators.h"

#include "heddle/base/error.h"
#include "heddle/schedule/gpipe.h"
#include "heddle/schedule/interleaved.h"
#include "heddle/schedule/one_f_one_b.h"
#include "heddle/schedule/zero_bubble_handmade.h"

namespace heddle::schedule {

const std::vector<Generator>& generators() {
  using Options = const GeneratorOptions&;
  static const std::vector<Generator> all = {
      {"gpipe", "all forwards, then all backwards", "arXiv 1811.06965", 1, false,
       [](Options o) { return gpipe(o.ranks, o.microbatches); }},
      {"1f1b", "one forward, one backward", "arXiv 2104.04473", 1, false,
       [](Options o) { return one_f_one_b(o.ranks, o.microbatches); }},
      {"interleaved", "1f1b over several chunks a rank (VPP)", "arXiv 2104.04473", 2, true,
       [](Options o) { return interleaved(o.ranks, o.chunks, o.microbatches, o.group); }},
      {"interleaved_fused", "interleaved, forward and backward woven in pairs", "Megatron-LM, combined 1F1B", 2,
       true, [](Options o) { return interleaved_fused(o.ranks, o.chunks, o.microbatches, o.group); }},
      {"zb_h1", "1f1b with weight gradients in the bubble, no more memory", "arXiv 2401.10241", 1, false,
       [](Options o) { return zb_h1(o.ranks, o.microbatches); }},
      {"zb_h2", "no bubble between steps, twice the memory", "arXiv 2401.10241", 1, false,
       [](Options o) { return zb_h2(o.ranks, o.microbatches); }},
  };
  return all;
}

std::vector<std::string> generator_names() {
  std::vector<std::string> names;
  for (const Generator& g : generators()) names.push_back(g.name);
  return names;
}

const Generator& find_generator(std::string_view name) {
  for (const Generator& g : generators()) {
    if (g.name == name) return g;
  }
  const std::vector<std::string> names = generator_names();
  const std::string near = did_you_mean(name, names);
  config_error("unknown schedule '{}'{}", name.substr(0, 60),
               near.empty() ? fmt::format(", accepted: {}", fmt::join(names, ", ")) : near);
}

Schedule make_schedule(std::string_view name, const GeneratorOptions& options) {
  const Generator& generator = find_generator(name);
  GeneratorOptions given = options;
  if (given.chunks == 0) given.chunks = generator.chunks;
  if (given.chunks != generator.chunks && !generator.any_chunks)
    config_error("{}: {} chunks a rank, accepted {}", generator.name, given.chunks, generator.chunks);
  if (given.ranks < 1 || given.ranks > kMostRanks)
    config_error("{}: {} ranks, accepted 1 to {}", generator.name, given.ranks, kMostRanks);
  return generator.make(given);
}

}  // namespace heddle::schedule
