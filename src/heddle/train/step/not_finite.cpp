#include "heddle/train/step/not_finite.h"

#include "heddle/train/step/moment.h"
#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

bool all_finite(const device::TensorView& view) {
  for (int64_t i = 0; i < view.stretches; ++i) {
    if (!is_finite(view.stretch(i))) return false;
  }
  return true;
}

// Finds the first value that is not finite in this rank's own step.
class Search {
 public:
  Search(const plan::Lowered& lowered, const RankExchange& ranks) : lowered_(lowered), ranks_(ranks) {}

  void look(const ir::Issue& issue, const device::KernelCall& call) {
    ++op_;
    look(issue, call.out, issue.op->out);
    look(issue, call.updates, issue.op->updates);
  }
  const Moment& first() const { return first_; }
  const std::string& where() const { return where_; }

 private:
  void look(const ir::Issue& issue, std::span<const device::TensorView> views,
            const std::vector<ir::ValueId>& ids) {
    const ir::Listing& text = lowered_.program.listings[issue.listing];
    for (size_t i = 0; i < views.size() && where_.empty(); ++i) {
      if (views[i].data == nullptr || views[i].layout == ir::Layout::packed || all_finite(views[i])) continue;
      where_ = place_text(*issue.op, text.value(ids[i]).name, issue.microbatch, ranks_);
      first_ = moment_of(lowered_, issue.listing, *issue.op, issue.microbatch, op_, ranks_.rank());
    }
  }

  const plan::Lowered& lowered_;
  const RankExchange& ranks_;
  int64_t op_ = 0;
  Moment first_;
  std::string where_;
};

}  // namespace

std::string first_not_finite(runtime::Executor& executor, const plan::Lowered& lowered, RankExchange& ranks,
                             const device::Inputs& inputs) {
  Search search(lowered, ranks);
  executor.run_step(inputs,
                    [&](const ir::Issue& issue, const device::KernelCall& call) { search.look(issue, call); });
  return earliest(ranks, search.first(), search.where(), "no single op; the sum over microbatches overflows");
}

}  // namespace heddle::train
