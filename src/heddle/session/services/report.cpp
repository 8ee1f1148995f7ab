// Writes the report of the run, after each evaluation and at the end. Services add their parts (Service::report).
#include "heddle/observe/report.h"

#include "heddle/base/clock.h"
#include "heddle/device/host/allowed_cores.h"
#include "heddle/observe/units.h"
#include "heddle/session/run_data.h"
#include "heddle/session/run_environment.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"
#include "heddle/train/step/step_work.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

namespace figures = observe::figures;

std::string number(int64_t n) { return observe::grouped_text(n); }

class ReportService final : public Service {
 public:
  using Service::Service;

  void start() override {
    began_s_ = now_s();
    began_unix_s_ = wall_time_s();
  }

  void after(StepRecord& record) override {
    if (record.evaluated) run_.within([&] { run_.patience.report(); }, [&] { write(); });
  }

  void end() override {
    run_.patience.report();
    run_.answer_signals("the report");
    write();
  }

  void report(observe::ReportData& data) override {
    data.run_name = run_.config.name;
    const std::string elapsed = observe::duration_text(data.figures.get(figures::kElapsedSeconds, 0));
    data.subtitle =
        fmt::format("{}, {} on {}: {}", observe::date_text(began_unix_s_), elapsed, host_name(), run_.folder.path);
    add_model(data);
    add_configuration(data);
    add_environment(data);
  }

 private:
  void write() {
    if (!run_.leads()) return;
    observe::ReportData data;
    data.steps = run_.logs->history();
    data.figures = observe::figures_of(data.steps);
    data.figures.set(figures::kTrainedSeconds, run_.trainer->done().seconds);
    data.figures.set(figures::kElapsedSeconds, now_s() - began_s_);
    for (const std::unique_ptr<Service>& service : run_.services) service->report(data);
    run_.summary.figures = data.figures;
    run_.summary.report = run_.logs->write_report(data) ? run_.folder.report() : "";
  }

  void add_model(observe::ReportData& data) const {
    const model::ModelConfig& model = run_.config.model;
    const model::ParameterCount count = run_.trainer->work().parameters;
    const plan::Plan& plan = run_.trainer->options().plan;
    data.model = {{"parameters", observe::count_text(static_cast<double>(count.total))},
                  {"active a token", observe::count_text(static_cast<double>(count.active))},
                  {"layers", fmt::format("{}", model.num_hidden_layers)},
                  {"experts", fmt::format("{} of {}", model.num_experts_per_tok, model.n_routed_experts)},
                  {"type", std::string(name_of(plan.dtype))}};
    if (run_.trainer->ranks().size() > 1) data.model.emplace_back("layout", plan::text_of(plan.mesh));
  }

  void add_configuration(observe::ReportData& data) const {
    const config::RunConfig usual;
    for (auto& [key, value] : config::setting_texts(run_.config)) {
      const config::Setting& setting = *config::find_setting(key);
      // A part of the model that the usual one lacks has no usual value.
      const bool lacks = key.starts_with("model.") && setting.present && !setting.present(usual);
      const bool is_usual = !lacks && setting.get(run_.config) == setting.get(usual);
      (is_usual ? data.defaults : data.configuration).emplace_back(std::move(key), std::move(value));
    }
  }

  void add_environment(observe::ReportData& data) const {
    const config::RunConfig& config = run_.config;
    const data::Dataset& dataset = *run_.data->dataset;
    const observe::RunFigures& f = data.figures;
    const RunSummary& summary = run_.summary;
    const int size = run_.trainer->ranks().size();
    const std::string steps = number(f.step);
    observe::Facts environment = {
        {"began", observe::date_text(began_unix_s_)},
        {"written", observe::date_text()},
        {"duration", fmt::format("{}, in steps {}", observe::duration_text(f.get(figures::kElapsedSeconds, 0)),
                                 observe::duration_text(f.get(figures::kTrainedSeconds, 0)))},
        {"steps", summary.first_step > 0
                      ? fmt::format("{}, of them {} before it went on", steps, number(summary.first_step))
                      : steps},
        {"tokens",
         fmt::format("{} trained on; a step has {}", number(config.tokens_after(run_.trainer->steps_done())),
                     number(config.train.global_batch * config.train.sequence_length))},
        {"data", config.data.source},
        {"text", fmt::format("{} tokens, {} sequences of {} to train on, {} held out", number(dataset.tokens()),
                             number(dataset.train_sequences()), number(config.train.sequence_length),
                             number(dataset.heldout_sequences()))},
        {"ranks", size == 1
                      ? "1"
                      : fmt::format("{}, {}", size, run_.place.threads ? "threads of one process" : "processes")},
        {"threads a rank", fmt::format("{}", run_.trainer->options().threads)},
        {"backend", config.device.backend},
        {"host", host_name()},
        {"processor", fmt::format("{}, {} cores for this process", processor_text(), device::allowed_cores())},
        {"heddle", version_text()},
        {"command", command_text()},
        {"folder", run_.folder.path}};
    data.environment.insert(data.environment.begin(), environment.begin(), environment.end());
  }

  double began_s_ = 0, began_unix_s_ = 0;
};

}  // namespace

std::unique_ptr<Service> make_report(RunContext& run) { return std::make_unique<ReportService>(run); }

}  // namespace heddle::session
