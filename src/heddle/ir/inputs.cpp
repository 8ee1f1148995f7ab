#include "heddle/ir/inputs.h"

#include "heddle/ir/print.h"

namespace heddle::ir {

std::string_view name_of(Given given) {
  static constexpr std::string_view names[] = {"microbatch", "step", "standing"};
  return names[static_cast<int>(given)];
}

int64_t Input::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string text_of(const Input& input) {
  std::string text = fmt::format("{}[{}] {} of {}", heddle::name_of(input.dtype), fmt::join(input.shape, ", "),
                                 name_of(input.given), input.owner);
  switch (input.otherwise.kind) {
    case Default::Kind::none: break;
    case Default::Kind::number: text += fmt::format(" else {}", input.otherwise.number); break;
    case Default::Kind::in_order: text += " else in_order"; break;
  }
  return text + text_of(input.attributes);
}

}  // namespace heddle::ir
