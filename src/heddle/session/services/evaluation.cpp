// Every train.eval_every steps, and after the last one: the loss on the held-out text, and a continuation of the
// sample prompt.
#include <algorithm>

#include "heddle/observe/report.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/terminal.h"
#include "heddle/session/pairs/references.h"
#include "heddle/session/run_data.h"
#include "heddle/session/services/services.h"
#include "heddle/session/text/continue_text.h"
#include "heddle/train/evaluate.h"

namespace heddle::session {

namespace {

namespace figures = observe::figures;

class EvaluationService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    const config::RunConfig::Train& train = run_.config.train;
    const int64_t step = record.result.step;
    const bool is_last = run_.is_over() && step == run_.trainer->steps_done();
    if (step % train.eval_every != 0 && !is_last) return;
    record.evaluated = true;
    record.plain = false;
    run_.within([&] { run_.patience.look(train.eval_sequences, run_.tokenizer ? train.sample_tokens : 0); },
                [&] {
                  evaluate(record.metrics);
                  if (run_.tokenizer && train.sample_tokens > 0) sample(step);
                });
  }

  void report(observe::ReportData& data) override { data.samples = samples_; }

 private:
  void evaluate(observe::StepMetrics& metrics) {
    run_.answer_signals("the evaluation on the held-out text");
    measure(metrics);
    std::string line = fmt::format("step {}", metrics.step);
    if (const auto loss = metrics.get(figures::kHeldOutLoss))
      line += fmt::format(": held-out loss {}", text_of(figures::kHeldOutLoss, *loss));
    if (run_.leads()) run_.terminal.line(line);
  }

  void measure(observe::StepMetrics& metrics) {
    const int64_t count = run_.config.train.eval_sequences;
    if (run_.config.plan.objective.of_pairs()) {
      const train::Preference found = look_at_pairs(count, *run_.trainer, *run_.data);
      if (found.pairs == 0) return;
      metrics.set(figures::kHeldOutLoss, found.loss);
      metrics.set(figures::kHeldOutRewardMargin, found.margin);
      metrics.set(figures::kHeldOutRewardAccuracy, found.accuracy);
      return;
    }
    const train::Sequences heldout = run_.data->heldout(count);
    if (!heldout.empty()) metrics.set(figures::kHeldOutLoss, train::evaluate(*run_.trainer, heldout));
  }

  void sample(int64_t step) {
    const config::RunConfig::Train& train = run_.config.train;
    observe::SampleText sample{train.sample_prompt, "", step};
    sample.continuation = continue_text(*run_.trainer, *run_.tokenizer, sample.prompt,
                                        {.tokens = train.sample_tokens,
                                         .sampling = {.temperature = train.sample_temperature},
                                         .seed = static_cast<uint64_t>(run_.config.seed)});
    if (!run_.leads()) return;
    std::string shown = terminal_text(sample.prompt + sample.continuation);
    std::replace(shown.begin(), shown.end(), '\n', ' ');
    run_.terminal.line("  " + observe::cut_to_width(shown, std::max(20, observe::terminal_columns(2) - 2)));
    samples_.push_back(std::move(sample));
  }

  std::vector<observe::SampleText> samples_;
};

}  // namespace

std::unique_ptr<Service> make_evaluation(RunContext& run) { return std::make_unique<EvaluationService>(run); }

}  // namespace heddle::session
