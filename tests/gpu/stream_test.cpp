// Streams of CUDA devices over a runtime that only keeps lists: what is put on streams, events and graphs is run in
// a drawn order that waits allow, and every launch must come after all that it waits for. It knows nothing of
// devices.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>

#include "heddle/base/random.h"
#include "heddle/device/cuda/cuda_stream.h"
#include "heddle/ops/ops.h"

// ---- The runtime

struct CUevent_st {
  int recorded = 0, reached = 0;
  double reached_ms = 0;
};
struct CUgraph_st {
  std::vector<int> marks;
};
struct CUgraphExec_st : CUgraph_st {};
struct CUstream_st {
  struct Item {
    std::vector<int> marks;
    CUevent_st* event = nullptr;
    int version = 0;
    bool waits = false;
  };
  std::deque<Item> items;
  CUgraph_st* capturing = nullptr;
};

namespace {

cudaError_t last_error = cudaSuccess;  // of any call, until it is asked for
cudaError_t failed(cudaError_t error) { return last_error = error; }

std::set<CUstream_st*> streams;
std::vector<int> done;  // marks, in the order in which they ran
int graphs_launched = 0, captures = 0, events = 0;
uint64_t drawn = 0;
double clock_ms = 0;      // of the device
double ms_each_mark = 0;  // that a launch takes
std::set<CUevent_st*> living_events;
int destroyed_again = 0;  // events
constexpr int kEveryReading = 1 << 30;
int readings_that_succeed = kEveryReading;  // of elapsed times

/// Runs the first item of a stream that can go on; false: none can.
bool run_one() {
  std::vector<CUstream_st*> able;
  for (CUstream_st* s : streams) {
    if (s->items.empty()) continue;
    const CUstream_st::Item& item = s->items.front();
    if (!item.waits || item.event->reached >= item.version) able.push_back(s);
  }
  if (able.empty()) return false;
  CUstream_st* s = able[heddle::RandomKey(3).bits(drawn++) % able.size()];
  const CUstream_st::Item item = s->items.front();
  s->items.pop_front();
  done.insert(done.end(), item.marks.begin(), item.marks.end());
  clock_ms += ms_each_mark * static_cast<double>(item.marks.size());
  if (item.event != nullptr && !item.waits) {
    item.event->reached = std::max(item.event->reached, item.version);
    item.event->reached_ms = clock_ms;
  }
  return true;
}

void mark(cudaStream_t stream, int number) {
  if (stream->capturing != nullptr) {
    stream->capturing->marks.push_back(number);
  } else {
    stream->items.push_back({{number}});
  }
}

}  // namespace

