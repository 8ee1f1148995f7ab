// The two ends of a model: tokens and their embedding; the head and its losses, or its logits.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/text/writer.h"

namespace heddle::model {

class Ends {
 public:
  explicit Ends(Writer& writer) : w_(writer) {}

  /// The ids and labels that the share of the model reads.
  void load_tokens(const StageShare& share);
  /// Rows of the embedding of the tokens `depth` after each position.
  ir::ValueId embed(int64_t depth, const std::string& name);
  /// A further embedding of each token for each layer, beside what a map of its row x makes (Gemma 3n).
  std::vector<ir::ValueId> layer_rows(ir::ValueId x_TH);
  /// The head's weight, which is the embedding in a tied model.
  void load_head();
  /// Names of the head's norm, and what stands before those of the weights that read streams.
  struct Reader {
    std::string norm, prefix;
  };
  /// Norm (unless the states are behind it: Writer::hands_on_normed), head and loss of the tokens `distance` after
  /// each position; NAME is in the names of its values. Where the writer predicts: the logits; where it has a
  /// cache, those of the last position of each sequence.
  void predict(ir::ValueId h, const Reader& reader, int64_t distance, const Statistic& loss,
               const std::string& name);

 private:
  ir::ValueId embedding();
  ir::ValueId position_table();
  /// Rows of a table that is cut among tp, for the tokens `depth` after each position.
  ir::ValueId looked_up(ir::ValueId table, int64_t depth, const std::string& name);
  /// Rows that the head reads, and its logits of them, or those of this rank's part of the vocabulary.
  ir::ValueId head_rows(ir::ValueId h, const Reader& reader, const std::string& name);
  ir::ValueId logits(ir::ValueId n_TH, const std::string& name);
  void predict_last(ir::ValueId h, const Reader& reader, const std::string& name);
  /// The label of each position, and how much it counts; no weights: 1.
  struct Labels {
    ir::ValueId labels = ir::none, weights = ir::none;
  };
  void predict_part(ir::ValueId n_UH, const Labels& of, const Statistic& loss, const std::string& name);
  bool penalizes_logits() const {
    return w_.spec().objective.logit_z_loss > 0 && w_.spec().purpose == ir::Purpose::train;
  }
  std::vector<std::string> loss_names(const std::string& sum, const std::string& name) const;
  ir::Attributes loss_attributes(const Statistic& loss) const;
  /// The mean square of lse, where the loss op has made its sum.
  void keep_squares(const std::vector<ir::ValueId>& made, const Statistic& loss);
  void keep_sequences(ir::ValueId losses_U);
  ir::ValueId weights(int64_t distance) const { return weights_of_.empty() ? ir::none : weights_of_[distance - 1]; }
  ir::ValueId ids(int64_t depth) const { return ids_of_[static_cast<size_t>(depth)]; }
  ir::ValueId labels(int64_t distance) const { return labels_of_.empty() ? ir::none : labels_of_[distance - 1]; }

  Writer& w_;
  std::vector<ir::ValueId> ids_of_;      // ids_0 … ids_D; none where the share reads none
  std::vector<ir::ValueId> ids_here_;    // the same, counted from this rank's first token id
  std::vector<ir::ValueId> labels_of_;   // labels_1 … labels_{D+1}; empty where nothing is to be predicted
  std::vector<ir::ValueId> weights_of_;  // of labels_1 … labels_{D+1}; empty where all count alike
  ir::ValueId head_ = ir::none;
};

}  // namespace heddle::model
