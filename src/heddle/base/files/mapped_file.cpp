#include "heddle/base/files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/files/open_file.h"

namespace heddle {

namespace {

// Mappings as the signal handler sees them, which may take no lock and no memory. A slot is in use where `begin` is
// not null; it is written last. Files beyond the slots are mapped all the same and end the program without a word.
struct Slot {
  std::atomic<const uint8_t*> begin{nullptr};
  int64_t size_bytes = 0;
  std::array<char, 512> message{};
};
std::array<Slot, 256> slots;
struct sigaction handler_before;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto* at = static_cast<const uint8_t*>(info->si_addr);
  for (const Slot& slot : slots) {
    const uint8_t* begin = slot.begin.load(std::memory_order_acquire);
    if (begin == nullptr || at < begin || at >= begin + slot.size_bytes) continue;
    [[maybe_unused]] const ssize_t written = ::write(2, slot.message.data(), std::strlen(slot.message.data()));
    ::_exit(1);
  }
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
    handler_before.sa_sigaction(signal, info, context);
  } else {  // returning runs into the same fault again, now with what was there before us
    ::sigaction(SIGBUS, &handler_before, nullptr);
  }
}

void guard(const uint8_t* begin, int64_t size_bytes, const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  static const bool installed = [] {
    struct sigaction ours {};
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &ours, &handler_before) == 0;
  }();
  const auto free =
      std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return s.begin.load() == nullptr; });
  if (!installed || free == slots.end()) return;
  const std::string message = fmt::format(
      "heddle: {}: cut short while in use: it had {} bytes when it was opened\n", escaped(path, 300), size_bytes);
  std::copy_n(message.c_str(), std::min(message.size() + 1, free->message.size() - 1), free->message.begin());
  free->size_bytes = size_bytes;
  free->begin.store(begin, std::memory_order_release);
}

void unguard(const uint8_t* begin) {
  for (Slot& slot : slots) {
    const uint8_t* expected = begin;
    if (slot.begin.compare_exchange_strong(expected, nullptr)) return;
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const OpenedFile opened = open_to_read(path);
  size_bytes_ = opened.size_bytes;
  void* mapped = nullptr;
  if (size_bytes_ > 0)
    mapped = ::mmap(nullptr, static_cast<size_t>(size_bytes_), PROT_READ, MAP_SHARED, opened.descriptor, 0);
  const int code = errno;
  ::close(opened.descriptor);
  if (mapped == MAP_FAILED) throw SystemError(code, fmt::format("cannot map {}: {}", path, std::strerror(code)));
  data_ = static_cast<const uint8_t*>(mapped);
  if (data_ != nullptr) guard(data_, size_bytes_, path_);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unguard(data_);
  ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_bytes_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

}  // namespace heddle
