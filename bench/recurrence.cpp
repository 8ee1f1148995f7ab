// Speed of the CPU's recurrences along the sequence: the chunked kernels against a loop over rows, and against
// causal attention of as many heads, in turn in one run.
//
//   forward 2·dk·dv·(2 + delta), backward 2·dk·dv·(6 + 3·delta) operations for each row and value head
//
// These are the operations of the definition; chunks have more. The share is of the rate of the best fp32 product
// of matrices (support/probe.h), on as many threads. The loop holds the state of a head in the first cache as well
// as it fits, and works along rows of dv. Medians of `--rounds`.
//
//   bench_recurrence [--json] [--rounds N] [--length S] [--fewer N] [--only FORM] [--dtype TYPE]
//
// `--fewer` divides the heads, for long sequences. Threads: OMP_NUM_THREADS.
#include "heddle/kernels/recurrence.h"

#include <fmt/format.h>
#include <omp.h>

#include <functional>
#include <string>
#include <vector>

#include "bench/support/main.h"
#include "bench/support/probe.h"
#include "bench/support/stops.h"
#include "heddle/base/clock.h"
#include "heddle/base/random.h"
#include "heddle/base/statistics.h"
#include "heddle/kernels/registry.h"
#include "heddle/ops/ops.h"

namespace heddle::bench {
namespace {

using device::TensorView;

struct Form {
  const char* name;
  int64_t heads, key_heads, head_dim, value_dim;
  bool delta, by_channel;
  bool slopes = false;  // in place of decays and betas
};
constexpr Form kForms[] = {{"GDN", 8, 4, 128, 128, true, false},
                           {"KDA", 8, 8, 128, 128, true, true},
                           {"Mamba-2", 16, 2, 128, 64, false, false},
                           {"lightning", 8, 8, 128, 128, false, false, true}};

double seconds(const std::function<void()>& work) {
  const double begin = now_s();
  work();
  return now_s() - begin;
}

/// An op alone on the host's first kernel that takes it, with operands of its own.
class LoneOp {
 public:
  LoneOp(std::string_view kind, const ir::Attributes& attributes) {
    op_.def = &ops::find(kind);
    op_.attributes = attributes;
  }
  /// Normal numbers, or −|these|/8 for log decays.
  void operand(Dtype dtype, int64_t rows, int64_t columns, bool decays = false) {
    op_.in.push_back(listing_.add_value(
        {.name = fmt::format("in{}", op_.in.size()), .dtype = dtype, .shape = {ir::Dim{rows}, ir::Dim{columns}}}));
    in_.push_back(memory(dtype, rows, columns));
    const RandomKey key(op_.in.size());
    for (int64_t i = 0; i < rows * columns; ++i) {
      auto x = static_cast<float>(key.normal(static_cast<uint64_t>(i)));
      if (decays) x = -std::abs(x) / 8;
      dtype == Dtype::bf16 ? void(in_.back().as<bf16>()[i] = x) : void(in_.back().as<float>()[i] = x);
    }
  }
  void absent() {
    op_.in.push_back(ir::none);
    in_.push_back({});
  }
  void prepare() {
    for (const ir::Value& value : op_.def->infer(listing_, op_))
      out_.push_back(memory(value.dtype, value.shape[0].count, value.shape[1].count));
    for (const kernels::KernelEntry& each : kernels::host_kernels()) {
      if (entry_ == nullptr && each.op_kind == op_.kind() && (!each.supports || each.supports(listing_, op_)))
        entry_ = &each;
    }
    HEDDLE_CHECK(entry_ != nullptr, "no kernel for {}", op_.kind());
    const int64_t bytes = entry_->scratch_bytes ? entry_->scratch_bytes(listing_, op_, ir::FixedRows()) : 0;
    scratch_.resize(static_cast<size_t>(bytes) + 64);
    run();
  }
  void run() {
    const auto at = (reinterpret_cast<uintptr_t>(scratch_.data()) + 63) / 64 * 64;
    entry_->run({.op = &op_, .in = in_, .out = out_, .scratch = reinterpret_cast<std::byte*>(at)});
  }
  const TensorView& in(size_t i) const { return in_[i]; }

