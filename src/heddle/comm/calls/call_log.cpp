#include "heddle/comm/calls/call_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/device/running_op.h"

namespace heddle::comm {

namespace {

constexpr size_t kPageBytes = (sizeof(CallPage) + 4095) / 4096 * 4096;

// The time on a clock of all hosts: what one rank waits for is laid beside where another stands.
int64_t unix_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

template <size_t N>
void put(std::array<char, N>& into, std::string_view text) {
  const size_t size = std::min(text.size(), N - 1);
  std::memcpy(into.data(), text.data(), size);
  into[size] = '\0';
}

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

CallLog::CallLog(int rank, int ranks, const std::string& host, int64_t generation) {
  void* at = ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw SystemError(errno, "no memory for a page of calls");
  page_ = new (at) CallPage();
  page_->rank = rank;
  page_->ranks = ranks;
  page_->process = ::getpid();
  page_->generation = generation;
  put(page_->host, host);
  page_->accused.store(-1);
  page_->moved_ns.store(unix_ns());
  page_->magic.store(CallPage::kMagic);
}

CallLog::~CallLog() {
  if (folder_ && page_->state.load() == RankState::done) ::unlinkat(folder_->descriptor(), name_.c_str(), 0);
  ::munmap(page_, kPageBytes);
}

void CallLog::publish(const std::string& path) {
  if (folder_) return;
  const std::filesystem::path at(path);
  PinnedFolder folder(at.parent_path().string());
  const std::string name = at.filename().string();
  constexpr int kHow = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int file = ::openat(folder.descriptor(), name.c_str(), kHow, 0600);
  if (file < 0) throw SystemError(errno, fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  // A mapped write to a disk without room would end the process; room is taken first.
  int code = ::posix_fallocate(file, 0, kPageBytes);
  if (code == EINVAL || code == EOPNOTSUPP) code = ::ftruncate(file, kPageBytes) == 0 ? 0 : errno;
  if (code == 0 && ::pwrite(file, page_, sizeof *page_, 0) != static_cast<ssize_t>(sizeof *page_)) code = EIO;
  // At the same address: nobody who writes meanwhile has to be told.
  if (code == 0 && ::mmap(page_, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
    code = errno;
  ::close(file);
  if (code != 0) {
    ::unlinkat(folder.descriptor(), name.c_str(), 0);
    throw SystemError(code, fmt::format("cannot write {}: {}", path, std::strerror(code)));
  }
  folder_.emplace(std::move(folder));
  name_ = name;
}

int CallLog::channel(std::string_view name, const std::vector<int>& ranks) {
  const uint64_t members =
      fnv1a({reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(int)}, fnv1a(name, kFnvStart));
  const std::lock_guard lock(mutex_);
  const uint32_t known = page_->channels.load(kRelaxed);
  for (uint32_t c = 0; c < known; ++c) {
    if (page_->channel[c].members == members) return static_cast<int>(c);
  }
  if (known == CallPage::kChannels) return -1;
  CallPage::Channel& channel = page_->channel[known];
  put(channel.name, name);
  channel.members = members;
  channel.size = static_cast<int32_t>(ranks.size());
  page_->channels.store(known + 1, std::memory_order_release);
  return static_cast<int>(known);
}

uint64_t CallLog::begin(int channel, CallKind kind, int peer, int64_t bytes) {
  if (channel < 0) return 0;
  const uint64_t number = page_->calls.fetch_add(1, kRelaxed) + 1;
  CallPage::Call& call = page_->ring[number % CallPage::kCalls];
  const int64_t now_ns = unix_ns();
  call.number.store(0, kRelaxed);
  call.channel.store(channel, kRelaxed);
  call.listing.store(device::running_op.listing, kRelaxed);
  call.op.store(static_cast<int32_t>(device::running_op.index), kRelaxed);
  call.kind.store(kind, kRelaxed);
  call.left_ns.store(0, kRelaxed);
  call.bytes.store(bytes, kRelaxed);
  call.entered_ns.store(now_ns, kRelaxed);
  if (kind == CallKind::exchange) {
    call.sequence.store(page_->channel[channel].entered.fetch_add(1, kRelaxed) + 1, kRelaxed);
  } else {
    call.sequence.store(static_cast<uint64_t>(peer), kRelaxed);
  }
  call.number.store(number, std::memory_order_release);
  page_->moved_ns.store(now_ns, kRelaxed);
  return number;
}

void CallLog::end(uint64_t number) {
  if (number == 0) return;
  CallPage::Call& call = page_->ring[number % CallPage::kCalls];
  const int64_t now_ns = unix_ns();
  if (call.number.load(kRelaxed) == number) {  // else as many others began meanwhile as the ring holds
    call.left_ns.store(now_ns, kRelaxed);
    CallPage::Channel& channel = page_->channel[call.channel.load(kRelaxed)];
    channel.inside_ns.fetch_add(now_ns - call.entered_ns.load(kRelaxed), kRelaxed);
    channel.bytes.fetch_add(call.bytes.load(kRelaxed), kRelaxed);
    if (call.kind.load(kRelaxed) == CallKind::exchange) channel.left.fetch_add(1, kRelaxed);
  }
  page_->moved_ns.store(now_ns, kRelaxed);
}

std::vector<CallLog::Total> CallLog::totals() const {
  std::vector<Total> all;
  for (uint32_t c = 0; c < page_->channels.load(); ++c) {
    const CallPage::Channel& channel = page_->channel[c];
    all.push_back({channel.name.data(), static_cast<double>(channel.inside_ns.load()) * 1e-9,
                   static_cast<double>(channel.bytes.load())});
  }
  return all;
}

void CallLog::at_step(int64_t step) {
  if (page_->first_step.load(kRelaxed) == 0) page_->first_step.store(step, kRelaxed);
  page_->step.store(step, kRelaxed);
  page_->moved_ns.store(unix_ns(), kRelaxed);
}

void CallLog::set_patience(double seconds) {
  page_->patience_ms.store(static_cast<int64_t>(seconds * 1e3), kRelaxed);
}

void CallLog::ended(RankState state, std::string_view reason, int accused, bool input) {
  if (page_->state.load() != RankState::running) return;  // the first cause stays
  put(page_->reason, reason);
  page_->reason_bytes.store(static_cast<uint32_t>(std::min(reason.size(), CallPage::kReasonBytes - 1)));
  page_->accused.store(accused);
  page_->input.store(input ? 1 : 0);
  page_->state.store(state, std::memory_order_release);
}

}  // namespace heddle::comm
