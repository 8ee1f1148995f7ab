// Fibers of the emulator, and the launch of a grid on them.
#include "tests/gpu/emulator.h"

#include <sys/mman.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/base/random.h"
#include "heddle/kernels/cuda/experts/host_work.h"
#include "heddle/kernels/cuda/launch.h"
#include "tests/gpu/device_memory.h"

// void heddle_fiber_switch(void** save, void* load): keeps what a call must keep, changes stacks.
asm(R"(
.text
.globl heddle_fiber_switch
.type heddle_fiber_switch, @function
heddle_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size heddle_fiber_switch, .-heddle_fiber_switch
)");
extern "C" void heddle_fiber_switch(void** save, void* load);

namespace heddle::kernels::cuda {
namespace emulator {

constinit thread_local Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr size_t kStackStagger = 4096 / 64 - 1;  // lines: tops of stacks lie in different sets of a cache
enum class State : uint8_t { ready, at_block, at_warp, ended };

struct Copy {
  void* to;
  const void* from;
  int bytes;
};
struct Fiber {
  std::unique_ptr<unsigned char[]> stack;
  void* top = nullptr;
  Place place;  // where it waits
  uint64_t exchanges = 0;
  std::vector<Copy> begun;
  std::deque<std::vector<Copy>> groups;  // ended, the oldest first
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<State> states;
  std::array<std::vector<unsigned char>, 2> boards;
  std::array<std::vector<uint64_t>, 2> shown_in;  // by thread: the exchange that its board belongs to
  std::map<const void*, std::vector<unsigned char>> shared;
  std::vector<unsigned char> dynamic;
  void* scheduler = nullptr;
  int current = 0, threads = 0;
  void (*call)(const void*, const void*) = nullptr;
  const void *kernel = nullptr, *args = nullptr;
  int64_t static_bytes = 0;
  uint64_t drawn = 0;
  std::string fault;  // the first one ends the block
};
/// Made at a thread's first launch, so that no access asks whether it is there.
constinit thread_local Block* block = nullptr;
struct Chosen {
  int64_t most;
  uint64_t seed;
};
constinit thread_local std::optional<Chosen> chosen;
constinit thread_local int64_t launched = 0;

Fiber& fiber_now() { return block->fibers[static_cast<size_t>(block->current)]; }
State& state_of(int thread) { return block->states[static_cast<size_t>(thread)]; }

void stop(State state, const Place& place = {}) {
  Fiber& fiber = fiber_now();
  state_of(block->current) = state;
  fiber.place = place;
  heddle_fiber_switch(&fiber.top, block->scheduler);
  thread_index.x = static_cast<unsigned>(block->current);
}

void body() {
  thread_index.x = static_cast<unsigned>(block->current);
  block->call(block->kernel, block->args);
  stop(State::ended);
  std::abort();  // an ended fiber is never resumed
}

void prepare(int thread) {
  Fiber& fiber = block->fibers[static_cast<size_t>(thread)];
  if (!fiber.stack) fiber.stack = std::make_unique<unsigned char[]>(kStackBytes);
  const size_t stagger = static_cast<size_t>(thread) % kStackStagger * 64;
  auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes - stagger) / 16 * 16;
  auto* words = reinterpret_cast<void**>(top);
  *--words = nullptr;  // where a caller's return address would be: body starts aligned as after a call
  *--words = reinterpret_cast<void*>(&body);
  for (int i = 0; i < 6; ++i) *--words = nullptr;
  fiber.top = words;
  state_of(thread) = State::ready;
  fiber.exchanges = 0;
  fiber.begun.clear();
  fiber.groups.clear();
}

/// Exceptions do not cross fibers: the thread ends, and the block with it.
void end_block(std::string fault) {
  if (block->fault.empty()) block->fault = std::move(fault);
  stop(State::ended);
}

/// The n threads of a round: each once, in an order that the round's word decides.
struct Order {
  Order(int n, uint64_t word) : n(n), first(static_cast<int>(word % static_cast<uint64_t>(n))) {
    stride = 1 + static_cast<int>((word >> 32) % static_cast<uint64_t>(n));
    while (std::gcd(stride, n) != 1) stride = stride % n + 1;
  }
  int after(int at) const { return at + stride < n ? at + stride : at + stride - n; }
  int n, first, stride = 1;
};

std::string text(const Place& place) {
  return std::string(place.function_name()) + ", line " + std::to_string(place.line());
}
/// Those of fibers first … last that wait so go on, if they wait at one place.
void release(int first, int last, State waiting) {
  const Fiber* one = nullptr;
  for (int i = first; i < last; ++i) {
    if (state_of(i) != waiting) continue;
    state_of(i) = State::ready;
    const Fiber& fiber = block->fibers[static_cast<size_t>(i)];
    if (one == nullptr) one = &fiber;
    if (fiber.place.line() != one->place.line() || fiber.place.column() != one->place.column() ||
        (fiber.place.file_name() != one->place.file_name() &&
         std::strcmp(fiber.place.file_name(), one->place.file_name()) != 0)) {
      throw std::logic_error("threads meet at different places: " + text(one->place) + " and " + text(fiber.place));
    }
  }
}

void run_block() {
  for (auto& [key, bytes] : block->shared) std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0xff));
  std::fill(block->dynamic.begin(), block->dynamic.end(), static_cast<unsigned char>(0xff));
  const int n = block->threads;
  for (int i = 0; i < n; ++i) prepare(i);
  for (std::vector<uint64_t>& numbers : block->shown_in)
    std::fill_n(numbers.begin(), (n + kWarp - 1) / kWarp * kWarp, 0);
  while (true) {
    bool ran = false;
    const Order order(n, RandomKey(11).bits(block->drawn++));
    for (int i = 0, at = order.first; i < n; ++i, at = order.after(at)) {
      if (state_of(at) != State::ready) continue;
      block->current = at;
      heddle_fiber_switch(&block->scheduler, fiber_now().top);
      ran = true;
      if (!block->fault.empty()) [[unlikely]]
        throw std::logic_error(std::exchange(block->fault, {}));
    }
    int ended = 0, at_block = 0;
    for (int first = 0; first < n; first += kWarp) {
      int in_warp = 0, waiting = 0;
      for (int i = first; i < std::min(n, first + kWarp); ++i) {
        const State state = state_of(i);
        ended += state == State::ended;
        at_block += state == State::at_block;
        in_warp += state != State::ended;
        waiting += state == State::at_warp;
      }
      if (waiting == 0 || waiting < in_warp) continue;
      release(first, std::min(n, first + kWarp), State::at_warp);
      ran = true;
    }
    if (ended == n) return;
    if (at_block > 0 && at_block + ended == n) {
      release(0, n, State::at_block);
      ran = true;
    }
    if (!ran) throw std::logic_error("threads of a block wait at different barriers");
  }
}

}  // namespace

