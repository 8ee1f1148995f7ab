// The table of services, and the order in which a run calls one.
#include "heddle/session/services/services.h"

#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <set>

#include "heddle/comm/threads/thread_world.h"
#include "heddle/comm/world.h"
#include "heddle/session/training_run.h"
#include "heddle/train/trainer.h"
#include "tests/session/tiny_run.h"

namespace heddle::session {
namespace {

constexpr int kRanks = 2;

// The calls that this test's services saw, by rank; and the rank and step after which one asks to stop.
struct Seen {
  std::mutex mutex;
  std::vector<std::string> calls[kRanks];
  std::vector<double> sums[kRanks];  // of what each rank gave, a step each
  int64_t stops_after = 0;
  int reports = 0;
};
Seen* seen = nullptr;

class Fake final : public Service {
 public:
  explicit Fake(RunContext& run) : Service(run), rank_(run.place.world->rank()) {}

  void start() override { note("start"); }
  Wishes wishes() override {
    return {.stop = rank_ == 1 && seen->stops_after > 0 && run_.trainer->steps_done() == seen->stops_after};
  }
  void grant(const Wishes& wished) override {
    if (wished.stop) note("stop");
  }
  void before(int64_t step) override { note(fmt::format("before {}", step)); }
  void after(StepRecord& record) override {
    note(fmt::format("after {}", record.metrics.step));  // which a service before this one has filled in
    std::array<double, 1> sum{rank_ + 1.0};
    run_.trainer->ranks().sum(sum);
    seen->sums[rank_].push_back(sum[0]);
  }
  void end() override { note("end"); }
  void report(observe::ReportData&) override { ++seen->reports; }

 private:
  void note(const std::string& call) {
    const std::lock_guard lock(seen->mutex);
    seen->calls[rank_].push_back(call);
  }
  int rank_;
};

ServiceRows with_fake() {
  ServiceRows rows = service_rows();
  rows.push_back({"fake", [](const RunContext&) { return true; },
                  [](RunContext& run) -> std::unique_ptr<Service> { return std::make_unique<Fake>(run); }});
  rows.push_back({"never", [](const RunContext&) { return false; },
                  [](RunContext& run) -> std::unique_ptr<Service> { return std::make_unique<Fake>(run); }});
  return rows;
}

RunSummary run_on_two(const ScratchFolder& scratch) {
  RunSummary summary;
  const std::string toml = tiny_run(scratch);
  comm::run_on_threads(kRanks, [&](comm::World& world) {
    RankPlace place;
    place.world = &world;
    place.threads = true;
    Telling telling;
    telling.progress.quiet = true;
    RunSummary own = TrainingRun(config::parse_run_config(toml, "test"), false, telling, place, with_fake()).run();
    if (world.rank() == 0) summary = std::move(own);
  });
  return summary;
}

TEST(Services, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const ServiceRow& row : service_rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(Services, AreCalledInOrderOnEveryRank) {
  const ScratchFolder scratch;
  Seen all;
  seen = &all;
  const RunSummary summary = run_on_two(scratch);
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(all.calls[rank], (std::vector<std::string>{"start", "before 1", "after 1", "before 2", "after 2",
                                                         "before 3", "after 3", "end"}));
    EXPECT_EQ(all.sums[rank], (std::vector<double>{3, 3, 3}));
  }
  EXPECT_EQ(all.reports, 3) << "after two evaluations and at the end, on rank 0";
  EXPECT_EQ(summary.steps, 3);
  EXPECT_FALSE(summary.interrupted);
}

TEST(Services, WishOfOneRankIsGrantedOnAll) {
  const ScratchFolder scratch;
  Seen all;
  all.stops_after = 1;
  seen = &all;
  const RunSummary summary = run_on_two(scratch);
  for (const auto& calls : all.calls)
    EXPECT_EQ(calls, (std::vector<std::string>{"start", "before 1", "after 1", "stop", "end"}));
  EXPECT_TRUE(summary.interrupted);
  EXPECT_TRUE(summary.checkpoint.ends_with("step-000001")) << summary.checkpoint;
}

}  // namespace
}  // namespace heddle::session
