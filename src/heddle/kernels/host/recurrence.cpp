// recur, recur_dgrad and what hands states from piece to piece: by chunks of at most 64 rows of one document, in
// fp32 (the UT transform of arXiv 2406.06484; with decays, 2412.06464 and 2510.26692).
//
// Within a chunk let b_i be the log decay from its begin to row i, and e_ij = exp(b_i − b_j). Let S_0 and S be the
// states before and after it, and w_j = β_j u_j. Then with M_ij = Σ_c k_ic k_jc e_ij,c (j < i) and N_ij = Σ_c q_ic
// k_jc e_ij,c (j ≤ i)
//   u_i = v_i − S_0ᵀ(exp(b_i)·k_i) − Σ_j M_ij w_j by the delta rule, else v_i
//   o_i = S_0ᵀ(exp(b_i)·q_i) + Σ_j N_ij w_j,  S = exp(b_end)·S_0 + Σ_j (exp(b_end − b_j)·k_j) w_jᵀ
// The gradients follow by the chain rule, the last chunk first. The states at the begins of chunks are made in a
// first pass. A decay's own gradient is that of all b behind it, and db = q·dq + k·(dk as the later row − dk as the
// earlier).
//
// Every exponent is a sum of log decays of one sign: of a head in double, of key channels by blocks of 16 rows. So
// strong decays lose no bits. A chunk's bits depend on its document alone; a task is one head of one sequence.
//
// cached_recur: row by row, for a few rows come at a time.
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/recurrence.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/recurrence_room.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/recurrence_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

template <class X>
void forward_task(const RecurTask& task) {
  const RecurSizes& s = task.size;
  const KernelCall& call = task.call;
  const RecurRoom room(s, Recurring::outputs, task.room);
  const Operands<X> operands(task, task.head);
  Chunk chunk{room, s, operands.by_channel};
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  X* out = call.out[0].as<X>() + (task.sequence * s.S * s.h + task.head) * s.dv;
  for (int64_t begin = 0, end = 0; begin < s.S; begin = end) {
    end = chunk_end(starts, task.sequence * s.S, begin, s.S);
    chunk.fresh = begins(starts, task.sequence * s.S + begin, s.S, s.goes_on);
    if (begin == 0 && !chunk.fresh) load_rows(operands.before, s.dv, 0, s.dk, s.dv, room.state, room.dvp);
    load_chunk(operands, begin, end, chunk);
    scores(chunk);
    writes(chunk);
    outputs(chunk);
    for (int64_t i = 0; i < chunk.rows; ++i) {
      const V skip = set(operands.skip);
      const float *o = room.o + i * room.dvp, *v = room.v + i * room.dvp;
      sweep(s.dv, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
        store(hn::MulAdd(skip, load(v + e, lanes), load(o + e, lanes)), out + (begin + i) * s.h * s.dv + e, lanes);
      });
    }
    if (end < s.S) advance(chunk);
  }
}

