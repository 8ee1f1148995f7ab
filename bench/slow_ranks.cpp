// How well slow ranks, ops and links are found, and what it costs to look: draws of a rank 15 % slow, named with
// its phase and op; of a slow link, named by probes; of a link, rank or node whose exchanges are 15 % slow, named
// by those; clean windows; steps with and without the levels 0 and 1, in turn.
//
//   bench_slow_ranks [--draws N] [--trained-links N] [--windows N] [--pairs N] [--links] [--json]
//
// `--links`: only of exchanges. Those of `--draws` are simulated at 4 to 256 ranks, with the noise of
// tests/support/drawn_exchanges.h; `--trained-links` train, four ranks as threads over links of a stated rate.
//
// Ranks are threads that train in the paced mode: an op lasts as long as it is told to, asleep, so that each has a
// processor of its own as far as that goes. Jitter of 5 %, and one step of fifty far out, is drawn for each rank
// and step. What is found is said by what runs in `heddle train` itself (session/ranks/slow_ranks.h, session/slow).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>

#include "bench/support/main.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/calls/noted_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/session/ranks/rank_watch.h"
#include "tests/support/drawn_exchanges.h"
#include "tests/support/paced_time.h"
#include "tests/support/set_pace.h"
#include "tests/support/slow_world.h"
#include "tests/support/tiny_models.h"
#include "tests/train/rank_trainers.h"

