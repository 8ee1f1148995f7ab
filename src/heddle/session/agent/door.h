// A port of one of this host's interfaces, at which other agents of the job are let in.
//
// Whoever connects has two seconds in all to prove that it knows the token. All that have not are read side by
// side, none is waited for; of more than kMostStrangers the oldest is turned away. So a stranger can neither hold
// the door shut nor take memory.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <string>

#include "heddle/session/agent/link.h"

namespace heddle::session {

class Door {
 public:
  static constexpr double kGreeting_s = 2;
  static constexpr size_t kMostStrangers = 64;

  /// `named`: "lo" or "eth0"; "default": the interface of the default route, "lo" where there is none. ConfigError
  /// where there is no such interface.
  Door(const std::string& named, std::string token);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  int port() const { return port_; }
  /// "10.0.0.3:41000"
  const std::string& address() const { return address_; }
  /// The next that has proved that it knows the token; none in `wait_s`. The link ends with `stop`.
  std::optional<Link> accept(double wait_s, const std::atomic<bool>& stop);

 private:
  struct Stranger {
    int socket = -1;
    double until_s = 0;
    std::string nonce, said;
  };
  enum class Heard : uint8_t { more_to_come, no_friend, friend_of_ours };
  void let_in();
  void turn_away(Stranger& stranger);
  Heard hear(Stranger& stranger) const;

  std::string token_, address_;
  int socket_ = -1, port_ = 0;
  std::deque<Stranger> strangers_;  // the oldest first
};

}  // namespace heddle::session