void block_barrier(const Place& place) { stop(State::at_block, place); }
void warp_barrier(const Place& place) { stop(State::at_warp, place); }

void begin_copy(void* to, const void* from, int bytes) {
  std::memset(to, 0xff, 16);
  fiber_now().begun.push_back({to, from, bytes});
}
void end_copies() {
  Fiber& fiber = fiber_now();
  fiber.groups.push_back(std::exchange(fiber.begun, {}));
}
void finish_copies(int open) {
  Fiber& fiber = fiber_now();
  while (std::ssize(fiber.groups) > open) {
    for (const Copy& copy : fiber.groups.front()) {
      std::memset(copy.to, 0, 16);
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
    }
    fiber.groups.pop_front();
  }
}
void check_aligned(const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) end_block("16 bytes at an address that is not aligned to them");
}

SomeBlocks::SomeBlocks(int64_t most, uint64_t seed) { chosen = Chosen{most, seed}; }
SomeBlocks::~SomeBlocks() { chosen.reset(); }
void exchange(const void* value, int bytes, const Place& place) {
  const auto thread = static_cast<size_t>(block->current);
  const uint64_t number = ++fiber_now().exchanges;
  block->shown_in[number % 2][thread] = number;
  std::memcpy(block->boards[number % 2].data() + thread * kBoardBytes, value, static_cast<size_t>(bytes));
  warp_barrier(place);
}
const unsigned char* shown_or_null(int lane) {
  const uint64_t number = fiber_now().exchanges;
  const auto thread = static_cast<size_t>(block->current / kWarp * kWarp + lane);
  if (lane < 0 || lane >= kWarp || block->shown_in[number % 2][thread] != number) return nullptr;
  return block->boards[number % 2].data() + thread * kBoardBytes;
}
const unsigned char* shown(int lane) {
  const unsigned char* found = shown_or_null(lane);
  if (found == nullptr) [[unlikely]]
    end_block("a value of lane " + std::to_string(lane) + ", which is not there");
  return found;
}
unsigned char* dynamic_shared() { return block->dynamic.data(); }
void* shared(const void* key, int64_t bytes) {
  std::vector<unsigned char>& piece = block->shared[key];
  if (piece.empty()) {
    piece.assign(static_cast<size_t>(bytes), 0xff);
    block->static_bytes += bytes;
    if (block->static_bytes > kSharedByDefault || block->static_bytes + std::ssize(block->dynamic) > kMostShared) {
      end_block("a block of " + std::to_string(block->static_bytes) + " bytes of static and " +
                std::to_string(block->dynamic.size()) + " of dynamic shared memory");
    }
  }
  return piece.data();
}

