// Entries of attention by cuDNN, whole, with a window too, or by the parts of a ring, in bf16. Own kernels run what
// it does not take: documents and sinks, windows over parts, keys gathered from ranks, other types and widths.
//
// A part of the ring sees plain regions, once its two chunks lie side by side (positions rise over both). It sees a
// triangle of a rank's own keys. All queries see the nearer half of the keys that all stand before a query's first
// chunk. The second half of the queries sees all other keys. A part's result comes in bf16 and is joined in f32.
//
// Gradients in a fixed order want room for scores that grows as the square of a sequence. Heads are independent, so
// a call takes so many at a time that the room stays within most_score_bytes.
#include <algorithm>
#include <vector>

#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/attention/stats_kernels.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/cudnn/plan.h"
#include "heddle/kernels/seen_keys.h"

namespace heddle::kernels::cuda {

namespace {

/// Rows of a sequence's queries and keys that meet.
struct Region {
  int64_t q_first, q_rows, k_first, k_rows;
  bool causal;
};

/// The regions of this op's ranks of cp: one, or two, of ranks before and behind the keys' owner.
std::vector<Region> regions(const ir::Op& op) {
  const int64_t rows = op.attributes.integer("sequence") / op.attributes.integer_or("cp", 1), half = rows / 2;
  const bool causal = op.attributes.integer("causal") != 0;
  if (!causal || op.attributes.integer_or("turn", 0) == 0) return {{0, rows, 0, rows, causal}};
  return {{0, rows, 0, half, false}, {half, rows - half, 0, rows, false}};
}
const Region& region_of(const std::vector<Region>& all, const SeenKeys& keys) {
  return all.size() == 1 || keys.owner < keys.index ? all[0] : all[1];
}

/// An op's sizes, and how much of it a call takes at once.
struct Sizes {
  Sizes(const ir::Op& op, int64_t q_rows)
      : h(op.attributes.integer("heads")),
        hk(op.attributes.integer("kv_heads")),
        d(op.attributes.integer("head_dim")),
        v(op.attributes.integer("value_dim")),
        S(op.attributes.integer("sequence") / op.attributes.integer_or("cp", 1)),
        B(q_rows / S),
        window(op.attributes.integer_or("window", 0) < S ? op.attributes.integer_or("window", 0) : 0),
        scale(static_cast<float>(op.attributes.number("scale"))) {}

  /// Numbers of B and of hk that one call takes; none where a single head is too much.
  std::pair<int64_t, int64_t> at_once(const Region& region, bool backward) const {
    if (!backward) return {B, hk};
    const auto whole = [](int64_t rows) { return (rows + 127) / 128 * 128; };
    const int64_t head = h / hk * whole(region.q_rows) * whole(region.k_rows) * 2;
    const auto most = [&](int64_t of, int64_t each) {
      int64_t count = std::min(of, most_score_bytes() / each);
      while (count > 1 && of % count != 0) --count;
      return count;
    };
    const int64_t heads = most(hk, head);
    return {heads == hk ? std::max<int64_t>(1, most(B, head * hk)) : 1, heads};
  }
  AttentionShape shape(const Region& region, bool backward) const {
    const auto [sequences, heads] = at_once(region, backward);
    return {.B = sequences,
            .h = h / hk * heads,
            .hk = heads,
            .Sq = region.q_rows,
            .Sk = region.k_rows,
            .d = d,
            .v = v,
            .q_heads = h,
            .k_heads = hk,
            .q_rows = S,
            .k_rows = S,
            .scale = scale,
            .causal = region.causal,
            .window = window,
            .backward = backward};
  }

