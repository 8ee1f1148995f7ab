// What the experts' exchange costs a rank, op by op: dispatch and combine, and the gradients of both, for rows of
// several widths and types in every topology. Nodes are pretended: half of the ranks on either. Under mpirun the
// ranks are its processes, else threads. The choice of experts is drawn, the same in every build.
//
//   build/bench_exchange_ops [--json] [--ranks N] [--rounds N] [--topology WORD] [--dtype TYPE] [--tokens N]
//   [--width N] mpirun -np 4 --bind-to none build/bench_exchange_ops [--json] [--rounds N]
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/support/main.h"
#include "heddle/backends/backend.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/comm/mpi_world.h"
#include "heddle/comm/threads/thread_world.h"
#include "heddle/device/value_view.h"
#include "heddle/ops/ops.h"

namespace heddle {
namespace {

struct Case {
  std::string topology;
  Dtype dtype;
  int64_t tokens, width;
};
constexpr int64_t kExperts = 32, kChosen = 8;

class TwoNodes : public comm::Communicator {
 public:
  explicit TwoNodes(comm::Communicator& real) : real_(real) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  int node_of(int rank) const override { return rank * 2 / size(); }
  void exchange(const void* send, std::span<const comm::Piece> sends, void* receive,
                std::span<const comm::Piece> receives) override {
    real_.exchange(send, sends, receive, receives);
  }
  void send(const void* data, int64_t bytes, int peer) override { real_.send(data, bytes, peer); }
  void receive(void* data, int64_t bytes, int peer) override { real_.receive(data, bytes, peer); }
  comm::Traffic traffic() const override { return real_.traffic(); }
  void abort(const std::string& reason) override { real_.abort(reason); }

 private:
  comm::Communicator& real_;
};

/// One rank of one case: the ops' operands in memory of their own, and its ops, run as often as one likes.
class Rank {
 public:
  Rank(const Case& c, comm::Communicator& group) : group_(group) {
    attributes_ = {
        {"ranks", int64_t{group.size()}}, {"slices", int64_t{1}}, {"experts", kExperts}, {"topology", c.topology}};
    const Dtype wide = c.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    const ir::ValueId experts = make(Dtype::i32, {{c.tokens, ir::none}, {kChosen, ir::none}});
    choose(c.tokens, reinterpret_cast<int32_t*>(memory_.at(experts).get()));
    const auto counts = add("share_counts", {experts});
    const auto lists = add("counts_to_host", counts);
    run("share_counts"), run("counts_to_host");
    for (size_t i = 0; i < 3; ++i) rows_.of[lists[i]] = comm::counted_rows(i, view(lists[i]));
    const ir::ValueId x = make(c.dtype, {{c.tokens, ir::none}, {c.width, ir::none}});
    const ir::ValueId g = make(wide, {{c.tokens, ir::none}, {kChosen, ir::none}});
    const auto to = add("dispatch", {x, g, experts, lists[0], lists[1], lists[2]});
    run("dispatch");
    add("combine", {to[0], to[1], g, experts, lists[0], lists[1], lists[2], to[2], to[3]});
    add("combine_dgrad", {x, experts, lists[0], lists[1], lists[2], to[2], to[3]});
    add("dispatch_dgrad", {to[0], to[1], experts, lists[0], lists[1], lists[2], to[2], to[3]});
  }

  void run(std::string_view kind) {
    const Prepared& p = ops_.find(kind)->second;
    device::KernelCall call;
    call.op = &p.op;
    call.in = p.in;
    call.out = p.out;
    call.scratch = p.scratch.get();
    call.communicator = &group_;
    call.row_work = backends::named("host").row_work();
    p.collective->run(call);
  }

 private:
  struct Rows : ir::RowCounts {
    int64_t rows(ir::ValueId value) const override { return of.at(value); }
    std::map<ir::ValueId, int64_t> of;
  };
  using Memory = std::unique_ptr<std::byte[]>;
  struct Prepared {
    ir::Op op;
    std::vector<device::TensorView> in, out;
    Memory scratch;
    const comm::Collective* collective;
  };

