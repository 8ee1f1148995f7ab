// The CPU device's streams: order, waits across streams, errors, pace, a full queue, and where the time went.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "heddle/base/failure.h"
#include "heddle/device/host/host_stream.h"
#include "tests/support/paced_kernel.h"

namespace heddle::device {
namespace {

using namespace std::chrono_literals;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Kernels are plain functions: what they work on comes through the views.
struct Diary {
  std::mutex mutex;
  std::vector<int> entries;
};

void note_stream(const KernelCall& call) {
  Diary& diary = *static_cast<Diary*>(call.updates[0].data);
  const std::lock_guard lock(diary.mutex);
  diary.entries.push_back(call.microbatch);
}
void note_late(const KernelCall& call) {
  std::this_thread::sleep_for(20ms);
  note_stream(call);
}
void fail(const KernelCall&) { throw InternalError("the kernel fails"); }
void wait_for_flag(const KernelCall& call) {
  while (!static_cast<std::atomic<bool>*>(call.updates[0].data)->load()) std::this_thread::sleep_for(1ms);
}
// Not atomic on purpose: the thread sanitizer sees it if the stream's order is not an order of memory, too.
void increment(const KernelCall& call) { ++*call.updates[0].as<int64_t>(); }

void launch(Stream& stream, Kernel kernel, void* on, int number = 0, PacedKernel* paced = nullptr) {
  TensorView view;
  view.data = on;
  Launch launch;
  launch.run = kernel;
  launch.call.updates = {&view, 1};
  launch.call.microbatch = number;
  if (paced != nullptr) paced->put_around(launch);
  stream.launch(launch);
}

std::vector<int> count_to(int n) {
  std::vector<int> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(HostStream, RunsInOrder) {
  HostStream stream("compute", 1);
  Diary diary;
  for (int i = 0; i < 1000; ++i) launch(stream, note_stream, &diary, i);
  stream.synchronize(0);
  EXPECT_EQ(diary.entries, count_to(1000));
}

// A thread that others keep from a core for a while sees less of what it waits for: then again.
constexpr int kTurns = 20;

TEST(HostStream, MoreCommandsThanTheQueueHolds) {
  constexpr int kLaunches = 3 * static_cast<int>(HostStream::kRing) + 17;
  bool waited = false;
  for (int turn = 0; turn < kTurns && !waited; ++turn) {
    HostStream stream("compute", 1);
    int64_t count = 0;
    std::atomic<bool> go{false};
    std::atomic<int> launched{0};
    std::thread opener([&] {
      while (launched < static_cast<int>(HostStream::kRing) - 100) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(20ms);
      go = true;
    });
    launch(stream, wait_for_flag, &go);  // the host fills the queue and must wait for the worker
    for (int i = 0; i < kLaunches; ++i, ++launched) launch(stream, increment, &count);
    waited = stream.take_host_waited_ns() > 5'000'000;
    EXPECT_EQ(stream.take_host_waited_ns(), 0);
    stream.synchronize(0);
    opener.join();
    EXPECT_EQ(count, kLaunches);
  }
  EXPECT_TRUE(waited);
}

TEST(HostStream, WaitsForAnotherStream) {
  for (int turn = 0; turn < 5; ++turn) {
    HostStream a("a", 1), b("b", 1);
    Diary diary;
    std::atomic<bool> go = false;
    launch(a, note_late, &diary, 1);
    launch(a, wait_for_flag, &go);
    launch(a, note_stream, &diary, 3);
    b.wait(a, 1);  // not for what follows it
    launch(b, note_stream, &diary, 2);
    b.synchronize(0);
    go = true;
    a.synchronize(0);
    EXPECT_EQ(diary.entries, (std::vector{1, 2, 3}));
  }
}

// Two streams hand a number that is not atomic to and fro.
TEST(HostStream, WaitsOrderMemory) {
  HostStream a("a", 1), b("b", 1);
  int64_t count = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    launch(a, increment, &count);
    b.wait(a, i + 1);
    launch(b, increment, &count);
    a.wait(b, i + 1);
  }
  a.synchronize(0);
  b.synchronize(0);
  EXPECT_EQ(count, 1000);
}

TEST(HostStream, SynchronizeToACount) {
  HostStream stream("compute", 1);
  std::atomic<bool> go{false};
  int64_t count = 0;
  launch(stream, increment, &count);
  launch(stream, wait_for_flag, &go);
  stream.synchronize(1);  // returns although the second has not ended
  EXPECT_EQ(count, 1);
  go = true;
  stream.synchronize(0);
}

TEST(HostStream, RethrowsWhatAKernelThrewAndPassesOverTheRest) {
  HostStream a("a", 1), b("b", 1);
  int64_t count = 0;
  launch(a, increment, &count);
  launch(a, fail, &count, 7);
  launch(a, increment, &count);
  launch(b, increment, &count);
  b.synchronize(0);
  try {
    a.synchronize(0);
    FAIL() << "nothing was thrown";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "the kernel fails");
  }
  EXPECT_EQ(count, 2);
  EXPECT_FALSE(b.failed_at());
  ASSERT_TRUE(a.failed_at());
  EXPECT_EQ(a.failed_at()->microbatch, 7);
}

void fail_late(const KernelCall& call) {
  std::this_thread::sleep_for(20ms);
  fail(call);
}

// Along a chain of waits, whether the failure comes before them or after: nothing behind it runs, and all throw it.
TEST(HostStream, AFailureTravelsWithTheWaits) {
  for (const Kernel failing : {fail, fail_late}) {
    HostStream a("a", 1), b("b", 1), c("c", 1), apart("apart", 1);
    int64_t before = 0, after = 0, beside = 0;
    launch(b, increment, &before);
    launch(a, failing, &before, 7);
    b.wait(a, 1);
    launch(b, increment, &after);
    c.wait(b, 2);
    launch(c, increment, &after);
    launch(apart, increment, &beside);
    for (HostStream* stream : {&c, &b, &a}) {
      try {
        stream->synchronize(0);
        FAIL() << "nothing was thrown by " << stream->name();
      } catch (const InternalError& error) {
        EXPECT_STREQ(error.what(), "the kernel fails");
      }
      ASSERT_TRUE(stream->failed_at());
      EXPECT_EQ(stream->failed_at()->microbatch, 7);
    }
    apart.synchronize(0);
    EXPECT_EQ(before, 1);
    EXPECT_EQ(after, 0);
    EXPECT_EQ(beside, 1);
  }
}

// Before anybody who waits for it goes on, and only by the stream whose kernel it was.
TEST(HostStream, AFailureIsToldOnce) {
  HostStream a("a", 1), b("b", 1);
  std::atomic<int> told_a{0}, told_b{0};
  a.on_failure([&](const std::exception_ptr& failure, const Span& at) {
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(text_of(failure), "the kernel fails");
    EXPECT_EQ(at.microbatch, 7);
    ++told_a;
  });
  b.on_failure([&](const std::exception_ptr&, const Span&) { ++told_b; });
  int64_t count = 0;
  launch(a, fail, &count, 7);
  launch(a, fail, &count, 8);
  b.wait(a, 1);
  launch(b, increment, &count);
  EXPECT_THROW(b.synchronize(0), InternalError);
  EXPECT_EQ(told_a, 1);
  EXPECT_THROW(a.synchronize(0), InternalError);
  EXPECT_EQ(told_a, 1);
  EXPECT_EQ(told_b, 0);
}

TEST(PacedKernel, LastsAtLeastItsTime) {
  for (const Pace pace : {Pace::around, Pace::before, Pace::after}) {
    HostStream stream("compute", 1);
    stream.set_trace(true);
    Diary diary;
    PacedKernel paced;
    paced.pace_ns = 30'000'000;
    paced.pace = pace;
    launch(stream, note_late, &diary, 0, &paced);
    stream.synchronize(0);
    const std::vector<Span> spans = stream.take_spans();
    ASSERT_EQ(spans.size(), 1u);
    const int64_t least_ns = pace == Pace::around ? 30'000'000 : 50'000'000;  // the kernel takes 20 ms itself
    EXPECT_GE(spans[0].end_ns - spans[0].start_ns, least_ns);
  }
}

// A paced send leaves at its end: what it shows appears only then.
TEST(PacedKernel, BeforeRunsAtTheEnd) {
  bool in_time = false;
  for (int turn = 0; turn < kTurns && !in_time; ++turn) {
    HostStream stream("comm", 1);
    Diary diary;
    const int64_t start_ns = now_ns();
    PacedKernel paced;
    paced.pace_ns = 60'000'000;
    paced.pace = Pace::before;
    launch(stream, note_stream, &diary, 1, &paced);
    std::this_thread::sleep_for(5ms);
    {
      const std::lock_guard lock(diary.mutex);
      in_time = now_ns() - start_ns < 60'000'000;
      EXPECT_TRUE(!in_time || diary.entries.empty());
    }
    stream.synchronize(0);
    EXPECT_EQ(diary.entries.size(), 1u);
  }
}

TEST(HostStream, SpansAreInOrderAndTakenOnce) {
  HostStream stream("compute", 1);
  int64_t count = 0;
  launch(stream, increment, &count, 7);
  stream.synchronize(0);
  stream.set_trace(true);
  for (int i = 0; i < 10; ++i) launch(stream, increment, &count, i);
  stream.synchronize(0);
  const std::vector<Span> spans = stream.take_spans();
  ASSERT_EQ(spans.size(), 10u);
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].microbatch, static_cast<int>(i));
    EXPECT_LE(spans[i].start_ns, spans[i].end_ns);
    if (i > 0) {
      EXPECT_LE(spans[i - 1].end_ns, spans[i].start_ns);
    }
  }
  EXPECT_TRUE(stream.take_spans().empty());
}

