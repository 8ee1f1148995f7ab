#include "heddle/observe/services/prometheus.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle::observe {

namespace {

constexpr unsigned kMostConnections = 16, kTimeout_s = 10;

std::string number(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
}

// Of a label: backslash, quote and line feed are escaped.
std::string label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
  }
  return out;
}

struct Address {
  sockaddr_storage storage{};
  bool v6 = false;
};

Address address_of(const std::string& text) {
  const size_t colon = text.rfind(':');
  const auto refuse = [&] {
    config_error(
        "--prometheus: '{}' is no address; a number and a port are expected, as 127.0.0.1:9464 or [::1]:9464",
        text);
  };
  if (colon == std::string::npos) refuse();
  uint16_t port = 0;
  const char *first = text.data() + colon + 1, *last = text.data() + text.size();
  if (const auto [end, code] = std::from_chars(first, last, port);
      code != std::errc() || end != last || first == last)
    refuse();
  std::string host = text.substr(0, colon);
  Address address;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) != 1) refuse();
    address.v6 = true;
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) != 1) refuse();
  }
  return address;
}

MHD_Result answer(void* port, MHD_Connection* connection, const char* path, const char* method, const char*,
                  const char*, size_t* body_size, void**) {
  *body_size = 0;
  unsigned status = MHD_HTTP_OK;
  std::string text;
  if (std::strcmp(method, MHD_HTTP_METHOD_GET) != 0 && std::strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
    status = MHD_HTTP_METHOD_NOT_ALLOWED;
  } else if (std::strcmp(path, "/metrics") != 0) {
    status = MHD_HTTP_NOT_FOUND;
    text = "/metrics\n";
  } else {
    text = static_cast<const PrometheusPort*>(port)->text();
  }
  MHD_Response* response = MHD_create_response_from_buffer(text.size(), text.data(), MHD_RESPMEM_MUST_COPY);
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8");
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

std::string metrics_text(const StepMetrics& metrics, const std::string& run) {
  std::string text;
  const auto add = [&](std::string_view key, std::string_view what, double value) {
    text += fmt::format("# HELP heddle_{0} {1}\n# TYPE heddle_{0} gauge\nheddle_{0}{{run=\"{2}\"}} {3}\n", key,
                        what, label(run), number(value));
  };
  add("step", "Steps done.", static_cast<double>(metrics.step));
  add("wall_time_s", "When the step ended, seconds since 1970.", metrics.wall_time_s);
  for (const MetricField& field : metric_fields()) {
    if (const auto& value = metrics.*field.value)
      add(field.key, fmt::format("Of the last step: {}.", field.tag), *value);
  }
  for (const auto& [name, value] : metrics.extra) add(name, "Of the last step.", value);
  return text;
}

PrometheusPort::PrometheusPort(const std::string& address, std::string run) : run_(std::move(run)) {
  const Address at = address_of(address);
  errno = 0;
  // Not by epoll: it leaves connections that broken requests came by open until they time out, and no others are
  // taken meanwhile.
  daemon_ =
      MHD_start_daemon(MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD | (at.v6 ? MHD_USE_IPv6 : 0), 0, nullptr,
                       nullptr, &answer, this, MHD_OPTION_SOCK_ADDR, &at.storage, MHD_OPTION_CONNECTION_LIMIT,
                       kMostConnections, MHD_OPTION_CONNECTION_TIMEOUT, kTimeout_s, MHD_OPTION_END);
  if (daemon_ == nullptr) {
    const int code = errno != 0 ? errno : EADDRNOTAVAIL;
    throw SystemError(code, fmt::format("--prometheus: cannot listen at {}: {}", address, std::strerror(code)));
  }
}

PrometheusPort::~PrometheusPort() { MHD_stop_daemon(daemon_); }

int PrometheusPort::port() const { return MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT)->port; }

void PrometheusPort::set(const StepMetrics& metrics) {
  std::string text = metrics_text(metrics, run_);
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
}

std::string PrometheusPort::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

}  // namespace heddle::observe
