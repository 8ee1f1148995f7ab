// A model whose sequences are cut among ranks of cp, on the host's fast kernels: against one rank, and the bits of
// a layout woven or not, on one thread and on two.
#include <gtest/gtest.h>

#include "tests/simulate/tiny_step.h"
#include "tests/support/relative.h"
#include "tests/support/usual_start.h"

namespace heddle {
namespace {

using test::relative;

constexpr int64_t kSequence = 512;  // chunks of cp 2 are as long as the longest block of a kernel

struct Features {
  const char* name;
  bool latent = false;
  int64_t window = 0;
  bool documents = false, sinks = false;
  double dropout = 0;
};
constexpr Features kFeatures[] = {{.name = "latent", .latent = true},
                                  {.name = "windows in one layer", .window = 300},
                                  {.name = "documents and sinks", .documents = true, .sinks = true},
                                  {.name = "dropout", .latent = true, .dropout = 0.2}};

// No experts: a score that rounds otherwise would send a row elsewhere.
model::ModelConfig dense(const Features& f) {
  model::ModelConfig c = f.latent ? test::tiny_model() : test::tiny_grouped_model();
  c.first_k_dense_replace = c.num_hidden_layers;
  c.max_position_embeddings = kSequence;
  c.sliding_window = f.window;
  if (f.window > 0) c.max_window_layers = 1;
  c.attention_sinks = f.sinks;
  c.attention_dropout = f.dropout;
  return c;
}

plan::Plan plan_of(const Features& f, int cp, model::Context context, Dtype dtype) {
  plan::Plan plan;
  if (f.documents) plan.document_end = 0;
  plan.mesh.cp = cp;
  plan.parallel.context = context;
  plan.microbatches = 2;
  plan.sequence_length = kSequence;
  plan.dtype = dtype;
  return plan;
}

using Gradients = std::map<std::string, std::vector<double>>;
Gradients gradients(const model::ModelConfig& c, const plan::Plan& plan, int threads = 1) {
  test::TinyRun run(c, plan, "host", int64_t{1} << 26, threads);
  run.fill(test::UsualStart(c, kSequence, 5));
  run.run(test::tiny_batches(c, plan, 5));
  for (int r = 0; r < plan.ranks(); ++r) {
    const ir::Listing& listing = run.listing(r);
    for (uint32_t i = 0; i < listing.ops.size(); ++i) {
      if (!listing.ops[i].kind().starts_with("attention")) continue;
      if (listing.ops[i].kind().starts_with("attention_sinks")) continue;  // a sum that the reference makes
      const kernels::KernelEntry* kernel = run.executor(r).kernel(run.listing_of(r), i);
      EXPECT_EQ(kernel->backend, "host") << listing.ops[i].kind();
    }
  }
  Gradients found;
  for (const model::Parameter& p : run.parameters(0)) {
    if (p.trained) found[p.name] = run.whole("grad.", p.name);
  }
  found["loss"] = {run.total("loss.next_token")};
  return found;
}

void check(Dtype dtype, double tolerance) {
  for (const Features& f : kFeatures) {
    const model::ModelConfig c = dense(f);
    const Gradients one = gradients(c, plan_of(f, 1, model::Context::gather, dtype));
    for (const model::Context context :
         {model::Context::gather, model::Context::ring, model::Context::hybrid, model::Context::double_ring}) {
      SCOPED_TRACE(fmt::format("{} {}", f.name, word_of(context)));
      plan::Plan plan = plan_of(f, has_runs(context) ? 4 : 2, context, dtype);
      const Gradients found = gradients(c, plan);
      for (const auto& [name, wanted] : one) {
        ASSERT_EQ(found.at(name).size(), wanted.size()) << name;
        EXPECT_LT(relative(found.at(name), wanted), tolerance) << name;
      }
      EXPECT_EQ(gradients(c, plan, 2), found) << "on two threads";
      plan.parallel.weave = plan::Weave::off;
      EXPECT_EQ(gradients(c, plan), found) << "not woven";
    }
  }
}

TEST(ContextKernels, EqualOneRankInFp32) { check(Dtype::f32, 2e-5); }
TEST(ContextKernels, EqualOneRankInBf16) { check(Dtype::bf16, 5e-2); }

}  // namespace
}  // namespace heddle
