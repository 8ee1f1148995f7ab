#include "tests/parity/exact_run.h"

#include <cmath>

#include "heddle/backends/backend.h"
#include "heddle/base/random.h"
#include "tests/parity/parity.h"
#include "tests/support/tiny_models.h"
#include "tests/support/usual_start.h"

namespace heddle::parity {

namespace {

constexpr int64_t kExactSequence = 16;
constexpr int64_t kArenaBytes = 1 << 24;

test::Batch batch_for(const plan::Plan& plan, const ExactSetting& setting, int data_rank, int step,
                      int microbatches) {
  test::Batch batch;
  const RandomKey key = RandomKey(7).with(static_cast<uint64_t>(step));
  const int64_t width = kExactSequence + 1 + setting.depths;
  for (int m = 0; m < microbatches; ++m) {
    runtime::Microbatch& micro = batch.microbatches.emplace_back();
    for (int64_t i = 0; i < width; ++i) {
      const auto at = static_cast<uint64_t>((m * plan.mesh.dp + data_rank) * width + i);
      // Few kinds of token, so that routing is uneven and experts go without rows.
      micro.tokens.push_back(static_cast<int32_t>(key.bits(at) % (step % 3 == 0 ? 5 : 48)));
      if (step % 2 == 1) micro.masked.push_back(key.bits(at) / 64 % 3 == 0);  // targets that don't count
    }
  }
  const double tokens = static_cast<double>(setting.microbatches * kExactSequence);
  batch.scales = {1 / tokens, 1.0 / setting.microbatches, 1 / tokens};
  batch.scales.resize(3 + static_cast<size_t>(setting.depths), 0.3 / tokens);
  batch.hyper = {1e-2, 1 - std::pow(0.9, step + 1), 1 - std::pow(0.95, step + 1)};
  return batch;
}

void fill(test::RankRun& run, const model::ModelConfig& model) {
  run.fill(test::UsualStart(model, kExactSequence, 3));
}

/// A statistic of another purpose's program, zeros where this rank does not have it.
std::vector<double> statistic(test::RankRun& of, const plan::Lowered& lowered, ir::Purpose purpose,
                              const std::string& name, int64_t elements) {
  std::vector<double> found(static_cast<size_t>(elements), 0.0);
  const int index = static_cast<int>(purpose) * lowered.placement.ranks + of.listing_index();
  const ir::ValueId id = lowered.program.listings[static_cast<size_t>(index)].find(name);
  if (id == ir::none) return found;
  const device::TensorView view = of.executor().view(index, id);
  for (int64_t i = 0; i < elements; ++i) found[static_cast<size_t>(i)] = test::RankRun::get(view, i);
  return found;
}

}  // namespace

model::ModelConfig exact_model(const ExactSetting& setting) {
  model::ModelConfig c = test::tiny_balanced_model();
  c.num_hidden_layers = 3;
  c.first_k_dense_replace = 1;
  c.q_lora_rank = 8;
  c.n_routed_experts = setting.experts;
  c.num_experts_per_tok = setting.top_k;
  c.num_nextn_predict_layers = setting.depths;
  c.tie_word_embeddings = setting.tied;
  return c;
}

plan::Plan exact_plan(const plan::Degrees& mesh, const ExactSetting& setting) {
  plan::Plan plan;
  plan.mesh = mesh;
  plan.microbatches = setting.microbatches / mesh.dp;
  plan.sequence_length = kExactSequence;
  plan.dtype = setting.dtype;
  plan.exact_sums = setting.exact;
  plan.parallel.exchange.topology = from_word<ir::Topology>(setting.topology);
  plan.parallel.schedule = setting.schedule;
  plan.parallel.layout = setting.layout;
  plan.evaluates = plan.predicts = true;
  plan.update.bucket_bytes = 4000;
  // Clips; without exact sums the order of the norm's sum may show in its last place.
  plan.update.clip_norm = setting.exact ? 0.05 : 0;
  if (setting.backend == "host") {
    plan.packed_bytes = backends::named("host").packed_bytes;
  }
  return plan;
}

std::map<std::string, std::vector<double>> train_on(comm::World& world, const plan::Degrees& degrees,
                                                    const ExactSetting& setting) {
  const model::ModelConfig model = exact_model(setting);
  const plan::Plan plan = exact_plan(degrees, setting);
  const plan::Mesh mesh(degrees);
  const plan::Lowered lowered = plan::lower(model, plan);
  test::RankRun run(plan, mesh, lowered, world, setting.backend, kArenaBytes);
  fill(run, model);
  const int data_rank = run.place().at(ir::Axis::dp);
  const auto batch = [&](int step, int microbatches) {
    return batch_for(plan, setting, data_rank, step, microbatches);
  };
  for (int step = 0; step < setting.steps; ++step)
    run.executor().run_step(test::inputs_of(batch(step, plan.microbatches), run.executor()));

  const plan::Lowered single = plan::lower(model, exact_plan({}, ExactSetting{.dtype = setting.dtype}));
  std::vector<int> everyone;
  for (int r = 0; r < world.size(); ++r) everyone.push_back(r);
  const auto all = world.communicator(everyone, "exact");
  std::map<std::string, std::vector<double>> masters;
  for (const model::Parameter& p : single.parameters[0]) {
    if (p.start == model::Parameter::Start::rope_table) continue;
    const auto elements = static_cast<size_t>(single.program.listings[0].elements(p.value, ir::FixedRows()));
    std::vector<double> sum(elements, 0.0), holders(elements, 0.0);
    run.add_to_whole("master.", p.name, sum, holders);
    sum = sum_to_first(*all, sum);
    holders = sum_to_first(*all, holders);
    for (size_t i = 0; i < elements; ++i) sum[i] /= holders[i];  // copies are equal, and few: exact
    if (world.rank() == 0) masters[p.name] = std::move(sum);
  }
  // Of the first data rank's microbatch, so that nothing is summed over ranks.
  const auto forward = [&](const std::string& as, ir::Purpose purpose, const std::string& name, int64_t elements) {
    test::Batch one = batch(setting.steps, 1);
    if (purpose == ir::Purpose::predict) {  // has no depths
      one.microbatches[0].tokens.resize(kExactSequence + 1);
      one.microbatches[0].masked.clear();
    }
    run.executor().run_step(test::inputs_of(one, run.executor(), purpose), purpose);
    std::vector<double> own(static_cast<size_t>(elements), 0.0);
    if (data_rank == 0) own = statistic(run, lowered, purpose, name, elements);
    own = sum_to_first(*all, own);
    if (world.rank() == 0) masters[as] = std::move(own);
  };
  forward("evaluate", ir::Purpose::evaluate, "loss.next_token", 1);
  forward("predict", ir::Purpose::predict, "logits", kExactSequence * model.vocab_size);
  return masters;
}

std::map<std::string, std::vector<double>> train_on_threads(const plan::Degrees& mesh, const ExactSetting& setting,
                                                            std::vector<int> node_of) {
  node_of.resize(static_cast<size_t>(mesh.ranks()), 0);
  comm::ThreadWorlds thread_worlds(node_of);
  std::vector<std::thread> threads;
  std::map<std::string, std::vector<double>> masters;
  std::exception_ptr failure;
  std::mutex mutex;
  for (int r = 0; r < mesh.ranks(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const auto world = thread_worlds.world(r);
        auto found = train_on(*world, mesh, setting);
        if (r == 0) masters = std::move(found);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        thread_worlds.abort(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return masters;
}

}  // namespace heddle::parity
