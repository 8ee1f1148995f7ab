// The line that is printed when a signal of the process's own fault ends it.
#include "heddle/base/crash_note.h"

#include <gtest/gtest.h>

#include <thread>

namespace heddle {
namespace {

void fault() {
  volatile uintptr_t nowhere = 8;  // which the compiler must not know
  *reinterpret_cast<volatile int*>(nowhere) = 1;
}

// Runs until the thread's stack is full.
int deep(int at) {
  volatile char room[4096] = {};
  room[at % 4096] = 1;
  return deep(at + 1) + room[0];
}

TEST(CrashNote, SaysWhatTheThreadWasAt) {
  const auto at = [](const auto& end) {
    const CrashNotes notes;
    const CrashNote outer("measuring", "program 3");
    CrashNote inner("timing");
    inner.now_of("linear");
    { const CrashNote over("asking the kernel", "cudnn", "attention"); }
    inner.now_of("silu");
    end();
  };
  EXPECT_EXIT(at(fault), testing::KilledBySignal(SIGSEGV),
              "signal SIGSEGV .* while timing silu, while measuring program 3\n");
  EXPECT_EXIT(at([] { std::raise(SIGFPE); }), testing::KilledBySignal(SIGFPE), "SIGFPE .* while timing silu");
  EXPECT_EXIT(at([] { std::abort(); }), testing::KilledBySignal(SIGABRT), "SIGABRT .* while timing silu");
  EXPECT_EXIT(at([] { deep(0); }), testing::KilledBySignal(SIGSEGV), "SIGSEGV .* while timing silu");
  EXPECT_EXIT(at([] { std::thread(fault).join(); }), testing::KilledBySignal(SIGSEGV), "while timing silu");
  EXPECT_EXIT(at([] {
                std::thread([] {
                  const CrashNote own("running", "an op");
                  fault();
                }).join();
              }),
              testing::KilledBySignal(SIGSEGV), "while running an op\n");
}

TEST(CrashNote, LeavesSignalsAsTheyWere) {
  struct sigaction before {
  }, after{};
  sigaction(SIGSEGV, nullptr, &before);
  { const CrashNotes notes; }
  sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace heddle
