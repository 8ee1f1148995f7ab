// The router: scores, choice and gates of tokens, rows sorted by expert, and the losses that balance the load.
// T tokens, E experts (at most kMostExperts), k experts a token, R = T·k rows, sequences of S tokens.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int64_t kMostExperts = 1024, kMostChosen = 32;
constexpr int kRouterWarps = 4;  // a warp a token
/// Dynamic shared memory of a block of route, route_dgrad and balance_tokens.
constexpr int64_t router_shared_bytes(int64_t E) { return kRouterWarps * E * 9; }

enum class Scores : int32_t { none, sigmoid, softmax, root_softplus };

struct RouteArgs {
  const float* logits_TE;  // null: s is given
  const float* s_in_TE;
  const float* bias_E;  // or null
  float* s_TE;          // null: not wanted, as the next two
  float* g_Tk;
  int32_t* experts_Tk;
  const int32_t* chosen_Tk;  // for gates without a choice
  int64_t T, E;
  int32_t k, groups, top_groups, group_score_top;
  Scores scores;
  bool normalize;
  float scale;
};
HEDDLE_KERNEL void route(RouteArgs args);

struct RouteGradArgs {
  const float *dg_Tk, *ds_TE;  // either may be null
  const float* s_TE;
  const int32_t* experts_Tk;  // null without dg
  float* d_TE;                // of the logits, or with Scores::none of the scores
  int64_t T, E;
  int32_t k;
  Scores scores;
  bool normalize;
  float scale;
};
HEDDLE_KERNEL void route_dgrad(RouteGradArgs args);

struct MixerArgs {
  const float* logits_TE;
  const int32_t* experts_T2;
  const float* dg_T2;  // null: gates are made, else the gradient of the logits
  float* to;           // [T, 2], or [T, E]
  int64_t T, E;
  float closeness;
};
/// The gates of ops/router.cpp's mixer_gate, or their gradient. A warp a token.
HEDDLE_KERNEL void mixer_gate(MixerArgs args);

struct ChooseByIdArgs {
  const int32_t* ids_T;
  const float* table_Vk;
  int32_t* experts_Tk;
  int64_t T, k;
};
/// The experts of each id's row of the table, in increasing id of expert. A thread a token.
HEDDLE_KERNEL void choose_by_id(ChooseByIdArgs args);

constexpr int64_t kSortRows = 1024;  // of a block
constexpr int kSortThreads = 256;
struct SortRowsArgs {
  const int32_t* experts_R;  // R = T·k rows in the order of tokens
  int32_t *row_of_R, *token_of_R, *offsets;
  int32_t* first_PE;  // scratch: the rows of each expert in each of P blocks of rows, then where they come to lie
  int64_t R, P, k, E;
};
/// Rows sorted by (expert, token): counted (a block a block of rows), then where those of each expert and block
/// begin (one block), then put there (as the first).
HEDDLE_KERNEL void count_rows(SortRowsArgs args);
HEDDLE_KERNEL void begin_rows(SortRowsArgs args);
HEDDLE_KERNEL void sort_rows(SortRowsArgs args);

struct LoadArgs {
  const int32_t* offsets;
  double* load_E;
  int64_t E;
  bool overwrite;
};
HEDDLE_KERNEL void count_load(LoadArgs args);

struct BiasUpdateArgs {
  const double *load_E, *hyper;
  float* bias_E;
  int64_t E;
  int64_t by_share;  // so many first experts move, by what their shares lack; 0: all, by its sign
};
HEDDLE_KERNEL void router_bias_update(BiasUpdateArgs args);

struct BalanceArgs {
  const float* s_TE;
  const double* load_BE;  // null: counted from `chosen`
  int32_t* chosen_Tk;     // scratch: the k highest of raw s
  double* Z_T;            // scratch: Σ_e s_te + 1e-20
  int32_t* count_PE;      // scratch: by parts of kBalanceTokens tokens of a sequence
  double* share_PE;       // scratch, likewise
  double* count_BE;       // written, or read by the gradient
  double* loss_B;         // of each sequence; null: not wanted
  float* ds_TE;
  const float* scales;
  int64_t T, E, S, whole;
  int32_t k, scale_index;
  double alpha;
};
constexpr int64_t kBalanceTokens = 128;
/// In this order: chosen and Z of each token. Count and share of each part of a sequence (a block each). Their sums
/// in order, and the loss (a block a sequence). ds (a warp a token).
HEDDLE_KERNEL void balance_tokens(BalanceArgs args);
HEDDLE_KERNEL void balance_parts(BalanceArgs args);
HEDDLE_KERNEL void balance_sequences(BalanceArgs args);
HEDDLE_KERNEL void balance_dgrad(BalanceArgs args);

struct ZLossArgs {
  const float* logits_TE;
  double* loss_T;       // of each token, or null
  const float* scales;  // for the gradient
  float* dlogits_TE;
  int64_t T, E;
  int32_t scale_index;
  double weight;
};
HEDDLE_KERNEL void z_loss(ZLossArgs args);

}  // namespace heddle::kernels::cuda
