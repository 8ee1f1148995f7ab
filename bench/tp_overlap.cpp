// What tensor parallelism's gathers and sums cost a step, whole, cut into panels beside the products, and in one op
// with them (parallel.tp_overlap), at the shapes of LLaMA-2-70B's and DeepSeek-V3's layers and 2, 4 and 8 ranks.
//
// Ranks are threads in the paced mode: the real executor with its walk, streams, waits and collectives, which
// meet their group; each op lasts as long as on a device of stated rates (bench/linked_device.h, times `--stretch`)
// and does nothing, so that no page of the arenas is touched and the model has its full widths (`--stretch` holds
// at 8 ranks). Messages take their bytes at the link's rate, and its latency. Forward and backward only: what is
// once a step takes no time here. A busy machine wakes ranks late: `chrt -r 5` before the program helps.
//
//   exposed = step time − step time of the plain program with messages that take no time
//
// `--real` runs the kernels instead, unpaced, on two ranks of this machine: as threads, or under a launcher of two
// processes. A product of one thread is timed before and after each step, and the steps are told in its time too.
// What a step takes of the processor is told beside it, of this process: others that run here don't count there.
// Rounds end when two minutes are over, but not before three of them; how many there were is told.
//
// `--foretold` runs nothing: what the simulator says of the same steps.
//
//   build/bench_tp_overlap [--json] [--rounds N] [--stretch X] [--model llama|deepseek] [--real] [--foretold]
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/paced_ranks.h"
#include "bench/published_models.h"
#include "bench/support/believable.h"
#include "bench/support/main.h"
#include "bench/support/probe.h"
#include "bench/support/stops.h"
#include "heddle/observe/table.h"
#include "tests/simulate/tiny_step.h"

