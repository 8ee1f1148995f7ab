// One rank of the tests of ranks on CUDA devices, started by mpirun: pieces exchanged and messages sent through
// NCCL, then a step of a small model on every layout that the number of ranks allows, against one rank on
// reference. Exits 77 with the reason where there is no device. Ranks may share one device.
#include <cmath>
#include <cstdio>

#include "heddle/comm/device_world.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/device/device.h"
#include "tests/gpu/tiny_model.h"

namespace heddle {
namespace {

constexpr int kSkipped = 77;

void expect(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

/// Rank r sends p bytes 16·r + p, p + 1 of them, to rank p; then on to its neighbour, and back.
void exchanges(comm::World& devices, device::Device& device) {
  const int me = devices.rank(), n = devices.size();
  std::vector<int> all;
  for (int r = 0; r < n; ++r) all.push_back(r);
  const auto stream = device.stream("comm.test", 1);
  const auto arena = device.arena(1 << 20);
  arena->reach(1 << 20);
  std::vector<std::byte> bytes(1 << 12);
  std::vector<comm::Piece> sends, receives;
  int64_t at = 0, to = 2048;
  for (int p = 0; p < n; ++p) {
    std::fill_n(bytes.begin() + at, p + 1, static_cast<std::byte>(16 * me + p));
    sends.push_back({p, at, p + 1});
    receives.push_back({p, to, me + 1});
    at += p + 1;
    to += me + 1;
  }
  device.upload(arena->base(), bytes.data(), std::ssize(bytes));
  const auto group = devices.communicator(all, "comm.test");
  group->run_on(stream->handle());
  group->exchange(arena->base(), sends, arena->base(), receives);
  const auto line = devices.communicator(all, "comm.test.forward");
  line->run_on(stream->handle());
  if (me + 1 < n) line->send(arena->base() + 2048, 1, me + 1);
  if (me > 0) line->receive(arena->base() + 4000, 1, me - 1);
  device::Launch nothing;
  nothing.run = [](const device::KernelCall&) {};
  stream->launch(nothing);
  stream->synchronize();
  device.download(bytes.data(), arena->base(), std::ssize(bytes));
  for (int p = 0; p < n; ++p) {
    for (int i = 0; i < me + 1; ++i) {
      expect(bytes[static_cast<size_t>(2048 + p * (me + 1) + i)] == static_cast<std::byte>(16 * p + me),
             fmt::format("rank {} has a wrong byte of rank {}", me, p));
    }
  }
  expect(me == 0 || bytes[4000] == static_cast<std::byte>(me - 1), fmt::format("rank {} has a wrong message", me));
}

void step(comm::World& control, comm::World& devices, const plan::Degrees& degrees,
          const std::string& topology = "plain", plan::TpOverlap overlap = plan::TpOverlap::off) {
  const model::ModelConfig c = test::step_model();
  const auto value = [&](const model::Parameter& p, int64_t i) { return test::tiny_value(c, p, i); };
  test::TinyRun one(c, test::tiny_plan({}, Dtype::f32), "reference", 1 << 24);
  one.fill(value);
  one.run({test::tiny_batch(one.plan(), 0)});

  plan::Plan plan = test::tiny_plan(degrees, Dtype::f32);
  plan.parallel.exchange.topology = from_word<ir::Topology>(topology);
  plan.parallel.tp_overlap = overlap;
  plan.parallel.tp_panels = overlap == plan::TpOverlap::off ? 0 : 3;
  const plan::Mesh mesh(plan.mesh);
  const plan::Lowered lowered = plan::lower(c, plan);
  test::RankRun many(plan, mesh, lowered, devices, "cuda", int64_t{1} << 29);
  many.fill(value);
  many.executor().run_step(test::inputs_of(test::tiny_batch(plan, many.place().at(ir::Axis::dp)), many.executor()));
  const int n = control.size();
  std::vector<int> all;
  for (int r = 0; r < n; ++r) all.push_back(r);
  const auto group = control.communicator(all, "test");
  const auto sum_over_ranks = [&](std::vector<double> mine) {
    std::vector<double> theirs(mine.size() * static_cast<size_t>(n));
    const int64_t bytes = std::ssize(mine) * 8;
    std::vector<comm::Piece> sends, receives;
    for (int p = 0; p < n; ++p) {
      sends.push_back({p, 0, bytes});
      receives.push_back({p, p * bytes, bytes});
    }
    group->exchange(mine.data(), sends, theirs.data(), receives);
    for (size_t i = 0; i < mine.size(); ++i) {
      mine[i] = 0;
      for (int p = 0; p < n; ++p) mine[i] += theirs[static_cast<size_t>(p) * mine.size() + i];
    }
    return mine;
  };
  const double loss =
      sum_over_ranks({many.listing().find("loss.next_token") == ir::none ? 0 : many.read("loss.next_token")[0]})[0];
  const double expected = one.total("loss.next_token");
  expect(std::abs(loss - expected) < 1e-5 * expected,
         fmt::format("{}: loss {}, {} expected", plan::text_of(degrees), loss, expected));
  for (const model::Parameter& p : one.parameters(0)) {
    if (!p.trained) continue;
    const std::vector<double> whole = one.whole("grad.", p.name);
    std::vector<double> sum(whole.size()), holders = sum;
    many.add_to_whole("grad.", p.name, sum, holders);
    sum = sum_over_ranks(sum);
    double difference = 0, norm = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      difference += (sum[i] - whole[i]) * (sum[i] - whole[i]);
      norm += whole[i] * whole[i];
    }
    expect(difference <= 4e-10 * norm,
           fmt::format("{}: the gradient of {} is off", plan::text_of(degrees), p.name));
  }
  if (control.rank() == 0) std::printf("ok %s\n", plan::text_of(degrees).c_str());
}

int run() {
  const std::unique_ptr<comm::World> control = comm::mpi_world();
  Support there = device::cuda_available();
  if (there) there = comm::device_world_available();
  if (!there) {
    if (control->rank() == 0) std::printf("skipped: %s\n", there.reason.c_str());
    return kSkipped;
  }
  const std::unique_ptr<device::Device> device = device::cuda_device(comm::seat_in(*control));
  const std::unique_ptr<comm::World> devices = comm::device_world(*control);
  exchanges(*devices, *device);
  const int n = control->size();
  std::vector<plan::Degrees> layouts{{.dp = n}, {.dp = n, .ep = n}};
  if (n == 2) {
    for (const plan::Degrees& d : {plan::Degrees{.tp = 2}, {.cp = 2}, {.pp = 2}}) layouts.push_back(d);
  }
  if (n == 4) layouts.insert(layouts.end(), {{.tp = 2, .pp = 2}, {.dp = 4, .ep = 2, .etp = 2}});
  for (const plan::Degrees& degrees : layouts) step(*control, *devices, degrees);
  if (n == 2) step(*control, *devices, {.tp = 2}, "plain", plan::TpOverlap::fused);
  for (const char* topology : {"rank", "auto"}) step(*control, *devices, {.dp = n, .ep = n}, topology);
  return 0;
}

}  // namespace
}  // namespace heddle

int main() {
  try {
    return heddle::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
