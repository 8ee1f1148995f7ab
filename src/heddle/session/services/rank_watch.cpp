// Finds slow ranks and links, and tells them: as alarms, as figures, in the summary and in the report.
#include "heddle/session/ranks/rank_watch.h"

#include "heddle/base/files/output_file.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"
#include "heddle/session/slow/alarms.h"

namespace heddle::session {

namespace {

std::string text_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

class RankWatchService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    RankWatch& watch = *run_.ranks;
    tell(watch.after(record.result));
    if (const auto times = watch.take_op_times(); times && run_.leads()) {
      run_.logs->attempt("op times",
                         [&] { write_file(run_.folder.op_times(), *times, OutputFile::Flush::to_system); });
      run_.terminal.line(fmt::format("times of ops: {}", run_.folder.op_times()));
    }
    const std::optional<std::vector<NamedSlowRank>> slow = watch.slow();
    if (!slow) return;
    nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
    for (const NamedSlowRank& rank : *slow) ranks.push_back(json_of(rank));
    run_.summary.slow_ranks = text_of(ranks);
    const auto [links, named] = watch.slow_links();
    run_.summary.slow_links = text_of(named);
    record.metrics.set(observe::figures::kSlowRanks, static_cast<double>(slow->size()));
    if (!named.is_null()) record.metrics.set(observe::figures::kSlowLinks, static_cast<double>(links));
    record.metrics.alarm = watch.summary();
  }

  void end() override { tell(run_.ranks->rest()); }

  void report(observe::ReportData& data) override { data.ranks = run_.ranks->speeds(); }

 private:
  void tell(const std::vector<Alarm>& alarms) {
    if (run_.leads()) run_.alarms->tell(alarms, run_.trainer->steps_done(), *run_.logs);
  }
};

}  // namespace

std::unique_ptr<Service> make_rank_watch(RunContext& run) { return std::make_unique<RankWatchService>(run); }

}  // namespace heddle::session
