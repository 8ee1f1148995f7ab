// Choices of experts as choices of slots, where experts have copies.
#include <algorithm>
#include <vector>

#include "heddle/comm/host/row_work.h"

namespace heddle::comm::host {

void count_experts(const device::CountExperts& args, void*) {
  std::fill_n(args.rows_E, args.E, 0);
  for (int64_t i = 0; i < args.choices; ++i) ++args.rows_E[args.experts[i]];
}

void put_in_slots(const device::PutInSlots& args, void*) {
  std::vector<int32_t> run_E(args.first_E, args.first_E + args.E), put_E(static_cast<size_t>(args.E), 0);
  for (int64_t i = 0; i < args.choices; ++i) {
    const auto e = static_cast<size_t>(args.experts[i]);
    while (put_E[e] == args.end_R[run_E[e]]) ++run_E[e];
    args.slots[i] = args.slot_R[run_E[e]];
    ++put_E[e];
  }
}

}  // namespace heddle::comm::host
