// DeepSeek-V3 (arXiv 2412.19437) as forward text: multi-head latent attention, dense and mixture-of-experts layers,
// multi-token prediction, and the losses. Straight-line and unfused; passes do the rest.
#pragma once

#include "heddle/base/dtype.h"
#include "heddle/ir/program.h"
#include "heddle/model/context.h"
#include "heddle/model/exchange.h"
#include "heddle/model/model_config.h"
#include "heddle/model/parameter.h"

namespace heddle::model {

/// What a pipeline stage holds of the model, in this order; nothing is an empty stage.
struct Piece {
  bool embedding = false;
  int64_t first_layer = 0, layers = 0;
  int64_t first_depth = 1, depths = 0;  // of multi-token prediction
  bool loss = false;                    // the head, and the losses of all depths
  bool is_empty() const { return !embedding && layers == 0 && depths == 0 && !loss; }
  bool operator==(const Piece&) const = default;
};

/// Where a piece's hidden states come from, or go to: another chunk of the same rank, or a pipeline rank `step`
/// away. `edge` is the pipeline stage that makes them, −1 without any.
struct Hop {
  int step = 0;
  int64_t edge = -1;
};

/// The pieces of one pipeline rank, its chunks, and the shape of its microbatches.
struct StageSpec {
  struct Chunk {
    Piece piece;
    Hop from, to;
    ir::Chunk microbatches;
  };
  int stage = 0;
  std::vector<Chunk> chunks;
  int64_t sequences = 1;          // a microbatch of a tp × cp group
  int64_t sequence_length = 128;  // whole
  Context context = Context::gather;
  Dtype dtype = Dtype::f32;  // the compute type X
  ir::Coordinates mesh;      // its degrees; > 1 writes that axis' collectives out
  ir::Purpose purpose = ir::Purpose::train;
  Exchange exchange;
};

/// Indices of load_scales: one factor a loss term.
enum LossScale : int { kScaleNextToken = 0, kScaleSequenceAux = 1, kScaleZ = 2, kScaleDepth = 3 };

/// Forward text of one stage. For `predict` it ends in the statistic "logits" [T, V] of the next token, without
/// losses or depths; with tp ranks, all rows of the group by this rank's part of the vocabulary. Else the
/// statistics it updates are: "loss.next_token", "loss.depth.D" (sums over labels), "loss.sequence_aux.L",
/// "loss.z.L" (sums), and "load.L" [E] for each MoE layer L.
StageText deepseek_v3_stage(const ModelConfig& config, const StageSpec& spec);

/// Trained parameters of the whole model, and those that a token passes through.
struct ParameterCount {
  int64_t total = 0;
  int64_t active = 0;
};
ParameterCount count_parameters(const ModelConfig& config, const std::vector<Parameter>& parameters,
                                const ir::Stage& stage);

}  // namespace heddle::model
