#include "heddle/passes/host/host_gradients.h"

#include <algorithm>
#include <set>

#include "heddle/ir/uses.h"
#include "heddle/passes/copy_ops.h"
#include "heddle/passes/host/block_fetches.h"
#include "heddle/passes/host/staged_ops.h"

namespace heddle::passes {

namespace {

using ir::Op;
using ir::ValueId;

struct Sum {
  ValueId id = ir::none;
  size_t added_by = 0;  // an index into the ops: the first that adds to it
  size_t ends = 0;      // the last
  double copy_us = 0;   // with the margin
  bool insists = false;
};

class GradientMover {
 public:
  GradientMover(ir::Listing& listing, const std::map<ValueId, Residency>& residencies, bool deferred,
                const Durations& duration_us)
      : listing_(listing), residencies_(residencies), deferred_(deferred), duration_us_(duration_us) {}

  void run() {
    find_sums();
    for (bool settled = false; !settled;) {
      const std::set<ValueId> late = place();
      settled = late.empty();
      std::erase_if(sums_, [&](const Sum& sum) { return late.contains(sum.id); });
    }
    for (const Sum& sum : sums_) set_space(listing_, sum.id, ir::Space::host);
    write();
  }

 private:
  void find_sums() {
    const ir::Uses uses(listing_);
    for (const auto& [weight, residency] : residencies_) {
      const auto sums = listing_.accumulators.find(weight);
      if (sums == listing_.accumulators.end()) continue;
      for (const ValueId id : sums->second) {
        const auto adding = uses.updaters(id);
        const auto reading = uses.readers(id);
        const bool read_at_the_end = std::all_of(
            reading.begin(), reading.end(), [&](int reader) { return uses.op(reader).phase == ir::Phase::end; });
        if (adding.empty() || !read_at_the_end || listing_.value(id).space != ir::Space::device) continue;
        const Op& op = uses.op(adding[0]);
        if (!std::all_of(adding.begin() + 1, adding.end(),
                         [&](int other) { return adds_beside(uses.op(other)); })) {
          continue;
        }
        const bool whole = std::count(op.updates.begin(), op.updates.end(), id) == 1;
        if (!whole || op.fresh || ir::once_a_step(op.phase)) continue;
        const auto added_by = static_cast<size_t>(adding[0]);
        Op copy = op_beside("copy_in", id, op);
        sums_.push_back({id, added_by, static_cast<size_t>(adding.back()), kMargin * duration_us_(listing_, copy),
                         residency == Residency::host});
      }
    }
    std::sort(sums_.begin(), sums_.end(),
              [](const Sum& a, const Sum& b) { return std::pair(a.added_by, a.id) < std::pair(b.added_by, b.id); });
  }

  // Finds the places of the copies. Returns the sums that come or go too late, and need not.
  std::set<ValueId> place() {
    std::set<ValueId> late;
    fetches_.clear();
    for (int chunk = 0; chunk < std::ssize(listing_.chunks); ++chunk) {
      const Timeline forward(listing_, chunk, {ir::Phase::F}, duration_us_);
      const double room_us = deferred_ ? 0 : forward.end_us;
      for (const size_t b : {kBlockI, kBlockW}) {
        const Timeline block(listing_, chunk, phases_of(b, deferred_), duration_us_);
        std::vector<Fetch> fetches = standing_fetches(listing_, block, duration_us_);
        double free_us = 0;  // the link to the host
        for (size_t s = 0; s < sums_.size(); ++s) {
          const Sum& sum = sums_[s];
          const Op& op = listing_.ops[sum.added_by];
          if (op.chunk != chunk || block_of(op.phase, deferred_) != b) continue;
          fetches.push_back({.use = sum.added_by, .of = s, .copy_us = sum.copy_us, .insists = sum.insists});
          const Op& last = listing_.ops[sum.ends];
          free_us = std::max(free_us, block.start_of(sum.ends) + duration_us_(listing_, last)) + sum.copy_us;
          if (free_us > block.end_us + room_us && !sum.insists) late.insert(sum.id);
        }
        place_fetches(fetches, block, room_us, kMostBetween);
        for (const Fetch& fetch : fetches) {
          if (fetch.stands) continue;
          if (fetch.too_late && !fetch.insists) late.insert(sums_[fetch.of].id);
          fetches_[fetch.before].push_back(fetch);
        }
      }
    }
    return late;
  }

  void write() {
    std::map<size_t, std::vector<const Sum*>> ended;
    for (const Sum& sum : sums_) ended[sum.ends].push_back(&sum);
    std::map<ValueId, ValueId> here;
    std::vector<Op> ops = std::move(listing_.ops);
    listing_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) {
      if (const auto at = fetches_.find(i); at != fetches_.end()) {
        std::sort(at->second.begin(), at->second.end(),
                  [](const Fetch& a, const Fetch& b) { return std::pair(a.use, a.of) < std::pair(b.use, b.of); });
        for (const Fetch& fetch : at->second) {
          const Sum& sum = sums_[fetch.of];
          Op copy = op_beside("copy_in", sum.id, ops[i]);
          copy.phase = ops[sum.added_by].phase;
          copy.ahead = fetch.ahead && !deferred_;
          copy.later = true;
          here[sum.id] = listing_.append(std::move(copy), {listing_.value(sum.id).name + ".sum"})[0];
        }
      }
      if (ir::once_a_step(ops[i].phase)) {
        append_staged(listing_, std::move(ops[i]));
        continue;
      }
      for (ValueId& id : ops[i].updates) {
        if (here.contains(id)) id = here.at(id);
      }
      const Op beside = ops[i];
      listing_.ops.push_back(beside);
      for (const Sum* sum : ended[i]) {
        Op copy = op_beside("copy_out", here.at(sum->id), beside);
        copy.updates = {sum->id};
        listing_.append(std::move(copy), {});
      }
    }
  }

  ir::Listing& listing_;
  const std::map<ValueId, Residency>& residencies_;
  const bool deferred_;
  const Durations& duration_us_;
  std::vector<Sum> sums_;                         // in the order of the ops that add to them
  std::map<size_t, std::vector<Fetch>> fetches_;  // by the op before which they stand
};

}  // namespace

void host_gradients(ir::Listing& listing, const std::map<ValueId, Residency>& residencies, bool deferred,
                    const Durations& duration_us) {
  GradientMover(listing, residencies, deferred, duration_us).run();
}

}  // namespace heddle::passes