 private:
  TensorView memory(Dtype dtype, int64_t rows, int64_t columns) {
    auto& bytes = bytes_.emplace_back(static_cast<size_t>(rows * columns * size_of(dtype)));
    return {.data = bytes.data(), .dtype = dtype, .rank = 2, .dims = {rows, columns, 1, 1}};
  }
  ir::Listing listing_;
  ir::Op op_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<TensorView> in_, out_;
  std::vector<std::byte> scratch_;
  const kernels::KernelEntry* entry_ = nullptr;
};

ir::Attributes attributes_of(const Form& f, int64_t S) {
  ir::Attributes attributes{
      {"heads", f.heads}, {"key_heads", f.key_heads},  {"head_dim", f.head_dim},      {"value_dim", f.value_dim},
      {"sequence", S},    {"delta", int64_t{f.delta}}, {"scale", 0.08838834764831845}};
  if (f.slopes) return attributes.set("slopes", 0.5).set("slope_heads", f.heads);
  return attributes.set("epsilon", 1e-6).set("sigmoid", int64_t{1});
}

void recurrence_operands(LoneOp& op, const Form& f, Dtype X, int64_t S, bool queries = true, bool values = true) {
  if (queries) op.operand(X, S, f.key_heads * f.head_dim);
  op.operand(X, S, f.key_heads * f.head_dim);
  if (values) op.operand(X, S, f.heads * f.value_dim);
  if (f.slopes) return;
  op.operand(Dtype::f32, S, f.heads * (f.by_channel ? f.head_dim : 1), true);
  op.operand(X, S, f.heads);
}

/// The definition in fp32, a head a thread, row by row; of q, k, v and decay as the op has them.
template <class X>
void loop_over_rows(const LoneOp& op, const Form& f, int64_t S, std::vector<float>& o) {
  const X *q = op.in(0).as<const X>(), *k = op.in(1).as<const X>(), *v = op.in(2).as<const X>();
  const auto* decay = f.slopes ? nullptr : op.in(3).as<const float>();
  const int64_t dk = f.head_dim, dv = f.value_dim;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t j = 0; j < f.heads; ++j) {
    std::vector<float> state(static_cast<size_t>(dk * dv)), u(static_cast<size_t>(dv));
    for (int64_t t = 0; t < S; ++t) {
      const int64_t key = (t * f.key_heads + j / (f.heads / f.key_heads)) * dk, value = (t * f.heads + j) * dv;
      for (int64_t e = 0; e < dv; ++e) u[e] = static_cast<float>(v[value + e]);
      const float of_head = f.slopes ? 0.9f : f.by_channel ? 0 : std::exp(decay[t * f.heads + j]);
      for (int64_t c = 0; c < dk; ++c) {
        const float D = f.by_channel ? std::exp(decay[(t * f.heads + j) * dk + c]) : of_head;
        const auto of_key = static_cast<float>(k[key + c]);
        float* row = state.data() + c * dv;
        for (int64_t e = 0; e < dv; ++e) row[e] *= D;
        for (int64_t e = 0; e < dv && f.delta; ++e) u[e] -= row[e] * of_key;
      }
      float* out = o.data() + value;
      std::fill_n(out, dv, 0.0f);
      for (int64_t c = 0; c < dk; ++c) {
        const auto of_key = static_cast<float>(k[key + c]) * 0.01f, of_query = static_cast<float>(q[key + c]);
        float* row = state.data() + c * dv;
        for (int64_t e = 0; e < dv; ++e) {
          row[e] += of_key * u[e];
          out[e] += of_query * row[e];
        }
      }
    }
  }
}

/// As given by the words of the command line.
struct Wanted {
  bool json = false;
  int rounds = 7, length = 2048, fewer = 1;  // fewer: heads are divided by it
  std::string form, dtype;                   // all of them where empty
};

int measure(const Wanted& wanted) {
  const auto& [json, rounds, length, fewer, only, of_type] = wanted;
  if (!json) {
    fmt::print("{} threads, medians of {} rounds\n", omp_get_max_threads(), rounds);
    fmt::print("{:<16} {:<5} {:>6} {:>11} {:>6} {:>11} {:>6} {:>12} {:>15} {:>15} {:>18}\n", "form", "type", "S",
               "fwd GFLOP/s", "share", "bwd GFLOP/s", "share", "loop ÷ fwd", "attention ÷ fwd", "attention ÷ bwd",
               "pieces add f, b");
  }
  bool first = true;
  for (Form f : kForms) {
    if (!only.empty() && only != f.name) continue;
    if (f.key_heads % fewer != 0)
      config_error("--fewer {} does not divide the {} key heads of {}", fewer, f.key_heads, f.name);
    f.heads /= fewer;
    f.key_heads /= fewer;
    for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
      if (!of_type.empty() && of_type != name_of(X)) continue;
      const int64_t S = length;
      LoneOp forward("recur", attributes_of(f, S)), backward("recur_dgrad", attributes_of(f, S));
      recurrence_operands(forward, f, X, S);
      backward.operand(X, S, f.heads * f.value_dim);
      recurrence_operands(backward, f, X, S);
      // By pieces of sequences these come on top: what a piece makes of a state, and of the gradient of one.
      LoneOp summary("recur_summary", attributes_of(f, S)), states("recur_states_dgrad", attributes_of(f, S));
      recurrence_operands(summary, f, X, S, false);
      states.operand(X, S, f.heads * f.value_dim);
      recurrence_operands(states, f, X, S, true, false);
      const ir::Attributes of_attention{
          {"heads", f.heads}, {"kv_heads", f.key_heads}, {"head_dim", f.head_dim},      {"value_dim", f.value_dim},
          {"sequence", S},    {"causal", int64_t{1}},    {"scale", 0.08838834764831845}};
      LoneOp attend("attention", of_attention), attend_back("attention_dgrad", of_attention);
      attend_back.operand(X, S, f.heads * f.value_dim);
      for (LoneOp* op : {&attend, &attend_back}) {
        op->operand(X, S, f.heads * f.head_dim);
        op->operand(X, S, f.key_heads * f.head_dim);
        op->operand(X, S, f.key_heads * f.value_dim);
      }
      attend_back.operand(X, S, f.heads * f.value_dim);
      attend_back.operand(Dtype::f32, S, f.heads);
      for (LoneOp* op : {&forward, &backward, &summary, &states, &attend, &attend_back}) op->prepare();
      std::vector<float> o(static_cast<size_t>(S * f.heads * f.value_dim));
      const double products = 2.0 * double(S * f.heads * f.head_dim * f.value_dim), delta = f.delta ? 1 : 0;
      MatrixProbe probe(Dtype::f32, omp_get_max_threads());
      std::vector<double> times, back_times, rates, back_rates, loops, attends, back_attends, summaries,
          back_states;
      for (int i = 0; i < rounds; ++i) {
        probe.sample();
        const double fwd = seconds([&] { forward.run(); }), bwd = seconds([&] { backward.run(); });
        const double loop = seconds([&] {
          X == Dtype::bf16 ? loop_over_rows<bf16>(forward, f, S, o) : loop_over_rows<float>(forward, f, S, o);
        });
        times.push_back(fwd);
        back_times.push_back(bwd);
        rates.push_back(products * (2 + delta) / fwd * 1e-9);
        back_rates.push_back(products * (6 + 3 * delta) / bwd * 1e-9);
        loops.push_back(loop / fwd);
        attends.push_back(seconds([&] { attend.run(); }) / fwd);
        summaries.push_back(seconds([&] { summary.run(); }) / fwd);
        back_states.push_back(seconds([&] { states.run(); }) / bwd);
        back_attends.push_back(seconds([&] { attend_back.run(); }) / bwd);
      }
      const double peak = probe.best_flops_per_s() * 1e-9, share = median(rates) / peak;
      const double back_share = median(back_rates) / peak;
      if (json) {
        fmt::print(
            "{}{{\"form\": \"{}\", \"dtype\": \"{}\", \"S\": {}, \"threads\": {}, "
            "\"forward_ms\": {:.3f}, \"backward_ms\": {:.3f}, \"forward_gflops\": {:.1f}, "
            "\"forward_share\": {:.3f}, \"backward_gflops\": {:.1f}, \"backward_share\": {:.3f}, "
            "\"loop_over_forward\": {:.2f}, \"attention_over_forward\": {:.2f}, "
            "\"attention_over_backward\": {:.2f}, \"summary_over_forward\": {:.2f}, "
            "\"state_gradient_over_backward\": {:.2f}}}",
            first ? "[" : ",\n ", f.name, name_of(X), S, omp_get_max_threads(), 1e3 * median(times),
            1e3 * median(back_times), median(rates), share, median(back_rates), back_share, median(loops),
            median(attends), median(back_attends), median(summaries), median(back_states));
      } else {
        fmt::print(
            "{:<16} {:<5} {:>6} {:>11.1f} {:>5.0f}% {:>11.1f} {:>5.0f}% {:>11.2f} {:>15.2f} {:>15.2f} {:>11.2f}, "
            "{:>5.2f}\n",
            f.name, name_of(X), S, median(rates), 100 * share, median(back_rates), 100 * back_share, median(loops),
            median(attends), median(back_attends), median(summaries), median(back_states));
      }
      first = false;
    }
  }
  if (json) fmt::print("]\n");
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int heddle::bench::run(Arguments& arguments) {
  Wanted wanted;
  arguments.flag("--json", wanted.json);
  arguments.number("--rounds", wanted.rounds);
  arguments.number("--length", wanted.length);
  arguments.number("--fewer", wanted.fewer);
  arguments.word("--only", "FORM", wanted.form, {"GDN", "KDA", "Mamba-2", "lightning"});
  arguments.word("--dtype", "TYPE", wanted.dtype, {"bf16", "f32"});
  arguments.read();
  return measure(wanted);
}
