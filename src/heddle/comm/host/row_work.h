// The CPU's work on rows between exchanges: the functions of device/row_work.h on the host's own memory, plain
// loops in the order that it states. The host reads what they list, so rows need not be packed.
#pragma once

#include "heddle/device/row_work.h"

namespace heddle::comm {

const device::RowWork* host_row_work();

namespace host {

// lists.cpp
void list_tokens(const device::ListTokens& args, void* stream);
void tokens_of_places(const device::TokensOfPlaces& args, void* stream);
void list_rows(const device::ListRows& args, void* stream);
// arrivals.cpp
void place_rows(const device::PlaceRows& args, void* stream);
// sums.cpp
void sum_tokens(Dtype rows, const device::SumTokens& args, void* stream);
void sum_node(Dtype rows, const device::SumNode& args, void* stream);
void combine_sums(Dtype rows, const device::CombineSums& args, void* stream);
void slot_numbers(Dtype wide, const device::SlotNumbers& args, void* stream);
// slots.cpp
void count_experts(const device::CountExperts& args, void* stream);
void put_in_slots(const device::PutInSlots& args, void* stream);
// route.cpp
void own_numbers(const device::OwnNumbers& args, void* stream);
void choose_route(const device::ChooseRoute& args, void* stream);

}  // namespace host

}  // namespace heddle::comm
