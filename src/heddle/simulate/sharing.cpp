#include "heddle/simulate/sharing.h"

#include <algorithm>

namespace heddle::simulate {

void Sharing::add(const std::vector<Demand>& demands, double sign) {
  for (const Demand& d : demands) load_[d.resource] += sign * d.amount;
}

double Sharing::speed(const std::vector<Demand>& demands) const {
  double slowest = 1;
  for (const Demand& d : demands) {
    const double load = load_[d.resource];
    if (d.resource >= machines_ + 2 * hosts_) {
      if (d.amount == 0) slowest = std::min(slowest, std::max(kLeastUnits, 1 - load));
    } else if (d.resource >= machines_) {
      slowest = std::min(slowest, 1 / std::max(1.0, load));
    } else if (speed_) {
      slowest = std::min(slowest, speed_(load));
    }
  }
  return slowest;
}

void merge(std::vector<Sharing::Demand>& demands) {
  std::sort(demands.begin(), demands.end(), [](const auto& a, const auto& b) { return a.resource < b.resource; });
  size_t kept = 0;
  for (size_t i = 0; i < demands.size(); ++i) {
    if (kept > 0 && demands[kept - 1].resource == demands[i].resource) {
      demands[kept - 1].amount += demands[i].amount;
    } else {
      demands[kept++] = demands[i];
    }
  }
  demands.resize(kept);
}

}  // namespace heddle::simulate
