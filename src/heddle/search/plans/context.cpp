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

// A run divides all ranks, and in hybrid the heads.
int64_t fitting_runs(const Job& j) {
  const int64_t cp = j.mesh.cp;
  return j.context == Context::hybrid ? std::gcd(heads_to_cut(j), cp) : cp;
}

// The longest run of neighbours, short of all ranks, in one fast domain, or without one the shortest; 1: none.
int usual_run(const Job& j) {
  const int most = std::clamp(j.device.inner.ranks / j.mesh.tp, 1, j.mesh.cp - 1);
  const int64_t fitting = fitting_runs(j);
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
  int64_t runs = 0;
  if (has_runs(job.context))
    runs = job.context_inner > 0 ? std::gcd(int64_t{job.context_inner}, fitting_runs(job))
                                 : plan::largest_divisor(fitting_runs(job), std::max(1, job.mesh.cp - 1));
  const bool all = runs == job.mesh.cp && runs > 1;
  if (runs == 1 || job.mesh.cp == 1 || (all && job.context == Context::double_ring)) job.context = Context::ring;
  if (all && job.context == Context::hybrid) job.context = Context::ulysses;
  job.context_inner = has_runs(job.context) ? static_cast<int>(runs) : 0;
}

std::vector<Job> with_each_context(const Job& job, const std::vector<std::string>& words) {
  std::vector<Job> all;
  if (job.mesh.cp == 1) return all;
  for (const std::string& word : words) {
    Job with = job;
    with.context = from_word<Context>(word);
    with.context_inner = has_runs(with.context) ? usual_run(with) : 0;
    if (with.context_inner == 1) continue;
    if (with.context == Context::ulysses && heads_to_cut(with) % with.mesh.cp != 0) continue;
    if (with.software.lowered != nullptr && !with.software.lowered->refusal(with).empty()) continue;
    all.push_back(std::move(with));
  }
  return all;
}

void choose_context(Job& job, const Job& asked, const Behaviour& behaviour, const std::vector<std::string>& words) {
  job.context = asked.context;
  job.context_inner = asked.context_inner;
  if (has_runs(job.context)) fit_context(job);
  double least = 0;
  for (const Job& with : with_each_context(job, words)) {
    const double seconds = block_of_way_s(with, behaviour);
    if (least > 0 && seconds >= least) continue;
    job.context = with.context;
    job.context_inner = with.context_inner;
    least = seconds;
  }
}

}  // namespace heddle::search
