// Communicators of the tests' own NCCL (strict_nccl.cpp).
#pragma once

#include <nccl.h>

namespace heddle::strict {
struct Group;
}

namespace heddle::strict {
/// How many communicators were aborted.
int aborted_communicators();
}  // namespace heddle::strict

struct ncclComm {
  heddle::strict::Group* group;  // shared by its ranks, and no other's
  int rank;
  int size;
};
