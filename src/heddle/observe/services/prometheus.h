// The figures of the last step on a port, in Prometheus's text format: GET /metrics.
//
// It listens at the given address and nowhere else, answers GET alone and reads no body; `metrics_text` is what a
// scrape gets. A connection has two seconds for its one request and the answer. Source: Prometheus's exposition
// format, version 0.0.4.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <thread>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// A line of help and type and a gauge for each figure, labelled with the run's name.
std::string metrics_text(const StepMetrics& metrics, const std::string& run);

class PrometheusPort {
 public:
  /// "127.0.0.1:9464", "[::1]:9464"; port 0: any free one. ConfigError for what is no address, SystemError where it
  /// can't be listened at.
  PrometheusPort(const std::string& address, std::string run);
  ~PrometheusPort();

  int port() const;
  void set(const StepMetrics& metrics);
  std::string text() const;

 private:
  void run_loop();

  std::string run_;
  mutable std::mutex mutex_;
  std::string text_;
  int listener_ = -1;
  std::array<int, 2> wake_{-1, -1};  // ends the thread
  std::thread thread_;
};

}  // namespace heddle::observe
