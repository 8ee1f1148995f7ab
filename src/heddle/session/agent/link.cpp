#include "heddle/session/agent/link.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::session {

namespace {

constexpr double kPatience_s = 10;  // of one frame on its way
constexpr char kHello = 'H', kWelcome = 'W';

[[noreturn]] void fail(const char* doing, int code) {
  throw SystemError(code, fmt::format("cannot {} another agent: {}", doing, std::strerror(code)));
}

bool ready(int socket, short events, double wait_s) {
  pollfd look{socket, events, 0};
  return poll(&look, 1, static_cast<int>(wait_s * 1000)) > 0;
}

void put(int socket, const void* data, size_t size) {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    if (!ready(socket, POLLOUT, kPatience_s)) fail("write to", ETIMEDOUT);
    const ssize_t sent = ::send(socket, from, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) fail("write to", errno);
    from += sent;
    size -= static_cast<size_t>(sent);
  }
}

void get(int socket, void* data, size_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    if (!ready(socket, POLLIN, kPatience_s)) fail("read from", ETIMEDOUT);
    const ssize_t got = ::recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) fail("read from", ECONNRESET);
    if (got < 0) fail("read from", errno);
    to += got;
    size -= static_cast<size_t>(got);
  }
}

// That through which this host reaches others: in the kernel's table of routes the one to everywhere.
std::string default_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line, name, destination;
  while (std::getline(routes, line)) {
    std::istringstream words(line);
    if (words >> name >> destination && destination == "00000000") return name;
  }
  return "lo";
}

// In a time that does not say where they differ.
bool same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned>(a[i] ^ b[i]);
  return differs == 0;
}

}  // namespace

Link::Link(int socket) : socket_(socket) {
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}
Link::~Link() {
  if (socket_ >= 0) ::close(socket_);
}
Link::Link(Link&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

Link Link::to(const std::string& address, const std::string& token) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) config_error("'{}': HOST:PORT is expected", address);
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
    throw SystemError(EHOSTUNREACH, fmt::format("'{}' is no address that is known here", address));
  int code = EHOSTUNREACH, connected = -1;
  for (const addrinfo* at = found; at != nullptr && connected < 0; at = at->ai_next) {
    const int socket = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (socket < 0) continue;
    int error = ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      if (!ready(socket, POLLOUT, kPatience_s)) {
        error = ETIMEDOUT;
      } else if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
      }
    }
    if (error == 0) {
      connected = socket;
    } else {
      code = error;
      ::close(socket);
    }
  }
  freeaddrinfo(found);
  if (connected < 0) throw SystemError(code, fmt::format("no agent at {}: {}", address, std::strerror(code)));
  Link link(connected);
  link.send(kHello, token);
  const std::optional<Frame> answer = link.receive(kPatience_s);
  if (!answer || answer->kind != kWelcome)
    throw SystemError(EACCES, fmt::format("the agent at {} does not take us", address));
  return link;
}

void Link::send(char kind, std::string_view bytes) {
  HEDDLE_CHECK(std::ssize(bytes) < kMostFrame, "a frame of {} bytes", bytes.size());
  std::array<char, 5> head{};
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(head.data(), &size, 4);
  head[4] = kind;
  put(socket_, head.data(), head.size());
  put(socket_, bytes.data(), bytes.size());
}

std::optional<Link::Frame> Link::receive(double wait_s) {
  if (!ready(socket_, POLLIN, wait_s)) return std::nullopt;
  std::array<char, 5> head{};
  get(socket_, head.data(), head.size());
  uint32_t size = 0;
  std::memcpy(&size, head.data(), 4);
  if (size >= kMostFrame) throw SystemError(EMSGSIZE, fmt::format("another agent sends a frame of {} bytes", size));
  Frame frame{head[4], std::string(size, '\0')};
  get(socket_, frame.bytes.data(), size);
  return frame;
}

Listener::Listener(const std::string& named, std::string token) : token_(std::move(token)) {
  const std::string interface = named == "default" ? default_interface() : named;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) fail("listen for", errno);
  std::optional<sockaddr_in> address;
  std::string known;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", at->ifa_name);
    if (at->ifa_name == interface && !address) address = *reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
  }
  freeifaddrs(all);
  if (!address) config_error("--listen: no interface '{}' with an address, accepted: {}", interface, known);
  address->sin_port = 0;
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t size = sizeof *address;
  if (socket_ < 0 || ::bind(socket_, reinterpret_cast<const sockaddr*>(&*address), size) != 0 ||
      ::listen(socket_, 8) != 0 || getsockname(socket_, reinterpret_cast<sockaddr*>(&*address), &size) != 0) {
    const int code = errno;
    if (socket_ >= 0) ::close(socket_);
    fail("listen for", code);
  }
  port_ = ntohs(address->sin_port);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size());
  address_ = fmt::format("{}:{}", text.data(), port_);
}

Listener::~Listener() { ::close(socket_); }

std::optional<Link> Listener::accept(double wait_s) {
  if (!ready(socket_, POLLIN, wait_s)) return std::nullopt;
  const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) return std::nullopt;
  try {
    Link link(socket);
    const std::optional<Link::Frame> hello = link.receive(2);
    if (!hello || hello->kind != kHello || !same(hello->bytes, token_)) return std::nullopt;
    link.send(kWelcome, "");
    return link;
  } catch (const SystemError&) {
    return std::nullopt;
  }
}

}  // namespace heddle::session
