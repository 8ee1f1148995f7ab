// Communicators of the tests' own NCCL (strict_nccl.cpp).
#pragma once

#include <nccl.h>

namespace heddle::strict {
struct Group;
}

struct ncclComm {
  heddle::strict::Group* group;  // shared by its ranks, and no other's
  int rank;
  int size;
};
