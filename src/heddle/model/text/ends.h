// The two ends of a model: tokens and their embedding; the head and its losses, or its logits.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/text/writer.h"

namespace heddle::model {

class Ends {
 public:
  explicit Ends(Writer& writer) : w_(writer) {}

  void load_tokens();
  /// Rows of the embedding of the tokens `depth` after each position.
  ir::ValueId embed(int64_t depth, const std::string& name);
  /// The head's weight, which is the embedding in a tied model.
  void load_head();
  /// Norm, head and loss of the tokens `distance` after each position; NAME is in the names of its values. Where
  /// the writer predicts: the logits; where it has a cache, those of the last position of each sequence.
  void predict(ir::ValueId h_TH, const std::string& norm_name, int64_t distance, const Statistic& loss,
               const std::string& name);

 private:
  ir::ValueId embedding();
  ir::ValueId position_table();
  void predict_last(ir::ValueId h_TH, const std::string& norm_name, const std::string& name);
  void predict_part(ir::ValueId n_UH, ir::ValueId labels, const Statistic& loss, const std::string& name);
  ir::ValueId ids(int64_t depth) const { return tokens_of_[static_cast<size_t>(depth)]; }
  ir::ValueId labels(int64_t distance) const { return tokens_of_[static_cast<size_t>(w_.depths() + distance)]; }

  Writer& w_;
  std::vector<ir::ValueId> tokens_of_;  // ids_0 … ids_D, labels_1 … labels_{D+1}
  ir::ValueId head_ = ir::none;
};

}  // namespace heddle::model
