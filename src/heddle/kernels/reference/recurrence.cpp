// recur, recur_dgrad, cached_recur and what hands states from piece to piece: one row after the other, as
// ops/recurrence.cpp has it.
//
// The gradient of a row, from the last row of a run to its first, with D = exp(g), Ŝ = D·S_{t−1} and dS that of
// S_t:
//   dq = scale·S do, dS += scale·q doᵀ, dw = dSᵀ k, du = β·dw, dβ = dw·u, dk = β·dS u, dv = du + skip·do
//   by the delta rule dŜ = dS − k duᵀ and dk −= Ŝ du, else dŜ = dS
//   dg = Σ dŜ∘Ŝ over what g decays, dS_{t−1} = D·dŜ
// The states of a run of kRun rows are made again from that at its beginning, which a first pass has kept.
#include "heddle/kernels/recurrence.h"

#include <algorithm>
#include <cmath>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/scalars.h"

namespace heddle::kernels::reference {
namespace {

constexpr int64_t kRun = 64;

/// q and k of a row and key head, normed, and the factors that have normed them; β, D and its operands.
template <class A>
struct RecurrentRows {
  explicit RecurrentRows(const KernelCall& call)
      : size(*call.op),
        call(call),
        q(named_operand(call, "q")),
        k(named_operand(call, "k")),
        v(named_operand(call, "v")),
        decay(named_operand(call, "decay")),
        beta(named_operand(call, "beta")),
        skip(named_operand(call, "skip")),
        states(named_operand(call, "states")),
        skip_at(skip ? first_of_part(*call.op, call.place, size.h) : 0),
        by_channel(decay && named_operand(call, "decay").dim(1) != size.h) {}

  struct Row {
    std::vector<A> q, k, D;  // dk each
    A q_factor = 1, k_factor = 1, beta = 1, skip = 0;
    const A* v = nullptr;
  };
  Row at(int64_t t, int64_t j) const {
    const int64_t key = t * size.hk + j / size.group, dk = size.dk;
    Row row;
    if (q) row.q.assign(q.at(key * dk), q.at(key * dk) + dk);
    row.k.assign(k.at(key * dk), k.at(key * dk) + dk);
    row.q_factor = norm(row.q);
    row.k_factor = norm(row.k);
    row.D.assign(static_cast<size_t>(dk), std::exp(static_cast<A>(slope_decay(*call.op, call.place, j))));
    for (int64_t c = 0; c < dk && decay; ++c)
      row.D[c] = std::exp(by_channel ? decay[(t * size.h + j) * dk + c] : decay[t * size.h + j]);
    if (beta) row.beta = size.sigmoid ? A(size.top) * sigmoid(beta[t * size.h + j]) : beta[t * size.h + j];
    if (skip) row.skip = skip[skip_at + j];
    if (v) row.v = v.at((t * size.h + j) * size.dv);
    return row;
  }
  /// The state before row t, if a sequence begins with it; else S stays.
  void begin(const int32_t* starts, int64_t t, int64_t j, A* S) const {
    if (begins(starts, t, size.S, static_cast<bool>(states))) {
      std::fill_n(S, size.dk * size.dv, A(0));
    } else if (t % size.S == 0) {
      std::copy_n(states.at(place_of_state(t, j)), size.dk * size.dv, S);
    }
  }
  int64_t place_of_state(int64_t t, int64_t j) const {
    return (t / size.S * size.all_heads + j) * size.dk * size.dv;
  }

  RecurSizes size;
  const KernelCall& call;
  const Input<A> q, k, v, decay, beta, skip, states;
  int64_t skip_at;
  bool by_channel;

