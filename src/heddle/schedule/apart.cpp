#include "heddle/schedule/apart.h"

#include <algorithm>

namespace heddle::schedule {

bool defers_weight_gradients(const std::vector<Action>& order) {
  return std::any_of(order.begin(), order.end(), [](const Action& action) {
    return action.first.kind == Kind::W || (action.with && action.with->kind == Kind::W);
  });
}

std::vector<bool> stands_apart(const std::vector<Action>& order, const std::vector<int>& own) {
  std::vector<bool> apart(own.size(), true);
  const auto chunk = [&](const Compute& c) {
    return static_cast<size_t>(std::find(own.begin(), own.end(), c.stage) - own.begin());
  };
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    for (const Compute& made : order[i].computes()) {
      for (const Compute& next : order[i + 1].computes()) {
        if (made.kind == Kind::F && next.stage == made.stage && next.microbatch == made.microbatch) {
          apart[chunk(made)] = false;
        }
      }
    }
  }
  return apart;
}

std::vector<bool> goes_back_at_once(const std::vector<Action>& order, const std::vector<int>& own) {
  std::vector<bool> at_once(own.size(), true);
  for (size_t i = 0; i < order.size(); ++i) {
    for (const Compute& made : order[i].computes()) {
      if (made.kind != Kind::F) continue;
      const auto goes_back = [&](const Compute& c) {
        return c.kind != Kind::F && c.stage == made.stage && c.microbatch == made.microbatch;
      };
      const std::vector<Compute> next = i + 1 < order.size() ? order[i + 1].computes() : std::vector<Compute>{};
      if (std::none_of(next.begin(), next.end(), goes_back))
        at_once[static_cast<size_t>(std::find(own.begin(), own.end(), made.stage) - own.begin())] = false;
    }
  }
  return at_once;
}

}  // namespace heddle::schedule
