// The places of the factors of the loss terms in the batch's scales.
#pragma once

namespace heddle::model {

/// Indices of the input `scales`: one factor a loss term, those of further tokens from kScaleDepth on.
enum LossScale : int { kScaleNextToken = 0, kScaleSequenceAux = 1, kScaleZ = 2, kScaleDepth = 3 };

}  // namespace heddle::model
