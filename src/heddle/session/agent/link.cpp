#include "heddle/session/agent/link.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/session/agent/proof.h"

namespace heddle::session {

namespace {

constexpr double kFramePatience_s = 10;  // without a byte of a frame on its way
constexpr double kMeet_s = 5;            // time from the call to the door's proof
constexpr double kGlance_s = 0.05;       // time between two checks whether to stop

[[noreturn]] void fail(const char* doing, int code) {
  throw SystemError(code, fmt::format("cannot {} another agent: {}", doing, std::strerror(code)));
}

std::string address_text(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET) return "";
  const auto& inet = reinterpret_cast<const sockaddr_in&>(address);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &inet.sin_addr, text.data(), text.size());
  return fmt::format("{}:{}", text.data(), ntohs(inet.sin_port));
}

}  // namespace

std::string own_address(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? address_text(address) : "";
}

std::string other_address(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return ::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? address_text(address) : "";
}

std::string new_nonce() {
  std::string nonce(kNonceBytes, '\0');
  while (::getrandom(nonce.data(), nonce.size(), 0) != std::ssize(nonce)) {
    if (errno != EINTR) throw SystemError(errno, "the system gives no random numbers");
  }
  return nonce;
}

Link::Link(int socket, const std::atomic<bool>* stop) : socket_(socket), stop_(stop) {
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}
Link::~Link() {
  if (socket_ >= 0) ::close(socket_);
}
Link::Link(Link&& other) noexcept : socket_(std::exchange(other.socket_, -1)), stop_(other.stop_) {}

bool Link::ready(short events, double until_s) const {
  while (true) {
    if (stop_ != nullptr && *stop_) fail("go on with", ECANCELED);
    const double left_s = std::max(0.0, until_s - now_s());
    pollfd look{socket_, events, 0};
    const double wait_s = stop_ != nullptr ? std::min(left_s, kGlance_s) : left_s;
    const int found = ::poll(&look, 1, static_cast<int>(wait_s * 1000) + (wait_s > 0 ? 1 : 0));
    if (found > 0) return true;
    if (now_s() >= until_s) return false;
  }
}

void Link::put(const void* data, size_t size) const {
  const auto* from = static_cast<const char*>(data);
  while (size > 0) {
    if (!ready(POLLOUT, now_s() + kFramePatience_s)) fail("write to", ETIMEDOUT);
    const ssize_t sent = ::send(socket_, from, size, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) fail("write to", errno);
    from += sent;
    size -= static_cast<size_t>(sent);
  }
}

// `until_s`: of all of it; 0: as long as something comes.
void Link::get(void* data, size_t size, double until_s) const {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    if (!ready(POLLIN, until_s > 0 ? until_s : now_s() + kFramePatience_s)) fail("read from", ETIMEDOUT);
    const ssize_t got = ::recv(socket_, to, size, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got == 0) fail("read from", ECONNRESET);
    if (got < 0) fail("read from", errno);
    to += got;
    size -= static_cast<size_t>(got);
  }
}

// Both prove that they know the token at the address where they have met.
void Link::greet(const std::string& address, const std::string& token) {
  const double until_s = now_s() + kMeet_s;
  const auto refuse = [&](const char* why) {
    throw SystemError(EACCES, fmt::format("the agent at {} {}", address, why));
  };
  std::string words(kDoorWords.size(), '\0'), door_nonce(kNonceBytes, '\0'), proof(kProofBytes, '\0');
  const std::string at = other_address(socket_), nonce = new_nonce();
  try {
    get(words.data(), words.size(), until_s);
    if (words != kDoorWords) refuse("is none of this version");
    get(door_nonce.data(), door_nonce.size(), until_s);
    const std::string answer = nonce + proof_of(token, Side::caller, door_nonce, nonce, at);
    put(answer.data(), answer.size());
    get(proof.data(), proof.size(), until_s);
  } catch (const SystemError& error) {
    if (error.code == ECONNRESET || error.code == EPIPE) refuse("does not take us");
    throw;
  }
  if (!same_bytes(proof, proof_of(token, Side::door, door_nonce, nonce, at)))
    refuse("does not know the job's token");
}

Link Link::to(const std::string& address, const std::string& token, const std::atomic<bool>* stop) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) config_error("'{}': HOST:PORT is expected", address);
  const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
    throw SystemError(EHOSTUNREACH, fmt::format("'{}' is no address that is known here", address));
  const double until_s = now_s() + kFramePatience_s;
  int code = EHOSTUNREACH;
  std::optional<Link> link;
  for (const addrinfo* at = found; at != nullptr && !link; at = at->ai_next) {
    const int socket = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (socket < 0) continue;
    Link tried(socket, stop);
    int error = ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      try {
        if (!tried.ready(POLLOUT, until_s)) {
          error = ETIMEDOUT;
        } else if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
          error = errno;
        }
      } catch (const SystemError& stopped) {
        error = stopped.code;
      }
    }
    if (error == 0) {
      link.emplace(std::move(tried));
    } else {
      code = error;
    }
  }
  freeaddrinfo(found);
  if (!link) throw SystemError(code, fmt::format("no agent at {}: {}", address, std::strerror(code)));
  link->greet(address, token);
  return std::move(*link);
}

void Link::send(char kind, std::string_view bytes) {
  HEDDLE_CHECK(std::ssize(bytes) < kMostFrame, "a frame of {} bytes", bytes.size());
  std::array<char, 5> head{};
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(head.data(), &size, 4);
  head[4] = kind;
  put(head.data(), head.size());
  put(bytes.data(), bytes.size());
}

std::optional<Link::Frame> Link::receive(double wait_s) {
  if (!ready(POLLIN, now_s() + wait_s)) return std::nullopt;
  std::array<char, 5> head{};
  get(head.data(), head.size(), 0);
  uint32_t size = 0;
  std::memcpy(&size, head.data(), 4);
  if (size >= kMostFrame) throw SystemError(EMSGSIZE, fmt::format("another agent sends a frame of {} bytes", size));
  Frame frame{head[4], std::string(size, '\0')};
  get(frame.bytes.data(), size, 0);
  return frame;
}

}  // namespace heddle::session
