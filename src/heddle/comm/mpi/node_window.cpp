#include "heddle/comm/mpi/node_window.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/base/files/random_id.h"

namespace heddle::comm::mpi {

namespace {

constexpr int64_t kLine = 64;  // bytes that cores pass to each other at once
constexpr int64_t kLeastRing = 64 << 10, kMostRing = 32 << 20;
constexpr timespec kLongestSleep{0, 50'000'000};

using Id = std::array<char, 32>;

/// The place where peers find a rank's inbox, and whether it has found theirs.
struct ShownMemory {
  int64_t process = 0;
  int64_t file = -1;  // none
  int64_t rings = 0, ring_bytes = 0;
  int64_t ring = 0;  // the peer's
  Id id{};           // stands in the memory, too: elsewhere the process may be another
};

}  // namespace

struct NodeWindow::WakeCounter {
  Id id;
  std::atomic<uint32_t> rung, sleepers;

  void ring() {
    rung.fetch_add(1);
    if (sleepers.load() > 0) syscall(SYS_futex, &rung, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
};

struct NodeWindow::Counts {
  alignas(kLine) std::atomic<int64_t> written;
  alignas(kLine) std::atomic<int64_t> taken;
};

/// The mapped memory: a bell, the counts of all rings, their bytes.
class NodeWindow::Inbox {
 public:
  /// One's own. Without a file where the system gives none that others can map.
  Inbox(int64_t rings, int64_t ring_bytes) : rings_(rings), ring_bytes_(ring_bytes) {
    file_ = memfd_create("heddle-window", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const bool stands = file_ >= 0 && fchmod(file_, 0600) == 0 && ftruncate(file_, bytes()) == 0 &&
                        fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    if (!stands) close_file();
    if (!map()) throw SystemError(errno, fmt::format("{} bytes to share with the ranks of this node", bytes()));
    const std::string id = random_id();
    std::copy_n(id.begin(), wake_counter().id.size(), wake_counter().id.begin());
  }
  /// A peer's; null where it can't be opened, or is none.
  static std::unique_ptr<Inbox> of(const ShownMemory& shown) {
    if (shown.file < 0) return nullptr;
    auto inbox = std::unique_ptr<Inbox>(new Inbox);
    inbox->rings_ = shown.rings;
    inbox->ring_bytes_ = shown.ring_bytes;
    inbox->file_ = open(fmt::format("/proc/{}/fd/{}", shown.process, shown.file).c_str(), O_RDWR | O_CLOEXEC);
    struct stat found {};
    if (inbox->file_ < 0 || fstat(inbox->file_, &found) != 0 || found.st_size != inbox->bytes() || !inbox->map() ||
        inbox->wake_counter().id != shown.id)
      return nullptr;
    inbox->close_file();
    return inbox;
  }
  ~Inbox() {
    close_file();
    if (data_) munmap(data_, static_cast<size_t>(bytes()));
  }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  int file() const { return file_; }
  void close_file() {
    if (file_ >= 0) close(file_);
    file_ = -1;
  }
  WakeCounter& wake_counter() { return *reinterpret_cast<WakeCounter*>(data_); }
  Ring ring(int64_t i) {
    return {reinterpret_cast<Counts*>(data_ + kLine) + i, data_ + head() + i * ring_bytes_, ring_bytes_};
  }

 private:
  Inbox() = default;
  int64_t head() const {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return (kLine + rings_ * static_cast<int64_t>(sizeof(Counts)) + page - 1) / page * page;
  }
  int64_t bytes() const { return head() + rings_ * ring_bytes_; }
  bool map() {
    void* const at = mmap(nullptr, static_cast<size_t>(bytes()), PROT_READ | PROT_WRITE,
                          MAP_SHARED | (file_ < 0 ? MAP_ANONYMOUS : 0), file_, 0);
    if (at == MAP_FAILED) return false;
    data_ = static_cast<std::byte*>(at);  // zeros, which is what bells and counts begin with
    return true;
  }

  int64_t rings_ = 0, ring_bytes_ = 0;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

NodeWindow::NodeWindow(Communicator& group, const std::vector<int>& near, int64_t ring_bytes)
    : peers_(static_cast<size_t>(group.size())) {
  const int64_t size = (std::clamp(ring_bytes, kLeastRing, kMostRing) + kLeastRing - 1) / kLeastRing * kLeastRing;
  own_ = std::make_unique<Inbox>(std::ssize(near), size);
  std::vector<ShownMemory> mine(peers_.size());
  for (size_t i = 0; i < near.size(); ++i) {
    mine[near[i]] = {
        getpid(), own_->file(), std::ssize(near), size, static_cast<int64_t>(i), own_->wake_counter().id};
  }
  const std::vector<ShownMemory> shown = exchange_values(group, mine);
  std::vector<uint8_t> opened(peers_.size(), 0);
  for (size_t i = 0; i < near.size(); ++i) {
    const auto p = static_cast<size_t>(near[i]);
    std::unique_ptr<Inbox> inbox = Inbox::of(shown[p]);
    if (!inbox) continue;
    opened[p] = 1;
    peers_[p] = {false, own_->ring(static_cast<int64_t>(i)), inbox->ring(shown[p].ring), &inbox->wake_counter()};
    theirs_.push_back(std::move(inbox));
  }
  const std::vector<uint8_t> found_us = exchange_values(group, opened);
  for (size_t p = 0; p < peers_.size(); ++p) peers_[p].reached = opened[p] != 0 && found_us[p] != 0;
  own_->close_file();
}

NodeWindow::~NodeWindow() = default;

int64_t NodeWindow::write(int peer, const std::byte* from, int64_t bytes) {
  const Peer& p = peers_[peer];
  const Ring& ring = p.out;
  const int64_t at = ring.counts->written.load(std::memory_order_relaxed);
  const int64_t under_way = at - ring.counts->taken.load(std::memory_order_acquire);
  HEDDLE_CHECK(under_way >= 0 && under_way <= ring.bytes, "a ring of {} bytes has {}", ring.bytes, under_way);
  const int64_t count = std::min(bytes, ring.bytes - under_way), begin = at % ring.bytes;
  if (count <= 0) return 0;
  const int64_t first = std::min(count, ring.bytes - begin);
  std::memcpy(ring.data + begin, from, static_cast<size_t>(first));
  std::memcpy(ring.data, from + first, static_cast<size_t>(count - first));
  ring.counts->written.store(at + count, std::memory_order_release);
  p.wake_counter->ring();
  return count;
}

int64_t NodeWindow::read(int peer, std::byte* to, int64_t bytes) {
  const Peer& p = peers_[peer];
  const Ring& ring = p.in;
  const int64_t at = ring.counts->taken.load(std::memory_order_relaxed);
  const int64_t there = ring.counts->written.load(std::memory_order_acquire) - at;
  HEDDLE_CHECK(there >= 0 && there <= ring.bytes, "a ring of {} bytes has {}", ring.bytes, there);
  const int64_t count = std::min(bytes, there), begin = at % ring.bytes;
  if (count <= 0) return 0;
  const int64_t first = std::min(count, ring.bytes - begin);
  std::memcpy(to, ring.data + begin, static_cast<size_t>(first));
  std::memcpy(to + first, ring.data, static_cast<size_t>(count - first));
  ring.counts->taken.store(at + count, std::memory_order_release);
  p.wake_counter->ring();
  return count;
}

uint32_t NodeWindow::rung() const { return own_->wake_counter().rung.load(); }

void NodeWindow::sleep(uint32_t since) {
  WakeCounter& wake_counter = own_->wake_counter();
  wake_counter.sleepers.fetch_add(1);
  syscall(SYS_futex, &wake_counter.rung, FUTEX_WAIT, since, &kLongestSleep, nullptr, 0);
  wake_counter.sleepers.fetch_sub(1);
}

void NodeWindow::wake() { own_->wake_counter().ring(); }

}  // namespace heddle::comm::mpi