TEST(HostStream, TellsWorkingFromWaitingFromStarving) {
  bool felt = false;
  for (int turn = 0; turn < kTurns && !felt; ++turn) {
    HostStream a("a", 1), b("b", 1);
    Diary diary;
    int64_t of_one = 0, of_other = 0;
    launch(a, note_late, &diary, 0);  // 20 ms of work
    b.wait(a, 1);                     // b waits as long
    launch(b, increment, &of_other);
    b.synchronize(0);
    a.synchronize(0);
    const int64_t idle_from_ns = now_ns();
    std::this_thread::sleep_for(30ms);  // nothing to do for either
    launch(a, increment, &of_one);
    launch(b, increment, &of_other);
    const int64_t idle_ns = now_ns() - idle_from_ns;
    a.synchronize(0);
    b.synchronize(0);
    const StreamTimes of_a = a.take_times(), of_b = b.take_times();
    EXPECT_GE(of_a.busy_ns, 20'000'000);
    EXPECT_EQ(of_a.waiting_ns, 0);
    felt = of_b.waiting_ns > 10'000'000 && of_b.busy_ns < 10'000'000 && of_a.starved_ns >= 29'000'000 &&
           of_b.starved_ns >= 29'000'000 && of_b.starved_ns <= idle_ns + 50'000'000;
    EXPECT_EQ(a.take_times().busy_ns, 0);  // taken once
  }
  EXPECT_TRUE(felt);
}

TEST(HostStream, EndsWithLaunchesStillQueued) {
  int64_t count = 0;
  {
    HostStream stream("compute", 1);
    for (int i = 0; i < 100; ++i) launch(stream, increment, &count);
  }
  EXPECT_EQ(count, 100);
}

// Operands beyond those that a command holds inline.
TEST(HostStream, CopiesManyViews) {
  HostStream stream("compute", 1);
  int64_t count = 0;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<TensorView> views(40);
    for (TensorView& view : views) view.data = &count;
    Launch launch;
    launch.run = [](const KernelCall& call) {
      for (const TensorView& view : call.in) ++*view.as<int64_t>();
    };
    launch.call.in = views;
    stream.launch(launch);
    views.assign(40, {});  // the stream has its own
  }
  stream.synchronize(0);
  EXPECT_EQ(count, 120);
}

}  // namespace
}  // namespace heddle::device
