// The modules of a model as dumps name them, and the values of Heddle's text that they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ir/listing.h"
#include "heddle/model/model_config.h"

namespace heddle::check {

struct Module {
  std::string name;                 // "model.layers.0.self_attn.q_proj"
  std::string value;                // "0.q_proj"
  int64_t first = 0, columns = -1;  // its columns of the value; −1: all
  std::string part;                 // value of which ranks of tp hold parts to be added; "": none
  std::string gathered;  // the value as all ranks of tp read it, whose gradients are such parts; "": none
  std::string weight;    // the product's weight, "": none
};

/// The modules whose values the listing of one rank has, in the order of its ops.
std::vector<Module> modules_of(const model::ModelConfig& model, const ir::Listing& one_rank);

/// The gradient of a value in a listing: the last value that is called as such, or the gradient of the sum that
/// alone reads it. "": none.
std::string gradient_of(const ir::Listing& listing, std::string_view value);

/// The place in the list of ops where a value is written last; −1: nowhere.
int written_at(const ir::Listing& listing, std::string_view value);

}  // namespace heddle::check
