// Fibers of the emulator, and the launch of a grid on them.
#include "tests/gpu/emulator.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/kernels/cuda/launch.h"

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

thread_local Index thread_index, block_index, block_size, grid_size;

namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kBoardBytes = 64;
enum class State : uint8_t { ready, at_block, at_warp, ended };

struct Fiber {
  std::unique_ptr<unsigned char[]> stack;
  void* top = nullptr;
  State state = State::ended;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<unsigned char> boards;
  std::map<const void*, std::vector<unsigned char>> shared;
  std::vector<unsigned char> dynamic;
  void* scheduler = nullptr;
  int current = 0, threads = 0;
  void (*call)(const void*, const void*) = nullptr;
  const void *kernel = nullptr, *args = nullptr;
  uint64_t turns = 0;
};
thread_local Block block;

void stop(State state) {
  Fiber& fiber = block.fibers[static_cast<size_t>(block.current)];
  fiber.state = state;
  heddle_fiber_switch(&fiber.top, block.scheduler);
  thread_index.x = static_cast<unsigned>(block.current);
}

void body() {
  thread_index.x = static_cast<unsigned>(block.current);
  block.call(block.kernel, block.args);
  stop(State::ended);
  std::abort();  // an ended fiber is never resumed
}

void prepare(Fiber& fiber) {
  if (!fiber.stack) fiber.stack = std::make_unique<unsigned char[]>(kStackBytes);
  auto top = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) / 16 * 16;
  auto* words = reinterpret_cast<void**>(top);
  *--words = nullptr;  // where a caller's return address would be: body starts aligned as after a call
  *--words = reinterpret_cast<void*>(&body);
  for (int i = 0; i < 6; ++i) *--words = nullptr;
  fiber.top = words;
  fiber.state = State::ready;
}

void run_block() {
  for (auto& [key, bytes] : block.shared) std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0xff));
  std::fill(block.dynamic.begin(), block.dynamic.end(), static_cast<unsigned char>(0xff));
  const int n = block.threads;
  for (int i = 0; i < n; ++i) prepare(block.fibers[static_cast<size_t>(i)]);
  const bool falling = ++block.turns % 2 == 0;
  while (true) {
    bool ran = false;
    for (int i = 0; i < n; ++i) {
      block.current = falling ? n - 1 - i : i;
      Fiber& fiber = block.fibers[static_cast<size_t>(block.current)];
      if (fiber.state != State::ready) continue;
      heddle_fiber_switch(&block.scheduler, fiber.top);
      ran = true;
    }
    int ended = 0, at_block = 0;
    for (int first = 0; first < n; first += 32) {
      int in_warp = 0, waiting = 0;
      for (int i = first; i < std::min(n, first + 32); ++i) {
        const State state = block.fibers[static_cast<size_t>(i)].state;
        ended += state == State::ended;
        at_block += state == State::at_block;
        in_warp += state != State::ended;
        waiting += state == State::at_warp;
      }
      if (waiting == 0 || waiting < in_warp) continue;
      for (int i = first; i < std::min(n, first + 32); ++i) {
        Fiber& fiber = block.fibers[static_cast<size_t>(i)];
        if (fiber.state == State::at_warp) fiber.state = State::ready;
      }
      ran = true;
    }
    if (ended == n) return;
    if (at_block > 0 && at_block + ended == n) {
      for (Fiber& fiber : block.fibers) {
        if (fiber.state == State::at_block) fiber.state = State::ready;
      }
      ran = true;
    }
    if (!ran) throw std::logic_error("threads of a block wait at different barriers");
  }
}

}  // namespace

void block_barrier() { stop(State::at_block); }
void warp_barrier() { stop(State::at_warp); }
unsigned char* board(int lane) { return block.boards.data() + (block.current / 32 * 32 + lane) * kBoardBytes; }
unsigned char* dynamic_shared() { return block.dynamic.data(); }
void* shared(const void* key, int64_t bytes) {
  std::vector<unsigned char>& piece = block.shared[key];
  if (piece.empty()) piece.assign(static_cast<size_t>(bytes), 0xff);
  return piece.data();
}

}  // namespace emulator

void launch_on_device(const LaunchShape& shape, const void* kernel, void (*call)(const void*, const void*),
                      const void* args, void*) {
  using namespace emulator;
  HEDDLE_CHECK(shape.threads > 0 && shape.threads <= 1024 && shape.shared_bytes <= 227 * 1024,
               "a block of {} threads and {} bytes", shape.threads, shape.shared_bytes);
  block.threads = shape.threads;
  block.call = call;
  block.kernel = kernel;
  block.args = args;
  block.shared.clear();
  block.dynamic.resize(static_cast<size_t>(shape.shared_bytes));
  if (std::ssize(block.fibers) < shape.threads) block.fibers.resize(static_cast<size_t>(shape.threads));
  block.boards.resize(1024 * kBoardBytes);
  block_size = {static_cast<unsigned>(shape.threads), 1, 1};
  grid_size = {static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
               static_cast<unsigned>(shape.blocks_z)};
  for (unsigned z = 0; z < grid_size.z; ++z) {
    for (unsigned y = 0; y < grid_size.y; ++y) {
      for (unsigned x = 0; x < grid_size.x; ++x) {
        block_index = {x, y, z};
        thread_index = {};
        run_block();
      }
    }
  }
}

void upload(void* to, const void* from, int64_t bytes, void*) { std::memcpy(to, from, static_cast<size_t>(bytes)); }
void copy_bytes(void* to, const void* from, int64_t bytes, void*) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void fill_bytes(void* at, int byte, int64_t bytes, void*) { std::memset(at, byte, static_cast<size_t>(bytes)); }
void run_on_host(void (*run)(void*), void* with, void*) { run(with); }

}  // namespace heddle::kernels::cuda
