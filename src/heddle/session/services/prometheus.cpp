// Serves the figures of the last step to Prometheus. The port is opened before anything else is waited for.
#include "heddle/observe/services/prometheus.h"

#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"

namespace heddle::session {

namespace {

class PrometheusService final : public Service {
 public:
  explicit PrometheusService(RunContext& run) : Service(run), port_(run.telling.prometheus, run.config.name) {}

  void start() override {
    run_.logs->also_to("prometheus", [this](const observe::StepMetrics& metrics) { port_.set(metrics); });
    run_.terminal.line(fmt::format("figures for Prometheus: port {}, /metrics", port_.port()));
  }

 private:
  observe::PrometheusPort port_;
};

}  // namespace

std::unique_ptr<Service> make_prometheus(RunContext& run) { return std::make_unique<PrometheusService>(run); }

}  // namespace heddle::session
