#include "heddle/planner/budget/text_shape.h"

#include <algorithm>
#include <limits>

#include "heddle/ir/print.h"

namespace heddle::planner {

namespace {

// Numbers and words one behind the other, each with an end.
class Shape {
 public:
  void add(int64_t number) {
    text_.append(reinterpret_cast<const char*>(&number), sizeof number);  // only compared
  }
  void add(std::string_view word) {
    add(static_cast<int64_t>(word.size()));
    text_ += word;
  }
  void add(const std::vector<ir::ValueId>& ids) {
    add(static_cast<int64_t>(ids.size()));
    for (const ir::ValueId id : ids) add(int64_t{id});
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

int first_layer_of(const ir::Listing& listing) {
  int first = std::numeric_limits<int>::max();
  for (const ir::Op& op : listing.ops) {
    if (op.layer >= 0) first = std::min(first, op.layer);
  }
  return first == std::numeric_limits<int>::max() ? 0 : first;
}

std::string shape_of(const ir::Listing& listing) {
  Shape shape;
  for (const ir::Value& v : listing.values) {
    for (const int64_t n :
         {static_cast<int64_t>(v.dtype), static_cast<int64_t>(v.role), static_cast<int64_t>(v.layout),
          static_cast<int64_t>(v.space), v.packed_bytes, int64_t{v.shared_with}, int64_t{v.part_of},
          v.first_element, v.stretches, v.stretch_step, std::ssize(v.shape)})
      shape.add(n);
    for (const ir::Dim& dim : v.shape) {
      shape.add(dim.count);
      shape.add(int64_t{dim.rows_of});
    }
  }
  shape.add(std::ssize(listing.chunks));
  for (const ir::Chunk& chunk : listing.chunks) {
    shape.add(int64_t{chunk.route});
    shape.add(int64_t{chunk.routes});
  }
  const int first = first_layer_of(listing);
  for (const ir::Op& op : listing.ops) {
    for (const std::string_view word :
         {op.kind(), std::string_view(op.group), std::string_view(op.stream), std::string_view(op.part)})
      shape.add(word);
    for (const std::vector<ir::ValueId>* ids : {&op.in, &op.out, &op.updates, &op.mentions}) shape.add(*ids);
    for (const int64_t n : {static_cast<int64_t>(op.phase), int64_t{op.condition.rows_of}, op.condition.limit,
                            int64_t{op.condition.more}, int64_t{op.layer < 0 ? -1 : op.layer - first},
                            int64_t{op.chunk}, int64_t{op.again}, int64_t{op.ahead}, int64_t{op.fresh},
                            int64_t{op.beside}, int64_t{op.later}, int64_t{op.trails}})
      shape.add(n);
    if (ir::is_message(op.def->moves))
      continue;  // over which edge of the pipeline it goes makes no difference here
    for (const auto& [name, item] : op.attributes.items()) {
      shape.add(name);
      shape.add(ir::text_of(item));
    }
  }
  return shape.take();
}

}  // namespace heddle::planner
