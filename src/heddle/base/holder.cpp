#include "heddle/base/holder.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace heddle {

namespace {

std::atomic<const Holder*> current{nullptr};
std::atomic<Stop> wished{Stop::none};

}  // namespace

HeldBy::HeldBy(const Holder& holder) {
  wished = Stop::none;
  current = &holder;
}

HeldBy::~HeldBy() {
  current = nullptr;
  wished = Stop::none;
}

const Holder* holder() { return current; }

void ask_to_stop(Stop wish) { wished = wish; }

Stop asked_to_stop() { return wished; }

void check_stop() {
  if (wished.load(std::memory_order_relaxed) == Stop::at_once) throw Stopped();
}

void write_now(int descriptor, std::string_view text) noexcept {
  if (const Holder* held = holder(); held != nullptr && descriptor == STDERR_FILENO)
    return held->print(stderr, text);
  while (!text.empty()) {
    const ssize_t count = ::write(descriptor, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace heddle
