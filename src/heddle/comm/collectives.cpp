#include "heddle/comm/collectives.h"

#include <algorithm>
#include <vector>

#include "heddle/comm/communicator.h"
#include "heddle/comm/exchange/kernels.h"
#include "heddle/comm/placement/replica_kernels.h"

namespace heddle::comm {

namespace {

using device::KernelCall;
using device::TensorView;

int neighbour(const KernelCall& call) {
  return call.communicator->rank() + static_cast<int>(call.op->attributes.integer("step"));
}

void send(const KernelCall& call) {
  const TensorView& x = call.in[0];
  call.communicator->send(x.data, x.elements() * size_of(x.dtype), neighbour(call));
}

void receive(const KernelCall& call) {
  const TensorView& x = call.out[0];
  call.communicator->receive(x.data, x.elements() * size_of(x.dtype), neighbour(call));
}

std::vector<Collective> together(bool in_place) {
  std::vector<Collective> all{{"send", send}, {"receive", receive}};
  for (const auto* list : {&row_collectives(), &place_collectives(), &matrix_collectives(), &count_kernels(),
                           &there_kernels(in_place), &back_kernels(in_place), &placing_kernels(),
                           &replica_kernels(), &moving_kernels(), &product_collectives()}) {
    all.insert(all.end(), list->begin(), list->end());
  }
  return all;
}

}  // namespace

const std::vector<Collective>& host_collectives() {
  static const auto all = together(true);
  return all;
}

const std::vector<Collective>& device_collectives() {
  static const auto all = together(false);
  return all;
}

const Collective* find_collective(const std::vector<Collective>& of, std::string_view kind) {
  const auto at = std::find_if(of.begin(), of.end(), [&](const Collective& c) { return c.kind == kind; });
  return at == of.end() ? nullptr : &*at;
}

}  // namespace heddle::comm
