// The work of the experts' exchange between its messages, where the rows are. It makes lists of the tokens and rows
// that go to each rank or node, places of what arrives, and sums on the way back. Each struct is the argument of
// one function of a RowWork (row_work.h), on a device of one kernel. All of it is the device's memory.
//
// Lists are made where they are needed, from the experts of tokens; the host knows counts only (routing_plan.h). A
// list of tokens begins with those of several rows there, by token, and ends with those of one, which may go back
// as rows. So sums and rows lie in two runs, each in the order of the list. Q tokens of I sources with k experts
// each; D destinations; G ranks, P experts on each, L rows of a token on a rank at most; S rows received. Gates and
// sums are of A: f32, or f64 beside rows of f64.
#pragma once

#include <cstdint>

namespace heddle::device {

/// Layout of the value `route`, i32[route_size(…)]: these (the first an ir::Topology), then lists of G numbers;
/// behind them, where experts have copies, the expert of each slot. What is not used is 0.
enum RouteField { kRouteTopology, kRoutePassing, kRouteForwarded, kRouteMost, kRouteTokens };
/// Numbers of each rank p. `tokens`: its tokens. `leave`, `leave_alone`, `leave_rows`: what this rank sends to p in
/// the last hop to the experts (tokens, those of them that are alone, rows). `arrive`: tokens of source p that
/// arrive here by it. `out`: what this rank sends to node p. `in`: what source p sends to this node, to be passed
/// on.
enum class RouteList { tokens, leave, leave_alone, leave_rows, arrive, arrive_alone, out, out_alone, in, in_alone };
constexpr int64_t kRouteLists = 10;
constexpr int64_t route_size(int64_t ranks, bool plain) { return kRouteTokens + (plain ? 1 : kRouteLists) * ranks; }
constexpr int64_t route_at(RouteList list, int64_t ranks) {
  return kRouteTokens + static_cast<int64_t>(list) * ranks;
}

/// Tokens and where their experts' rows go. No row goes to an expert that no rank holds, from G ÷ slices · P on.
struct TokenRoutes {
  const int32_t* experts_Qk;
  const int32_t* first_I;  // of each source's tokens, and the end
  const int32_t* to_D;     // destinations: ranks, or nodes where by_node
  const int32_t* node_of_G;
  int64_t Q, k, I, D, P, slices, G;
  bool by_node;
};

/// The tokens that have one row only: at the rank, or on the node of the destination.
enum class Alone : int32_t { never, on_rank, on_node };

struct ListTokens {
  TokenRoutes routes;
  Alone alone;
  bool all;           // every token, whatever it chose, in its order
  int32_t* place_DQ;  // in the destination's list of its source, -1 without; null: counts only
  int32_t* many_DI;   // counts, of tokens that are not alone at [d·I + i + 1]; then firsts
  int32_t* alone_DI;
};

/// token[many + alone + place] = q, or what stands for it in another list.
struct TokensOfPlaces {
  const int32_t *place_DQ, *many_DI, *alone_DI, *first_I;
  const int32_t *other_place_Q, *other_many_I, *other_alone_I;  // null: the token itself
  int32_t* token_U;
  int64_t D, Q, I;
};

/// Rows by (destination, source, expert, token); destinations are ranks.
struct ListRows {
  TokenRoutes routes;
  int32_t* offsets;                              // [D·I·P + 1]: counts at [… + 1]; then firsts
  int32_t* slot_of_R;                            // q·k + j
  int32_t* row_of_Qks;                           // of each (slot, slice); what goes elsewhere is not written
  const void* g_Qk;                              // of A
  int32_t* header_R;                             // gate's words, code; null: no headers
  const int32_t *place_DQ, *many_DI, *alone_DI;  // null: headers have no code
  int64_t L, gate_words;                         // the words of an i32 that a gate has
};

/// A code is what a row's header says of it: its token's place·L + its order among the token's rows on its rank;
/// ~that where it is alone.
struct PlaceRows {
  const int32_t* n_2GP;
  const int32_t* turn_G;                     // in which order sources arrive
  const int32_t *arrive_G, *arrive_alone_G;  // tokens that arrive; null: rows, one by one
  int64_t G, P, L;
  bool marked;              // tokens that are alone come in a run of their own
  const int32_t* header_S;  // null: codes are known
  int64_t gate_words;
  void* g_S;
  int32_t* code_S;
  // Each may be null.
  int32_t* row_of_arrival;    // where the row that arrives at a place lies
  int32_t* from_S;            // the arrived token, or row, that a row is
  int32_t *leaf_UL, *key_UL;  // rows of an arrived token, -1 where there is none, and their experts
  int32_t* to_U;              // its place among the sums; ~place among rows that go back alone
};

/// The sum of each arrived token over its rows here.
struct SumTokens {
  const void* rows_SH;
  const void* g_S;  // null: 1
  const int32_t *leaf_UL, *key_UL, *to_U;
  void* sums;
  void* alone;
  int64_t U, L, H;
};

/// Sums of a node's ranks, token by token.
struct SumNode {
  TokenRoutes routes;  // to the ranks of the node, in order
  const int32_t *place_DQ, *many_DI, *alone_DI;
  const void* sums;  // as they came from the ranks
  const void* alone;
  const int32_t *to_place_Q, *to_many_I, *to_alone_I;  // in the lists of what goes on to the sources
  void* to_sums;
  void* to_alone;
  int64_t H;
  int32_t node;
};

/// Σ over what comes home of a token; then + residual.
struct CombineSums {
  TokenRoutes routes;
  const int32_t* row_of_Tks;  // plain: rows, one by one; else null, and what comes home lies by list
  const int32_t *place_DQ, *many_DI, *alone_DI;
  const void* sums;
  const void* rows;
  const void* g_Tk;  // null: 1
  const int32_t* key_of_G;
  int64_t keys_each;              // plain: keys of a rank
  const int32_t* expert_of_slot;  // plain, with copies: the sum is by these, of which a rank owns own_each
  int64_t own_each;
  const void* residual_TH;
  void* to_TH;
  int64_t H;
};

/// Gradients of gates. `spread`: from rows to [slot·slices + slice], 0 for what other nodes have. Else the sum over
/// slices at home, from rows, or by node from what was spread.
struct SlotNumbers {
  TokenRoutes routes;
  const void* from;
  const int32_t* row_of_Qks;  // null: `from` lies by node, as it was spread
  void* to;
  bool spread;
  int32_t node;
};

/// The numbers that a source sends to all others about its rows; counts of tokens are made by ListTokens. They are
/// [tokens, rows_G, on_rank: many_G, alone_G, on_node: many_G, alone_G, to nodes: many_N, alone_N].
constexpr int64_t numbers_each(int64_t ranks, int64_t nodes) { return 1 + 5 * ranks + 2 * nodes; }

struct OwnNumbers {
  const int32_t* sent_GP;
  int32_t* numbers;
  int64_t G, P, T;
};

/// The costs of moving rows: the bytes of a row and of a sum of rows, and the links on a node and between nodes.
struct ExchangeRates {
  double row_bytes, sum_bytes, within_bytes_per_us, across_bytes_per_us, within_latency_us, across_latency_us;
};

/// The topology, and the route of this rank: routing_plan.h.
struct ChooseRoute {
  const int32_t* numbers;  // of every rank
  const int32_t *node_of_G, *gate_GN;
  int32_t* route;
  int64_t G, N, self;
  bool plain;        // the layout of the route: without lists, and of each rank its tokens and rows are known only
  int32_t topology;  // -1: the cheapest
  ExchangeRates rates;  // where the cheapest is asked for
};

/// Counts the rows of each expert among `choices`.
struct CountExperts {
  const int32_t* experts;
  int32_t* rows_E;
  int64_t choices, E;
};

/// Puts each choice of an expert into one of the slots that hold it. The choices of an expert, in their order, fill
/// its runs, in theirs.
struct PutInSlots {
  const int32_t* experts;
  int32_t* slots;
  const int32_t* first_E;  // of each expert's runs, and the end
  const int32_t* slot_R;   // of a run
  const int32_t* end_R;    // choices of the expert up to the end of the run
  int64_t choices, E;
};

/// In place of a rank among the destinations of TokenRoutes::to_D: nothing goes there. Whatever it is divided by,
/// no expert is of it.
constexpr int32_t kNoRank = -(1 << 30);
/// The room that each rank asks for, in the place of the tokens of a plain route: rows of a slot into which what
/// comes fits. A host that reads the rows has one room for those of all ranks, and this is their mean.
constexpr RouteList kAsked = RouteList::tokens;

/// The place of a row in slots: every rank has one for the rows of every other, where the host does not know how
/// many travel. It has `room` rows, of which a first message carries `first`, a second the rest. All first messages
/// lie before all second ones.
constexpr int64_t place_in_slots(int64_t rank, int64_t row, int64_t ranks, int64_t room, int64_t first) {
  return row < first ? rank * first + row : ranks * first + rank * (room - first) + row - first;
}
/// The rows of each rank, by their numbers in a list that is by rank, as they lie in slots.
struct RowsInSlots {
  const int32_t* n_GP;   // of each rank
  const int32_t* row_R;  // the list
  int32_t* row_of_slot;  // [G·room]: the list's, -1 where there is none
  int32_t* slot_of_row;  // null, or [row·each + rank % each]: the reverse, counted from `base`
  int64_t G, P, room, first, each, base;
};
/// The counts of a round: all rows of ranks for which the room suffices, or, in a second round, of the others.
/// `beyond`: -1 in the first round of a rank for which it does not suffice, else 0.
struct FitRoom {
  const int32_t *n_2GP, *asked_G;
  int32_t *fitting_2GP, *to_G, *beyond;  // to_G: the ranks of the round, kNoRank in the place of others
  int64_t G, P, room;
  bool second;
};

}  // namespace heddle::device
