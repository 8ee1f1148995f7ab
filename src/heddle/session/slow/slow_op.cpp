#include "heddle/session/slow/slow_op.h"

#include <algorithm>
#include <map>

#include "heddle/base/statistics.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::session {

namespace {

constexpr double kLeastShare = 0.6;      // share of the excess, for the op to be blamed
constexpr double kRestAsSlow = 1 / 3.0;  // share of its slowness that nothing else may show

struct Compared {
  const OpTime* time = nullptr;
  const ir::Op* op = nullptr;
  double excess_s = 0, usual_s = 0;  // a step
};

bool is_of(WorkKind kind, const OpTime& time, const ir::Op& op) {
  if (time.by_rows() || kind == WorkKind::experts) return time.by_rows() && kind == WorkKind::experts;
  switch (op.phase) {
    case ir::Phase::F: return kind == WorkKind::forward;
    case ir::Phase::I:
    case ir::Phase::W: return kind == WorkKind::backward;
    case ir::Phase::begin:
    case ir::Phase::end: return kind == WorkKind::update;
  }
  return false;
}

struct Sum {
  double excess_s = 0, usual_s = 0;
  void add(const Compared& c) {
    excess_s += c.excess_s;
    usual_s += c.usual_s;
  }
  double slowness() const { return usual_s > 0 ? excess_s / usual_s : 0; }
};

// True if a part explains the whole: it is most of it, and the rest is hardly slow.
bool explains(const Sum& part, const Sum& all) {
  const Sum rest{all.excess_s - part.excess_s, all.usual_s - part.usual_s};
  return part.excess_s >= kLeastShare * all.excess_s && rest.slowness() <= kRestAsSlow * part.slowness();
}

}  // namespace

std::string_view name_of(SlowOp::Scope scope) {
  switch (scope) {
    case SlowOp::Scope::one: return "op";
    case SlowOp::Scope::kind: return "kind";
    case SlowOp::Scope::all: return "all";
  }
  return "";
}

std::optional<SlowOp> slow_op(const ir::StepProgram& program, WorkKind kind, const OpTimes& own,
                              const std::vector<const OpTimes*>& others) {
  std::map<std::pair<int32_t, uint32_t>, std::vector<double>> elsewhere;  // times of a call or of a row
  for (const OpTimes* times : others) {
    for (const OpTime& time : *times) {
      const double s = time.by_rows() ? time.row_s : time.call_s;
      if (s > 0) elsewhere[time.key()].push_back(s);
    }
  }
  const ir::StreamTable streams(program);
  std::vector<Compared> all;
  Sum sum;
  for (const OpTime& time : own) {
    const ir::Op& op = program.listings.at(static_cast<size_t>(time.listing)).ops.at(time.op);
    const auto at = elsewhere.find(time.key());
    const bool computes =
        streams.of(time.listing, time.op) == ir::StreamTable::compute && !ir::communicates(*op.def);
    if (!computes || !is_of(kind, time, op) || at == elsewhere.end()) continue;
    const double times = time.by_rows() ? time.rows : time.calls, s = time.by_rows() ? time.row_s : time.call_s;
    const double usual = quantile(at->second, 0.5);
    all.push_back({&time, &op, times * (s - usual), times * usual});
    sum.add(all.back());
  }
  if (sum.excess_s <= 0) return std::nullopt;
  const Compared& most = *std::max_element(
      all.begin(), all.end(), [](const Compared& a, const Compared& b) { return a.excess_s < b.excess_s; });
  const auto found = [&](SlowOp::Scope scope, const Compared& named, const Sum& part) {
    return SlowOp{scope,         named.time->listing, named.time->op, part.excess_s / sum.excess_s,
                  part.excess_s, 1 + part.slowness()};
  };
  const Sum one{most.excess_s, most.usual_s};
  if (all.size() > 1 && explains(one, sum)) return found(SlowOp::Scope::one, most, one);
  std::map<std::string_view, Sum> kinds;
  for (const Compared& c : all) kinds[c.op->kind()].add(c);
  const auto slowest = std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
    return a.second.excess_s < b.second.excess_s;
  });
  if (kinds.size() > 1 && explains(slowest->second, sum)) {
    const Compared* named = nullptr;
    for (const Compared& c : all) {
      if (c.op->kind() == slowest->first && (named == nullptr || c.excess_s > named->excess_s)) named = &c;
    }
    return found(SlowOp::Scope::kind, *named, slowest->second);
  }
  return found(SlowOp::Scope::all, most, sum);
}

std::string label_of(const ir::Listing& listing, const ir::Op& op) {
  for (const std::vector<ir::ValueId>* ids : {&op.out, &op.updates}) {
    for (const ir::ValueId id : *ids) {
      if (id != ir::none) return fmt::format("{} {}", op.kind(), listing.value(id).name);
    }
  }
  return std::string(op.kind());
}

std::string text_of(const SlowOp& slow, const ir::StepProgram& program) {
  const ir::Listing& listing = program.listings.at(static_cast<size_t>(slow.listing));
  const ir::Op& op = listing.ops.at(slow.op);
  const std::string named = fmt::format("{} (phase {})", label_of(listing, op), ir::name_of(op.phase));
  switch (slow.scope) {
    case SlowOp::Scope::one: return fmt::format("{} takes {:.2f} times as long", named, slow.times);
    case SlowOp::Scope::kind:
      return fmt::format("{} takes {:.2f} times as long, most of it {}", op.kind(), slow.times, named);
    case SlowOp::Scope::all: return fmt::format("all of its ops are slow, most {}", named);
  }
  return "";
}

}  // namespace heddle::session
