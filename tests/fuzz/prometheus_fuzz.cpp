// Requests of any bytes to the port of figures: the next one is answered all the same.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>

#include "heddle/observe/services/prometheus.h"
#include "tests/fuzz/pieces.h"

namespace {

// What is answered before the other side hangs up, or has been silent for so long.
std::string send_to(int port, std::string_view request, int64_t patience_us) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int at = ::socket(AF_INET, SOCK_STREAM, 0);
  if (at < 0 || ::connect(at, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) std::abort();
  const timeval patience{patience_us / 1'000'000, patience_us % 1'000'000};
  ::setsockopt(at, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::send(at, request.data(), request.size(), MSG_NOSIGNAL);
  ::shutdown(at, SHUT_WR);
  std::string answer;
  char some[4096];
  for (ssize_t got; (got = ::recv(at, some, sizeof some, 0)) > 0 || (got < 0 && errno == EINTR);) {
    if (got > 0) answer.append(some, static_cast<size_t>(got));
  }
  ::close(at);
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle;
  static observe::PrometheusPort port("127.0.0.1:0", "fuzz");
  static const bool set = (port.set({}), true);
  send_to(port.port(), {reinterpret_cast<const char*>(data), size}, 2000);
  const std::string answer =
      send_to(port.port(), "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 10'000'000);
  if (set && !answer.starts_with("HTTP/1.1 200")) std::abort();
  return 0;
}
