#include "heddle/session/services/services.h"

#include "heddle/base/files/fence.h"
#include "heddle/base/holder.h"

namespace heddle::session {

namespace {

bool always(const RunContext&) { return true; }
bool on_first_rank(const RunContext& run) { return run.leads(); }

}  // namespace

const ServiceRows& service_rows() {
  using Run = const RunContext&;
  // clang-format off
  static const ServiceRows rows = {
      {"signals", always, make_signals},
      {"trace", [](Run r) { return r.config.train.trace_step > 0 || r.telling.trace; }, make_trace},
      {"op times", always, make_op_times},
      {"step figures", always, make_step_figures},
      {"expert figures", [](Run r) { return r.config.model.has_experts(); }, make_expert_figures},
      {"outliers", [](Run r) { return r.config.plan.update.skips_outliers(); }, make_outliers},
      {"arena", always, make_arena},
      {"rank watch", always, make_rank_watch},
      {"traffic", always, make_traffic},
      {"prediction", [](Run r) { return r.place.predicted_s > 0; }, make_prediction},
      {"frequency", always, make_frequency},
      {"audit", always, make_audit},
      {"evaluation", [](Run r) { return r.config.train.eval_every > 0; }, make_evaluation},
      {"folder", on_first_rank, make_folder},
      {"data progress", on_first_rank, make_data_progress},
      {"logs", on_first_rank, make_logs},
      {"step listener", [](Run r) { return r.leads() && holder() != nullptr && holder()->step; }, make_step_listener},
      {"checkpoint", always, make_checkpoint},
      {"report", always, make_report},
      {"mlflow", [](Run r) { return r.leads() && !r.telling.mlflow.empty(); }, make_mlflow},
      {"prometheus", [](Run r) { return r.leads() && !r.telling.prometheus.empty(); }, make_prometheus},
      {"alarm command", on_first_rank, make_alarm_command},
      {"launcher note",
       [](Run r) { return r.leads() && r.place.world != nullptr && !r.place.threads && !own_fence(); },
       make_launcher_note},
      {"step limit", always, make_step_limit},
  };
  // clang-format on
  return rows;
}

}  // namespace heddle::session