/// The gradients of one value head: those of its own operands to them, those of q and k added to the sums.
template <class X>
void backward_head(const RecurTask& task, const RecurRoom& room, int64_t head, bool first) {
  const RecurSizes& s = task.size;
  const KernelCall& call = task.call;
  const Operands<X> operands(task, head);
  Chunk chunk{room, s, operands.by_channel};
  chunk.learns = operands.decay != nullptr;
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  const int64_t first_row = task.sequence * s.S, of_state = s.dk * room.dvp;
  int64_t chunks = 0, kept = 0;
  for (int64_t begin = 0; begin < s.S; begin = room.chunks[chunks]) {
    room.chunks[chunks++] = static_cast<int32_t>(begin);
    const int64_t end = chunk_end(starts, first_row, begin, s.S);
    room.chunks[chunks] = static_cast<int32_t>(end);
    chunk.fresh = begins(starts, first_row + begin, s.S, s.goes_on);
    if (begin == 0 && !chunk.fresh) load_rows(operands.before, s.dv, 0, s.dk, s.dv, room.state, room.dvp);
    if (!chunk.fresh) std::copy_n(room.state, of_state, room.kept + kept++ * of_state);
    if (end == s.S || begins(starts, first_row + end, s.S)) continue;  // nobody takes its state
    load_chunk(operands, begin, end, chunk);
    if (s.delta) scores(chunk);
    writes(chunk);
    advance(chunk);
  }
  HeadGradients<X> to(task, operands, head);
  for (int64_t c = chunks; c-- > 0;) {
    const int64_t begin = room.chunks[c], end = room.chunks[c + 1];
    chunk.fresh = begins(starts, first_row + begin, s.S, s.goes_on);
    if (!chunk.fresh) std::copy_n(room.kept + --kept * of_state, of_state, room.state);
    chunk.last = end == s.S ? operands.behind == nullptr : begins(starts, first_row + end, s.S);
    if (end == s.S && !chunk.last) load_rows(operands.behind, s.dv, 0, s.dk, s.dv, room.d_state, room.dvp);
    load_chunk(operands, begin, end, chunk);
    scores(chunk);
    writes(chunk);
    load_rows(operands.d_out, s.h * s.dv, begin, chunk.rows, s.dv, room.o, room.dvp);
    write_gradients(chunk);
    score_gradients(chunk);
    to.rows(chunk, begin);
    for (int64_t i = 0; i < chunk.rows; ++i) {
      float *sum_q = room.sum_q + (begin + i) * room.dkp, *sum_k = room.sum_k + (begin + i) * room.dkp;
      const float *dq = room.d_q + i * room.dkp, *dk = room.d_k_row + i * room.dkp,
                  *of_column = room.d_k_column + i * room.dkp;
      for (int64_t e = 0; e < room.dkp; e += kLanes) {
        const V q = hn::LoadU(Floats(), dq + e);
        const V k = hn::Add(hn::LoadU(Floats(), dk + e), hn::LoadU(Floats(), of_column + e));
        hn::StoreU(first ? q : hn::Add(hn::LoadU(Floats(), sum_q + e), q), Floats(), sum_q + e);
        hn::StoreU(first ? k : hn::Add(hn::LoadU(Floats(), sum_k + e), k), Floats(), sum_k + e);
      }
    }
  }
  if (operands.skips) task.skip_sums[task.sequence * s.h + head] = static_cast<float>(to.skip);
}

template <class X>
void backward_task(const RecurTask& task) {
  const RecurSizes& s = task.size;
  const KernelCall& call = task.call;
  const RecurRoom room(s, Recurring::gradients, task.room);
  for (int64_t j = 0; j < s.group; ++j) backward_head<X>(task, room, task.head * s.group + j, j == 0);
  for (int64_t t = 0; t < s.S; ++t) {
    const int64_t at = ((task.sequence * s.S + t) * s.hk + task.head) * s.dk;
    unnormed(s, call.in[1].as<const X>() + at, static_cast<float>(s.scale), room.sum_q + t * room.dkp,
             call.out[0].as<X>() + at);
    unnormed(s, call.in[2].as<const X>() + at, 1.0f, room.sum_k + t * room.dkp, call.out[1].as<X>() + at);
  }
}

/// Writes dk rows of dv numbers, without what pads them.
HWY_INLINE void store_state(const float* from, int64_t pitch, int64_t dk, int64_t dv, float* to) {
  for (int64_t c = 0; c < dk; ++c) std::copy_n(from + c * pitch, dv, to + c * dv);
}