namespace heddle {
namespace {

using bench::PacedRanks;

struct Options {
  bool json = false, real = false, predicted = false;
  int rounds = 3;
  double stretch = 25;
  std::string model;
  int64_t tp = 0;
};

struct Link {
  const char* name;
  double rate_GB, latency_us;  // of a rank, each way
};
// Of what is rated, 450 and 64, four fifths; a message between peers, and one through the host's root.
constexpr Link kLinks[] = {{"NVLink", 360, 3}, {"PCIe Gen 5", 51, 6}};

constexpr const char* kVariants[] = {"off", "tiles", "fused", "auto"};

constexpr const char* kReal[] = {"off", "tiles", "fused"};

constexpr int64_t kTokens = 4096;

// Layers with experts: as many as a rank holds where they are spread, and on this rank alone, for no exchange of
// rows is to hide what is measured.
model::ModelConfig deepseek() {
  model::ModelConfig c = bench::deepseek_v3(kTokens);
  c.num_hidden_layers = 4;
  c.first_k_dense_replace = 1;
  c.n_routed_experts = 32;
  return c;
}

plan::Plan plan_of(int tp, const Link& link, const char* variant) {
  plan::Plan plan;
  plan.mesh.tp = tp;
  plan.sequences = 1;
  plan.sequence_length = kTokens;
  plan.microbatches = 2;
  plan.dtype = Dtype::bf16;
  plan.rates = bench::rates_of(bench::kLinkedDevices[0]);
  plan.rates.message_bytes_per_us = link.rate_GB * 1e3;
  plan.rates.message_latency_us = link.latency_us;
  plan.parallel.tp_overlap = from_word<plan::TpOverlap>(variant);
  return plan;
}

/// Ops that are a product and its collective, and the most pieces that one of them makes of a rank's rows.
std::pair<int, int64_t> fused_of(const ir::StepProgram& program) {
  std::pair<int, int64_t> found{0, 0};
  for (const ir::Op& op : program.listings[0].ops) {
    if (!op.def->by_pieces) continue;
    ++found.first;
    found.second = std::max(found.second, op.attributes.integer("pieces"));
  }
  return found;
}

/// Of the listing's longest message.
int panels_of(const ir::StepProgram& program) {
  int most = 1;
  const ir::Listing& listing = program.listings[0];
  std::map<ir::ValueId, int> of;
  for (const ir::Op& op : listing.ops) {
    if (op.def->collective && op.out.size() == 1 && listing.value(op.out[0]).part_of != ir::none)
      most = std::max(most, ++of[listing.base(op.out[0])]);
  }
  return most;
}

struct Table {
  observe::Table text{{{"model"},
                       {"link"},
                       {"tp", observe::Align::right},
                       {"", observe::Align::left},
                       {"panels", observe::Align::right},
                       {"fused", observe::Align::right},
                       {"pieces", observe::Align::right},
                       {"step, ms", observe::Align::right},
                       {"foretold", observe::Align::right},
                       {"exposed, ms", observe::Align::right},
                       {"foretold", observe::Align::right},
                       {"of off", observe::Align::right},
                       {"step of off", observe::Align::right}}};
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  double use = 0;
};

void paced(const char* name, const model::ModelConfig& config, const Link& link, int tp, const Options& options,
           Table& table) {
  const double stretch = options.stretch * tp / 8;  // fewer ranks have more to do
  PacedRanks free(config, plan_of(tp, link, "off"), stretch, true);
  std::map<std::string, std::unique_ptr<PacedRanks>> runs;
  for (const char* variant : kVariants)
    runs[variant] = std::make_unique<PacedRanks>(config, plan_of(tp, link, variant), stretch, false);
  for (int round = 0; !options.predicted && round <= options.rounds; ++round) {  // the first finds its threads
    free.step(round > 0);
    for (const char* variant : kVariants) runs[variant]->step(round > 0);
  }
  const auto ms_of = [&](const PacedRanks& run) { return options.predicted ? run.predicted_ms() : run.ms(); };
  const double free_ms = ms_of(free);
  nlohmann::ordered_json found{{"model", name},
                               {"link", link.name},
                               {"tp", tp},
                               {"free_ms", free_ms},
                               {"free_ms_foretold", free.predicted_ms()}};
  const double off = ms_of(*runs["off"]), off_predicted = runs["off"]->predicted_ms();
  for (const char* variant : kVariants) {
    const PacedRanks& run = *runs[variant];
    const double ms = ms_of(run), predicted = run.predicted_ms();
    const double exposed = ms - free_ms, exposed_predicted = predicted - free.predicted_ms();
    const double ratio = exposed / (off - free_ms);
    const auto [fused, pieces] = fused_of(run.program());
    found[variant] = {{"panels", panels_of(run.program())},
                      {"fused", fused},
                      {"pieces", pieces},
                      {"step_ms", ms},
                      {"step_ms_foretold", predicted},
                      {"exposed_ms", exposed},
                      {"exposed_ms_foretold", exposed_predicted},
                      {"exposed_ratio", ratio},
                      {"exposed_ratio_foretold", exposed_predicted / (off_predicted - free.predicted_ms())},
                      {"step_ratio", ms / off},
                      {"step_ratio_foretold", predicted / off_predicted}};
    table.text.row({name, link.name, fmt::format("{}", tp), variant, fmt::format("{}", panels_of(run.program())),
                    fmt::format("{}", fused), fmt::format("{}", pieces), fmt::format("{:.2f}", ms),
                    fmt::format("{:.2f}", predicted), fmt::format("{:.2f}", exposed),
                    fmt::format("{:.2f}", exposed_predicted), fmt::format("{:.2f}", ratio),
                    fmt::format("{:.3f}", ms / off)});
    table.use = std::max(table.use, run.use());
  }
  table.json.push_back(std::move(found));
}

// A model whose products take most of a step, on real kernels.
model::ModelConfig real_model() {
  model::ModelConfig c = bench::layers_of_llama_2_70b(kTokens);
  c.vocab_size = 2048;
  c.hidden_size = 1024;
  c.num_hidden_layers = c.first_k_dense_replace = 4;
  c.intermediate_size = 3584;
  c.num_attention_heads = 8;
  c.num_key_value_heads = 2;
  return c;
}

plan::Plan real_plan(const char* variant) {
  plan::Plan plan;
  plan.mesh.tp = 2;
  plan.sequence_length = 2048;
  plan.dtype = Dtype::bf16;
  plan.packed_bytes = backends::named("host").packed_bytes;
  plan.parallel.tp_overlap = from_word<plan::TpOverlap>(variant);
  return plan;
}

nlohmann::ordered_json quartiles(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  const auto at = [&](double share) { return of[static_cast<size_t>(share * static_cast<double>(of.size() - 1))]; };
  return {{"median", median(of)}, {"quartiles", {at(0.25), at(0.75)}}};
}

double processor_s() {
  timespec at{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
}

// Steps in turn, each between two probes. `same`: of a time the one that all ranks take for it.
template <class Step, class Same>
nlohmann::ordered_json in_turn(int rounds, const Step& step, const Same& same) {
  constexpr double kLongest_s = 120;
  constexpr int kFewest = 3;
  const double began = now_s();
  bench::MatrixProbe probe(Dtype::bf16, 1);
  std::map<std::string, std::vector<double>> seconds, probed, processor;
  for (int round = 0; round <= rounds; ++round) {
    if (round > kFewest && same(now_s() - began) > kLongest_s) break;
    for (const char* variant : kReal) {
      probe.sample();
      const size_t before = probe.best_rates().size() - 1;
      const double used = processor_s(), took = step(variant), spent = processor_s() - used;
      probe.sample();
      const double rate = (probe.best_rates()[before] + probe.best_rates()[before + 1]) / 2;
      if (round == 0) continue;
      seconds[variant].push_back(took);
      processor[variant].push_back(spent);
      probed[variant].push_back(took * rate * 1e-9);  // Gflop that the probe does meanwhile
    }
    nlohmann::ordered_json unfinished{{"rounds", round}};
    for (const auto& [variant, took] : seconds) unfinished[variant]["s"] = quartiles(took);
    if (round > 0) bench::so_far(unfinished.dump(2));
  }
  nlohmann::ordered_json found{{"rounds", seconds["off"].size()}};
  for (const char* variant : kReal) {
    std::vector<double> ratio, in_probes, of_processor;
    for (size_t i = 0; i < seconds["off"].size(); ++i) {
      ratio.push_back(seconds[variant][i] / seconds["off"][i]);
      in_probes.push_back(probed[variant][i] / probed["off"][i]);
      of_processor.push_back(processor[variant][i] / processor["off"][i]);
    }
    found[variant] = {{"s", quartiles(seconds[variant])},
                      {"step_ratio", quartiles(ratio)},
                      {"step_ratio_in_probes", quartiles(in_probes)},
                      {"processor_s", quartiles(processor[variant])},
                      {"processor_ratio", quartiles(of_processor)}};
  }
  return found;
}

nlohmann::ordered_json real_threads(int rounds) {
  std::map<std::string, std::unique_ptr<test::TinyRun>> runs;
  std::map<std::string, std::vector<test::Batch>> batches;
  const model::ModelConfig c = real_model();
  for (const char* variant : kReal) {
    const plan::Plan plan = real_plan(variant);
    auto& run = runs[variant] = std::make_unique<test::TinyRun>(c, plan, "host", int64_t{2} << 30, 1, false);
    const std::vector<double> table = model::rope_table(c, plan.sequence_length);
    run->fill([&](const model::Parameter& p, int64_t i) {
      return p.start == model::Parameter::Start::rope_table ? table[static_cast<size_t>(i)]
             : p.start == model::Parameter::Start::ones     ? 1.0
                                                            : 1e-3 * static_cast<double>(i % 37 - 18);
    });
    batches[variant] = test::tiny_batches(c, plan, 3);
    for (test::Batch& batch : batches[variant]) batch.hyper = {0, 0.1, 0.05};
  }
  return in_turn(
      rounds,
      [&](const char* variant) {
        const double began = now_s();
        runs[variant]->run(batches[variant]);
        return now_s() - began;
      },
      [](double s) { return s; });
}

nlohmann::ordered_json real_processes(int rounds, comm::World& world) {
  std::map<std::string, std::unique_ptr<bench::PacedRun>> runs;
  for (const char* variant : kReal)
    runs[variant] = std::make_unique<bench::PacedRun>(real_model(), real_plan(variant), world);
  bench::Gather gather(world);
  return in_turn(
      rounds,
      [&](const char* variant) {
        gather.sum(0);  // together
        return gather.most(runs[variant]->step());
      },
      [&](double s) { return gather.most(s); });
}

int run_real(const Options& options) {
  const bool launched = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  nlohmann::ordered_json found;
  if (launched) {
    const auto world = comm::mpi_world();
    if (world->size() != 2) config_error("bench_tp_overlap --real needs 2 ranks, {} are running", world->size());
    found["processes"] = real_processes(options.rounds, *world);
    if (world->rank() != 0) return 0;
  } else {
    found["threads"] = real_threads(options.rounds);
  }
  fmt::print("{}\n", found.dump(options.json ? -1 : 2));
  return 0;
}

int run(const Options& options) {
  if (options.real) return run_real(options);
  Table table;
  for (const Link& link : kLinks) {
    for (const int tp : {2, 4, 8}) {
      if (options.tp > 0 && options.tp != tp) continue;
      if (options.model != "deepseek")
        paced("LLaMA-2-70B", bench::layers_of_llama_2_70b(kTokens), link, tp, options, table);
      if (options.model != "llama") paced("DeepSeek-V3", deepseek(), link, tp, options, table);
      bench::so_far(options.json ? table.json.dump() : table.text.text(false));
    }
  }
  return bench::tell_paced(options.json, {{"cases", table.json}}, table.text.text(false), table.use,
                           ": give a larger --stretch");
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.flag("--real", options.real);
  arguments.flag("--foretold", options.predicted);
  arguments.number("--rounds", options.rounds);
  arguments.number("--stretch", options.stretch, 1);
  arguments.number("--tp", options.tp);
  arguments.word("--model", "llama|deepseek", options.model, {"llama", "deepseek"});
  arguments.read();
  return heddle::run(options);
}

}  // namespace heddle
