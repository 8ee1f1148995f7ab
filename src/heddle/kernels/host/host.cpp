// Checks that the operands of an op have the types that a kernel was written for.
#include "heddle/kernels/host/host.h"

namespace heddle::kernels::host {

Support operands_are(const ir::Listing& listing, const std::vector<ir::ValueId>& operands, std::string_view letters,
                     std::string_view list, Dtype* x) {
  size_t at = 0;
  for (size_t i = 0; i < operands.size() && at < letters.size(); ++i) {
    const char letter = letters[at];
    const bool goes_on = at + 1 < letters.size() && letters[at + 1] == '*';
    if (!goes_on) ++at;
    if (operands[i] == ir::none) continue;
    const ir::Value& value = listing.value(operands[i]);
    bool fits = false;
    std::string_view wanted;
    switch (letter) {
      case 'x':
        wanted = *x == Dtype::u8 ? "bf16 or f32" : name_of(*x);
        fits = *x == Dtype::u8 ? value.dtype == Dtype::bf16 || value.dtype == Dtype::f32 : value.dtype == *x;
        if (fits) *x = value.dtype;
        break;
      case 'a': wanted = "f32", fits = value.dtype == Dtype::f32; break;
      case 'b': wanted = "bf16", fits = value.dtype == Dtype::bf16; break;
      case 'd': wanted = "f64", fits = value.dtype == Dtype::f64; break;
      case 'h': wanted = "u16", fits = value.dtype == Dtype::u16; break;
      case 'u': wanted = "u8", fits = value.dtype == Dtype::u8; break;
      case 'i': wanted = "i32", fits = value.dtype == Dtype::i32; break;
      default: internal_error("no type is called '{}'", letter);
    }
    if (!fits) return Support::no(fmt::format("{} {} is {}, wanted {}", list, i, name_of(value.dtype), wanted));
    if (value.layout != ir::Layout::rows) return Support::no(fmt::format("{} {} is packed", list, i));
  }
  return Support::yes();
}

}  // namespace heddle::kernels::host