/// The transition and the update of the state before the rows. By the delta rule the transition goes along as dk
/// more columns of the state, which begin as the unit matrix and are given no values. Only rows behind the last
/// document's begin count.
template <class X>
void summary_task(const RecurTask& task) {
  const RecurSizes& s = task.size;
  const KernelCall& call = task.call;
  RecurSizes wide = s;
  if (s.delta) wide.dv += s.dk;
  const RecurRoom room(wide, Recurring::outputs, task.room);
  const Operands<X> operands(task, task.head);
  Chunk chunk{room, wide, operands.by_channel};
  chunk.reads = false;
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  int64_t first = s.S - 1;
  while (first > 0 && !begins(starts, task.sequence * s.S + first, s.S)) --first;
  const bool apart = begins(starts, task.sequence * s.S + first, s.S, true);
  const int64_t at = task.sequence * s.all_heads + task.head, width = call.out[0].dim(1) / s.all_heads;
  float* const transition = call.out[0].as<float>() + at * width;
  std::fill_n(room.state, s.dk * room.dvp, 0.0f);
  std::fill_n(transition, width, apart ? 0.0f : 1.0f);
  for (int64_t c = 0; c < s.dk && s.delta && !apart; ++c) room.state[c * room.dvp + s.dv + c] = 1;
  chunk.fresh = apart || !s.delta;
  for (int64_t begin = first, end = 0; begin < s.S; begin = end) {
    end = std::min(begin + kChunk, s.S);
    load_chunk(operands, begin, end, chunk);
    if (s.delta) scores(chunk);
    writes(chunk);
    advance(chunk);
    for (int64_t c = 0; c < width && !s.delta; ++c) transition[c] *= room.whole[c];
    chunk.fresh = false;
  }
  store_state(room.state, room.dvp, s.dk, s.dv, call.out[1].as<float>() + at * s.dk * s.dv);
  if (s.delta) store_state(room.state + s.dv, room.dvp, s.dk, s.dk, transition);
}

/// The gradient of the state before the rows: of those up to the first document's begin.
template <class X>
void state_gradient_task(const RecurTask& task) {
  const RecurSizes& s = task.size;
  const RecurRoom room(s, Recurring::state_gradient, task.room);
  const Operands<X> operands(task, task.head);
  Chunk chunk{room, s, operands.by_channel};
  const auto* starts = named_operand(task.call, "starts").as<const int32_t>();
  int64_t rows = 0;
  while (rows < s.S && !begins(starts, task.sequence * s.S + rows, s.S, true)) ++rows;
  std::fill_n(room.d_state, s.dk * room.dvp, 0.0f);
  chunk.last = true;
  for (int64_t begin = (rows - 1) / kChunk * kChunk; begin >= 0 && rows > 0; begin -= kChunk) {
    load_chunk(operands, begin, std::min(begin + kChunk, rows), chunk);
    load_rows(operands.d_out, s.h * s.dv, begin, chunk.rows, s.dv, room.o, room.dvp);
    if (s.delta) {
      scores(chunk);
      write_gradients(chunk);
    }
    state_gradient(chunk);
    chunk.last = false;
  }
  const int64_t at = task.sequence * s.all_heads + task.head;
  store_state(room.d_state, room.dvp, s.dk, s.dv, task.call.out[0].as<float>() + at * s.dk * s.dv);
}

/// The pieces of a sequence and head, one after the other, with two states in the room.
HWY_INLINE void scan_task(const ScanTask& task) {
  const KernelCall& call = task.call;
  const ScanSizes& s = task.size;
  const int64_t dvp = padded(s.dv), of_head = s.dk * s.dv;
  float *state = reinterpret_cast<float*>(task.room), *next = state + s.dk * dvp;
  std::fill_n(state, s.dk * dvp, 0.0f);
  for (int64_t i = 0; i < s.pieces; ++i) {
    const int64_t at = (task.sequence * s.pieces + (s.reverse ? s.pieces - 1 - i : i)) * s.heads + task.head;
    store_state(state, dvp, s.dk, s.dv, call.out[0].as<float>() + at * of_head);
    if (i + 1 == s.pieces) return;
    const float* transition = call.in[0].as<const float>() + at * s.width;
    load_rows(call.in[1].as<const float>() + at * of_head, s.dv, 0, s.dk, s.dv, next, dvp);
    if (s.is_matrix()) {
      product<Into::add>(s.dk, dvp, s.dk, s.reverse ? transposed(transition, s.dk) : Left{transition, s.dk}, state,
                         dvp, next, dvp);
    } else {
      for (int64_t c = 0; c < s.dk; ++c)
        add_row(transition[s.width == 1 ? 0 : c], state + c * dvp, dvp, next + c * dvp);
    }
    std::swap(state, next);
  }
}

