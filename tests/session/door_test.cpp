// Who is let in by an agent, and what strangers can do to it: nothing. The token of a job never leaves its hosts.
#include "heddle/session/agent/door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/session/agent/agent.h"
#include "heddle/session/agent/proof.h"
#include "heddle/session/agent/run_memory.h"
#include "tests/support/scratch_folder.h"

namespace heddle::session {
namespace {

constexpr const char* kTokenDoor = "a token of this job alone";
constexpr double kPatience_sDoor = 60;

class Socket {
 public:
  explicit Socket(int file) : file_(file) {}
  ~Socket() { ::close(file_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int file() const { return file_; }
  bool say(std::string_view bytes) const {
    return ::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  }
  /// Up to so many bytes; fewer where the other has closed, or says nothing for long.
  std::string hear(size_t most) const {
    std::string all;
    for (char c = 0; all.size() < most && has_more() && ::recv(file_, &c, 1, 0) == 1;) all += c;
    return all;
  }
  bool is_closed() const {
    char c = 0;
    return ::recv(file_, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || (errno != EAGAIN && errno != EINTR);
  }

 private:
  bool has_more() const {
    pollfd look{file_, POLLIN, 0};
    return ::poll(&look, 1, static_cast<int>(kPatience_sDoor * 1e3)) > 0;
  }
  int file_;
};

sockaddr_in here(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

std::unique_ptr<Socket> stranger_at(int port) {
  auto made = std::make_unique<Socket>(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = here(port);
  if (::connect(made->file(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw SystemError(errno, "no connection");
  return made;
}

/// A port at which somebody else listens.
class Impostor {
 public:
  Impostor() : listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in address = here(0);
    if (::bind(listening_.file(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listening_.file(), 4) != 0)
      throw SystemError(errno, "no port");
  }
  std::string address() const { return own_address(listening_.file()); }
  std::unique_ptr<Socket> visitor() const {
    return std::make_unique<Socket>(::accept(listening_.file(), nullptr, nullptr));
  }

 private:
  Socket listening_;
};

/// Lets in whoever knows the token, on a thread of its own.
class OpenDoor {
 public:
  OpenDoor()
      : thread_([this] {
          while (!stop_) {
            if (std::optional<Link> link = door.accept(0.01, stop_)) {
              const std::lock_guard lock(mutex_);
              friends_.push_back(std::move(*link));
            }
          }
        }) {}
  ~OpenDoor() {
    stop_ = true;
    thread_.join();
  }
  size_t friends() {
    const std::lock_guard lock(mutex_);
    return friends_.size();
  }
  Door door{"lo", kTokenDoor};

 private:
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<Link> friends_;
  std::thread thread_;
};

bool comes_true(const std::function<bool()>& what) {
  for (const double start_s = now_s(); now_s() - start_s < kPatience_sDoor; ::usleep(5000)) {
    if (what()) return true;
  }
  return false;
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

// FIPS 180-4's examples and the cases 1, 2 and 6 of RFC 4231.
TEST(Door, ProvesByTheStandardsHash) {
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Door, LetsInWhoKnowsTheTokenAndNobodyElse) {
  OpenDoor open;
  const std::string address = open.door.address();
  Link link = Link::to(address, kTokenDoor);
  EXPECT_TRUE(comes_true([&] { return open.friends() == 1; }));
  for (const char* wrong : {"another token altogether", "", "a token of this job alone "})
    EXPECT_THROW(Link::to(address, wrong), SystemError);
  for (const std::string& said : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5, '\0') + kTokenDoor,
                                  std::string(1 << 20, 'x'), std::string(64, '\0')}) {
    const auto stranger = stranger_at(open.door.port());
    (void)stranger->say(said);
    ::shutdown(stranger->file(), SHUT_WR);
    EXPECT_TRUE(comes_true([&] {
      (void)stranger->hear(kDoorWords.size() + kNonceBytes + 1);
      return stranger->is_closed();
    }));
  }
  EXPECT_EQ(open.friends(), 1u);
}

// Idle ones, those that give a byte now and then, and more than the door keeps: friends come in beside them.
TEST(Door, IsNotHeldShutByStrangers) {
  OpenDoor open;
  std::vector<std::unique_ptr<Socket>> strangers;
  for (size_t i = 0; i < 3 * Door::kMostStrangers; ++i) {
    strangers.push_back(stranger_at(open.door.port()));
    if (i % 2 == 0) {
      EXPECT_TRUE(strangers.back()->say("x"));
    }
  }
  for (size_t i = 1; i <= 3; ++i) {
    const Link link = Link::to(open.door.address(), kTokenDoor);
    EXPECT_TRUE(comes_true([&] { return open.friends() == i; }));
  }
  // The oldest were turned away as others came; all are once their time is over.
  const auto turned_away = [&](size_t which) {
    return comes_true([&] {
      (void)strangers[which]->hear(kDoorWords.size() + kNonceBytes + 1);
      return strangers[which]->is_closed();
    });
  };
  EXPECT_TRUE(turned_away(0));
  EXPECT_TRUE(turned_away(strangers.size() - 1));
  EXPECT_EQ(open.friends(), 3u);
}

// Who listens at a false address learns nothing that lets it in, and can't pass on what it is told.
TEST(Door, TellsAnImpostorNoToken) {
  const Impostor impostor;
  std::string heard;
  std::thread listening([&] {
    const auto visitor = impostor.visitor();
    (void)visitor->say(std::string(kDoorWords) + new_nonce());
    heard = visitor->hear(kNonceBytes + kProofBytes);
    (void)visitor->say(std::string(kProofBytes, 'x'));
    heard += visitor->hear(1 << 16);
  });
  EXPECT_THROW(Link::to(impostor.address(), kTokenDoor), SystemError);
  listening.join();
  EXPECT_EQ(heard.size(), kNonceBytes + kProofBytes);
  EXPECT_EQ(heard.find(kTokenDoor), std::string::npos);

  OpenDoor open;
  std::thread between([&] {
    const auto visitor = impostor.visitor();
    const auto door = stranger_at(open.door.port());
    (void)visitor->say(door->hear(kDoorWords.size() + kNonceBytes));
    (void)door->say(visitor->hear(kNonceBytes + kProofBytes));
    (void)visitor->say(door->hear(kProofBytes));
  });
  EXPECT_THROW(Link::to(impostor.address(), kTokenDoor), SystemError);
  between.join();
  EXPECT_EQ(open.friends(), 0u);
}

// An agent follows its end whatever strangers and stopped friends do, and its memory goes.
TEST(Door, IsLeftAtOnceWhenTheAgentEnds) {
  const ScratchFolder scratch;
  std::atomic<bool> stop{false}, over{false}, enough{false};
  std::mutex mutex;
  std::string ready;
  std::thread running([&] {
    run_agent({scratch / "run", "", "lo", kTokenDoor}, stop, [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      ready = line;
    });
    over = true;
  });
  ASSERT_TRUE(comes_true([&] {
    const std::lock_guard lock(mutex);
    return !ready.empty();
  }));
  const std::string address = ready.substr(ready.find(" at ") + 4, ready.find(" folder") - ready.find(" at ") - 4);
  const int port = std::atoi(address.c_str() + address.find(':') + 1);
  const auto idle = stranger_at(port);
  std::thread dripping([&] {
    while (!enough) {
      try {
        const auto drips = stranger_at(port);
        (void)drips->hear(kDoorWords.size() + kNonceBytes);
        while (!enough && drips->say("x") && !drips->is_closed()) ::usleep(300'000);
      } catch (const SystemError&) {
        return;  // the door is gone
      }
    }
  });
  // A friend that stops within a frame.
  Link stopped = Link::to(address, kTokenDoor);
  std::thread sending([&] {
    try {
      for (int i = 0; i < 4 && !enough; ++i) stopped.send('B', std::string(1 << 20, 'x'));
    } catch (const SystemError&) {
    }
  });
  sending.join();
  stop = true;
  EXPECT_TRUE(comes_true([&] { return over.load(); }));
  enough = true;
  dripping.join();
  running.join();
  EXPECT_FALSE(std::filesystem::exists(ready.substr(ready.rfind(' ') + 1)));
}

// What an entry says is believed of the folder's owner alone, and no name is looked up for it.
TEST(Door, EntriesAreReadWithCare) {
  const ScratchFolder scratch;
  const RunFolder run{scratch / "run"};
  std::filesystem::create_directories(run.path + kAgents);
  write_agent_entry(run.path + kAgents + "/a", "/dev/shm/heddle-a", "127.0.0.1:1");
  write_agent_entry(run.path + kAgents + "/b", "/dev/shm/heddle-b", "somewhere.example:1");
  write_file(scratch / "away", "/dev/shm/heddle-c\n127.0.0.1:2\n");
  std::filesystem::create_symlink(scratch / "away", run.path + kAgents + "/c");
  const std::vector<AgentEntry> entries = agent_entries(run);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].address, "127.0.0.1:1");
  EXPECT_EQ(entries[1].address, "");
  const auto mode = std::filesystem::status(entries[0].path).permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::rename(run.path + kAgents, scratch / "elsewhere");
  std::filesystem::create_directory_symlink(scratch / "elsewhere", run.path + kAgents);
  EXPECT_TRUE(agent_entries(run).empty());
  const std::atomic<bool> stop{true};
  EXPECT_THROW(run_agent({run.path, "", "", ""}, stop, [](const std::string&) {}), ConfigError);
}

}  // namespace
}  // namespace heddle::session