int64_t launches() { return launched; }

}  // namespace emulator

void launch_on_device(const LaunchShape& shape, const void* kernel, void (*call)(const void*, const void*),
                      const void* args, void*) {
  using namespace emulator;
  const test::OnDevice here;
  ++launched;
  static thread_local std::unique_ptr<Block> owned;
  if (!owned) {
    owned = std::make_unique<Block>();
    for (auto& board : owned->boards) board.resize(kMostThreads * kBoardBytes);
    for (auto& numbers : owned->shown_in) numbers.resize(kMostThreads);
    owned->states.resize(kMostThreads);
    block = owned.get();
  }
  block->threads = shape.threads;
  block->call = call;
  block->kernel = kernel;
  block->args = args;
  block->shared.clear();
  block->static_bytes = 0;
  block->dynamic.resize(static_cast<size_t>(shape.shared_bytes));
  if (std::ssize(block->fibers) < shape.threads) block->fibers.resize(static_cast<size_t>(shape.threads));
  block_size = {static_cast<unsigned>(shape.threads), 1, 1};
  grid_size = {static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
               static_cast<unsigned>(shape.blocks_z)};
  const int64_t X = shape.blocks_x, Y = shape.blocks_y, all = X * Y * shape.blocks_z;
  const int64_t some = chosen ? std::min(all, chosen->most) : all;
  for (int64_t i = 0; i < some; ++i) {
    const int64_t at = some == all ? i
                       : i == 0    ? 0
                       : i == some - 1
                           ? all - 1
                           : static_cast<int64_t>(RandomKey(chosen->seed).bits(static_cast<uint64_t>(i)) %
                                                  static_cast<uint64_t>(all));
    block_index = {static_cast<unsigned>(at % X), static_cast<unsigned>(at / X % Y),
                   static_cast<unsigned>(at / X / Y)};
    thread_index = {};
    run_block();
  }
}

void upload(void* to, const void* from, int64_t bytes, void* stream) { copy_bytes(to, from, bytes, stream); }
void copy_bytes(void* to, const void* from, int64_t bytes, void*) {
  const test::OnDevice here;
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void fill_bytes(void* at, int byte, int64_t bytes, void*) {
  const test::OnDevice here;
  std::memset(at, byte, static_cast<size_t>(bytes));
}
void run_on_host(void (*run)(void*), void* with, void*) { run(with); }
void on_host(device::HostWork work, void*) {
  std::vector<std::byte> from(static_cast<size_t>(work.from_bytes));
  copy_bytes(from.data(), work.from, work.from_bytes, nullptr);
  std::vector<std::byte> to(static_cast<size_t>(work.to_bytes), std::byte{0xff});
  work.run(from.data(), to.data());
  copy_bytes(work.to, to.data(), work.to_bytes, nullptr);
}

}  // namespace heddle::kernels::cuda

namespace heddle::test {

namespace {
struct KeptPages {
  std::mutex mutex;
  std::map<void*, size_t> ranges;
  int open = 0;  // OnDevice that live
  void set(int access) const {
    for (const auto& [at, bytes] : ranges) mprotect(at, bytes, access);
  }
};
KeptPages& kept_pages() {
  static KeptPages one;
  return one;
}
}  // namespace

void keep_from_host(void* at, size_t bytes) {
  const std::lock_guard lock(kept_pages().mutex);
  kept_pages().ranges[at] = bytes;
  mprotect(at, bytes, kept_pages().open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
}
void give_to_host(void* at) {
  const std::lock_guard lock(kept_pages().mutex);
  mprotect(at, kept_pages().ranges.at(at), PROT_READ | PROT_WRITE);
  kept_pages().ranges.erase(at);
}

OnDevice::OnDevice() {
  const std::lock_guard lock(kept_pages().mutex);
  if (kept_pages().open++ == 0) kept_pages().set(PROT_READ | PROT_WRITE);
}
OnDevice::~OnDevice() {
  const std::lock_guard lock(kept_pages().mutex);
  if (--kept_pages().open == 0) kept_pages().set(PROT_NONE);
}

}  // namespace heddle::test