/// The rows of one sequence and head, one after the other: a state that stays where it is has no chunks.
template <class X>
void cached_task(const RecurTask& task, float* states) {
  const RecurSizes& s = task.size;
  const KernelCall& call = task.call;
  const int64_t dkp = padded(s.dk), dvp = padded(s.dv);
  auto* const q = reinterpret_cast<float*>(task.room);
  float *k = q + dkp, *D = k + dkp, *u = D + dkp, *o = u + dvp;
  const auto* places = named_operand(call, "places").as<const int32_t>();
  Operands<X> operands(task, task.head);  // of row 0: rows are those of the call
  float* const state = states + (task.sequence * s.h + task.head) * s.dk * s.dv;
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    if (places[t] < 0 || places[t] / s.S != task.sequence) continue;
    if (places[t] % s.S == 0) std::fill_n(state, s.dk * s.dv, 0.0f);
    load_rows(operands.q, s.hk * s.dk, t, 1, s.dk, q, dkp);
    load_rows(operands.k, s.hk * s.dk, t, 1, s.dk, k, dkp);
    load_rows(operands.v, s.h * s.dv, t, 1, s.dv, u, dvp);
    const auto factor = [&](const float* x) HEDDLE_BODY {
      return s.normed ? 1.0f / std::sqrt(dot_rows(x, x, dkp) + static_cast<float>(s.epsilon)) : 1.0f;
    };
    scale_row(q, dkp, static_cast<float>(s.scale) * factor(q), q);
    scale_row(k, dkp, factor(k), k);
    for (int64_t c = 0; c < s.dk; ++c) {
      D[c] = c > 0 && !operands.by_channel ? D[0]
             : operands.decay != nullptr
                 ? std::exp(operands.by_channel ? operands.decay[t * s.h * s.dk + c] : operands.decay[t * s.h])
                 : static_cast<float>(std::exp(operands.constant));
    }
    scale_row(u, dvp, operands.skip, o);
    const float beta = operands.beta_of(t);
    for (int64_t c = 0; c < s.dk; ++c) {
      float* row = state + c * s.dv;
      const V decay = set(D[c]), key = set(s.delta ? k[c] : 0.0f);
      sweep(s.dv, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
        const V held = store(hn::Mul(decay, load(static_cast<const float*>(row) + e, lanes)), row + e, lanes);
        store(hn::NegMulAdd(key, held, load(static_cast<const float*>(u) + e, lanes)), u + e, lanes);
      });
    }
    for (int64_t c = 0; c < s.dk; ++c) {
      float* row = state + c * s.dv;
      const V key = set(beta * k[c]), query = set(q[c]);
      sweep(s.dv, [&](int64_t e, auto lanes, auto) HEDDLE_BODY {
        const V now = hn::MulAdd(key, load(static_cast<const float*>(u) + e, lanes),
                                 load(static_cast<const float*>(row) + e, lanes));
        store(now, row + e, lanes);
        store(hn::MulAdd(query, now, load(static_cast<const float*>(o) + e, lanes)), o + e, lanes);
      });
    }
    X* out = call.out[0].as<X>() + (t * s.h + task.head) * s.dv;
    sweep(s.dv, [&](int64_t e, auto lanes, auto)
                    HEDDLE_BODY { store(load(static_cast<const float*>(o) + e, lanes), out + e, lanes); });
  }
}
}  // namespace

void RecurCached(const RecurTask& task) {
  float* const states = task.call.updates[0].as<float>();
  task.call.in[0].dtype == Dtype::bf16 ? cached_task<bf16>(task, states) : cached_task<float>(task, states);
}
void RecurSummary(const RecurTask& task) {
  task.call.in[0].dtype == Dtype::bf16 ? summary_task<bf16>(task) : summary_task<float>(task);
}
void RecurStateGradient(const RecurTask& task) {
  task.call.in[0].dtype == Dtype::bf16 ? state_gradient_task<bf16>(task) : state_gradient_task<float>(task);
}
void ScanStates(const ScanTask& task) { scan_task(task); }
void RecurForward(const RecurTask& task) {
  task.call.in[0].dtype == Dtype::bf16 ? forward_task<bf16>(task) : forward_task<float>(task);
}
void RecurBackward(const RecurTask& task) {
  task.call.in[0].dtype == Dtype::bf16 ? backward_task<bf16>(task) : backward_task<float>(task);
}
}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(RecurCached);
HWY_EXPORT(RecurSummary);
HWY_EXPORT(RecurStateGradient);
HWY_EXPORT(ScanStates);
HWY_EXPORT(RecurForward);
HWY_EXPORT(RecurBackward);

