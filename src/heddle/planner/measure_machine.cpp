#include "heddle/planner/measure_machine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/parallel.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/host/allowed_cores.h"
#include "heddle/device/host/host_arena.h"
#include "heddle/device/host/host_stream.h"
#include "heddle/planner/device/measure_device.h"
#include "heddle/planner/measure_copies.h"
#include "heddle/planner/measure_ops.h"

namespace heddle::planner {

train::TrainerOptions draw_program(uint64_t number, Dtype dtype, int threads, double most_flops, int64_t wide) {
  const RandomKey key = RandomKey(number).with("profile");
  uint64_t at = 0;
  const auto of = [&](std::initializer_list<int64_t> choices) {
    return choices.begin()[key.bits(at++) % choices.size()];
  };
  train::TrainerOptions options;
  model::ModelConfig& c = options.model;
  plan::Plan& plan = options.plan;
  for (;;) {
    c.vocab_size = wide * of({128, 512, 2048, 8192, 16384});
    c.hidden_size = wide * of({64, 128, 192, 256, 384, 512, 768, 1024});
    c.num_hidden_layers = 2;
    c.first_k_dense_replace = 1;
    c.intermediate_size = c.hidden_size * of({1, 2, 3, 4});
    c.num_attention_heads = of({2, 4, 8, 16});
    c.q_lora_rank = of({0, 0, 32, 64, 192});
    c.kv_lora_rank = of({32, 64, 128, 256});
    c.qk_nope_head_dim = of({16, 32, 64, 128});
    c.qk_rope_head_dim = of({16, 32, 64});
    c.v_head_dim = of({16, 32, 64, 128});
    c.n_routed_experts = of({4, 8, 16, 32, 64});
    c.num_experts_per_tok = of({1, 2, 4, 6});
    c.n_shared_experts = of({0, 1, 1});
    c.moe_intermediate_size = wide * of({32, 64, 128, 256, 512});
    c.sigmoid_scores = of({0, 1}) == 1;
    c.topk_bias = c.sigmoid_scores;
    c.sequence_aux_loss_alpha = of({0, 1}) == 1 ? 1e-4 : 0;
    c.num_nextn_predict_layers = of({0, 0, 1});
    plan.sequence_length = wide * of({32, 64, 128, 256, 512, 1024});
    plan.sequences = of({1, 2, 4, 8, 16});
    plan.microbatches = static_cast<int>(of({1, 2}));
    if (c.num_experts_per_tok > c.n_routed_experts) continue;
    const double tokens = static_cast<double>(plan.microbatches * plan.sequences * plan.sequence_length);
    const auto h = static_cast<double>(c.hidden_size);
    const double products =
        h * static_cast<double>(4 * c.num_attention_heads * c.v_head_dim + 3 * c.intermediate_size +
                                3 * c.moe_intermediate_size * (1 + c.num_experts_per_tok) + c.vocab_size);
    const double attention = static_cast<double>(plan.sequence_length * c.num_attention_heads *
                                                 (c.qk_nope_head_dim + c.qk_rope_head_dim + c.v_head_dim));
    const double flops = 6 * tokens * (products + attention);
    if (flops <= most_flops && flops > most_flops / 250) break;
  }
  plan.dtype = dtype;
  plan.evaluates = plan.predicts = false;
  if (of({0, 1, 2}) == 0) plan.fusions.clear();
  options.threads = threads;
  options.memory_bytes = int64_t{4} << 30;
  options.length = {1000};
  options.learning_rate = {train::LearningRate::Shape::constant, 1e-5, 1e-5};
  options.seed = number;
  return options;
}

namespace {

// A program whose experts have equal groups, with their products each way; the other ops once.
StepMeasure measure_ways(train::TrainerOptions options, int steps) {
  options.plan.parallel.exchange.capacity_factor = 1;
  const auto measure = [&](ProductWay way) {
    options.plan.device.expert_product = way;
    return measure_steps(options, steps);
  };
  StepMeasure all = measure(ProductWay::grouped);
  for (const ProductWay way : {ProductWay::batched, ProductWay::serial}) {
    for (const cost::OpTime& time : measure(way).ops) {
      if (time.shape.kind.ends_with(word_of(way))) all.ops.push_back(time);
    }
  }
  return all;
}

double copy_bytes_per_s(int threads) {
  constexpr int64_t kBytes = int64_t{128} << 20;
  device::HostArena from(kBytes), to(kBytes);
  from.reach(kBytes);
  to.reach(kBytes);
  std::memset(from.base(), 1, kBytes);
  std::memset(to.base(), 2, kBytes);
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    const double began = now_s();
    const int64_t share = kBytes / threads;
    on_threads(threads, [&](int t) {
      std::memcpy(to.base() + t * share, from.base() + t * share, static_cast<size_t>(share));
    });
    rates.push_back(2.0 * static_cast<double>(share * threads) / (now_s() - began));
  }
  return median(rates);
}

void nothing(const device::KernelCall&) {}

constexpr int64_t kSleep_ns = 400'000;
// Sleeps for kSleep_ns, less what the last one overslept.
void sleeps(const device::KernelCall&) {
  thread_local int64_t overslept_ns = 0;
  const int64_t due_ns = now_ns() + kSleep_ns - overslept_ns;
  std::this_thread::sleep_for(std::chrono::nanoseconds(kSleep_ns - overslept_ns));
  overslept_ns = now_ns() - due_ns;
}

// A stream that has slept until another's op ended, and how long an op that sleeps oversleeps.
void measure_sleep(cost::MachineProfile& profile) {
  device::HostStream one("one", 1), two("two", 1);
  one.set_trace(true);
  two.set_trace(true);
  constexpr int kRounds = 200;
  device::Launch asleep, free;
  asleep.run = sleeps;
  free.run = nothing;
  for (int i = 1; i <= kRounds; ++i) {
    one.launch(asleep);
    two.wait(one, static_cast<uint64_t>(i));
    two.launch(free);
  }
  one.synchronize(0);
  two.synchronize(0);
  const std::vector<device::Span> first = one.take_spans(), second = two.take_spans();
  std::vector<double> woken, late;
  for (size_t i = 0; i < first.size(); ++i) {
    woken.push_back(static_cast<double>(second[i].start_ns - first[i].end_ns) * 1e-3);
    late.push_back(static_cast<double>(first[i].end_ns - first[i].start_ns - kSleep_ns) * 1e-3);
  }
  profile.wake_us = std::max(0.0, median(woken));
  profile.oversleep_us = std::max(0.0, median(late));
}

// Seconds of a step of a one-thread program while `programs` of them run, each for itself.
double step_together(int programs) {
  std::vector<double> steps_s(static_cast<size_t>(programs), 0);
  std::atomic<int> ready = 0;
  const Dtype dtype = backends::all().front().usual_dtype();
  on_threads(programs, [&](int p) {
    train::TrainerOptions options = draw_program(1, dtype, 1);
    options.model.hidden_size = 256;
    options.model.vocab_size = 2048;
    options.plan.sequence_length = 128;
    options.plan.sequences = 4;
    train::Trainer trainer(options);
    trainer.initialise();
    const auto sequences = random_sequences(trainer, 1);
    trainer.step(sequences);
    ++ready;
    while (ready < programs) std::this_thread::yield();
    std::vector<double> own;
    for (int i = 0; i < 24; ++i) own.push_back(trainer.step(sequences).seconds);
    steps_s[p] = median(own);
  });
  return median(steps_s);
}

std::vector<double> speeds_together(int cores, int turns) {
  // Medians of turns, so that a clock that wanders takes from both.
  std::vector<int> counts{1};
  for (int n = 2; n <= cores; n = n < cores ? std::min(2 * n, cores) : n + 1) counts.push_back(n);
  std::vector<std::vector<double>> seconds(counts.size());
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < counts.size(); ++i) seconds[i].push_back(step_together(counts[i]));
  }
  std::vector<double> speeds{1};
  for (size_t i = 1; i < counts.size(); ++i) {
    const double speed = std::clamp(median(seconds[0]) / median(seconds[i]), 0.05, 1.0);
    const double before = speeds.back();
    const int from = counts[i - 1];
    for (int n = from + 1; n <= counts[i]; ++n) {
      speeds.push_back(before + (speed - before) * (n - from) / (counts[i] - from));
    }
  }
  return speeds;
}