  static Memory memory(int64_t bytes) {
    Memory memory(new std::byte[static_cast<size_t>(bytes) + 64]);
    std::memset(memory.get(), 0, static_cast<size_t>(bytes) + 64);  // all pages are there before anything is timed
    return memory;
  }
  ir::ValueId make(Dtype dtype, ir::Shape shape) {
    ir::Value value;
    value.name = fmt::format("value {}", stage_.values.size());
    value.dtype = dtype;
    value.shape = std::move(shape);
    const ir::ValueId id = stage_.add_value(std::move(value));
    memory_[id] = memory(stage_.bytes(id, rows_));
    return id;
  }
  void choose(int64_t tokens, int32_t* experts_Tk) const {
    const RandomKey key = RandomKey(1).with(static_cast<uint64_t>(group_.rank()));
    std::vector<int32_t> ids(kExperts);
    std::iota(ids.begin(), ids.end(), 0);
    uint64_t drawn = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t j = 0; j < kChosen; ++j) {
        const uint64_t left = static_cast<uint64_t>(kExperts - j);
        std::swap(ids[static_cast<size_t>(j)], ids[static_cast<size_t>(j) + key.bits(drawn++) % left]);
      }
      std::copy_n(ids.begin(), kChosen, experts_Tk + t * kChosen);
      std::sort(experts_Tk + t * kChosen, experts_Tk + (t + 1) * kChosen);
    }
  }
  device::TensorView view(ir::ValueId id) { return device::view_of(stage_.value(id), memory_.at(id).get(), rows_); }
  std::vector<ir::ValueId> add(std::string_view kind, std::vector<ir::ValueId> in) {
    ir::Op op;
    op.def = &ops::find(kind);
    op.in = std::move(in);
    if (!op.def->attributes.empty()) op.attributes = attributes_;
    const size_t outputs = op.def->infer(stage_, op).size();
    std::vector<std::string> names;
    for (size_t i = 0; i < outputs; ++i) names.push_back(fmt::format("{} {}", kind, i));
    const std::vector<ir::ValueId> out = stage_.append(op, names);
    Prepared& p = ops_[std::string(kind)];
    p.op = stage_.ops.back();
    for (const ir::ValueId id : p.op.in) p.in.push_back(view(id));
    for (const ir::ValueId id : out) {
      memory_[id] = memory(stage_.bytes(id, rows_));
      p.out.push_back(view(id));
    }
    p.collective = backends::named("host").find_collective(kind);
    p.scratch = memory(p.collective->scratch_bytes ? p.collective->scratch_bytes(stage_, p.op, rows_) : 0);
    return out;
  }

  comm::Communicator& group_;
  ir::Attributes attributes_;
  ir::Listing stage_;
  Rows rows_;
  std::map<ir::ValueId, Memory> memory_;
  std::map<std::string, Prepared, std::less<>> ops_;
};

/// Of the processor, by this thread: less moved by what else runs than the clock.
double thread_seconds() {
  timespec at{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
}

/// Medians of the microseconds of each op: of the clock until all ranks have ended, and of rank 0's processor.
nlohmann::ordered_json measure(const Case& c, comm::Communicator& group, int rounds) {
  Rank rank(c, group);
  const auto together = [&] {
    std::vector<std::byte> data(2 * static_cast<size_t>(group.size()));
    std::vector<comm::Piece> pieces;
    for (int p = 0; p < group.size(); ++p) pieces.push_back({p, p, 1});
    group.exchange(data.data(), pieces, data.data() + group.size(), pieces);
  };
  const std::vector<const char*> kinds{"share_counts", "dispatch", "combine", "combine_dgrad", "dispatch_dgrad"};
  std::map<std::string, std::vector<double>> took, worked;
  for (int i = 0; i < rounds + 2; ++i) {
    for (const char* kind : kinds) {
      together();
      const double began = now_s(), busy = thread_seconds();
      rank.run(kind);
      if (i >= 2) worked[kind].push_back((thread_seconds() - busy) * 1e6);
      together();
      if (i >= 2) took[kind].push_back((now_s() - began) * 1e6);
    }
  }
  nlohmann::ordered_json found;
  found["topology"] = c.topology;
  found["dtype"] = name_of(c.dtype);
  found["tokens"] = c.tokens;
  found["width"] = c.width;
  for (const char* kind : kinds) {
    found["us"][kind] = median(took.at(kind));
    found["processor_us"][kind] = median(worked.at(kind));
  }
  return found;
}

struct Options {
  bool json = false;
  int rounds = 15, ranks = 4;
  std::string topology, dtype;  // empty: each
  int64_t tokens = 0, width = 0;

  bool wants(const Case& c) const {
    return (topology.empty() || topology == c.topology) && (dtype.empty() || dtype == name_of(c.dtype)) &&
           (tokens == 0 || tokens == c.tokens) && (width == 0 || width == c.width);
  }
};

void measure_all(comm::World& world, const Options& options) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto group = world.communicator(ranks, "experts");
  TwoNodes placed(*group);
  for (const char* topology : {"plain", "rank", "node", "merge"}) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
      for (const auto& [tokens, width] :
           {std::pair{int64_t{16}, int64_t{256}}, {512, 256}, {256, 1024}, {16, 7168}, {128, 7168}}) {
        if (!options.wants({topology, dtype, tokens, width})) continue;
        const auto found = measure({topology, dtype, tokens, width}, placed, options.rounds);
        if (world.rank() == 0) fmt::print("{}\n", found.dump(options.json ? -1 : 2));
      }
    }
  }
}

}  // namespace

int bench::run(Arguments& arguments) {
  Options options;
  arguments.flag("--json", options.json);
  arguments.number("--rounds", options.rounds);
  arguments.number("--ranks", options.ranks, 2);
  arguments.word("--topology", "WORD", options.topology, {"plain", "rank", "node", "merge"});
  arguments.word("--dtype", "TYPE", options.dtype, {"bf16", "f32"});
  arguments.number("--tokens", options.tokens);
  arguments.number("--width", options.width);
  arguments.read();
  if (comm::launched_by_mpi()) {
    measure_all(*comm::mpi_world(), options);
  } else {
    comm::run_on_threads(options.ranks, [&](comm::World& world) { measure_all(world, options); });
  }
  return 0;
}

}  // namespace heddle
