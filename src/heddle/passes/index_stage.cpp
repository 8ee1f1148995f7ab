#include "heddle/passes/index_stage.h"

namespace heddle::passes {

void index_stage(model::RankText& text, model::IndexStage stage) {
  using model::IndexStage;
  if (stage == IndexStage::sparse) return;
  for (model::Parameter& p : text.parameters) {
    if ((p.part == model::Parameter::Part::indexer) != (stage == IndexStage::off)) continue;
    p.trained = false;
    text.listing.value(p.value).frozen = true;
  }
}

}  // namespace heddle::passes
