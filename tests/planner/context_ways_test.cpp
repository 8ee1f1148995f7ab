#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/planner/simulated_plans.h"
#include "heddle/search/plans/context.h"
#include "tests/support/published_job.h"

namespace heddle::planner {
namespace {

struct WaysCase {
  const char *model, *device;
  int cp;
  double sequence;
};

// Four layers of the model, the dense ones of a mixture, on ranks of cp alone.
search::Query query_of_ways(const WaysCase& c) {
  search::Query q;
  search::Job& j = q.space.job;
  j = search::job_of(c.model, c.device, {}, 1, 1);
  j.shape.num_hidden_layers = j.shape.first_k_dense_replace = 4;
  j.shape.num_nextn_predict_layers = 0;
  j.sequence = c.sequence;
  q.space.devices = c.cp;
  q.memory_bytes = 900.0 * (1 << 30);
  q.threads = 1;
  search::Restriction& only = q.space.restriction;
  only.cp = {c.cp};
  only.recompute = {"none"};
  only.context = search::context_words();
  return q;
}

// Whatever the closed forms take for the shortest, the plan has the way whose whole program is.
TEST(ContextWays, AreChosenAsSimulated) {
  int otherwise = 0;
  for (const WaysCase& c : {WaysCase{"Llama-3-70B", "H100", 16, 32768},
                            {"Llama-3-70B", "H100", 16, 131072},
                            {"DeepSeek-V3", "H100", 16, 8192},
                            {"DeepSeek-V3", "H100", 16, 32768},
                            {"DeepSeek-V3", "H100", 16, 131072},
                            {"Llama-3-70B", "H100", 4, 8192},
                            {"DeepSeek-V3", "H100", 8, 65536},
                            {"Llama-3-70B", "H100", 32, 262144},
                            {"Llama-3-70B", "Ascend-910C", 4, 8192},
                            {"Llama-3-70B", "Ascend-910C", 8, 32768},
                            {"DeepSeek-V3", "Ascend-910C", 32, 131072},
                            {"DeepSeek-V3", "Ascend-910C", 16, 16384}}) {
    search::Query q = query_of_ways(c);
    const auto blocks = lowered_blocks(q.space.job);
    ASSERT_NE(blocks, nullptr);
    q.space.job.software.lowered = blocks.get();
    const auto by_closed_forms = [](const search::Query& asked) { return search::search(asked); };
    const search::Ranked closed = by_closed_forms(q).top.at(0);
    search::Answer answer;
    if (closed.job.device.family == cost::Family::ascend) {  // no backend: nothing to count
      answer = by_closed_forms(q);
      simulate_ways(answer, q, [](const search::Ranked&, double) { return true; });
    } else {
      answer = heddle_plans(q, by_closed_forms);
    }
    const search::Ranked& best = answer.top.at(0);
    otherwise += best.job.context != closed.job.context;
    double least_s = 0;
    for (const search::Job& job : search::with_each_context(best.job, q.space.restriction.context)) {
      const double step_s = simulated_step_s(search::launch_of(search::timed_anew(best, job, q.behaviour)), {});
      EXPECT_GE(step_s, best.simulated_step_s) << c.model << c.sequence << word_of(job.context);
      if (least_s == 0 || step_s < least_s) least_s = step_s;
    }
    EXPECT_EQ(best.simulated_step_s, least_s) << c.model << c.sequence << word_of(best.job.context);
    EXPECT_NEAR(best.exact.step_s, search::timed_anew(best, best.job, q.behaviour).exact.step_s, 1e-12);
  }
  EXPECT_GT(otherwise, 1);
}

// A shorter way whose program does not fit is left out, and one that is asked for alone stays.
TEST(ContextWays, HaveToFit) {
  search::Query q = query_of_ways({"Llama-3-70B", "H100", 16, 32768});
  const auto blocks = lowered_blocks(q.space.job);
  q.space.job.software.lowered = blocks.get();
  const search::Answer closed = search::search(q);
  const model::Context way = closed.top.at(0).job.context;
  search::Answer kept = closed;
  simulate_ways(kept, q, [](const search::Ranked&, double) { return false; });
  EXPECT_EQ(kept.top.at(0).job.context, way);
  EXPECT_GT(kept.top.at(0).simulated_step_s, 0);
  search::Answer other = closed;
  simulate_ways(other, q, [](const search::Ranked&, double) { return true; });
  EXPECT_NE(other.top.at(0).job.context, way);
  EXPECT_LT(other.top.at(0).simulated_step_s, kept.top.at(0).simulated_step_s);
  q.space.restriction.context = {std::string(word_of(way))};
  search::Answer alone = closed;
  simulate_ways(alone, q, [](const search::Ranked&, double) { return true; });
  EXPECT_EQ(alone.top.at(0).job.context, way);
  EXPECT_EQ(alone.top.at(0).simulated_step_s, 0);
}

}  // namespace
}  // namespace heddle::planner
