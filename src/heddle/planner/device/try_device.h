// Tries once each ability that a training step needs of a device, and compares with the reference. It is a first
// minute on a new machine, in place of a run that ends in the middle.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heddle::planner {

struct Trial {
  bool good = false;
  std::string what;    // "a product"
  std::string found;   // the part that ran, and how long it took; or the error
  std::string remedy;  // the thing to do where it is not good
};

/// Tries a launch, a product, attention forward and backward, a run of launches as a graph, a byte by the library
/// of messages, and a copy between two devices. It takes some seconds. Each is tried though others have failed.
/// Nothing is thrown.
std::vector<Trial> try_device(std::string_view backend);

}  // namespace heddle::planner
