#include "heddle/schedule/generators/generators.h"

#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/schedule/generators/dual_pipe.h"
#include "heddle/schedule/generators/dual_pipe_v.h"
#include "heddle/schedule/generators/gpipe.h"
#include "heddle/schedule/generators/interleaved.h"
#include "heddle/schedule/generators/one_f_one_b.h"
#include "heddle/schedule/generators/v_pattern.h"
#include "heddle/schedule/generators/zb_v.h"
#include "heddle/schedule/generators/zero_bubble.h"
#include "heddle/schedule/generators/zero_bubble_handmade.h"

namespace heddle::schedule {

namespace {

ZeroBubbleOptions zero_bubble_options(const GeneratorOptions& options) {
  return {options.ranks, options.microbatches, {options.rank}, options.hop, 1, options.kept_for_w};
}

Outline searched_outline() {
  Outline o;
  o.passed_over = "its order follows from times that only a made plan has";
  return o;
}

}  // namespace

const std::vector<Generator>& generators() {
  using Options = const GeneratorOptions&;
  static const std::vector<Generator> all = {
      {"gpipe", "all forwards, then all backwards", "arXiv 1811.06965", 1, false,
       [](Options o) { return gpipe(o.ranks, o.microbatches); }, gpipe_outline()},
      {"1f1b", "one forward, one backward", "arXiv 2104.04473", 1, false,
       [](Options o) { return one_f_one_b(o.ranks, o.microbatches); }, one_f_one_b_outline()},
      {"interleaved", "1f1b over several chunks a rank (VPP)", "arXiv 2104.04473", 2, true,
       [](Options o) { return interleaved(o.ranks, o.chunks, o.microbatches, o.group); }, interleaved_outline()},
      {"interleaved_fused", "interleaved, forward and backward overlapped in pairs", "Megatron-LM, combined 1F1B",
       2, true, [](Options o) { return interleaved_fused(o.ranks, o.chunks, o.microbatches, o.group); },
       interleaved_fused_outline()},
      {"zb_h1", "1f1b with weight gradients in the bubble, no more memory", "arXiv 2401.10241", 1, false,
       [](Options o) { return zb_h1(o.ranks, o.microbatches); }, zb_h1_outline()},
      {"zb_h2", "no bubble between steps, twice the memory", "arXiv 2401.10241", 1, false,
       [](Options o) { return zb_h2(o.ranks, o.microbatches); }, zb_h2_outline()},
      {"zb_1p", "split backward, searched for the given times, 1f1b's memory", "arXiv 2401.10241", 1, false,
       [](Options o) { return zb_1p(zero_bubble_options(o)); }, searched_outline()},
      {"zb_2p", "split backward, searched for the given times, twice the memory", "arXiv 2401.10241", 1, false,
       [](Options o) { return zb_2p(zero_bubble_options(o)); }, searched_outline()},
      {"zb_v", "split backward on a V, no bubble between steps, 1f1b's memory", "arXiv 2405.15362", 2, false,
       [](Options o) { return zb_v(o.ranks, o.microbatches); }, zb_v_outline()},
      {"v_half", "split backward on a V, half of 1f1b's memory", "arXiv 2405.15362", 2, false,
       [](Options o) { return v_half(o.ranks, o.microbatches); }},
      {"v_min", "split backward on a V, a third of 1f1b's memory", "arXiv 2405.15362", 2, false,
       [](Options o) { return v_min(o.ranks, o.microbatches); }},
      {"dual_pipe", "fused pairs of two directions, weights twice", "arXiv 2412.19437", 1, false,
       [](Options o) { return dual_pipe(o.ranks, o.microbatches); }, dual_pipe_outline()},
      {"dual_pipe_v", "fused pairs on a V", "deepseek-ai/DualPipe", 2, false,
       [](Options o) { return dual_pipe_v(o.ranks, o.microbatches); }, dual_pipe_v_outline()},
      {"mindspeed_dual_pipe_v", "dual_pipe_v with whole backwards in the cool-down", "Ascend/MindSpeed", 2, false,
       [](Options o) { return mindspeed_dual_pipe_v(o.ranks, o.microbatches); }, mindspeed_dual_pipe_v_outline()},
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
    if (same_name(g.name, name)) return g;
  }
  const std::vector<std::string> names = generator_names();
  const std::string near = did_you_mean(name, names);
  config_error("unknown schedule '{}'{}", name.substr(0, 60),
               near.empty() ? fmt::format(", accepted: {}", fmt::join(names, ", ")) : near);
}

Schedule make_schedule(std::string_view name, const GeneratorOptions& options) {
  return make_schedule(find_generator(name), options);
}

Schedule make_schedule(const Generator& generator, const GeneratorOptions& options) {
  GeneratorOptions given = options;
  if (given.chunks == 0) given.chunks = generator.chunks;
  if (given.chunks != generator.chunks && !generator.any_chunks)
    config_error("{}: {} chunks a rank, accepted {}", generator.name, given.chunks, generator.chunks);
  if (given.ranks < 1 || given.ranks > kMostRanks)
    config_error("{}: {} ranks, accepted 1 to {}", generator.name, given.ranks, kMostRanks);
  return generator.make(given);
}

}  // namespace heddle::schedule
