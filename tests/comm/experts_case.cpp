// Rows to experts and back through the communication kernels, on whatever carries a world's bytes: rows are
// integers, so that what arrives and what comes home is known exactly. Nodes are pretended, for every topology to
// have some.
#include <algorithm>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/comm/collectives.h"
#include "heddle/comm/exchange/scratch.h"
#include "heddle/comm/host/row_work.h"
#include "heddle/device/routing_plan.h"
#include "tests/comm/world_cases.h"

namespace heddle::comm {

namespace {

class PretendedNodes : public Communicator {
 public:
  PretendedNodes(Communicator& real, int nodes) : real_(real), nodes_(nodes) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int node_of(int rank) const override { return rank * nodes_ / size(); }
  void exchange(const void* send, std::span<const Piece> sends, void* receive,
                std::span<const Piece> receives) override {
    real_.exchange(send, sends, receive, receives);
  }
  void send(const void* data, int64_t bytes, int peer) override { real_.send(data, bytes, peer); }
  void receive(void* data, int64_t bytes, int peer) override { real_.receive(data, bytes, peer); }
  Traffic traffic() const override { return real_.traffic(); }
  void abort(const std::string& reason) override { real_.abort(reason); }

 private:
  Communicator& real_;
  int nodes_;
};

template <class T>
struct Tensor {
  Tensor(std::vector<int64_t> dims, T value) : dims(std::move(dims)) {
    int64_t elements = 1;
    for (const int64_t dim : this->dims) elements *= dim;
    values.assign(static_cast<size_t>(elements) + 1, value);  // one more, so that there always is an address
  }
  device::TensorView view() {
    device::TensorView v;
    v.data = values.data();
    v.dtype = std::is_same_v<T, int32_t> ? Dtype::i32 : Dtype::f64;
    v.rank = static_cast<int8_t>(dims.size());
    std::copy(dims.begin(), dims.end(), v.dims.begin());
    return v;
  }
  std::vector<int64_t> dims;
  std::vector<T> values;
};

constexpr int64_t H = 3, k = 3, each = 2;  // width, experts a token, experts a rank

void there_and_back(Communicator& group, const std::string& topology, uint64_t seed) {
  const int64_t G = group.size(), me = group.rank(), E = G * each, chosen_k = std::min(k, E);
  const auto tokens_of = [&](int64_t p) {
    return static_cast<int64_t>(RandomKey(seed).bits(static_cast<uint64_t>(p)) % 40);
  };
  const auto experts_of = [&](int64_t p, int64_t t) {  // distinct, increasing
    const auto first = static_cast<int64_t>(RandomKey(seed).with(7).bits(static_cast<uint64_t>(p * 64 + t)) %
                                            static_cast<uint64_t>(E));
    std::vector<int32_t> ids;
    for (int64_t j = 0; j < chosen_k; ++j) ids.push_back(static_cast<int32_t>((first + j * j + j) % E));
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (int32_t e = 0; std::ssize(ids) < chosen_k; ++e) {
      if (std::find(ids.begin(), ids.end(), e) == ids.end()) ids.push_back(e);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
  };
  const int64_t T = tokens_of(me);
  Tensor<int32_t> experts({T, chosen_k}, 0), counts({2, G, each}, -1),
      route({device::route_size(G, topology == "plain")}, -1), n = counts, route_n = route, forwards({1}, -1),
                                                               most({1}, -1), offsets({each + 1}, -1);
  Tensor<double> x({T, H}, 0), g({T, chosen_k}, 0.5);
  for (int64_t t = 0; t < T; ++t) {
    const auto ids = experts_of(me, t);
    std::copy(ids.begin(), ids.end(), experts.values.begin() + t * chosen_k);
    for (int64_t h = 0; h < H; ++h)
      x.values[static_cast<size_t>(t * H + h)] = static_cast<double>((me * 64 + t) * H + h);
  }
  const ir::OpDef no_second_round;
  ir::Op op;
  op.def = &no_second_round;
  op.attributes = {{"ranks", G}, {"slices", int64_t{1}}, {"experts", E}, {"topology", topology}};
  std::vector<double> scratch(static_cast<size_t>(G * (64 + device::numbers_each(G, G) + G)) +
                              512);  // of the counts
  const auto run = [&](std::string_view kind, std::vector<device::TensorView> in,
                       std::vector<device::TensorView> out) {
    device::KernelCall call;
    call.op = &op;
    call.in = in;
    call.out = out;
    call.communicator = &group;
    call.row_work = host_row_work();
    call.scratch = reinterpret_cast<std::byte*>(scratch.data());
    find_collective(host_collectives(), kind)->run(call);
  };
  run("share_counts", {experts.view()}, {counts.view(), route.view()});
  run("counts_to_host", {counts.view(), route.view()},
      {n.view(), route_n.view(), forwards.view(), offsets.view(), most.view()});
  const int64_t S = received_rows(n.view()), Q = counted_rows(1, route_n.view()),
                F = counted_rows(2, forwards.view());
  std::vector<int64_t> rows_of(static_cast<size_t>(G), 0);
  for (int64_t p = 0; p < G; ++p) {
    for (int64_t t = 0; t < tokens_of(p); ++t) {
      for (const int32_t e : experts_of(p, t)) ++rows_of[static_cast<size_t>(e / each)];
    }
  }
  const int64_t expected_most = *std::max_element(rows_of.begin(), rows_of.end());
  HEDDLE_CHECK(most.values[0] == expected_most, "{}: rank {} counts {} rows at most, expected {}", topology, me,
               most.values[0], expected_most);
  const ExchangeSizes sizes{.T = T,
                            .k = chosen_k,
                            .slices = 1,
                            .G = G,
                            .P = each,
                            .Q = Q,
                            .S = S,
                            .F = F,
                            .row_bytes = H * 8,
                            .sum_bytes = H * 8,
                            .gate_bytes = 8,
                            .plain = topology == "plain",
                            .in_place = true,
                            .gates = true};
  const int64_t bytes = std::max(scratch_bytes_of<ThereScratch>(sizes), scratch_bytes_of<BackScratch>(sizes));
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(bytes / 8 + 1)));
  Tensor<double> q({S, H}, -1), g_S({S}, -1), c({T, H}, -1);
  Tensor<int32_t> token_S({S}, -1), passing({Q, chosen_k}, -1);
  run("dispatch", {x.view(), g.view(), experts.view(), n.view(), route_n.view(), forwards.view()},
      {q.view(), g_S.view(), token_S.view(), passing.view()});
  size_t s = 0;
  for (int64_t e = me * each; e < (me + 1) * each; ++e) {
    for (int64_t p = 0; p < G; ++p) {
      for (int64_t t = 0; t < tokens_of(p); ++t) {
        const auto ids = experts_of(p, t);
        if (std::find(ids.begin(), ids.end(), e) == ids.end()) continue;
        for (int64_t h = 0; h < H; ++h, ++s) {
          HEDDLE_CHECK(q.values[s] == static_cast<double>((p * 64 + t) * H + h), "{}: rank {} row {} holds {}",
                       topology, me, s / H, q.values[s]);
        }
      }
    }
  }
  HEDDLE_CHECK(static_cast<int64_t>(s) == S * H, "{}: {} rows came, {} were sent", topology, S, s / H);
  run("combine",
      {q.view(), g_S.view(), g.view(), experts.view(), n.view(), route_n.view(), forwards.view(), token_S.view(),
       passing.view()},
      {c.view()});
  for (size_t i = 0; i < static_cast<size_t>(T * H); ++i) {
    const double expected = 0.5 * static_cast<double>(chosen_k) * x.values[i];
    HEDDLE_CHECK(c.values[i] == expected, "{}: rank {} sums {}, expected {}", topology, me, c.values[i], expected);
  }
}

}  // namespace

void experts(World& world, uint64_t seed) {
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
  const auto group = world.communicator(ranks, "experts");
  for (const int nodes : {1, 2, 3}) {
    PretendedNodes placed(*group, nodes);
    for (const char* topology : {"plain", "rank", "node", "merge"}) {
      for (uint64_t round = 0; round < 3; ++round) there_and_back(placed, topology, seed + round);
    }
  }
}

}  // namespace heddle::comm
