#include "heddle/session/agent/door.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/session/agent/proof.h"

namespace heddle::session {

namespace {

constexpr size_t kAnswerBytes = kNonceBytes + kProofBytes;
constexpr int kQueue = 64;               // connections that the kernel keeps for us
constexpr useconds_t kRest_us = 20'000;  // the pause where the system has no room for another connection

[[noreturn]] void fail(int code) {
  throw SystemError(code, fmt::format("cannot listen for another agent: {}", std::strerror(code)));
}

// The interface through which this host reaches others: the one to everywhere in the kernel's table of routes.
std::string default_interface() {
  std::ifstream routes("/proc/net/route");
  std::string line, name, destination;
  while (std::getline(routes, line)) {
    std::istringstream words(line);
    if (words >> name >> destination && destination == "00000000") return name;
  }
  return "lo";
}

bool says(int socket, std::string_view bytes) {
  return ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == std::ssize(bytes);
}

}  // namespace

Door::Door(const std::string& named, std::string token) : token_(std::move(token)) {
  const std::string interface = named == "default" ? default_interface() : named;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) fail(errno);
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
      ::listen(socket_, kQueue) != 0 || getsockname(socket_, reinterpret_cast<sockaddr*>(&*address), &size) != 0) {
    const int code = errno;
    if (socket_ >= 0) ::close(socket_);
    fail(code);
  }
  port_ = ntohs(address->sin_port);
  address_ = own_address(socket_);
}

Door::~Door() {
  for (Stranger& stranger : strangers_) turn_away(stranger);
  ::close(socket_);
}

void Door::turn_away(Stranger& stranger) { ::close(std::exchange(stranger.socket, -1)); }

// All that the kernel has for us; each gets the greeting and its two seconds.
void Door::let_in() {
  for (size_t i = 0; i < kMostStrangers; ++i) {
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      if (strangers_.empty()) {
        ::usleep(kRest_us);
        return;
      }
      turn_away(strangers_.front());
      strangers_.pop_front();
      continue;
    }
    Stranger stranger{socket, now_s() + kGreeting_s, new_nonce(), ""};
    if (!says(socket, std::string(kDoorWords) + stranger.nonce)) {
      turn_away(stranger);
      continue;
    }
    strangers_.push_back(std::move(stranger));
    if (strangers_.size() > kMostStrangers) {
      turn_away(strangers_.front());
      strangers_.pop_front();
    }
  }
}

Door::Heard Door::hear(Stranger& stranger) const {
  std::array<char, kAnswerBytes> bytes;
  const ssize_t got = ::recv(stranger.socket, bytes.data(), kAnswerBytes - stranger.said.size(), 0);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Heard::more_to_come;
  if (got <= 0) return Heard::no_friend;
  stranger.said.append(bytes.data(), static_cast<size_t>(got));
  if (stranger.said.size() < kAnswerBytes) return Heard::more_to_come;
  const std::string_view said = stranger.said, nonce = said.substr(0, kNonceBytes);
  if (!same_bytes(said.substr(kNonceBytes), proof_of(token_, Side::caller, stranger.nonce, nonce, address_)))
    return Heard::no_friend;
  return says(stranger.socket, proof_of(token_, Side::door, stranger.nonce, nonce, address_))
             ? Heard::friend_of_ours
             : Heard::no_friend;
}

std::optional<Link> Door::accept(double wait_s, const std::atomic<bool>& stop) {
  std::vector<pollfd> looks{{socket_, POLLIN, 0}};
  double until_s = now_s() + wait_s;
  for (const Stranger& stranger : strangers_) {
    looks.push_back({stranger.socket, POLLIN, 0});
    until_s = std::min(until_s, stranger.until_s);
  }
  const double left_s = std::max(0.0, until_s - now_s());
  const bool any = ::poll(looks.data(), looks.size(), static_cast<int>(left_s * 1000) + 1) > 0;
  std::optional<Link> found;
  for (size_t i = 0; i < strangers_.size() && !found; ++i) {
    Stranger& stranger = strangers_[i];
    const Heard heard = any && looks[i + 1].revents != 0 ? hear(stranger) : Heard::more_to_come;
    if (heard == Heard::friend_of_ours) found.emplace(std::exchange(stranger.socket, -1), &stop);
    if (heard == Heard::no_friend || (heard == Heard::more_to_come && now_s() > stranger.until_s))
      turn_away(stranger);
  }
  std::erase_if(strangers_, [](const Stranger& stranger) { return stranger.socket < 0; });
  if (any && looks[0].revents != 0) let_in();
  return found;
}

}  // namespace heddle::session
