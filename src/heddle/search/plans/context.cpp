#include "heddle/search/plans/context.h"

#include <algorithm>
#include <numeric>

#include "heddle/plan/divisors.h"
#include "heddle/search/block_work.h"
#include "heddle/search/lowered_blocks.h"

namespace heddle::search {

namespace {

using model::Context;

// The heads that ranks of cp can cut among them: of a rank of tp, of queries and of keys.
int64_t heads_to_cut(const Job& j) {
  const model::Shape& s = j.shape;
  const int64_t heads =
      s.is_latent() ? s.num_attention_heads : std::gcd(s.num_attention_heads, s.num_key_value_heads);
  return heads % j.mesh.tp == 0 ? heads / j.mesh.tp : 1;
}

// The longest run of neighbours, short of all ranks, in one fast domain, or without one the shortest; 1: none.
int run_of_hybrid(const Job& j) {
  const int most = std::clamp(j.device.inner.ranks / j.mesh.tp, 1, j.mesh.cp - 1);
  const int64_t fitting = std::gcd(heads_to_cut(j), int64_t{j.mesh.cp});
  int run = static_cast<int>(plan::largest_divisor(fitting, most));
  for (int n = 2; run == 1 && n < j.mesh.cp; ++n)
    if (fitting % n == 0) run = n;
  return run;
}

double block_of_way_s(const Job& j, const Behaviour& b) {
  const auto both_s = [&](const BlockWork& work) {
    return block_s(work.forward, j, b) + block_s(work.backward, j, b);
  };
  if (j.software.lowered == nullptr) return both_s(Pricing(j, b).attention());
  const Prices& prices = j.software.lowered->prices(j, b);  // attention is a part of each layer
  return both_s(prices.attention) + both_s(prices.dense) + both_s(prices.moe);
}

}  // namespace

std::vector<std::string> context_words() {
  std::vector<std::string> words = all_words<Context>();
  std::erase(words, word_of(Context::gather));
  return words;
}

void fit_context(Job& job) {
  int64_t runs = job.context == Context::hybrid ? std::gcd(job.context_inner, job.mesh.cp) : 0;
  if (runs > 1) runs = std::gcd(runs, heads_to_cut(job));
  if (runs == 1 || job.mesh.cp == 1) job.context = Job().context;
  if (runs == job.mesh.cp && runs > 1) job.context = Context::ulysses;
  job.context_inner = job.context == Context::hybrid ? static_cast<int>(runs) : 0;
}

void choose_context(Job& job, const Job& asked, const Behaviour& behaviour, const std::vector<std::string>& words) {
  job.context = asked.context;
  job.context_inner = asked.context_inner;
  if (job.context == Context::hybrid) fit_context(job);
  if (job.mesh.cp == 1 || words.empty()) return;
  Job best = job;
  double least = 0;
  for (const std::string& word : words) {
    Job with = job;
    with.context = from_word<Context>(word);
    with.context_inner = with.context == Context::hybrid ? run_of_hybrid(with) : 0;
    if (with.context == Context::hybrid && with.context_inner == 1) continue;
    if (with.context == Context::ulysses && heads_to_cut(with) % with.mesh.cp != 0) continue;
    if (with.software.lowered != nullptr && !with.software.lowered->refusal(with).empty()) continue;
    const double seconds = block_of_way_s(with, behaviour);
    if (least > 0 && seconds >= least) continue;
    best = with;
    least = seconds;
  }
  job.context = best.context;
  job.context_inner = best.context_inner;
}

}  // namespace heddle::search