namespace heddle::bench {
namespace {

constexpr int64_t kOp_ns = 150'000, kShortOp_ns = 50'000;  // of draws of ranks, and of links
constexpr int64_t kWindow = session::SlowRanks::kWindow, kWindows = session::SlowRanks::kWindows;

config::RunConfig config_of(int ranks) {
  config::RunConfig config;
  config.model = test::tiny_model();
  config.train.global_batch = ranks;
  config.train.microbatch = 1;
  config.train.sequence_length = 16;
  config.device.threads = 1;
  config.plan.mesh.dp = ranks;
  return config;
}

bool is_of(bool forward, const ir::Op& op) {
  const bool backward = op.phase == ir::Phase::I || op.phase == ir::Phase::W;
  return !ir::communicates(*op.def) && ir::runs(*op.def) && op.def->stream == ir::StreamKind::compute &&
         op.stream.empty() && (forward ? op.phase == ir::Phase::F : backward);
}

// What each op of a step takes; `hurt` so much longer, and all by the step's jitter.
std::vector<std::vector<int64_t>> pace_of(const ir::StepProgram& program, int listing, int64_t hurt,
                                          int64_t more_ns, double jitter, int64_t op_ns = kOp_ns) {
  std::vector<std::vector<int64_t>> pace(program.listings.size());
  for (size_t l = 0; l < pace.size(); ++l) {
    pace[l].assign(program.listings[l].ops.size(), static_cast<int64_t>(static_cast<double>(op_ns) * jitter));
    if (static_cast<int>(l) == listing && hurt >= 0)
      pace[l][static_cast<size_t>(hurt)] += static_cast<int64_t>(static_cast<double>(more_ns) * jitter);
  }
  return pace;
}

double jitter_of(const RandomKey& key, int64_t step) {
  const auto at = static_cast<uint64_t>(3 * step);
  const double usual = 1 + 0.05 * key.normal(at);
  const bool far = key.bits(at + 1) % 50 == 0;
  return std::max(0.5, far ? usual * (1.5 + static_cast<double>(key.bits(at + 2) >> 11) * 0x1p-53) : usual);
}

struct RankDraw {
  bool found = false, op = false, others = false;
};

// Two ranks; an op of one of them takes so long that its phase takes 15 % longer.
RankDraw slow_rank(uint64_t seed) {
  const RandomKey key = RandomKey(seed).with("slow rank");
  const config::RunConfig config = config_of(2);
  const bool forward = key.bits(0) % 2 == 0;
  const int slow = static_cast<int>(key.bits(1) % 2);
  RankDraw draw;
  comm::run_on_threads(2, [&](comm::World& world) {
    train::Trainer trainer(train::trainer_options_of(config), &world);
    trainer.initialise();
    const ir::StepProgram& program = trainer.lowered().program;
    const int listing = program.listing_of(0, ir::Purpose::train);
    const std::vector<ir::Op>& ops = program.listings[static_cast<size_t>(listing)].ops;
    std::vector<int64_t> of_phase;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (is_of(forward, ops[i])) of_phase.push_back(static_cast<int64_t>(i));
    }
    // The phase is nothing without those whose work goes by rows: they are a kind of their own.
    std::erase_if(of_phase, [&](int64_t i) {
      const ir::Op& op = ops[static_cast<size_t>(i)];
      const ir::Listing& text = program.listings[static_cast<size_t>(listing)];
      return std::any_of(op.in.begin(), op.in.end(), [&](ir::ValueId id) {
        return id != ir::none && !text.value(id).shape.empty() && !text.value(id).shape[0].is_static();
      });
    });
    const int64_t hurt = of_phase[key.bits(2) % of_phase.size()];
    const auto more_ns = static_cast<int64_t>(0.15 * static_cast<double>(std::ssize(of_phase) * kOp_ns));
    session::RankWatch watch(trainer, &world, {1, 1});
    const RandomKey own = key.with(static_cast<uint64_t>(world.rank()));
    std::vector<session::Alarm> told;
    for (int64_t step = 1; step <= kWindow * (kWindows + 2) + session::RankWatch::kTimedSteps; ++step) {
      const bool is_slow = world.rank() == slow && step > kWindow;
      set_pace(trainer.executor(), pace_of(program, listing, is_slow ? hurt : -1, more_ns, jitter_of(own, step)));
      const bool timed = watch.times_ops(step);
      if (timed) watch.before_step();
      const train::StepResult result =
          trainer.step(train::random_sequences(trainer, 2, static_cast<uint64_t>(step)));
      if (timed) watch.after_step();
      for (session::Alarm& alarm : watch.after(result)) told.push_back(std::move(alarm));
    }
    if (world.rank() != 0) return;
    const std::string named =
        session::label_of(program.listings[static_cast<size_t>(listing)], ops[static_cast<size_t>(hurt)]);
    for (const session::Alarm& alarm : told) {
      const nlohmann::ordered_json& json = alarm.json;
      if (json["event"] != "slow_rank") continue;
      const bool right = json["rank"] == slow && json["work"] == (forward ? "forward" : "backward");
      draw.found |= right;
      draw.others |= json["rank"] != slow;
      draw.op |= right && json.value("op", "") == named && json.value("op_scope", "") == "op";
    }
  });
  return draw;
}

// Four ranks over links of a stated rate, of which one becomes slower: a step gets longer by a fifth or more.
bool slow_link(uint64_t seed, bool& blamed) {
  const RandomKey key = RandomKey(seed).with("slow link");
  config::RunConfig config = config_of(4);
  config.model.vocab_size = 640;  // gradients enough for the links to matter
  std::atomic<bool> on = false;
  const int a = static_cast<int>(key.bits(0) % 4), b = (a + 1 + static_cast<int>(key.bits(1) % 3)) % 4;
  const test::Links links{20e6, a, b, 4 + static_cast<double>(key.bits(2) % 5), &on};
  bool found = false;
  comm::run_on_threads(4, [&](comm::World& plain) {
    test::SlowWorld world(plain, links);
    train::Trainer trainer(train::trainer_options_of(config), &world);
    trainer.initialise();
    const ir::StepProgram& program = trainer.lowered().program;
    session::RankWatch watch(trainer, &world, {1, 1});
    const RandomKey own = key.with(static_cast<uint64_t>(world.rank()));
    for (int64_t step = 1; step <= kWindow * (kWindows + 3) + 1; ++step) {
      if (world.rank() == 0 && step == 2 * kWindow + 1) on = true;
      set_pace(trainer.executor(), pace_of(program, -1, -1, 0, jitter_of(own, step), kShortOp_ns));
      const train::StepResult result =
          trainer.step(train::random_sequences(trainer, 4, static_cast<uint64_t>(step)));
      for (const session::Alarm& alarm : watch.after(result)) {
        if (world.rank() != 0) continue;
        blamed |= alarm.json["event"] == "slow_rank";
        if (alarm.json["event"] != "slow_link") continue;
        const nlohmann::ordered_json& pairs = alarm.json["pairs"];
        const std::vector<int> named = pairs[0]["ranks"].get<std::vector<int>>();
        found |= pairs.size() == 1 && named == std::vector<int>{std::min(a, b), std::max(a, b)};
      }
    }
  });
  return found;
}

constexpr std::array<std::pair<int, int>, 5> kLayouts{
    {{4, 1}, {8, 8}, {16, 4}, {64, 8}, {256, 8}}};  // ranks; on a node

struct LinkDraws {
  int named = 0, named_of_256 = 0, of_256 = 0, others = 0;
  std::vector<double> windows;
};
LinkDraws slow_exchanges(int draws, double times) {
  LinkDraws all;
  for (int draw = 0; draw < draws; ++draw) {
    const auto [ranks, on_node] = kLayouts[static_cast<size_t>(draw) % kLayouts.size()];
    const test::FoundLink found = test::find_drawn_link(static_cast<uint64_t>(draw), ranks, on_node, times);
    all.named += found.named;
    all.others += found.others;
    if (found.named) all.windows.push_back(found.windows);
    if (ranks < 256) continue;
    ++all.of_256;
    all.named_of_256 += found.named;
  }
  return all;
}

// Alarms of exchanges in clean windows, a sixth of them of 256 ranks.
int false_link_alarms(int64_t windows) {
  int alarms = 0;
  for (size_t layout = 0; layout < kLayouts.size(); ++layout) {
    const auto [ranks, on_node] = kLayouts[layout];
    test::DrawnExchanges exchanges(5000 + layout, ranks, on_node);
    session::LinkFits fits(exchanges.node_of());
    const int64_t share = ranks == 256 ? windows / 6 : (windows - windows / 6) / 4;
    for (int64_t window = 0; window < share; ++window) {
      fits.add(1 + kWindow * window, exchanges.window());
      alarms += static_cast<int>(fits.found().size());
    }
  }
  return alarms;
}

// Four ranks that train; the exchanges of a pair, or of a rank, get 15 % slower.
bool slow_trained_exchange(uint64_t seed, int& others) {
  const RandomKey key = RandomKey(seed).with("slow exchange");
  config::RunConfig config = config_of(4);
  config.plan.mesh.ep = 4;
  config.train.sequence_length = 64;
  std::atomic<bool> on = false;
  const int a = static_cast<int>(key.bits(0) % 4), b = (a + 1 + static_cast<int>(key.bits(1) % 3)) % 4;
  const bool rank = key.bits(2) % 2 == 0;
  const test::Links links{1e6, a, rank ? -1 : b, 1.15, &on, 0.1};
  bool found = false;
  comm::run_on_threads(4, [&](comm::World& plain) {
    test::SlowWorld slow(plain, links);
    comm::CallLog log(plain.rank(), 4, "host", 0);
    comm::NotedWorld world(slow, log);
    train::Trainer trainer(train::trainer_options_of(config), &world);
    trainer.initialise();
    session::RankWatch watch(trainer, &world, {1, 1}, {}, &log);
    constexpr int kQuiet = session::LinkFits::kUsualWindows + 2, kMost = kQuiet + 12;
    bool over = false;
    for (int64_t step = 1; step <= kWindow * kMost && !over; ++step) {
      if (world.rank() == 0 && step == kQuiet * kWindow + 1) on = true;
      const train::StepResult result =
          trainer.step(train::random_sequences(trainer, 4, static_cast<uint64_t>(step)));
      for (const session::Alarm& alarm : watch.after(result)) {
        if (alarm.json["event"] != "slow_link") continue;
        const std::vector<int> named = alarm.json["pairs"][0]["ranks"].get<std::vector<int>>();
        const bool right = named == (rank ? std::vector<int>{a} : std::vector<int>{std::min(a, b), std::max(a, b)});
        found |= right;
        others += !right;
      }
      if (step % kWindow == 0) over = trainer.ranks().any(found);
    }
  });
  return found;
}

nlohmann::ordered_json figures_of_links(int draws, int trained, int64_t windows) {
  constexpr double kTimes = session::LinkFits::kSlow;
  const LinkDraws drawn = slow_exchanges(draws, kTimes);
  nlohmann::ordered_json figures{{"exchange_draws", draws},
                                 {"exchange_times", kTimes},
                                 {"exchange_named", drawn.named},
                                 {"exchange_draws_of_256_ranks", drawn.of_256},
                                 {"exchange_named_of_256_ranks", drawn.named_of_256},
                                 {"exchange_others_named", drawn.others},
                                 {"exchange_windows_until_named", quantile(drawn.windows, 0.5)},
                                 {"exchange_windows_at_most", quantile(drawn.windows, 1)}};
  figures["exchange_clean_windows"] = windows;
  figures["exchange_false_alarms"] = false_link_alarms(windows);
  int found = 0, others = 0;
  for (int draw = 0; draw < trained; ++draw) {
    found += slow_trained_exchange(static_cast<uint64_t>(draw), others);
    so_far(nlohmann::ordered_json{{"trained", draw + 1}, {"named", found}, {"others_named", others}}.dump(2));
  }
  figures.update(
      {{"exchange_trained", trained}, {"exchange_trained_named", found}, {"exchange_trained_others", others}});
  return figures;
}

// Windows of work as it was drawn, of 2 to 32 ranks, half of them with hot experts and uneven waits; alarms of
// ranks and of waits.
int false_alarms(int64_t windows) {
  int alarms = 0;
  for (int64_t done = 0, group = 0; done < windows; ++group) {
    const int ranks = std::array{2, 4, 8, 32}[static_cast<size_t>(group % 4)];
    session::SlowRanks slow(std::vector<int>(static_cast<size_t>(ranks), 0));
    session::LongWaits waits;
    const RandomKey key = RandomKey(77).with(static_cast<uint64_t>(group));
    uint64_t at = 0;
    for (int64_t step = 1; step <= 50 * kWindow; ++step) {
      train::StepResult result;
      result.step = step;
      double longest_s = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto noise = [&] { return jitter_of(key, static_cast<int64_t>(at++)); };
        train::RankWork work{0.2 * noise(), 0.4 * noise(), 0.05 * noise(), 0, 0};
        work.expert_rows = r % 4 == 3 ? 4000 : 1000 * noise();
        work.experts_s = 2e-5 * work.expert_rows * noise();
        longest_s = std::max(longest_s, work.forward_s + work.backward_s + work.update_s + work.experts_s);
        result.work.push_back(work);
      }
      result.seconds = longest_s + 0.05 * jitter_of(key, static_cast<int64_t>(at++));
      waits.add(result);
      if (!slow.add(step, result.work)) continue;
      waits.judge(slow.suspected_s());
      alarms += static_cast<int>(slow.found().size()) + waits.found();
      ++done;
    }
  }
  return alarms;
}

