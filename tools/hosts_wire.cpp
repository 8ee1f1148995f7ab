// A switch with a fixed delay, for tools/hosts --latency where the kernel offers no delaying queue.
//
//   hosts_wire DELAY_NS PORT...
//
// PORT i is the interface that leads to host i; host i's own interface has the MAC address 02:00:00:00:00:<i>.
// Every frame that arrives on a port leaves, DELAY_NS after it arrived (by the kernel's time stamp), on the port of
// its destination, or on all others if it has none. Delay is constant, so each port's frames wait in a plain queue
// and order is kept. Frames cross unsegmented with their offload header, so that one carries up to 64 KB. Rates are
// not this program's business: token buckets on both ends of each link hold them.
//
// Prints "ready" once every port is open, then runs until its input ends. Three bytes of input are an order: what,
// from which port, to which (255: any). 'c' cuts that way, 'm' mends it, 'f' flips a bit in the last byte of the
// next large frame that goes it, which no checksum shows: the kernel leaves those to the hardware, and there is
// none.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <string>
#include <vector>

namespace {

using Ways = std::vector<std::vector<bool>>;  // from which port to which

constexpr size_t kHeader_bytes = 10;  // struct virtio_net_hdr, whose own header C++ can't read
constexpr size_t kMostFrame_bytes = kHeader_bytes + ETH_HLEN + 65536;
constexpr size_t kMostQueued_bytes = 256u << 20;  // of all ports; beyond it frames are dropped, as a switch does
constexpr int kSocketBuffer_bytes = 64 << 20;
constexpr int64_t kWakeEarly_ns = 12'000;  // a sleep ends about that late; the rest is waited awake

struct Frame {
  int64_t leaves_ns;
  size_t from;
  std::vector<uint8_t> bytes;  // offload header, then the frame
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "hosts_wire: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);  // the clock of the kernel's time stamps
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

int open_port(const char* name) {
  const int socket = ::socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) fail("a packet socket");
  const int on = 1;
  if (setsockopt(socket, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) < 0) fail("PACKET_VNET_HDR");
  if (setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) < 0) fail("SO_TIMESTAMPNS");
  if (setsockopt(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) < 0) fail("PACKET_IGNORE_OUTGOING");
  for (const int option : {SO_RCVBUFFORCE, SO_SNDBUFFORCE}) {  // a user namespace may not exceed the system's limit
    if (setsockopt(socket, SOL_SOCKET, option, &kSocketBuffer_bytes, sizeof(int)) < 0) {
      const int within_limit = option == SO_RCVBUFFORCE ? SO_RCVBUF : SO_SNDBUF;
      if (setsockopt(socket, SOL_SOCKET, within_limit, &kSocketBuffer_bytes, sizeof(int)) < 0)
        fail("a socket buffer");
    }
  }
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name));
  if (address.sll_ifindex == 0) fail(name);
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) fail(name);
  packet_mreq request = {};
  request.mr_ifindex = address.sll_ifindex;
  request.mr_type = PACKET_MR_PROMISC;  // the destination is the other host's address, not the port's
  if (setsockopt(socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) < 0) fail(name);
  return socket;
}

// Reads one frame; false when none is there.
bool receive(int socket, Frame& frame, int64_t delay_ns) {
  static std::vector<uint8_t> buffer(kMostFrame_bytes);
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(socket, &message, 0);
  if (size < 0) return false;  // nothing there, or the link is down: poll says when that changes
  int64_t arrived_ns = now_ns();
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      timespec stamp;
      std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
      arrived_ns = stamp.tv_sec * 1'000'000'000 + stamp.tv_nsec;
    }
  }
  frame.leaves_ns = arrived_ns + delay_ns;
  frame.bytes.assign(buffer.begin(), buffer.begin() + size);
  return true;
}

constexpr size_t kLarge_bytes = 1000;  // of a frame that carries somebody's numbers, not only their protocol