extern "C" {
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
const char* cudaGetErrorName(cudaError_t) { return "error"; }
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void**, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  return failed(cudaErrorNotSupported);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int*, int*) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  streams.insert(*s = new CUstream_st);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  streams.erase(s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  while (!s->items.empty()) {
    if (!run_one()) return failed(cudaErrorUnknown);
  }
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new CUevent_st;
  living_events.insert(*e);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  if (living_events.erase(e) == 0) {
    ++destroyed_again;
    return failed(cudaErrorInvalidResourceHandle);
  }
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (s->capturing != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
  s->items.push_back({{}, e, ++e->recorded});
  ++events;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return e->reached >= e->recorded ? cudaSuccess : failed(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  while (e->reached < e->recorded) {
    if (!run_one()) return failed(cudaErrorUnknown);
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (--readings_that_succeed < 0) return failed(cudaErrorInvalidResourceHandle);
  *ms = static_cast<float>(to->reached_ms - from->reached_ms);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (s->capturing != nullptr) return failed(cudaErrorStreamCaptureIsolation);
  s->items.push_back({{}, e, e->recorded, true});
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  s->capturing = new CUgraph_st;
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  *graph = std::exchange(s->capturing, nullptr);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  ++graphs_launched;
  s->items.push_back({exec->marks});
  return cudaSuccess;
}
}  // extern "C"

// ---- The tests

namespace heddle::device {
namespace {

/// The mark is the address of the operand; those of a step repeat in the next, as in an arena.
void note(const KernelCall& call) {
  mark(static_cast<cudaStream_t>(call.stream), static_cast<int>(reinterpret_cast<intptr_t>(call.in[0].data)));
}

struct Planned {
  int stream;
  bool repeats;
  std::vector<std::pair<int, uint64_t>> waits;  // stream, launches of it in this step
};

/// Steps of one drawn program on three streams. After each step all that was put on streams has run, each launch
/// after those before it on its stream and those that it waits for.
void run_program(uint64_t draw, int ops, int steps, bool graphs) {
  const RandomKey key = RandomKey(17).with(draw);
  uint64_t n = 0;
  const auto pick = [&](uint64_t below) { return key.bits(n++) % below; };
  std::vector<Planned> program;
  uint64_t planned[3] = {};
  for (int i = 0; i < ops; ++i) {
    Planned op{.stream = pick(4) == 0 ? static_cast<int>(1 + pick(2)) : 0, .repeats = pick(20) != 0, .waits = {}};
    for (int other = 0; other < 3; ++other) {
      if (other != op.stream && planned[other] > 0 && pick(op.stream == 0 ? 12 : 3) == 0) {
        op.waits.emplace_back(other, 1 + pick(planned[other]));
      }
    }
    ++planned[op.stream];
    program.push_back(op);
  }
  ir::Op repeating, reading;
  repeating.def = &ops::find("add");
  reading.def = &ops::find("load");
  std::vector<std::unique_ptr<CudaStream>> all;
  for (const char* name : {"compute", "comm", "copy"}) all.push_back(std::make_unique<CudaStream>(0, name, graphs));
  std::vector<std::vector<int>> launched(3);  // marks of all steps
  for (int step = 0; step < steps; ++step) {
    done.clear();
    const size_t before[] = {launched[0].size(), launched[1].size(), launched[2].size()};
    std::vector<std::pair<int, int>> after;  // this mark, after that one
    for (int i = 0; i < ops; ++i) {
      const Planned& op = program[static_cast<size_t>(i)];
      const auto s = static_cast<size_t>(op.stream);
      const int number = i + 1;
      for (const auto& [other, count] : op.waits) {
        const size_t at = before[other] + count;
        all[s]->wait(*all[static_cast<size_t>(other)], at);
        after.emplace_back(number, launched[static_cast<size_t>(other)][at - 1]);
      }
      if (launched[s].size() > before[s]) after.emplace_back(number, launched[s].back());
      TensorView view;
      view.data = reinterpret_cast<void*>(static_cast<intptr_t>(number));
      Launch launch;
      launch.run = note;
      // An op that does not repeat loads an input, or has as many rows as routing gave it.
      launch.call.op = op.repeats || number % 2 == 0 ? &repeating : &reading;
      launch.rows = op.repeats ? -1 : number;
      launch.op_index = static_cast<uint32_t>(i);
      launch.call.in = {&view, 1};
      all[s]->launch(launch);
      launched[s].push_back(number);
      if (i % 97 == 50) {  // a host stall
        all[s]->synchronize(launched[s].size());
        EXPECT_NE(std::find(done.begin(), done.end(), number), done.end()) << "draw " << draw;
      }
    }
    for (auto& stream : all) stream->synchronize(0);
    std::map<int, size_t> place;
    for (size_t i = 0; i < done.size(); ++i) place[done[i]] = i;
    EXPECT_EQ(done.size(), static_cast<size_t>(ops));
    EXPECT_EQ(place.size(), static_cast<size_t>(ops)) << "draw " << draw << ", step " << step;
    for (const auto& [later, earlier] : after) {
      EXPECT_LT(place[earlier], place[later]) << "draw " << draw << ", step " << step;
    }
  }
}

TEST(CudaStreams, LaunchesComeAfterWhatTheyWaitFor) {
  for (uint64_t draw = 0; draw < 20; ++draw) run_program(draw, 200, 3, false);
  EXPECT_EQ(captures, 0);
}

TEST(CudaStreams, SoDoTheyAsGraphs) {
  captures = graphs_launched = 0;
  for (uint64_t draw = 0; draw < 20; ++draw) run_program(draw, 200, 5, true);
  EXPECT_GT(captures, 0);
  EXPECT_EQ(graphs_launched, 4 * captures);  // every step but the first, of five
}

void fail(const KernelCall&) { throw InternalError("the entry fails"); }

// Listed for a graph or not: where an entry throws, its stream takes nothing more, nor does one that waits for it.
TEST(CudaStreams, AFailureTravelsWithTheWaits) {
  ir::Op op;
  op.def = &ops::find("add");
  const auto launch = [&](CudaStream& stream, Kernel run, int number) {
    TensorView view;
    view.data = reinterpret_cast<void*>(static_cast<intptr_t>(number));
    Launch launch;
    launch.run = run;
    launch.call.op = &op;
    launch.call.in = {&view, 1};
    launch.call.microbatch = number;
    stream.launch(launch);
  };
  for (const bool graphs : {false, true}) {
    CudaStream a(0, "compute", graphs), b(0, "comm", graphs), c(0, "copy", graphs);
    int told = 0;
    a.on_failure([&](const std::exception_ptr&, const Span& at) { told += at.microbatch; });
    done.clear();
    launch(b, note, 5);
    launch(a, note, 6);
    if (graphs) {
      launch(a, fail, 7);
    } else {
      EXPECT_THROW(launch(a, fail, 7), InternalError);
    }
    EXPECT_THROW(b.wait(a, 2), InternalError);
    EXPECT_THROW(launch(b, note, 8), InternalError);
    EXPECT_THROW(c.wait(b, 1), InternalError);
    EXPECT_THROW(launch(c, note, 9), InternalError);
    EXPECT_THROW(launch(a, note, 10), InternalError);
    for (CudaStream* stream : {&a, &b, &c}) {
      EXPECT_THROW(stream->synchronize(0), InternalError);
      ASSERT_TRUE(stream->failed_at());
      EXPECT_EQ(stream->failed_at()->microbatch, 7);
    }
    EXPECT_EQ(told, 7);
    // What was put on the devices' streams before; what was only listed is dropped.
    EXPECT_EQ(std::set<int>(done.begin(), done.end()), graphs ? (std::set<int>{6}) : (std::set<int>{5, 6}));
  }
}

/// A launch of op `number`; a message where it is sent.
void put(CudaStream& stream, int number, bool sends = false, Kernel run = note) {
  static ir::Op op;
  op.def = &ops::find("add");
  TensorView view;
  view.data = reinterpret_cast<void*>(static_cast<intptr_t>(number));
  Launch launch;
  launch.run = run;
  launch.op_index = static_cast<uint32_t>(number);
  launch.call.op = &op;
  launch.call.in = {&view, 1};
  static char peer;  // whose address alone is looked at
  if (sends) launch.call.communicator = reinterpret_cast<comm::Communicator*>(&peer);
  stream.launch(launch);
}

TEST(CudaStreams, EventsStandWhereSomethingWaits) {
  CudaStream a(0, "compute", false), b(0, "comm", false);
  for (int round = 0; round < 3; ++round) {
    events = 0;
    for (int i = 1; i <= 40; ++i) put(a, i);
    b.wait(a, static_cast<uint64_t>(round * 40 + 10));
    put(b, 100);
    // First behind all that stands there, then behind the launch itself, and no other.
    EXPECT_EQ(events, 1) << round;
    done.clear();
    while (std::find(done.begin(), done.end(), 100) == done.end()) ASSERT_TRUE(run_one());
    const auto place = [](int number) { return std::find(done.begin(), done.end(), number) - done.begin(); };
    EXPECT_LT(place(10), place(100));
    if (round == 0) {
      EXPECT_LT(place(40), place(100));
    }
    a.synchronize(0);
    b.synchronize(0);
  }
  events = 0;
  for (int i = 1; i <= 5; ++i) put(b, i, true);
  EXPECT_EQ(events, 5) << "a message waits for a peer: what comes before it must not wait for it";
  events = 0;
  for (int i = 200; i < 700; ++i) put(a, i);
  EXPECT_EQ(events, 3) << "none stays without for long";
  a.synchronize(0);
}

CUevent_st never{1, 0};
void never_ends(const KernelCall& call) {
  static_cast<cudaStream_t>(call.stream)->items.push_back({{}, &never, 1, true});
}

// The peer of a message may wait for what comes of launches before it: none of them is held up by the message.
TEST(CudaStreams, NoEventStandsBehindAMessage) {
  CudaStream a(0, "compute", false), b(0, "comm", false), c(0, "copy", false), d(0, "other", false);
  done.clear();
  put(a, 1);
  put(a, 2, true, never_ends);
  c.wait(a, 1);
  put(c, 3);
  put(d, 4);
  d.wait(a, 2);
  put(d, 5);
  b.wait(d, 1);
  put(b, 6);
  while (run_one()) {
  }
  EXPECT_EQ(std::set<int>(done.begin(), done.end()), (std::set<int>{1, 3, 4, 6}));
  never.reached = 1;
  for (CudaStream* stream : {&a, &b, &c, &d}) EXPECT_NO_THROW(stream->synchronize(0));
  EXPECT_NE(std::find(done.begin(), done.end(), 5), done.end());
}

// CUDA keeps "not ready" as the last error of the thread, and kernels of libraries read the last error behind their
// launch.
TEST(CudaStreams, LeaveNoErrorToTheNextLaunch) {
  CudaStream a(0, "compute", false);
  const Kernel reads = [](const KernelCall& call) {
    if (cudaGetLastError() != cudaSuccess) throw SystemError(0, "a launch that was refused");
    note(call);
  };
  for (int i = 0; i < 3000; ++i) ASSERT_NO_THROW(put(a, i, false, reads)) << i;
  a.synchronize(0);
}

void note_step(const KernelCall& call) {
  mark(static_cast<cudaStream_t>(call.stream), *reinterpret_cast<const int*>(call.input));
}

// Whatever loads an input, or calls the host: what it does in a step is of that step, although the launches
// around it repeat.
TEST(CudaStreams, AGraphKeepsNothingOfTheHosts) {
  int tried = 0;
  for (const ir::OpDef* def : ops::all()) {
    if (!def->loads && !def->calls_host) continue;
    ++tried;
    CudaStream a(0, "compute", true);
    for (int step = 1000; step < 1004; ++step) {
      ir::Op op;
      op.def = def;
      Launch launch;
      launch.run = note_step;
      launch.call.op = &op;
      launch.call.input = reinterpret_cast<const std::byte*>(&step);
      done.clear();
      for (int i = 1; i <= 6; ++i) put(a, i);
      a.launch(launch);
      for (int i = 7; i <= 12; ++i) put(a, i);
      a.synchronize(0);
      EXPECT_EQ(std::count(done.begin(), done.end(), step), 1) << def->kind << ", step " << step;
      EXPECT_EQ(done.size(), 13u) << def->kind;
    }
  }
  EXPECT_GE(tried, 7);
}

// An entry that asks for more than a capture allows throws what it likes: the run goes on without a graph.
TEST(CudaStreams, WhatCantBeCapturedRunsWithoutAGraph) {
  CudaStream a(0, "compute", true);
  const Kernel asks = [](const KernelCall& call) {
    if (static_cast<cudaStream_t>(call.stream)->capturing != nullptr) throw std::runtime_error("not in a capture");
    note(call);
  };
  graphs_launched = 0;
  for (int step = 0; step < 4; ++step) {
    done.clear();
    for (int i = 1; i <= 8; ++i) put(a, i, false, i == 5 ? asks : note);
    ASSERT_NO_THROW(a.synchronize(0)) << step;
    EXPECT_EQ(done, (std::vector{1, 2, 3, 4, 5, 6, 7, 8}));
  }
  EXPECT_EQ(graphs_launched, 0);
}

// A late trace is as fine as an early one.
TEST(CudaStreams, TimesKeepTheirGrain) {
  constexpr double kHour_ms = 3600e3;
  CudaStream a(0, "compute", false);
  clock_ms = 0;
  for (int trace = 0; trace < 3; ++trace) {
    a.set_trace(true);
    ms_each_mark = 0.005;
    for (int i = 1; i <= 50; ++i) put(a, i);
    a.set_trace(false);
    a.synchronize(0);
    const std::vector<Span> spans = a.take_spans();
    ms_each_mark = 0;
    clock_ms += kHour_ms;
    ASSERT_EQ(spans.size(), 50u);
    for (size_t i = 0; i < spans.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(spans[i].end_ns - spans[i].start_ns), 5000, 50) << trace << " " << i;
      EXPECT_NEAR(static_cast<double>(spans[i].start_ns - spans[0].start_ns), 5000.0 * static_cast<double>(i), 50);
    }
  }
}

// A library that remembers a stream hears of its end while the stream is still there.
TEST(CudaStreams, TellBeforeTheyEnd) {
  static std::vector<void*> told;
  before_streams_end([](void* stream) { told.push_back(stream); });
  void* stream = nullptr;
  {
    CudaStream a(0, "compute", false);
    stream = a.handle();
    EXPECT_TRUE(told.empty());
  }
  EXPECT_EQ(told, std::vector<void*>{stream});
}

// A device handles an event that is destroyed twice as memory that is freed twice.
TEST(CudaStreams, DestroyEachEventOnceWhereATraceCannotBeRead) {
  const size_t before = living_events.size();
  {
    CudaStream a(0, "compute", false);
    a.set_trace(true);
    for (int i = 1; i <= 5; ++i) put(a, i);
    a.synchronize(0);
    readings_that_succeed = 5;  // of ten
    EXPECT_THROW(a.take_spans(), SystemError);
    readings_that_succeed = kEveryReading;
  }
  EXPECT_EQ(destroyed_again, 0);
  EXPECT_EQ(living_events.size(), before);
}

TEST(CudaStreams, BeyondTheRingOfEvents) {
  for (const bool graphs : {false, true}) run_program(100, 3000, 3, graphs);
}

}  // namespace
}  // namespace heddle::device
