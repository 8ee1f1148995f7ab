// One drawn run of a tiny model with whatever switches the draw has: 25 steps with looks at held-out text, on
// threads or, when a launcher started it, as its ranks. campaign_run NUMBER [--ranks N] [--steps N] [--fail]
//
// With --fail a drawn rank throws in a drawn op of a drawn step. Standard output then begins with what has to be
// told: "expected MESSAGE". One message goes to standard error; exit status 0, or 1 with a message, as of `heddle
// train`.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "heddle/base/failure.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/config/exact_layout.h"
#include "heddle/device/host/host_memory.h"
#include "heddle/runtime/predict.h"
#include "heddle/session/rank_run.h"
#include "heddle/train/audit/replica_check.h"
#include "heddle/train/evaluate.h"
#include "heddle/train/logits.h"
#include "heddle/train/trainer.h"
#include "tests/parity/draw.h"

namespace {

using namespace heddle;

class Dice {
 public:
  explicit Dice(uint64_t number) : key_(RandomKey(number).with("campaign")) {}
  size_t below(size_t count) { return key_.bits(at_++) % count; }
  bool one_in(size_t count) { return below(count) == 0; }

 private:
  RandomKey key_;
  uint64_t at_ = 0;
};

// Where a rank is made to fail. The kernel that stands in for the op's own is a plain function: what it needs is
// here.
struct Harm {
  int rank = -1, listing = 0, step = 0, microbatch = 0;
  uint32_t op = 0;
  std::string message;
};
Harm harm;
device::Kernel harmed = nullptr;
std::atomic<int> steps_begun{0};  // by the rank that is to fail

void run_or_fail(const device::KernelCall& call) {
  if (call.microbatch == harm.microbatch && steps_begun.load() == harm.step)
    throw SystemError(0, "a drawn failure");
  harmed(call);
}

struct Run {
  parity::Draw draw;
  train::TrainerOptions options;
};

Run drawn_run(uint64_t number, int most_ranks, int ranks) {
  Dice dice(number);
  Run run{parity::draw(number, most_ranks, ranks), {}};
  parity::Draw& d = run.draw;
  // Reference loops in fp64, which a comparison wants, are the least like what people train with.
  if (d.backend != "host" && !dice.one_in(6)) {
    d.backend = "host";
    d.plan.dtype = dice.one_in(3) ? Dtype::f32 : Dtype::bf16;
  }
  if (!d.plan.order) {  // what more microbatches show, 25 steps do
    plan::Plan fewer = d.plan;
    fewer.microbatches = std::min(fewer.microbatches, 2 * fewer.mesh.pp);
    try {
      plan::schedule_of(fewer);
      d.plan = fewer;
    } catch (const ConfigError&) {  // a schedule that wants more
    }
  }
  const plan::Degrees& mesh = d.plan.mesh;
  d.plan.exact_sums = dice.one_in(3) && config::why_not_exact(d.model, mesh, d.node_of).empty();
  train::TrainerOptions& o = run.options;
  o.model = d.model;
  o.backend = d.backend;
  o.plan = train::as_trained(d.plan, d.backend);
  o.threads = dice.one_in(4) ? 2 : 1;
  o.learning_rate = {train::LearningRate::Shape::constant, 1e-3, 1e-3};
  o.seed = number;
  return run;
}

void draw_harm(uint64_t number, const Run& run, int steps) {
  Dice dice(number + 1'000'000);
  const ir::StepProgram program = plan::lower(run.options.model, run.options.plan).program;
  harm.rank = static_cast<int>(dice.below(static_cast<size_t>(run.options.plan.ranks())));
  const std::vector<ir::Action>& actions = program.actions_of(harm.rank);
  const ir::Op* op = nullptr;
  while (op == nullptr || op->later) {  // which not every microbatch runs
    const ir::Action& action = actions[dice.below(actions.size())];
    const ir::Block& block = program.blocks[static_cast<size_t>(action.block)];
    if (block.steps.empty()) continue;
    const ir::Step& at = block.steps[dice.below(block.steps.size())];
    harm.listing = block.listings[at.slot];
    harm.op = at.op;
    harm.microbatch = action.microbatches[at.slot];
    op = &program.listings[static_cast<size_t>(harm.listing)].ops[at.op];
  }
  harm.step = 1 + static_cast<int>(dice.below(static_cast<size_t>(steps)));
  harm.message = fmt::format("a drawn failure (rank {}, {}{}, phase {}, microbatch {})", harm.rank, op->kind(),
                             op->layer >= 0 ? fmt::format(" in layer {}", op->layer) : "", ir::name_of(op->phase),
                             harm.microbatch);
}

// The arena of a rank, sought once for all that are alike.
int64_t arena_of(const train::TrainerOptions& options, int rank, int64_t memory) {
  static std::mutex mutex;
  static std::map<int, int64_t> of_class;
  const std::lock_guard lock(mutex);
  const plan::Lowered lowered = plan::lower(options.model, options.plan);
  int64_t& bytes = of_class[lowered.program.class_of_rank[static_cast<size_t>(rank)]];
  if (bytes == 0) bytes = runtime::arena_bytes(lowered.program, rank, options.backend, memory);
  return bytes;
}

void train_rank(comm::World& world, const Run& run, int steps) {
  train::TrainerOptions options = run.options;
  const int rank = world.rank();
  const int64_t memory = device::host_memory_bytes();
  options.memory_bytes = arena_of(options, rank, memory);
  if (run.draw.seed % 2 == 1) options.memory_bytes = options.memory_bytes * 7 / 8;  // a forecast that does not hold
  options.memory_limit_bytes = memory;
  train::Trainer trainer(options, &world);
  if (rank == harm.rank) harmed = trainer.executor().replace(harm.listing, harm.op, run_or_fail);
  trainer.initialise();
  const RandomKey key = RandomKey(run.draw.seed).with("tokens");
  uint64_t drawn = 0;
  const auto sequences = [&](int64_t count) {
    std::vector<std::vector<int32_t>> made(static_cast<size_t>(count));
    for (std::vector<int32_t>& sequence : made) {
      for (int64_t i = 0; i < trainer.sequence_tokens(); ++i)
        sequence.push_back(static_cast<int32_t>(key.bits(drawn++) % static_cast<uint64_t>(run.draw.token_kinds)));
    }
    return made;
  };
  train::StepResult last;
  int64_t grown = 0;
  for (int step = 1; step <= steps; ++step) {
    if (rank == harm.rank) steps_begun.store(step);
    last = trainer.step(sequences(trainer.sequences_per_step()));
    grown = std::max(grown, last.grown_bytes);
    if (step % 10 == 0) train::evaluate(trainer, sequences(3));
  }
  steps_begun.store(0);
  if (const std::string differs = train::differing_replica(trainer); !differs.empty()) throw Error(differs);
  const std::vector<int32_t> prompt{1, 2, 3};
  train::next_logits(trainer, prompt);
  if (rank == 0) {
    fmt::print("done {} steps, loss {:.4f}, reserved {}, beyond the prediction {}\n", steps, last.next_token_loss(),
               last.reserved_bytes, grown);
  }
}

int run(int count, char** arguments) {
  uint64_t number = 0;
  int ranks = 0, steps = 25;
  bool fails = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    if (word == "--fail") {
      fails = true;
    } else if ((word == "--ranks" || word == "--steps") && i + 1 < count) {
      (word == "--ranks" ? ranks : steps) = std::atoi(arguments[++i]);
    } else {
      number = std::strtoull(arguments[i], nullptr, 10);
    }
  }
  const bool launched = comm::launched_by_mpi();
  if (launched) ranks = comm::launched_ranks();
  constexpr int kMostRanks = 8;
  const Run drawn = drawn_run(number, kMostRanks, ranks);
  const bool speaks = !launched || comm::launched_rank() == 0;
  if (fails) draw_harm(number, drawn, steps);
  if (fails && speaks) fmt::print("expected {}\n", harm.message);
  if (speaks) fmt::print("{}\n", drawn.draw.text());
  std::fflush(stdout);
  if (launched) {
    return heddle::session::run_under_mpi([&](comm::World& world) {
      train_rank(world, drawn, steps);
      return 0;
    });
  }
  heddle::comm::run_on_threads(
      drawn.options.plan.ranks(), [&](comm::World& world) { train_rank(world, drawn, steps); }, drawn.draw.node_of);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "heddle: {}\n", error.what());
    return 1;
  }
}
