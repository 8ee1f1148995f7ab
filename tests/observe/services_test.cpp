// What other programs watch a run by: Prometheus's page, MLflow's files, a log read while it grows, a curve as
// text.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/observe/runs/metrics_tail.h"
#include "heddle/observe/services/mlflow.h"
#include "heddle/observe/services/prometheus.h"
#include "heddle/observe/terminal/text_chart.h"
#include "heddle/observe/units.h"
#include "tests/support/scratch_folder.h"

namespace heddle::observe {
namespace {

StepMetrics metrics_at_services(int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.wall_time_s = 1700000000.5;
  metrics.set(figures::kLoss, loss);
  metrics.set(figures::kDroppedShare, "3", 0.25);
  metrics.set(figures::kDroppedShare, "4", 0.5);
  return metrics;
}

std::string read_all_services(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

int connected_to(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  return socket;
}

std::string asked(int port, const std::string& request) {
  const int socket = connected_to(port);
  const std::string whole = request + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(::send(socket, whole.data(), whole.size(), MSG_NOSIGNAL), static_cast<ssize_t>(whole.size()));
  std::string answer(1 << 16, '\0');
  size_t size = 0;
  for (ssize_t n; (n = ::recv(socket, answer.data() + size, answer.size() - size, 0)) > 0;)
    size += static_cast<size_t>(n);
  ::close(socket);
  return answer.substr(0, size);
}

TEST(Prometheus, TellsTheLastStep) {
  PrometheusPort port("127.0.0.1:0", "a \"run\"\\");
  EXPECT_NE(asked(port.port(), "GET /metrics").find("200 OK"), std::string::npos);  // before the first step too
  port.set(metrics_at_services(3, 2.5));
  port.set(metrics_at_services(4, std::numeric_limits<double>::quiet_NaN()));
  const std::string answer = asked(port.port(), "GET /metrics");
  EXPECT_NE(answer.find("text/plain; version=0.0.4"), std::string::npos);
  EXPECT_NE(answer.find("# TYPE heddle_step gauge\nheddle_step{run=\"a \\\"run\\\"\\\\\"} 4\n"), std::string::npos)
      << answer;
  EXPECT_NE(answer.find("heddle_lm_loss{run=\"a \\\"run\\\"\\\\\"} NaN\n"), std::string::npos);
  EXPECT_NE(answer.find("# TYPE heddle_dropped_share gauge\n"
                        "heddle_dropped_share{run=\"a \\\"run\\\"\\\\\",layer=\"3\"} 0.25\n"
                        "heddle_dropped_share{run=\"a \\\"run\\\"\\\\\",layer=\"4\"} 0.5\n"),
            std::string::npos)
      << answer;
  EXPECT_EQ(answer.find("held_out"), std::string::npos) << "what was not measured is not told";
}

TEST(Prometheus, RefusesAllElse) {
  PrometheusPort port("127.0.0.1:0", "run");
  EXPECT_NE(asked(port.port(), "GET /").find("404"), std::string::npos);
  EXPECT_NE(asked(port.port(), "POST /metrics").find("405"), std::string::npos);
  EXPECT_THROW(PrometheusPort(fmt::format("127.0.0.1:{}", port.port()), "two"), SystemError);
  for (const char* bad : {"", "9464", ":9464", "localhost:9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999",
                          "127.0.0.1:9464 ", "[::1:9464", "::1:9464"})
    EXPECT_THROW(PrometheusPort(bad, "run"), ConfigError) << bad;
}

// Connections that ended in the middle of a request would take all places until they time out, after ten seconds.
TEST(Prometheus, BrokenRequestsKeepNobodyWaiting) {
  PrometheusPort port("127.0.0.1:0", "run");
  const double start_s = now_s();
  for (int i = 0; i < 64; ++i) {
    const int socket = connected_to(port.port());
    EXPECT_EQ(::send(socket, "POST /metrics HT\r", 17, MSG_NOSIGNAL), 17);
    ::close(socket);
  }
  EXPECT_NE(asked(port.port(), "GET /metrics").find("200 OK"), std::string::npos);
  EXPECT_LT(now_s() - start_s, 8);
}

// Connections that say nothing, or a byte now and then, keep nobody out either, however many they are.
TEST(Prometheus, IdleConnectionsKeepNobodyWaiting) {
  PrometheusPort port("127.0.0.1:0", "run");
  const double start_s = now_s();
  std::vector<int> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(connected_to(port.port()));
  for (const int socket : idle) ::send(socket, "G", 1, MSG_NOSIGNAL);
  EXPECT_NE(asked(port.port(), "GET /metrics").find("200 OK"), std::string::npos);
  EXPECT_LT(now_s() - start_s, 8);
  // Each ends within its time, dripping or not.
  int ended = 0;
  for (const double until_s = now_s() + 60; ended < std::ssize(idle) && now_s() < until_s;) {
    ended = 0;
    for (const int socket : idle) {
      ::send(socket, "E", 1, MSG_NOSIGNAL);
      char some = 0;
      const ssize_t got = ::recv(socket, &some, 1, MSG_DONTWAIT);
      ended += got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(ended, std::ssize(idle));
  for (const int socket : idle) ::close(socket);
}

TEST(Prometheus, AnswersOtherForms) {
  PrometheusPort port("127.0.0.1:0", "run");
  EXPECT_NE(asked(port.port(), "GET /metrics?name=a").find("200 OK"), std::string::npos);
  const std::string head = asked(port.port(), "HEAD /metrics");
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  EXPECT_NE(asked(port.port(), "nonsense").find("400"), std::string::npos);
}

TEST(Mlflow, WritesItsFileStore) {
  const ScratchFolder folder;
  const std::string root = folder.path().string() + "/mlruns";
  const MlflowRun::Names names{"an experiment", "runs/one", {{"train.steps", "7"}}};
  {
    MlflowRun run(root, names, false);
    run.add(metrics_at_services(1, 3.25));
    run.add(metrics_at_services(2, std::numeric_limits<double>::infinity()));
    run.finish(true);
  }
  const std::string experiment = std::filesystem::directory_iterator(root)->path().string();
  std::string run;
  for (const auto& entry : std::filesystem::directory_iterator(experiment)) {
    if (entry.is_directory()) run = entry.path().string();
  }
  EXPECT_NE(read_all_services(experiment + "/meta.yaml").find("name: \"an experiment\"\n"), std::string::npos);
  EXPECT_NE(read_all_services(run + "/meta.yaml").find("status: 3\n"), std::string::npos);
  EXPECT_EQ(read_all_services(run + "/metrics/lm_loss"), "1700000000500 3.25 1\n1700000000500 inf 2\n");
  EXPECT_EQ(read_all_services(run + "/params/train.steps"), "7");
  MlflowRun(root, names, true).add(metrics_at_services(3, 3));  // the same run goes on
  EXPECT_NE(read_all_services(run + "/metrics/lm_loss").find(" 3 3\n"), std::string::npos);
  MlflowRun again(root, names, false);
  EXPECT_FALSE(std::filesystem::exists(run + "/metrics/lm_loss"));
}

TEST(MetricsTail, FollowsALog) {
  const ScratchFolder folder;
  const std::string path = folder.path().string() + "/metrics.jsonl";
  MetricsTail tail(path);
  EXPECT_FALSE(tail.read());
  MetricsLog log = MetricsLog::begin(path);
  log.add(metrics_at_services(1, 4));
  log.add(metrics_at_services(2, 3));
  EXPECT_TRUE(tail.read());
  EXPECT_FALSE(tail.read());
  ASSERT_EQ(tail.steps().size(), 2u);
  const std::string line = metrics_line(metrics_at_services(3, 2.5));
  std::ofstream(path, std::ios::app) << "no step\n" << line.substr(0, 10);
  EXPECT_FALSE(tail.read());
  std::ofstream(path, std::ios::app) << line.substr(10) << "\n" << metrics_line(metrics_at_services(2, 9)) << "\n";
  EXPECT_TRUE(tail.read());
  ASSERT_EQ(tail.steps().size(), 2u) << "a step that comes again takes the place of the later ones";
  EXPECT_EQ(tail.steps()[1].get(figures::kLoss), 9);
  MetricsLog::begin(path).add(metrics_at_services(1, 7));
  EXPECT_TRUE(tail.read());
  ASSERT_EQ(tail.steps().size(), 1u);
  EXPECT_EQ(tail.steps()[0].get(figures::kLoss), 7);
}

TEST(TextChart, DrawsAFall) {
  TextChart chart{"loss", {}, {}, [](double v) { return number_text(v); }, 24, 5, false};
  EXPECT_EQ(text_chart(chart), "");
  for (int i = 0; i <= 21; ++i) {
    chart.x.push_back(i + 1);
    chart.y.push_back(3 - i / 8);
  }
  EXPECT_EQ(text_chart(chart),
            "loss\n"
            "3 ********\n"
            "          ********\n"
            "1                 ******\n"
            "  1                   22\n");
  chart.y[3] = std::numeric_limits<double>::quiet_NaN();
  chart.unicode = true;
  EXPECT_NE(text_chart(chart).find("⠉"), std::string::npos);
}

}  // namespace
}  // namespace heddle::observe
