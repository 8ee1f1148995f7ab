// A connection between the agents of two hosts: frames of a kind and some bytes, capped, with limits of time.
//
// Before the first frame both sides prove that they know the job's token (proof.h), which never leaves its host.
// The door sends a greeting of fixed length. The caller answers with one of fixed length, and the door with its
// proof. Nothing else is read from a side that does not prove it.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::session {

/// The door's first bytes are these words and its nonce.
inline constexpr std::string_view kDoorWords = "heddle agent 2\n";

class Link {
 public:
  static constexpr int64_t kMostFrame = int64_t{8} << 20;
  struct Frame {
    char kind = 0;
    std::string bytes;
  };

  /// Takes a socket over, which does not block. Once `stop` is true, every call throws at once; null: never.
  explicit Link(int socket, const std::atomic<bool>* stop = nullptr);
  ~Link();
  Link(Link&& other) noexcept;
  Link& operator=(Link&&) = delete;

  /// "HOST:PORT". SystemError where nobody answers, or who answers does not know the token; ConfigError where it is
  /// no such address.
  static Link to(const std::string& address, const std::string& token, const std::atomic<bool>* stop = nullptr);

  /// SystemError when the other has gone, or takes nothing for long.
  void send(char kind, std::string_view bytes);
  /// None: nothing came in `wait_s`. SystemError when the other has gone, stops within a frame, or sends more than
  /// a frame holds.
  std::optional<Frame> receive(double wait_s);

 private:
  void greet(const std::string& address, const std::string& token);
  bool ready(short events, double until_s) const;
  void put(const void* data, size_t size) const;
  void get(void* data, size_t size, double until_s) const;

  int socket_;
  const std::atomic<bool>* stop_;
};

/// "10.0.0.3:41000": the socket's own address, or that of the other end. "" where it has none.
std::string own_address(int socket);
std::string other_address(int socket);

/// 32 random bytes.
std::string new_nonce();

}  // namespace heddle::session