int64_t sequences_of(const ir::Listing& listing, const ir::Op& op, size_t q) {
  return listing.value(op.in[q]).shape[0].count / op.attributes.integer("sequence");
}
int64_t skip_bytes(const RecurSizes& s, int64_t sequences) {
  return padded(sequences * s.h) * static_cast<int64_t>(sizeof(float));
}
int64_t forward_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s(op);
  return std::min(most_threads(), sequences_of(listing, op, 0) * s.h) *
         RecurRoom(s, Recurring::outputs, nullptr).bytes();
}
int64_t backward_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s(op);
  const int64_t sequences = sequences_of(listing, op, 1);
  return skip_bytes(s, sequences) +
         std::min(most_threads(), sequences * s.hk) * RecurRoom(s, Recurring::gradients, nullptr).bytes();
}

/// Runs a task for each sequence and head, in rooms of so many bytes.
void run_tasks(const KernelCall& call, int64_t sequences, int64_t heads, std::byte* rooms, int64_t bytes,
               float* skip_sums, void (*run)(const RecurTask&)) {
  const RecurSizes size(*call.op);
  const int64_t tasks = sequences * heads;
  if (tasks == 0) return;
  const auto team = static_cast<int>(std::min<int64_t>({omp_get_max_threads(), most_threads(), tasks}));
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (int64_t i = 0; i < tasks; ++i)
    run({call, size, i / heads, i % heads, rooms + omp_get_thread_num() * bytes, skip_sums});
}

void recur(const KernelCall& call) {
  const RecurSizes s(*call.op);
  run_tasks(call, call.in[0].dim(0) / s.S, s.h, call.scratch, RecurRoom(s, Recurring::outputs, nullptr).bytes(),
            nullptr, HWY_DYNAMIC_DISPATCH(RecurForward));
}

int64_t cached_room(const RecurSizes& s) {
  return (3 * padded(s.dk) + 2 * padded(s.dv)) * static_cast<int64_t>(sizeof(float));
}
int64_t cached_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s(op);
  return std::min(most_threads(), listing.value(op.updates[0]).shape[0].count * s.h) * cached_room(s);
}

void cached_recur(const KernelCall& call) {
  const RecurSizes s(*call.op);
  const device::TensorView &out = call.out[0], &states = call.updates[0];
  const auto* places = named_operand(call, "places").as<const int32_t>();
  const int64_t row = out.dim(1) * size_of(out.dtype);
  for (int64_t t = 0; t < out.dim(0); ++t) {
    HEDDLE_CHECK(places[t] < s.S * states.dim(0), "row {} of {} sequences", places[t], states.dim(0));
    if (places[t] < 0) std::fill_n(out.as<std::byte>() + t * row, row, std::byte{0});
  }
  run_tasks(call, states.dim(0), s.h, call.scratch, cached_room(s), nullptr, HWY_DYNAMIC_DISPATCH(RecurCached));
}

void recur_dgrad(const KernelCall& call) {
  const RecurSizes s(*call.op);
  const int64_t sequences = call.in[1].dim(0) / s.S;
  auto* const skip_sums = reinterpret_cast<float*>(call.scratch);
  run_tasks(call, sequences, s.hk, call.scratch + skip_bytes(s, sequences),
            RecurRoom(s, Recurring::gradients, nullptr).bytes(), skip_sums, HWY_DYNAMIC_DISPATCH(RecurBackward));
  if (!named_operand(call, "skip")) return;
  const device::TensorView& d_skip = call.out.back();
  std::fill_n(d_skip.as<float>(), d_skip.elements(), 0.0f);
  float* const own = d_skip.as<float>() + first_of_part(*call.op, call.place, s.h);
  for (int64_t b = 0; b < sequences; ++b) {
    for (int64_t j = 0; j < s.h; ++j) own[j] += skip_sums[b * s.h + j];
  }
}

