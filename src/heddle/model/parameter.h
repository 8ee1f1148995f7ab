// The parameters of a listing: what each persistent weight is called outside, how it begins, and whether it decays.
#pragma once

#include <string>
#include <vector>

#include "heddle/ir/axes.h"
#include "heddle/ir/listing.h"

namespace heddle::model {

/// One released (Hugging Face) tensor inside a parameter: rows [row, row + rows) of it, of one expert or of all. Or
/// some rows of one, from `first` on, where it is larger or of other dims: then it is of `shape`.
struct ReleasedPart {
  std::string name;  // "{}" stands for the global expert
  int64_t row = 0;
  int64_t rows = 0;
  int64_t first = 0;
  std::vector<int64_t> shape = {};
};

/// A rank's tensor holds its share of dim `dim`, cut among the ranks of an axis. Each of the dim's `parts` equal
/// runs (gate and up) is cut by itself; or each of `runs`, so many of the whole.
struct Cut {
  int dim = 0;
  ir::Axis axis = ir::Axis::tp;
  int parts = 1;
  std::vector<int64_t> runs = {};
};

/// The rows of a head in a tensor that makes queries or keys. They follow a factor of its logits (train.qk_clip):
/// the first rows by one power of it, the rest by another.
struct HeadRows {
  int64_t rows = 0;  // of a head; 0: the tensor does not follow
  int64_t first = 0;
  double first_power = 0, rest_power = 0;
};

struct Parameter {
  std::string name;  // also the name of the listing's value
  ir::ValueId value = ir::none;
  int layer = -1;  // depths of multi-token prediction come after the layers; −1 outside of them
  enum class Part : uint8_t {
    embedding,
    attention,    // and what stands in its place
    convolution,  // of a recurrent layer, a row a channel
    indexer,      // that selects keys for attention
    mlp,          // of dense layers
    router,
    experts,
    shared_experts,
    norm,
    hyper_connection,
    join,  // of a depth: the states before it and the next token's embedding
    head,
    rope_table,
  } part = Part::attention;
  enum class Start : uint8_t {
    normal,
    ones,
    zeros,
    rope_table,
    log_uniform,
    time_step,
    hashed_experts,
    constant,
    weights_of_streams,
  } start = Start::normal;
  // It belongs to `normal`. `log_uniform` is the logarithm of a number drawn evenly from 0 to it. `time_step` is
  // the inverse softplus of a number from a hundredth of it to it, whose logarithm is drawn evenly (Mamba, arXiv
  // 2312.00752). `hashed_experts` are drawn among so many (model/hashed_experts.h), a row of them a token id.
  // `constant` is it. Of `weights_of_streams` the first so many read as many streams, by weights whose sum is one;
  // the others are zero.
  double deviation = 0;
  bool trained = true;  // by the optimizer; the balancing bias and tables are not
  bool frozen = false;  // of a model that stays as it came, beside adapters (passes/adapters)
  bool decays = false;
  bool balances = false;  // it moves the choice of experts towards balance, by the load alone
  int64_t experts = 0;    // leading dim when the parameter holds experts: how many in the whole model
  std::vector<Cut> cuts;  // of the whole tensor into a rank's
  /// The mesh group whose ranks hold copies of this tensor: their gradients are summed.
  std::string replica_group = "stage";
  /// Groups of ranks among which its gradient, and perhaps its weight, is cut while a step runs. `within`: those
  /// that hold all of it together; "": it is whole. `across`: those that hold the same run; "": no others.
  std::string within, across;
  bool on_several_stages = false;  // other pipeline ranks hold copies, too
  std::vector<ReleasedPart> released;
  HeadRows heads;
};

/// True if it is a matrix, or one an expert; biases are not, be they one an expert or one of all, nor convolutions.
inline bool is_matrix(const Parameter& p, size_t dims) {
  return dims >= (p.experts > 0 ? 3U : 2U) && p.part != Parameter::Part::convolution;
}
inline bool is_matrix(const Parameter& p, const ir::Listing& listing) {
  return is_matrix(p, listing.value(p.value).shape.size());
}

}  // namespace heddle::model
