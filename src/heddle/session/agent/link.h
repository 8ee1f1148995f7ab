// A connection between the agents of two hosts: frames of a kind and some bytes, capped, with limits of time.
// Whoever connects says the job's token first; nothing else is read of who doesn't know it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::session {

class Link {
 public:
  static constexpr int64_t kMostFrame = int64_t{8} << 20;
  struct Frame {
    char kind = 0;
    std::string bytes;
  };

  /// Takes a socket over.
  explicit Link(int socket);
  ~Link();
  Link(Link&& other) noexcept;
  Link& operator=(Link&&) = delete;

  /// "HOST:PORT". SystemError where nobody answers, ConfigError where it is no such address.
  static Link to(const std::string& address, const std::string& token);

  /// SystemError when the other has gone.
  void send(char kind, std::string_view bytes);
  /// None: nothing came in `wait_s`. SystemError when the other has gone, or sends more than a frame holds.
  std::optional<Frame> receive(double wait_s);

 private:
  int socket_;
};

/// A port of one of this host's interfaces, "lo" or "eth0"; "default": that of the default route, "lo" where there
/// is none.
class Listener {
 public:
  Listener(const std::string& named, std::string token);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }
  /// "10.0.0.3:41000"
  const std::string& address() const { return address_; }
  /// Whoever connects and knows the token; none in `wait_s`, or where he doesn't.
  std::optional<Link> accept(double wait_s);

 private:
  std::string token_, address_;
  int socket_ = -1, port_ = 0;
};

}  // namespace heddle::session
