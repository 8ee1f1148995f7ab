#include "heddle/observe/services/prometheus.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::observe {

namespace {

constexpr size_t kMostCallers = 64, kMostRequestBytes = 8192;
constexpr auto kPatience = std::chrono::seconds(2);

std::string prometheus_number(double value) {
  return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value);
}

// Escapes backslash, quote and line feed of a label.
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

// A connection. It has until its deadline to ask, and to take the answer and leave.
struct Caller {
  int socket;
  std::chrono::steady_clock::time_point deadline;
  std::string asked, answer;
  size_t sent = 0;
  bool answered = false;  // later bytes are read over, so that the answer is not lost with them
};

std::string answer_to(std::string_view asked, const std::string& text) {
  const std::string_view line = asked.substr(0, asked.find_first_of("\r\n"));
  const size_t method = line.find(' '), path = method == line.npos ? line.npos : line.find(' ', method + 1);
  std::string_view status = "200 OK", body = text;
  const std::string_view called = line.substr(0, method);
  if (path == line.npos || !line.substr(path + 1).starts_with("HTTP/1.")) {
    status = "400 Bad Request", body = "";
  } else if (called != "GET" && called != "HEAD") {
    status = "405 Method Not Allowed", body = "";
  } else if (const std::string_view at = line.substr(method + 1, path - method - 1);
             at.substr(0, at.find('?')) != "/metrics") {
    status = "404 Not Found", body = "/metrics\n";
  }
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      status, body.size(), called == "HEAD" ? "" : body);
}

// True if there is more to do with it; `make` makes the answer to a request.
bool serve(Caller& caller, const std::function<std::string(std::string_view)>& make) {
  std::array<char, 4096> some{};
  while (caller.answer.empty() || caller.answered) {
    const ssize_t got = ::recv(caller.socket, some.data(), some.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0) return false;
    if (caller.answered) continue;
    caller.asked.append(some.data(), static_cast<size_t>(got));
    const bool whole = caller.asked.find("\r\n\r\n") != std::string::npos;
    if (!whole && caller.asked.size() > kMostRequestBytes) return false;
    if (whole) caller.answer = make(caller.asked);
  }
  while (caller.sent < caller.answer.size()) {
    const ssize_t sent =
        ::send(caller.socket, caller.answer.data() + caller.sent, caller.answer.size() - caller.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    caller.sent += static_cast<size_t>(sent);
  }
  ::shutdown(caller.socket, SHUT_WR);
  caller.answered = true;
  return true;
}

// The name of a row's numbers; of a family without the index, which is a label: a name has no dots.
std::string family_name(const Figure& row) {
  std::string name(row.key);
  if (row.each.empty()) return name;
  if (const size_t dot = name.find('.'); dot != name.npos) return name.substr(0, dot);
  return name.replace(name.find("{}"), 2, row.each);
}

}  // namespace

std::string metrics_text(const StepMetrics& metrics, const std::string& run) {
  std::string text, last;
  const auto add = [&](const std::string& name, std::string_view what, const std::string& more, double value) {
    if (std::exchange(last, name) != name)
      text += fmt::format("# HELP heddle_{0} {1}\n# TYPE heddle_{0} gauge\n", name, what);
    text += fmt::format("heddle_{}{{run=\"{}\"{}}} {}\n", name, label(run), more, prometheus_number(value));
  };
  add("step", "Steps done.", "", static_cast<double>(metrics.step));
  add("wall_time_s", "Time of the step's end, in seconds since 1970.", "", metrics.wall_time_s);
  for (const Figures::Number& each : metrics.numbers()) {
    const Figure& row = *each.row;
    add(family_name(row), row.meaning,
        row.each.empty() ? "" : fmt::format(",{}=\"{}\"", row.each, label(each.index)), each.value);
  }
  return text;
}

PrometheusPort::PrometheusPort(const std::string& address, std::string run) : run_(std::move(run)) {
  const Address at = address_of(address);
  const auto* name = reinterpret_cast<const sockaddr*>(&at.storage);
  const int on = 1;
  listener_ = ::socket(name->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool listens = listener_ >= 0 && ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(listener_, name, sizeof at.storage) == 0 && ::listen(listener_, SOMAXCONN) == 0;
  if (!listens || ::pipe2(wake_.data(), O_CLOEXEC) != 0) {
    const int code = errno;
    if (listener_ >= 0) ::close(listener_);
    throw SystemError(code, fmt::format("--prometheus: cannot listen at {}: {}", address, std::strerror(code)));
  }
  sigset_t all, before;  // signals are for the program's own threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run_loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PrometheusPort::~PrometheusPort() {
  ::close(wake_[1]);  // the other end reads its end
  thread_.join();
  ::close(wake_[0]);
  ::close(listener_);
}

// The oldest of many connections makes room: a slow one keeps nobody else out.
void PrometheusPort::run_loop() {
  using std::chrono::steady_clock;
  std::deque<Caller> callers;
  for (;;) {
    std::vector<pollfd> awaited{{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Caller& caller : callers) {
      const bool asks = caller.answer.empty() || caller.answered;
      awaited.push_back({caller.socket, static_cast<short>(asks ? POLLIN : POLLOUT), 0});
    }
    int patience_ms = -1;
    if (!callers.empty()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(callers.front().deadline - steady_clock::now());
      patience_ms = static_cast<int>(std::max<int64_t>(0, left.count()));
    }
    if (::poll(awaited.data(), awaited.size(), patience_ms) < 0 && errno != EINTR) return;
    if (awaited[0].revents != 0) break;
    const auto now = steady_clock::now();
    std::deque<Caller> left;
    for (size_t i = 0; i < callers.size(); ++i) {
      Caller& caller = callers[i];
      const auto make = [&](std::string_view asked) { return answer_to(asked, text()); };
      const bool stays = caller.deadline > now && (awaited[i + 2].revents == 0 || serve(caller, make));
      if (stays) {
        left.push_back(std::move(caller));
      } else {
        ::close(caller.socket);
      }
    }
    callers = std::move(left);
    if (awaited[1].revents == 0) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (callers.size() == kMostCallers) {
      ::close(callers.front().socket);
      callers.pop_front();
    }
    callers.push_back({socket, now + kPatience, "", ""});
  }
  for (const Caller& caller : callers) ::close(caller.socket);
}

int PrometheusPort::port() const {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

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
