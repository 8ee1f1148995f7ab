#include "tests/parity/exact_run.h"

#include <cmath>

#include "heddle/base/random.h"
#include "heddle/kernels/registry.h"
#include "heddle/model/rope_table.h"
#include "tests/parity/parity.h"

namespace heddle::parity {

namespace {

constexpr int64_t kSequence = 16;
constexpr int kMicrobatches = 8;  // of one sequence, in the whole batch
constexpr int kSteps = 20;
constexpr int64_t kArenaBytes = 1 << 24;

device::Batch batch_for(const plan::Plan& plan, int data_rank, int step) {
  device::Batch batch;
  const RandomKey key = RandomKey(7).with(static_cast<uint64_t>(step));
  for (int m = 0; m < plan.microbatches; ++m) {
    device::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < kSequence + 1; ++i) {
      const auto at = static_cast<uint64_t>((m * plan.mesh.dp + data_rank) * (kSequence + 1) + i);
      // Few kinds of token, so that routing is uneven and experts go without rows.
      micro.tokens.push_back(static_cast<int32_t>(key.bits(at) % (step % 3 == 0 ? 5 : 48)));
    }
  }
  const double tokens = static_cast<double>(kMicrobatches * kSequence);
  batch.scales = {1 / tokens, 1.0 / kMicrobatches, 1 / tokens};
  batch.hyper = {1e-2, 1 - std::pow(0.9, step + 1), 1 - std::pow(0.95, step + 1)};
  return batch;
}

}  // namespace

model::ModelConfig exact_model() {
  model::ModelConfig c;
  c.vocab_size = 48;
  c.hidden_size = 16;
  c.num_hidden_layers = 3;
  c.first_k_dense_replace = 1;
  c.intermediate_size = 24;
  c.num_attention_heads = 2;
  c.q_lora_rank = 8;
  c.kv_lora_rank = 8;
  c.qk_nope_head_dim = 6;
  c.qk_rope_head_dim = 4;
  c.v_head_dim = 6;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 3;
  c.moe_intermediate_size = 12;
  c.sequence_aux_loss_alpha = 0.01;
  c.z_loss_weight = 0.001;
  return c;
}

plan::Plan exact_plan(const plan::Degrees& mesh, const ExactSetting& setting) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.microbatches = kMicrobatches / mesh.dp;
  plan.sequence_length = kSequence;
  plan.dtype = setting.dtype;
  plan.exact_sums = setting.exact;
  plan.exchange.topology = setting.topology;
  plan.schedule = setting.schedule;
  plan.update.bucket_bytes = 4000;
  plan.update.clip_norm = 0.05;  // clips
  if (setting.backend == "host") {
    plan.packed_bytes = [](const ir::Value& weight) { return kernels::packed_weight_bytes("host", weight); };
  }
  return plan;
}

void run_exact(test::RankRun& run, const plan::Plan& plan) {
  const std::vector<double> table = model::rope_table(exact_model(), kSequence);
  run.fill([&](const model::Parameter& p, int64_t i) {
    switch (p.start) {
      case model::Parameter::Start::rope_table: return table[static_cast<size_t>(i)];
      case model::Parameter::Start::ones: return 1.0;
      case model::Parameter::Start::zeros: return 0.0;
      default: return 0.3 * RandomKey(3).with(p.name).normal(static_cast<uint64_t>(i));
    }
  });
  for (int step = 0; step < kSteps; ++step) {
    run.executor().run_step(batch_for(plan, run.place().at(ir::Axis::dp), step));
  }
}

std::map<std::string, std::vector<double>> train_on(comm::World& world, const plan::Degrees& degrees,
                                                    const ExactSetting& setting) {
  const plan::Plan plan = exact_plan(degrees, setting);
  const plan::Mesh mesh(degrees);
  const plan::Lowered lowered = plan::lower(exact_model(), plan);
  test::RankRun run(plan, mesh, lowered, world, setting.backend, kArenaBytes);
  run_exact(run, plan);
  const plan::Lowered single = plan::lower(exact_model(), exact_plan({}, ExactSetting{.dtype = setting.dtype}));
  std::vector<int> everyone;
  for (int r = 0; r < world.size(); ++r) everyone.push_back(r);
  const auto all = world.communicator(everyone, "exact");
  std::map<std::string, std::vector<double>> masters;
  for (const model::Parameter& p : single.parameters[0]) {
    if (p.start == model::Parameter::Start::rope_table) continue;
    const auto elements = static_cast<size_t>(single.program.stages[0].elements(p.value, ir::FixedRows()));
    std::vector<double> sum(elements, 0.0), holders(elements, 0.0);
    run.add_to_whole("master.", p.name, sum, holders);
    sum = sum_to_first(*all, sum);
    holders = sum_to_first(*all, holders);
    for (size_t i = 0; i < elements; ++i) sum[i] /= holders[i];  // copies are equal, and few: exact
    if (world.rank() == 0) masters[p.name] = std::move(sum);
  }
  return masters;
}

std::map<std::string, std::vector<double>> train_on_threads(const plan::Degrees& mesh, const ExactSetting& setting,
                                                            std::vector<int> node_of) {
  node_of.resize(static_cast<size_t>(mesh.ranks()), 0);
  comm::ThreadBoard board(node_of);
  std::vector<std::thread> threads;
  std::map<std::string, std::vector<double>> masters;
  std::exception_ptr failure;
  std::mutex mutex;
  for (int r = 0; r < mesh.ranks(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const auto world = board.world(r);
        auto found = train_on(*world, mesh, setting);
        if (r == 0) masters = std::move(found);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        board.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return masters;
}

}  // namespace heddle::parity