 private:
  A norm(std::vector<A>& x) const {
    if (!size.normed) return 1;
    A sum = 0;
    for (const A e : x) sum += e * e;
    const A factor = A(1) / std::sqrt(sum + static_cast<A>(size.epsilon));
    for (A& e : x) e *= factor;
    return factor;
  }
};

/// S ← D·S + β·k·uᵀ; u_v is what was written.
template <class A>
void update(const RecurSizes& size, const typename RecurrentRows<A>::Row& row, A* S, A* u_v) {
  const int64_t dk = size.dk, dv = size.dv;
  std::copy_n(row.v, dv, u_v);
  for (int64_t c = 0; c < dk; ++c) {
    for (int64_t e = 0; e < dv; ++e) S[c * dv + e] *= row.D[c];
  }
  for (int64_t c = 0; c < dk && size.delta; ++c) {
    for (int64_t e = 0; e < dv; ++e) u_v[e] -= S[c * dv + e] * row.k[c];
  }
  for (int64_t c = 0; c < dk; ++c) {
    for (int64_t e = 0; e < dv; ++e) S[c * dv + e] += row.beta * row.k[c] * u_v[e];
  }
}

template <class A>
void read(const RecurSizes& size, const typename RecurrentRows<A>::Row& row, const A* S, A* o_v) {
  std::fill_n(o_v, size.dv, A(0));
  for (int64_t c = 0; c < size.dk; ++c) {
    for (int64_t e = 0; e < size.dv; ++e) o_v[e] += S[c * size.dv + e] * row.q[c];
  }
  for (int64_t e = 0; e < size.dv; ++e) o_v[e] = static_cast<A>(size.scale) * o_v[e] + row.skip * row.v[e];
}

template <class A>
void recur(const KernelCall& call) {
  const RecurrentRows<A> rows(call);
  const RecurSizes& size = rows.size;
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  const Output<A> o(call.out[0]);
  std::vector<A> S(static_cast<size_t>(size.dk * size.dv)), u(static_cast<size_t>(size.dv));
  for (int64_t j = 0; j < size.h; ++j) {
    for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
      rows.begin(starts, t, j, S.data());
      const auto row = rows.at(t, j);
      update<A>(size, row, S.data(), u.data());
      read<A>(size, row, S.data(), o.at((t * size.h + j) * size.dv));
    }
  }
}

template <class A>
void cached_recur(const KernelCall& call) {
  const RecurrentRows<A> rows(call);
  const RecurSizes& size = rows.size;
  const auto* places = named_operand(call, "places").as<const int32_t>();
  const Output<A> o(call.out[0]);
  const int64_t of_head = size.dk * size.dv;
  A* const states = call.updates[0].as<A>();
  std::vector<A> u(static_cast<size_t>(size.dv));
  for (int64_t t = 0; t < call.in[0].dim(0); ++t) {
    HEDDLE_CHECK(places[t] < size.S * call.updates[0].dim(0), "row {} of {} sequences", places[t],
                 call.updates[0].dim(0));
    for (int64_t j = 0; j < size.h; ++j) {
      A* o_v = o.at((t * size.h + j) * size.dv);
      std::fill_n(o_v, size.dv, A(0));
      if (places[t] < 0) continue;
      A* S = states + (places[t] / size.S * size.h + j) * of_head;
      if (places[t] % size.S == 0) std::fill_n(S, of_head, A(0));
      const auto row = rows.at(t, j);
      update<A>(size, row, S, u.data());
      read<A>(size, row, S, o_v);
    }
  }
}

/// Gradients of what Rows::at makes, to those of the operands.
template <class A>
struct RowGradients {
  RowGradients(const KernelCall& call, const RecurrentRows<A>& rows)
      : rows(rows),
        dq(call.out[0]),
        dk(call.out[1]),
        dv(call.out[2]),
        ddecay(next(call, rows.decay)),
        dbeta(next(call, rows.beta)),
        dskip(next(call, rows.skip)) {
    dq.fill(A(0));
    dk.fill(A(0));
    if (rows.skip) dskip.fill(A(0));
  }
  /// dx of the normed x̂ = factor·x.
  void unnormed(const std::vector<A>& dx, const std::vector<A>& x, A factor, A* to) const {
    A along = 0;
    for (size_t c = 0; c < dx.size() && rows.size.normed; ++c) along += dx[c] * x[c];
    for (size_t c = 0; c < dx.size(); ++c) to[c] += factor * (dx[c] - x[c] * along);
  }

  const RecurrentRows<A>& rows;
  size_t used = 3;
  const Output<A> dq, dk, dv, ddecay, dbeta, dskip;