// Median of the ratios of steps with a level to steps without, in turn; less 1.
double cost_of(int pairs, bool level1) {
  const config::RunConfig config = config_of(2);
  std::vector<double> ratios;
  comm::run_on_threads(2, [&](comm::World& plain) {
    comm::CallLog log(plain.rank(), 2, "host", 0);
    comm::NotedWorld noted(plain, log);
    std::array<std::unique_ptr<train::Trainer>, 2> trainers;
    for (int with = 0; with < 2; ++with) {
      comm::World& world = with == 1 && level1 ? static_cast<comm::World&>(noted) : plain;
      trainers[static_cast<size_t>(with)] =
          std::make_unique<train::Trainer>(train::trainer_options_of(config), &world);
      trainers[static_cast<size_t>(with)]->initialise();
      const ir::StepProgram& program = trainers[0]->lowered().program;
      set_pace(trainers[static_cast<size_t>(with)]->executor(), pace_of(program, -1, -1, 0, 1));
    }
    session::RankWatch watch(*trainers[1], &plain, {1, 1});
    std::array<uint64_t, 2> steps{};
    const auto seconds = [&](size_t with) {
      train::Trainer& trainer = *trainers[with];
      const auto sequences = train::random_sequences(trainer, 2, ++steps[with]);
      const double began_s = now_s();
      const train::StepResult result = trainer.step(sequences);
      // The first window's probes of links are once a run and no part of a step.
      if (with == 1 && !level1 && steps[with] % kWindow != 0) (void)watch.after(result);
      return now_s() - began_s;
    };
    for (int pair = 0; pair < pairs; ++pair) {
      std::array<double, 2> s{};
      const size_t first = static_cast<size_t>(pair % 2);
      s[first] = seconds(first);
      s[1 - first] = seconds(1 - first);
      if (plain.rank() == 0) ratios.push_back(s[1] / s[0]);
    }
  });
  return quantile(ratios, 0.5) - 1;
}

}  // namespace

