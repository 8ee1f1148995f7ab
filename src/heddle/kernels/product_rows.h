// The rows of the registry that are ways of one product: each takes the ops whose text says so.
#pragma once

#include "heddle/ir/op.h"
#include "heddle/ir/product_way.h"

namespace heddle::kernels {

/// Says if the op's listing asks for this way.
inline Support goes(const ir::Op& op, ProductWay way) {
  const ProductWay asked =
      op.attributes.has("way") ? from_word<ProductWay>(op.attributes.word("way")) : ProductWay::grouped;
  return asked == way ? Support::yes()
                      : Support::no(fmt::format("the program wants this product {}", word_of(asked)));
}

}  // namespace heddle::kernels
