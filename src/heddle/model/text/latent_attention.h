// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

/// From the normed rows of a layer to what is added to its residual stream.
ir::ValueId latent_attention(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model