  int64_t h, hk, d, v, S, B, window;  // 0: all of a sequence
  float scale;
};

bool of_part(const ir::Op& op) { return op.attributes.has("turn"); }

template <bool backward>
Support fits(const ir::Listing& listing, const ir::Op& op) {
  constexpr size_t q = backward ? 1 : 0;
  if (const Support there = attention_library(); !there) return there;
  if (const Support types = narrow<Among::in, q>(listing, op); !types) return types;
  if (listing.value(op.in[q]).dtype != Dtype::bf16) return Support::no("cuDNN attends in bf16");
  for (const char* name : {"starts", "sinks", "tokens"}) {  // the gradient finds sinks in lse
    if (ir::place_of(name, op.def->operands) >= 0 && op.operand(name) != ir::none)
      return Support::no(fmt::format("by cuDNN without {}", name));
  }
  if (op.attributes.has("cap")) return Support::no("by cuDNN without a cap of scores");
  if (op.attributes.integer_or("window", 0) > 0 && (of_part(op) || op.attributes.integer("causal") == 0))
    return Support::no("by cuDNN a window of whole causal attention only");
  if (op.attributes.integer_or("cp", 1) > 1 && !of_part(op)) return Support::no("by cuDNN without gathered keys");
  const Sizes sizes(op, listing.value(op.in[q]).shape[0].count);
  if (sizes.d % 8 != 0 || sizes.v % 8 != 0) return Support::no("heads for cuDNN are multiples of 8");
  if (sizes.B == 0) return Support::no("by cuDNN with rows");
  for (const Region& region : regions(op)) {
    const AttentionShape shape = sizes.shape(region, backward);
    if (shape.hk == 0) {
      return Support::no(fmt::format("scores of one head, {} × {}, are more than {} MiB", region.q_rows,
                                     region.k_rows, most_score_bytes() >> 20));
    }
    const PlannedAttention planned = plan_attention(shape);
    if (!planned.plan) return Support::no(planned.refusal);
  }
  return Support::yes();
}

/// The scratch of a call.
struct Room {
  Room(const ir::Op& op, const Sizes& sizes, bool backward, void* base) : scratch(base) {
    int64_t bytes = 0, rows = 0;
    for (const Region& region : regions(op)) {
      bytes = std::max(bytes, plan_attention(sizes.shape(region, backward)).plan->workspace_bytes());
      rows = std::max(rows, region.q_rows);
    }
    workspace = scratch.take<std::byte>(bytes + 256);
    stats = scratch.take<float>(sizes.B * sizes.h * rows);
    if (of_part(op)) part = scratch.take<Bf16>(sizes.B * sizes.S * sizes.h * (backward ? sizes.d : sizes.v));
  }
  void* aligned_workspace() const {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace) + 255) / 256 * 256);
  }
  Scratch scratch;
  std::byte* workspace;
  float* stats;
  Bf16* part = nullptr;
};

template <bool backward>
int64_t scratch_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  return Room(op, Sizes(op, listing.value(op.in[backward ? 1 : 0]).shape[0].count), backward, nullptr)
      .scratch.bytes();
}

LaunchShape one_each(int64_t count) { return {.blocks_x = blocks_for(count, 256)}; }

/// The call on the region's rows, so many heads and sequences at a time.
void run(const Sizes& sizes, const Region& region, bool backward, const AttentionCall& all, void* stream) {
  const AttentionShape shape = sizes.shape(region, backward);
  const std::shared_ptr<const AttentionPlan> plan = plan_attention(shape).plan;
  const auto rows_at = [&](void* tensor, int64_t b, int64_t first, int64_t heads, int64_t head, int64_t width) {
    return tensor == nullptr ? nullptr
                             : static_cast<Bf16*>(tensor) + ((b * sizes.S + first) * heads + head) * width;
  };
  for (int64_t b = 0; b < sizes.B; b += shape.B) {
    for (int64_t kv = 0; kv < sizes.hk; kv += shape.hk) {
      const int64_t head = kv * (sizes.h / sizes.hk);
      const auto queries = [&](void* tensor, int64_t width) {
        return rows_at(tensor, b, region.q_first, sizes.h, head, width);
      };
      const auto keys = [&](void* tensor, int64_t width) {
        return rows_at(tensor, b, region.k_first, sizes.hk, kv, width);
      };
      AttentionCall call;
      call.q = queries(all.q, sizes.d);
      call.k = keys(all.k, sizes.d);
      call.v = keys(all.v, sizes.v);
      call.o = queries(all.o, sizes.v);
      call.stats = static_cast<float*>(all.stats) + (b * sizes.h + head) * region.q_rows;
      call.d_o = queries(all.d_o, sizes.v);
      call.dq = queries(all.dq, sizes.d);
      call.dk = keys(all.dk, sizes.d);
      call.dv = keys(all.dv, sizes.v);
      call.workspace = all.workspace;
      plan->run(call, stream);
    }
  }
}