std::string processor_name() {
  std::string name = "a machine";
  if (std::FILE* file = std::fopen("/proc/cpuinfo", "r")) {
    char line[512];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      const std::string_view text(line);
      if (!text.starts_with("model name")) continue;
      const size_t colon = text.find(": ");
      if (colon != std::string_view::npos) name = text.substr(colon + 2, text.size() - colon - 3);
      break;
    }
    std::fclose(file);
  }
  return name;
}

// Seconds that the machine's cores have worked for others than this process.
double others_work_s() {
  double all_s = 0;
  if (std::FILE* file = std::fopen("/proc/stat", "r")) {
    double user = 0, nice = 0, system = 0;
    if (std::fscanf(file, "cpu %lf %lf %lf", &user, &nice, &system) == 3) {
      all_s = (user + nice + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
    std::fclose(file);
  }
  return all_s - static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

void name_machine(cost::MachineProfile& profile) {
  profile.machine = processor_name();
  profile.date = today();
}

OthersWatch::OthersWatch() : began_s_(now_s()), others_s_(others_work_s()) {}

double OthersWatch::share() const {
  const double took_s = (now_s() - began_s_) * std::max(1U, std::thread::hardware_concurrency());
  return std::max(0.0, others_work_s() - others_s_) / std::max(1e-6, took_s);
}

// Groups of `size` neighbours, all at once.
static std::vector<cost::LinkTime> measure_groups(comm::World& world, train::RankExchange& ranks, cost::Link over,
                                                  int size) {
  std::vector<cost::LinkTime> found;
  const int first = world.rank() / size * size;
  std::vector<int> members;
  for (int r = first; r < first + size; ++r) members.push_back(r);
  const auto group = world.communicator(members, fmt::format("profile.{}", size));
  // Ranks of one process share a clock, and come from a sleep as in a step: from the last one's start to the last
  // one's end. Between processes, one exchange after the other.
  const bool one_clock = over == cost::Link::threads;
  std::vector<std::byte> from, to;
  for (const int64_t each : {64, 1024, 8192, 65536, 262144, 1 << 20, 4 << 20}) {
    from.resize(static_cast<size_t>(each * size));
    to.resize(from.size());
    std::vector<comm::Piece> pieces;
    for (int i = 0; i < size; ++i) {
      if (first + i != world.rank()) pieces.push_back({i, i * each, each});
    }
    std::vector<double> us;
    double spent_s = 0;
    for (int round = 0; round < 24 && (round < 3 || spent_s < 0.3); ++round) {
      constexpr int kRepeats = 3;
      std::vector<double> times(static_cast<size_t>(2 * world.size()), 0);
      double& start = times[static_cast<size_t>(2 * world.rank())];
      double& end = times[static_cast<size_t>(2 * world.rank()) + 1];
      if (one_clock) std::this_thread::sleep_for(std::chrono::microseconds(300));
      start = now_s();
      for (int i = 0; i < (one_clock ? 1 : kRepeats); ++i) group->exchange(from.data(), pieces, to.data(), pieces);
      end = now_s();
      ranks.sum(times);  // a place for each: the same numbers, and of rounds, on every rank
      double took_s = 0;
      if (one_clock) {
        double last_start = 0, last_end = 0;
        for (int r = first; r < first + size; ++r) {
          last_start = std::max(last_start, times[2 * r]);
          last_end = std::max(last_end, times[static_cast<size_t>(2 * r) + 1]);
        }
        took_s = last_end - last_start;
      } else {
        for (int r = 0; r < world.size(); ++r) {
          took_s += times[static_cast<size_t>(2 * r) + 1] - times[2 * r];
        }
        took_s /= world.size() * kRepeats;
      }
      double longest_s = 0;
      for (int r = 0; r < world.size(); ++r) {
        longest_s = std::max(longest_s, times[static_cast<size_t>(2 * r) + 1] - times[2 * r]);
      }
      spent_s += longest_s;
      if (round > 0) us.push_back(1e6 * std::max(1e-7, took_s));
    }
    found.push_back({over, size, static_cast<double>(each * (size - 1)), median(us)});
    if (spent_s > 1.5) break;  // on a slow link the larger ones follow by their rate
  }
  return found;
}

std::vector<cost::LinkTime> measure_links(comm::World& world, cost::Link over, std::string_view backend) {
  if (!backends::named(backend).shares_memory) return measure_device_links(world, over, backend);
  std::vector<cost::LinkTime> found;
  train::RankExchange ranks(&world);
  std::vector<int> sizes;
  for (int size = 2; size < world.size(); size *= 2) {
    if (world.size() % size == 0) sizes.push_back(size);
  }
  if (world.size() > 1) sizes.push_back(world.size());
  for (const int size : sizes) {
    const auto of = measure_groups(world, ranks, over, size);
    found.insert(found.end(), of.begin(), of.end());
  }
  return found;
}

cost::MachineProfile measure_machine(const MeasureOptions& options) {
  if (!backends::named(options.backend).shares_memory) return measure_device(options);
  const double began = now_s();
  const OthersWatch others;
  cost::MachineProfile profile;
  profile.cores = device::allowed_cores();
  const int threads = options.threads > 0 ? options.threads : profile.cores;
  name_machine(profile);
  const auto tell = [&](std::string_view what) {
    if (options.progress) options.progress(what, std::min(1.0, (now_s() - began) / options.seconds));
  };
  tell("copies, sleep");
  profile.copy_bytes_per_s = copy_bytes_per_s(profile.cores);
  measure_sleep(profile);
  tell("programs side by side");
  profile.together = speeds_together(profile.cores, options.seconds < 20 ? 1 : 3);
  tell("messages");
  constexpr int kThreadRanks = 8;
  comm::run_on_threads(kThreadRanks, [&](comm::World& world) {
    const auto found = measure_links(world, cost::Link::threads);
    if (world.rank() == 0) profile.links = found;
  });
  profile.engine_from_bytes = engine_from_bytes();
  std::vector<Dtype> dtypes{Dtype::f32};
  if (backends::all().front().usual_dtype() == Dtype::bf16) dtypes.push_back(Dtype::bf16);
  std::vector<int> teams{1};
  if (threads > 1) teams.push_back(threads);
  // A program of its own each time: more sizes. Those that others disturbed most are left out, at most half.
  struct Program {
    double others_share = 0;
    Dtype dtype = Dtype::f32;
    StepMeasure found;
  };
  std::vector<Program> programs;
  uint64_t number = 0;
  do {
    for (const int team : teams) {
      for (const Dtype dtype : dtypes) {
        tell("ops");
        const OthersWatch watch;
        constexpr uint64_t kWaysEach = 5;  // programs
        const train::TrainerOptions program = draw_program(number, dtype, team);
        StepMeasure found = number++ % kWaysEach == 0 ? measure_ways(program, 3) : measure_steps(program, 3);
        programs.push_back({watch.share(), dtype, std::move(found)});
      }
    }
  } while (now_s() - began < options.seconds);
  std::vector<double> shares, between_us, enqueue_us;
  for (const Program& program : programs) shares.push_back(program.others_share);
  const double most_share = std::max(kQuiet, median(shares));
  for (const auto& [share, dtype, found] : programs) {
    if (share > most_share) continue;
    for (const cost::OpTime& op : found.ops) {
      profile.ops.add(op);
      double& rate = dtype == Dtype::bf16 ? profile.bf16_flops_per_s : profile.f32_flops_per_s;
      if (op.shape.kind == "linear" && op.shape.dtype == dtype) rate = std::max(rate, op.shape.flops / op.us * 1e6);
    }
    between_us.push_back(found.between_us);
    enqueue_us.push_back(found.enqueue_us);
  }
  profile.others_share = others.share();
  profile.launch_us = median(between_us);
  profile.enqueue_us = median(enqueue_us);
  return profile;
}

}  // namespace heddle::planner
