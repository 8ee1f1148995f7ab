#include "heddle/passes/host/host_weights.h"

#include <utility>

#include "heddle/passes/host/staged_ops.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::ValueId;

class WeightMover : public BringWeights {
 public:
  WeightMover(ir::Listing& listing, const std::map<ValueId, Residency>& residencies, const BlockOrder& order,
              const Durations& duration_us)
      : BringWeights(listing, order, duration_us), residencies_(residencies) {
    for (const auto& [id, residency] : residencies_) set_space(listing_, id, ir::Space::host);
  }

 protected:
  bool is_away(ValueId id) const override {
    return listing_.value(id).role == ir::Role::weight && listing_.value(id).space == ir::Space::host;
  }
  Op bring(ValueId id, const Op& beside) const override { return copy_beside("copy_in", listing_, id, beside); }
  bool insists(ValueId id) const override {
    const auto residency = residencies_.find(listing_.base(id));
    return residency == residencies_.end() || residency->second == Residency::host;
  }
  void stay(ValueId id) override { set_space(listing_, id, ir::Space::device); }
  std::vector<Fetch> standing(const Timeline& block) const override {
    return standing_fetches(listing_, block, duration_us_);
  }
  void append_once(Op op) override { append_staged(listing_, std::move(op)); }

 private:
  const std::map<ValueId, Residency>& residencies_;
};

}  // namespace

void host_weights(ir::Listing& listing, const std::map<ValueId, Residency>& residencies, const BlockOrder& order,
                  const Durations& duration_us) {
  WeightMover(listing, residencies, order, duration_us).run();
}

}  // namespace heddle::passes