void forward(const KernelCall& call) {
  const SeenKeys keys(*call.op, call.place);
  const Sizes sizes(*call.op, call.in[0].dim(0));
  const std::vector<Region> all = regions(*call.op);
  const Region& region = region_of(all, keys);
  const Room room(*call.op, sizes, false, call.scratch);
  const bool part = of_part(*call.op);
  run(sizes, region, false,
      {.q = call.in[0].data,
       .k = call.in[1].data,
       .v = call.in[2].data,
       .o = part ? room.part : call.out[0].data,
       .stats = room.stats,
       .workspace = room.aligned_workspace()},
      call.stream);
  if (part) {
    launch(join_part, {.blocks_x = sizes.B * sizes.S},
           {room.part, room.stats, numbers<const float>(named_operand(call, "o_before")),
            numbers<const float>(named_operand(call, "lse_before")), numbers<float>(call.out[0]),
            numbers<float>(call.out[1]), sizes.B, sizes.S, sizes.h, sizes.v, region.q_first, region.q_rows},
           call.stream);
  } else {
    launch(lse_of_stats, one_each(sizes.B * sizes.h * sizes.S),
           {room.stats, numbers<float>(call.out[1]), sizes.B, sizes.S, sizes.h, 0, sizes.S}, call.stream);
  }
}

/// Zeros in the rows of each sequence that the region does not have.
void clear_others(void* tensor, const Sizes& sizes, int64_t first, int64_t rows, int64_t width, void* stream) {
  const int64_t row_bytes = sizes.hk * width * static_cast<int64_t>(sizeof(Bf16));
  for (int64_t b = 0; b < sizes.B; ++b) {
    std::byte* const at = static_cast<std::byte*>(tensor) + b * sizes.S * row_bytes;
    fill_bytes(at, 0, first * row_bytes, stream);
    fill_bytes(at + (first + rows) * row_bytes, 0, (sizes.S - first - rows) * row_bytes, stream);
  }
}

/// do, q, k, v, o, lse, and for a part the dq of the parts before.
void gradient(const KernelCall& call) {
  const SeenKeys keys(*call.op, call.place);
  const Sizes sizes(*call.op, call.in[1].dim(0));
  const std::vector<Region> all = regions(*call.op);
  const Region& region = region_of(all, keys);
  const Room room(*call.op, sizes, true, call.scratch);
  const bool part = of_part(*call.op);
  launch(stats_of_lse, one_each(sizes.B * sizes.h * region.q_rows),
         {numbers<const float>(call.in[5]), room.stats, sizes.B, sizes.S, sizes.h, region.q_first, region.q_rows},
         call.stream);
  run(sizes, region, true,
      {.q = call.in[1].data,
       .k = call.in[2].data,
       .v = call.in[3].data,
       .o = call.in[4].data,
       .stats = room.stats,
       .d_o = call.in[0].data,
       .dq = part ? room.part : call.out[0].data,
       .dk = call.out[1].data,
       .dv = call.out[2].data,
       .workspace = room.aligned_workspace()},
      call.stream);
  if (!part) return;
  clear_others(call.out[1].data, sizes, region.k_first, region.k_rows, sizes.d, call.stream);
  clear_others(call.out[2].data, sizes, region.k_first, region.k_rows, sizes.v, call.stream);
  const int64_t width = sizes.h * sizes.d;
  launch(add_part, one_each(sizes.B * sizes.S * width / 8),
         {room.part, numbers<const float>(named_operand(call, "dq_before")), call.out[0].data, sizes.B, sizes.S,
          width, region.q_first, region.q_rows, call.out[0].dtype == Dtype::f32},
         call.stream);
}

}  // namespace

std::vector<KernelEntry> library_attention_entries() {
  std::vector<KernelEntry> all;
  for (const char* kind : {"attention", "attention_part"}) {
    all.push_back(entry(kind, "cudnn", forward, fits<false>, scratch_bytes<false>));
  }
  for (const char* kind : {"attention_dgrad", "attention_part_dgrad"}) {
    all.push_back(entry(kind, "cudnn", gradient, fits<true>, scratch_bytes<true>));
  }
  return all;
}

}  // namespace heddle::kernels::cuda