/// The sizes of a summary's room: by the delta rule with the columns of the transition.
RecurSizes summary_sizes(const ir::Op& op) {
  RecurSizes s(op);
  if (s.delta) s.dv += s.dk;
  return s;
}
int64_t summary_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s = summary_sizes(op);
  return std::min(most_threads(), sequences_of(listing, op, 0) * s.h) *
         RecurRoom(s, Recurring::outputs, nullptr).bytes();
}
int64_t state_gradient_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const RecurSizes s(op);
  return std::min(most_threads(), sequences_of(listing, op, 0) * s.h) *
         RecurRoom(s, Recurring::state_gradient, nullptr).bytes();
}

/// Heads that stand for nothing.
void fill_rest(const device::TensorView& out, const RecurSizes& s) {
  const int64_t each = out.dim(1) / s.all_heads;
  for (int64_t n = 0; n < out.dim(0) && s.all_heads > s.h; ++n)
    std::fill_n(out.as<float>() + (n * s.all_heads + s.h) * each, (s.all_heads - s.h) * each, 0.0f);
}

void recur_summary(const KernelCall& call) {
  const RecurSizes s(*call.op);
  for (const device::TensorView& out : call.out) fill_rest(out, s);
  run_tasks(call, call.in[0].dim(0) / s.S, s.h, call.scratch,
            RecurRoom(summary_sizes(*call.op), Recurring::outputs, nullptr).bytes(), nullptr,
            HWY_DYNAMIC_DISPATCH(RecurSummary));
}

void recur_states_dgrad(const KernelCall& call) {
  const RecurSizes s(*call.op);
  fill_rest(call.out[0], s);
  run_tasks(call, call.in[0].dim(0) / s.S, s.h, call.scratch,
            RecurRoom(s, Recurring::state_gradient, nullptr).bytes(), nullptr,
            HWY_DYNAMIC_DISPATCH(RecurStateGradient));
}

int64_t scan_room(const ScanSizes& s) { return 2 * s.dk * padded(s.dv) * static_cast<int64_t>(sizeof(float)); }
int64_t scan_bytes(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts&) {
  const ScanSizes s(op, listing.value(op.in[0]).shape[1].count);
  return std::min(most_threads(), listing.value(op.in[1]).shape[0].count / s.pieces * s.heads) * scan_room(s);
}

void scan_states(const KernelCall& call) {
  const ScanSizes s(*call.op, call.in[0].dim(1));
  const int64_t tasks = call.in[1].dim(0) / s.pieces * s.heads;
  if (tasks == 0) return;
  const auto team = static_cast<int>(std::min<int64_t>({omp_get_max_threads(), most_threads(), tasks}));
  const auto run = HWY_DYNAMIC_DISPATCH(ScanStates);
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (int64_t i = 0; i < tasks; ++i)
    run({call, s, i / s.heads, i % s.heads, call.scratch + omp_get_thread_num() * scan_room(s)});
}

/// X is bf16 or f32; decay and skip are fp32, beta either.
Support takes_recurrence(const ir::Listing& listing, const ir::Op& op) {
  Dtype x = Dtype::u8;
  std::vector<ir::ValueId> in;
  for (const char* name : {"do", "q", "k", "v"}) {
    if (ir::place_of(name, op.def->operands) >= 0) in.push_back(op.operand(name));
  }
  return operands_are(listing, in, std::string(in.size(), 'x').c_str(), "input", &x);
}
Support takes_scan(const ir::Listing& listing, const ir::Op& op) {
  Dtype x = Dtype::u8;
  return operands_are(listing, op.in, "aa", "input", &x);
}

}  // namespace

std::vector<KernelEntry> recurrence_kernels() {
  return {{"recur", "host", "chunks", takes_recurrence, forward_bytes, recur},
          {"recur_dgrad", "host", "chunks", takes_recurrence, backward_bytes, recur_dgrad},
          {"recur_summary", "host", "chunks", takes_recurrence, summary_bytes, recur_summary},
          {"recur_states_dgrad", "host", "chunks", takes_recurrence, state_gradient_bytes, recur_states_dgrad},
          {"scan_states", "host", "highway", takes_scan, scan_bytes, scan_states},
          {"cached_recur", "host", "rows", takes_recurrence, cached_bytes, cached_recur}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
