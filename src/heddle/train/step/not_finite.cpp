#include "heddle/train/step/not_finite.h"

#include <algorithm>
#include <array>

#include "heddle/train/step/numbers.h"

namespace heddle::train {

namespace {

constexpr int64_t kNever = int64_t{1} << 40;

// When, within a step, a value came to be: causes come before effects, on whichever rank.
struct Moment {
  int64_t microbatch = kNever, phase = 0, listing = 0, op = 0, rank = 0;
  auto operator<=>(const Moment&) const = default;
};
constexpr size_t kNumbers = 5;  // of a Moment

// What this rank finds first in its own step.
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
    const ir::Listing& text = lowered_.program.listings[static_cast<size_t>(issue.listing)];
    for (size_t i = 0; i < views.size() && where_.empty(); ++i) {
      if (views[i].data == nullptr || views[i].layout == ir::Layout::packed || is_finite(views[i])) continue;
      where_ = description(issue, text.value(ids[i]).name);
      first_ = moment(issue);
    }
  }

  std::string description(const ir::Issue& issue, const std::string& value) const {
    return fmt::format("'{}' of {}{} (phase {}, microbatch {}{})", value, issue.op->kind(),
                       issue.op->layer >= 0 ? fmt::format(" in layer {}", issue.op->layer) : "",
                       ir::name_of(issue.op->phase), issue.microbatch,
                       ranks_.size() > 1 ? fmt::format(", rank {}", ranks_.rank()) : "");
  }

  Moment moment(const ir::Issue& issue) const {
    const ir::Phase phase = issue.op->phase;
    const bool forward = phase == ir::Phase::F;
    const int64_t microbatch = !ir::once_a_step(phase)     ? issue.microbatch
                               : phase == ir::Phase::begin ? -1
                                                           : kNever - 1;
    const int listing =
        lowered_.placement.stages_of(issue.listing).at(static_cast<size_t>(std::max(0, issue.op->chunk)));
    return {microbatch, forward ? 0 : 1, forward ? listing : -listing, op_, ranks_.rank()};
  }

  const plan::Lowered& lowered_;
  const RankExchange& ranks_;
  int64_t op_ = 0;
  Moment first_;
  std::string where_;
};

}  // namespace

std::string first_not_finite(runtime::Executor& executor, const plan::Lowered& lowered, RankExchange& ranks,
                             const device::Batch& batch) {
  Search search(lowered, ranks);
  executor.run_step(batch,
                    [&](const ir::Issue& issue, const device::KernelCall& call) { search.look(issue, call); });
  const Moment& first = search.first();
  std::vector<double> moments(static_cast<size_t>(ranks.size()) * kNumbers, 0);  // a place for each rank
  const std::array<int64_t, kNumbers> own{first.microbatch, first.phase, first.listing, first.op, first.rank};
  std::copy(own.begin(), own.end(), moments.begin() + ranks.rank() * std::ssize(own));
  ranks.sum(moments);
  const std::vector<std::string> places = ranks.share(search.where());
  std::string found = "no single op; the sum over microbatches overflows";
  Moment earliest;
  for (size_t r = 0; r < places.size(); ++r) {
    const auto number = [&](size_t i) { return static_cast<int64_t>(moments[r * kNumbers + i]); };
    const Moment moment{number(0), number(1), number(2), number(3), number(4)};
    if (moment >= earliest) continue;
    earliest = moment;
    found = places[r];
  }
  return found;
}

}  // namespace heddle::train