int run(Arguments& arguments) {
  int draws = 100, pairs = 300, trained_links = 10;
  int64_t windows = 3000;
  bool json = false, only_links = false;
  arguments.number("--draws", draws);
  arguments.number("--trained-links", trained_links);
  arguments.number("--windows", windows);
  arguments.number("--pairs", pairs);
  arguments.flag("--links", only_links);
  arguments.flag("--json", json);
  arguments.read();
  const auto told = [json](const nlohmann::ordered_json& figures) {
    if (json) {
      fmt::print("{}\n", figures.dump(2));
    } else {
      for (const auto& [key, value] : figures.items()) fmt::print("{:<28} {}\n", key, value.dump());
    }
    return 0;
  };
  const nlohmann::ordered_json of_links = figures_of_links(draws, trained_links, windows);
  if (only_links) return told(of_links);
  const PacedTimer timer;
  int found = 0, named = 0, victims = 0, links = 0;
  for (int draw = 0; draw < draws; ++draw) {
    const RankDraw one = slow_rank(static_cast<uint64_t>(draw));
    found += one.found;
    named += one.op;
    bool blamed = one.others;
    links += slow_link(static_cast<uint64_t>(draw), blamed);
    victims += blamed;
    so_far(nlohmann::ordered_json{{"draws", draw + 1},
                                  {"found", found},
                                  {"op_named", named},
                                  {"link_found", links},
                                  {"victims_blamed", victims}}
               .dump(2));
  }
  const double n = draws;
  nlohmann::ordered_json figures{{"draws", draws},
                                 {"found", found / n},
                                 {"op_named", named / n},
                                 {"link_found", links / n},
                                 {"victims_blamed", victims},
                                 {"clean_windows", windows},
                                 {"false_alarms", false_alarms(windows)},
                                 {"level0_cost", cost_of(pairs, false)},
                                 {"level1_cost", cost_of(pairs, true)},
                                 {"processor_use", timer.elapsed().processor_use()}};
  figures.update(of_links);
  return told(figures);
}

}  // namespace heddle::bench