void forward(const std::vector<int>& ports, const Ways& cut, Ways& flips, Frame& frame) {
  if (frame.bytes.size() < kHeader_bytes + ETH_HLEN) return;
  const uint8_t* to = frame.bytes.data() + kHeader_bytes;
  static constexpr uint8_t kPrefix[5] = {2, 0, 0, 0, 0};
  const bool known = std::memcmp(to, kPrefix, sizeof kPrefix) == 0 && to[5] < ports.size();
  for (size_t port = 0; port < ports.size(); ++port) {
    if (port == frame.from || (known && port != to[5]) || cut[frame.from][port]) continue;
    if (flips[frame.from][port] && frame.bytes.size() >= kLarge_bytes) {
      frame.bytes.back() ^= 0x40;
      flips[frame.from][port] = false;
    }
    // A full or cut link drops the frame, as a switch would: TCP sends it again.
    [[maybe_unused]] const ssize_t sent = send(ports[port], frame.bytes.data(), frame.bytes.size(), 0);
  }
}

// 'c', 'm' or 'f', from, to: kAny for all.
void obey(const uint8_t (&order)[3], Ways& cut, Ways& flips) {
  constexpr uint8_t kAny = 255;
  for (size_t from = 0; from < cut.size(); ++from) {
    for (size_t to = 0; to < cut.size(); ++to) {
      if ((order[1] != kAny && order[1] != from) || (order[2] != kAny && order[2] != to)) continue;
      if (order[0] == 'f') {
        flips[from][to] = true;
      } else {
        cut[from][to] = order[0] == 'c';
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "hosts_wire DELAY_NS PORT...\n");
    return 2;
  }
  int64_t delay_ns = 0;
  const char* end = argv[1] + std::strlen(argv[1]);
  const auto parsed = std::from_chars(argv[1], end, delay_ns);
  if (parsed.ec != std::errc() || parsed.ptr != end || delay_ns < 0) {
    std::fprintf(stderr, "hosts_wire: '%s' is not a number of nanoseconds\n", argv[1]);
    return 2;
  }
  prctl(PR_SET_TIMERSLACK, 1);  // the default lets sleeps end 50 us late
  const sched_param priority = {1};
  sched_setscheduler(0, SCHED_FIFO, &priority);  // may be refused; then delays vary more under load

  std::vector<int> ports;
  const size_t count = static_cast<size_t>(argc) - 2;
  Ways cut(count, std::vector<bool>(count, false)), flips = cut;
  std::vector<pollfd> polled;
  for (int i = 2; i < argc; ++i) {
    ports.push_back(open_port(argv[i]));
    polled.push_back({ports.back(), POLLIN, 0});
  }
  polled.push_back({STDIN_FILENO, POLLIN, 0});
  std::printf("ready\n");
  std::fflush(stdout);

  std::deque<Frame> waiting;  // of all ports, in order of arrival at this program: nearly that of leaving
  size_t waiting_bytes = 0;
  for (;;) {
    timespec left = {};
    if (!waiting.empty()) {
      const int64_t ns = std::max<int64_t>(0, waiting.front().leaves_ns - kWakeEarly_ns - now_ns());
      left = {ns / 1'000'000'000, ns % 1'000'000'000};
    }
    if (ppoll(polled.data(), polled.size(), waiting.empty() ? nullptr : &left, nullptr) < 0 && errno != EINTR) {
      fail("ppoll");
    }
    if (polled.back().revents != 0) {
      uint8_t order[3];
      if (read(STDIN_FILENO, order, sizeof order) != sizeof order) return 0;
      obey(order, cut, flips);
    }
    Frame frame;
    for (size_t port = 0; port < ports.size(); ++port) {
      if (polled[port].revents == 0) continue;
      // A few at a time, so that one busy port doesn't keep another's frames, or those that are due, waiting.
      for (int i = 0; i < 8 && receive(ports[port], frame, delay_ns); ++i) {
        if (waiting_bytes + frame.bytes.size() > kMostQueued_bytes) continue;
        waiting_bytes += frame.bytes.size();
        frame.from = port;
        waiting.push_back(std::move(frame));
      }
    }
    for (const int64_t now = now_ns(); !waiting.empty() && waiting.front().leaves_ns <= now; waiting.pop_front()) {
      waiting_bytes -= waiting.front().bytes.size();
      forward(ports, cut, flips, waiting.front());
    }
  }
}
