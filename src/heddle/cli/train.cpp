// heddle train.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/training_run.h"
#include "heddle/observe/units.h"

namespace heddle::cli {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const RunSummary& s) {
  Json json{{"folder", s.folder},
            {"checkpoint", s.checkpoint},
            {"report", s.report},
            {"first_step", s.first_step},
            {"steps", s.steps},
            {"interrupted", s.interrupted},
            {"seconds", s.seconds},
            {"loss", s.loss},
            {"held_out_loss", nullptr},
            {"tokens_per_s", s.tokens_per_s},
            {"flops_per_s", s.flops_per_s},
            {"predicted_reserved_bytes", s.predicted_reserved_bytes},
            {"reserved_bytes", s.reserved_bytes}};
  if (s.held_out_loss) json["held_out_loss"] = *s.held_out_loss;
  return json;
}

void print(const RunSummary& s) {
  fmt::print("{} after {} steps in {}: loss {}", s.interrupted ? "stopped" : "done", s.steps,
             duration_text(s.seconds), number_text(s.loss));
  if (s.held_out_loss) fmt::print(", held-out {}", number_text(*s.held_out_loss));
  fmt::print("\nmedian {}, {}; arena {} (predicted {})\n", count_text(s.tokens_per_s, "tok/s"),
             count_text(s.flops_per_s, "FLOP/s"), bytes_text(static_cast<double>(s.reserved_bytes)),
             bytes_text(static_cast<double>(s.predicted_reserved_bytes)));
  fmt::print("report      {}\ncheckpoint  {}\n", s.report, s.checkpoint);
  fmt::print("{}", s.interrupted ? "go on with --resume\n"
                                 : fmt::format("try         heddle generate {} --prompt \"The \"\n", s.folder));
}

}  // namespace

int train(const TrainOptions& options) {
  std::vector<std::string> set = options.set;
  if (options.steps > 0) set.push_back(fmt::format("train.steps={}", options.steps));
  TrainingRun run(train::read_run_config(options.config, set), options.resume, options.trace);
  const RunSummary summary = run.run();
  if (options.json) {
    fmt::print("{}\n", json_of(summary).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print(summary);
  }
  return summary.interrupted ? kInterrupted : kDone;
}

}  // namespace heddle::cli