 private:
  // Absent ones write nowhere: dq's view is never touched through them.
  TensorView next(const KernelCall& call, const Input<A>& of) {
    return of ? call.out[used++] : TensorView{.dtype = dtype_of<A>};
  }
};

template <class A>
void recur_dgrad(const KernelCall& call) {
  const Input<A> d_o(call.in[0]);
  const RecurrentRows<A> rows(call);
  const Input<A> behind(named_operand(call, "behind"));
  const RecurSizes& size = rows.size;
  const int64_t dk = size.dk, dv = size.dv, of_head = dk * dv, T = call.in[0].dim(0);
  const A scale = static_cast<A>(size.scale);
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  const RowGradients<A> to(call, rows);
  std::vector<A> S(static_cast<size_t>(of_head)), dS(S.size()), kept(static_cast<size_t>((T / kRun + 1) * of_head));
  std::vector<A> decayed(static_cast<size_t>(kRun * of_head)), after(decayed.size()),
      u(static_cast<size_t>(kRun * dv));
  std::vector<A> dq(static_cast<size_t>(dk)), d_k(dq.size()), dw(static_cast<size_t>(dv));
  for (int64_t j = 0; j < size.h; ++j) {
    const auto forth = [&](int64_t t, A* u_v, A* decayed_S) {
      rows.begin(starts, t, j, S.data());
      const auto row = rows.at(t, j);
      if (decayed_S != nullptr) {
        for (int64_t i = 0; i < of_head; ++i) decayed_S[i] = row.D[i / dv] * S[i];
      }
      update<A>(size, row, S.data(), u_v);
    };
    for (int64_t t = 0; t < T; ++t) {
      if (t % kRun == 0) std::copy(S.begin(), S.end(), kept.begin() + t / kRun * of_head);
      forth(t, u.data(), nullptr);
    }
    std::fill(dS.begin(), dS.end(), A(0));
    for (int64_t run = (T - 1) / kRun; run >= 0 && T > 0; --run) {
      const int64_t begin = run * kRun, end = std::min(T, begin + kRun);
      std::copy_n(kept.begin() + run * of_head, of_head, S.begin());
      for (int64_t t = begin; t < end; ++t) {
        forth(t, u.data() + (t - begin) * dv, decayed.data() + (t - begin) * of_head);
        std::copy(S.begin(), S.end(), after.begin() + (t - begin) * of_head);
      }
      for (int64_t t = end; t-- > begin;) {
        const auto row = rows.at(t, j);
        if (behind && (t + 1) % size.S == 0) std::copy_n(behind.at(rows.place_of_state(t, j)), of_head, dS.begin());
        const A *do_v = d_o.at((t * size.h + j) * dv), *u_v = u.data() + (t - begin) * dv;
        const A *S_t = after.data() + (t - begin) * of_head, *D_S = decayed.data() + (t - begin) * of_head;
        std::fill(dw.begin(), dw.end(), A(0));
        for (int64_t c = 0; c < dk; ++c) {
          dq[c] = d_k[c] = 0;
          for (int64_t e = 0; e < dv; ++e) {
            dq[c] += scale * S_t[c * dv + e] * do_v[e];
            dS[c * dv + e] += scale * row.q[c] * do_v[e];
            dw[e] += dS[c * dv + e] * row.k[c];
            d_k[c] += row.beta * dS[c * dv + e] * u_v[e];
          }
        }
        A dbeta = 0, dskip = 0;
        A* dv_v = to.dv.at((t * size.h + j) * dv);
        for (int64_t e = 0; e < dv; ++e) {
          dbeta += dw[e] * u_v[e];
          dskip += row.v[e] * do_v[e];
          dw[e] *= row.beta;
          dv_v[e] = dw[e] + row.skip * do_v[e];
        }
        A dg = 0;
        for (int64_t c = 0; c < dk; ++c) {
          A of_channel = 0;
          for (int64_t e = 0; e < dv; ++e) {
            if (size.delta) {
              dS[c * dv + e] -= row.k[c] * dw[e];
              d_k[c] -= D_S[c * dv + e] * dw[e];
            }
            of_channel += dS[c * dv + e] * D_S[c * dv + e];
            dS[c * dv + e] *= row.D[c];
          }
          dg += of_channel;
          if (rows.by_channel) to.ddecay[(t * size.h + j) * dk + c] = of_channel;
        }
        if (rows.decay && !rows.by_channel) to.ddecay[t * size.h + j] = dg;
        if (rows.beta)
          to.dbeta[t * size.h + j] = size.sigmoid ? dbeta * row.beta * (A(1) - row.beta / A(size.top)) : dbeta;
        if (rows.skip) to.dskip[rows.skip_at + j] += dskip;
        const int64_t key = (t * size.hk + j / size.group) * dk;
        to.unnormed(dq, row.q, row.q_factor, to.dq.at(key));
        to.unnormed(d_k, row.k, row.k_factor, to.dk.at(key));
        if (t % size.S == 0 || begins(starts, t, size.S)) std::fill(dS.begin(), dS.end(), A(0));
      }
    }
  }
}

/// The state that each piece and head makes of zeros, and that it makes of the unit matrix without values.
template <class A>
void recur_summary(const KernelCall& call) {
  const RecurrentRows<A> rows(call);
  const RecurSizes& size = rows.size;
  const int64_t dk = size.dk, dv = size.dv, width = call.out[0].dim(1) / size.all_heads;
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  const Output<A> transition(call.out[0]), made(call.out[1]);
  transition.fill(A(0));
  made.fill(A(0));
  RecurSizes square = size;
  square.dv = dk;
  std::vector<A> T(static_cast<size_t>(dk * dk)), nothing(static_cast<size_t>(dk)),
      u(static_cast<size_t>(std::max(dk, dv)));
  for (int64_t n = 0; n < call.out[0].dim(0); ++n) {
    for (int64_t j = 0; j < size.h; ++j) {
      A* S = made.at((n * size.all_heads + j) * dk * dv);
      std::fill(T.begin(), T.end(), A(0));
      for (int64_t c = 0; c < dk; ++c) T[c * dk + c] = 1;
      for (int64_t t = n * size.S; t < (n + 1) * size.S; ++t) {
        if (begins(starts, t, size.S, true)) {
          std::fill_n(S, dk * dv, A(0));
          std::fill(T.begin(), T.end(), A(0));
        }
        auto row = rows.at(t, j);
        update<A>(size, row, S, u.data());
        row.v = nothing.data();
        update<A>(square, row, T.data(), u.data());
      }
      for (int64_t i = 0; i < width; ++i)
        transition[(n * size.all_heads + j) * width + i] = width == dk * dk ? T[i] : T[i * dk + i];
    }
  }
}

/// dS of recur_dgrad alone, from nothing behind each piece.
template <class A>
void recur_states_dgrad(const KernelCall& call) {
  const RecurrentRows<A> rows(call);
  const RecurSizes& size = rows.size;
  const Input<A> d_o(call.in[0]);
  const auto* starts = named_operand(call, "starts").as<const int32_t>();
  const Output<A> to(call.out[0]);
  to.fill(A(0));
  for (int64_t n = 0; n < call.out[0].dim(0); ++n) {
    for (int64_t j = 0; j < size.h; ++j) {
      A* dS = to.at((n * size.all_heads + j) * size.dk * size.dv);
      for (int64_t t = (n + 1) * size.S; t-- > n * size.S;) {
        const auto row = rows.at(t, j);
        const A* do_v = d_o.at((t * size.h + j) * size.dv);
        for (int64_t e = 0; e < size.dv; ++e) {
          A dw = 0;
          for (int64_t c = 0; c < size.dk; ++c) {
            dS[c * size.dv + e] += static_cast<A>(size.scale) * row.q[c] * do_v[e];
            dw += dS[c * size.dv + e] * row.k[c];
          }
          for (int64_t c = 0; c < size.dk; ++c) {
            if (size.delta) dS[c * size.dv + e] -= row.k[c] * row.beta * dw;
            dS[c * size.dv + e] *= row.D[c];
          }
        }
        if (begins(starts, t, size.S, true)) std::fill_n(dS, size.dk * size.dv, A(0));
      }
    }
  }
}

/// s_0 = 0, s_{p+1} = T_p s_p + B_p; reverse: s_last = 0, s_{p−1} = T_pᵀ s_p + B_p.
template <class A>
void scan_states(const KernelCall& call) {
  const ir::Attributes& a = call.op->attributes;
  const int64_t h = a.integer("heads"), P = a.integer("pieces"), dk = a.integer("head_dim"),
                dv = a.integer("value_dim");
  const bool reverse = a.integer_or("reverse", 0) != 0;
  const int64_t width = call.in[0].dim(1) / h, rows = call.in[1].dim(0);
  const Input<A> transition(call.in[0]), update(call.in[1]);
  const Output<A> states(call.out[0]);
  for (int64_t n = 0; n < rows / P; ++n) {
    for (int64_t j = 0; j < h; ++j) {
      for (int64_t i = 0; i < P; ++i) {
        const int64_t p = n * P + (reverse ? P - 1 - i : i), before = reverse ? p + 1 : p - 1;
        A* S = states.at((p * h + j) * dk * dv);
        if (i == 0) {
          std::fill_n(S, dk * dv, A(0));
          continue;
        }
        const A *from = states.at((before * h + j) * dk * dv), *T = transition.at((before * h + j) * width);
        std::copy_n(update.at((before * h + j) * dk * dv), dk * dv, S);
        for (int64_t c = 0; c < dk; ++c) {
          for (int64_t b = 0; b < dk; ++b) {
            if (width != dk * dk && b != c) continue;
            const A factor = width == dk * dk ? (reverse ? T[b * dk + c] : T[c * dk + b]) : T[width == 1 ? 0 : c];
            for (int64_t e = 0; e < dv; ++e) S[c * dv + e] += factor * from[b * dv + e];
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<KernelEntry> recurrence_kernels() {
  return {entry("recur", by_type<in0, recur<float>, recur<double>>),
          entry("recur_dgrad", by_type<in0, recur_dgrad<float>, recur_dgrad<double>>),
          entry("recur_summary", by_type<in0, recur_summary<float>, recur_summary<double>>),
          entry("recur_states_dgrad", by_type<in0, recur_states_dgrad<float>, recur_states_dgrad<double>>),
          entry("scan_states", by_type<in0, scan_states<float>, scan_states<double>>),
          entry("cached_recur", by_type<in0, cached_recur<float>, cached_recur<double>>)};
}

}  // namespace heddle::kernels::reference
