// All op definitions, by kind. See docs/ops.md for shapes and formulas.
#pragma once

#include <set>
#include <string_view>
#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::ops {

/// The definition of a kind; InternalError when there is none.
const ir::OpDef& find(std::string_view kind);
/// Every definition, in the order of docs/ops.md.
const std::vector<const ir::OpDef*>& all();

/// The rows that a rank receives where all experts get as many: of the group whose counts `share_counts` shares.
int64_t even_rows(const ir::Listing& listing, const ir::Op& share_counts);

/// The attributes of an exchange that say how much room its rounds have.
ir::Attributes rooms_of(const ir::Attributes& exchange);
/// The values that count rows of a second round, in which rows come seldom.
std::set<ir::ValueId> counted_in_second_round(const ir::Listing& listing);

/// The product that an op of ir::OpDef::by_pieces runs, as it would stand by itself on the op's own rows.
ir::Op product_in(const ir::Op& op);

/// The definitions of one family each.
std::vector<const ir::OpDef*> load_ops();
std::vector<const ir::OpDef*> embedding_ops();
std::vector<const ir::OpDef*> linear_ops();
std::vector<const ir::OpDef*> grouped_linear_ops();
std::vector<const ir::OpDef*> norm_ops();
std::vector<const ir::OpDef*> hyper_connection_ops();
std::vector<const ir::OpDef*> gated_stream_ops();
std::vector<const ir::OpDef*> dropout_ops();
std::vector<const ir::OpDef*> shape_ops();
std::vector<const ir::OpDef*> rope_ops();
std::vector<const ir::OpDef*> attention_ops();
std::vector<const ir::OpDef*> cache_ops();
std::vector<const ir::OpDef*> selection_ops();
std::vector<const ir::OpDef*> compression_ops();
std::vector<const ir::OpDef*> recurrence_ops();
std::vector<const ir::OpDef*> convolution_ops();
std::vector<const ir::OpDef*> mlp_ops();
std::vector<const ir::OpDef*> router_ops();
std::vector<const ir::OpDef*> balance_ops();
std::vector<const ir::OpDef*> auxiliary_loss_ops();
std::vector<const ir::OpDef*> permute_ops();
std::vector<const ir::OpDef*> exchange_ops();
std::vector<const ir::OpDef*> copies_ops();
std::vector<const ir::OpDef*> homes_ops();
std::vector<const ir::OpDef*> capacity_ops();
std::vector<const ir::OpDef*> pipeline_ops();
std::vector<const ir::OpDef*> copy_ops();
std::vector<const ir::OpDef*> collective_ops();
std::vector<const ir::OpDef*> collective_product_ops();
std::vector<const ir::OpDef*> cross_entropy_ops();
std::vector<const ir::OpDef*> preference_ops();
std::vector<const ir::OpDef*> optimizer_ops();
std::vector<const ir::OpDef*> muon_ops();
std::vector<const ir::OpDef*> qk_clip_ops();
std::vector<const ir::OpDef*> exact_ops();

}  // namespace heddle::ops
