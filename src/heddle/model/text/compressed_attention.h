// Attention whose heads share one key, which is the value too, to a window and to entries that many tokens make
// (DeepSeek-V4; Hugging Face's name for the layers' kinds is layer_types).
#pragma once

#include <string>

#include "heddle/model/text/writer.h"

namespace heddle::model {

ir::ValueId compressed_attention(Writer& writer, ir::ValueId n_TH, const std::string& prefix);

}  // namespace heddle::model
