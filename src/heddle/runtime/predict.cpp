#include "heddle/runtime/predict.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/base/random.h"
#include "heddle/runtime/dry_run.h"

namespace heddle::runtime {

namespace {

// How many rows come: those, any share of them, or no more than leave the conditions that ask for them as they are
// where few come. What is given up where many come is there as a whole at the limit. By turns: one of these, or
// none. What is decided goes against the usual where all come.
enum class Come : uint8_t { all, any_share, up_to_limits, by_turns };

// Answers what the walk asks and issues nothing.
class DryIssuer : public ir::Issuer {
 public:
  /// Thrown, if `until_bytes` is set, by the first op at which so many bytes live.
  struct Reached {};
  int64_t until_bytes = 0;
  /// Shares are about as many rows as balanced ones, which most steps of a run have.
  bool near_balanced = false;

  DryIssuer(const ir::StepProgram& program, int rank, std::string_view backend, double crowding,
            Come come = Come::all)
      : rank_(rank),
        come_(come),
        crowding_(crowding),
        program_(program),
        scratch_(kernel_scratch(program, backend, rank)),
        rows_(balanced_rows(program, crowding)) {}

  int64_t scratch_bytes(int listing, uint32_t op, const ir::RowCounts& rows) override {
    return scratch_(listing, op, rows);
  }
  void issue(const ir::Issue& issue) override {
    if (until_bytes > 0 && issue.live_bytes >= until_bytes) throw Reached{};
  }
  int64_t read_rows(const ir::Issue& issue, size_t output) override {
    const int64_t all = rows_(rank_, issue, output);
    const auto share = [&] { return RandomKey(1).uniform(reads_++); };
    const auto some = [&] { return static_cast<int64_t>(std::ceil(share() * static_cast<double>(all))); };
    const auto about = [&](double balanced) { return static_cast<int64_t>(std::ceil((0.5 + share()) * balanced)); };
    const auto up_to_limit = [&] { return std::min(all, limit_of(issue.listing, issue.op->out[output])); };
    switch (come_) {
      case Come::all: break;
      case Come::any_share: return near_balanced ? about(static_cast<double>(all) / crowding_) : some();
      case Come::up_to_limits: return up_to_limit();
      case Come::by_turns: {
        const double turn = share();
        if (turn < 0.5) return up_to_limit();
        if (turn < 0.7) return some();
        return turn < 0.8 ? 0 : all;
      }
    }
    return all;
  }

 private:
  // The least number of rows beyond which some op of the listing does otherwise.
  int64_t limit_of(int listing, ir::ValueId counted) const {
    int64_t limit = std::numeric_limits<int64_t>::max();
    for (const ir::Op& op : program_.listings[listing].ops) {
      if (op.condition.rows_of == counted) limit = std::min(limit, op.condition.limit);
    }
    return limit;
  }

  const int rank_;
  const Come come_;
  const double crowding_;
  uint64_t reads_ = 0;
  const ir::StepProgram& program_;
  const simulate::ScratchBytes scratch_;
  const simulate::RowsRead rows_;
};

// How often sizes are drawn is what counts, and every microbatch draws its own: steps of many need not be as many.
constexpr int kUnevenSteps = 24, kFewestUnevenSteps = 2, kUnevenMicrobatches = 192;
// If values copied to the host free their place late, there is little room beside what lives. One of a hundred
// steps may part it so that a value finds none: so many more are drawn.
constexpr int kMoreMicrobatches = 6, kMoreSteps = 16;
int uneven_steps(const ir::StepProgram& program, bool tight) {
  const int microbatches = (tight ? kMoreMicrobatches : 1) * kUnevenMicrobatches;
  return std::clamp(microbatches / std::max(1, program.microbatches), kFewestUnevenSteps,
                    (tight ? kMoreSteps : 1) * kUnevenSteps);
}

// Values of other sizes than predicted lie elsewhere, and what stays among them parts the free space.
void place_uneven_steps(const ir::StepProgram& program, int rank, std::string_view backend, int64_t capacity_bytes,
                        double crowding, Come come, bool tight) {
  DryIssuer issuer(program, rank, backend, crowding, come);
  ir::Walk walk(program, rank, capacity_bytes);
  for (int step = 0, steps = uneven_steps(program, tight); step < steps; ++step) {
    issuer.near_balanced = tight && step % 2 == 1;
    for (int p = 0; p < ir::kPurposes; ++p) {
      const auto purpose = static_cast<ir::Purpose>(p);
      if (!program.actions_of(rank, purpose).empty()) walk.run_step(issuer, purpose);
    }
  }
}

bool decides(const ir::StepProgram& program, int rank) {
  const std::vector<int> listings = program.listings_of(rank);
  return std::any_of(listings.begin(), listings.end(), [&](int s) {
    const std::vector<ir::Op>& ops = program.listings[s].ops;
    return std::any_of(ops.begin(), ops.end(), [](const ir::Op& op) { return static_cast<bool>(op.condition); });
  });
}

// One step of each purpose: where its values lie, every later one's do.
MemoryPrediction walked_once(const ir::StepProgram& program, int rank, std::string_view backend,
                             int64_t capacity_bytes, double crowding, int64_t limit_bytes, Come come) {
  DryIssuer issuer(program, rank, backend, crowding, come);
  ir::Walk walk(program, rank, capacity_bytes, 0, limit_bytes);
  walk.skip_repeats = come == Come::all || come == Come::up_to_limits;
  MemoryPrediction prediction;
  for (int p = 0; p < ir::kPurposes; ++p) {
    const auto purpose = static_cast<ir::Purpose>(p);
    if (program.actions_of(rank, purpose).empty()) continue;
    walk.run_step(issuer, purpose);
    prediction.peak_live_bytes = std::max(prediction.peak_live_bytes, walk.storage().peak_live_bytes());
    prediction.host_peak_live_bytes =
        std::max(prediction.host_peak_live_bytes, walk.storage(ir::Space::host).peak_live_bytes());
  }
  prediction.persistent_bytes = walk.persistent_bytes();
  prediction.reserved_bytes = walk.storage().reserved_bytes();
  prediction.host_reserved_bytes = walk.storage(ir::Space::host).reserved_bytes();
  return prediction;
}

// The worse outcome of its conditions.
MemoryPrediction walked(const ir::StepProgram& program, int rank, std::string_view backend, int64_t capacity_bytes,
                        double crowding, int64_t limit_bytes = 0) {
  MemoryPrediction all = walked_once(program, rank, backend, capacity_bytes, crowding, limit_bytes, Come::all);
  if (!decides(program, rank)) return all;
  MemoryPrediction few =
      walked_once(program, rank, backend, capacity_bytes, crowding, limit_bytes, Come::up_to_limits);
  MemoryPrediction& worse = few.peak_live_bytes > all.peak_live_bytes ? few : all;
  worse.reserved_bytes = std::max(all.reserved_bytes, few.reserved_bytes);
  worse.host_peak_live_bytes = std::max(all.host_peak_live_bytes, few.host_peak_live_bytes);
  worse.host_reserved_bytes = std::max(all.host_reserved_bytes, few.host_reserved_bytes);
  return worse;
}

double crowding_of(const ir::StepProgram& program, int rank, const Room& room) {
  double most = std::min(1.0, room.crowding);
  for (const int s : program.listings_of(rank)) most = std::max(most, crowding_of(program.listings[s], room));
  return most;
}

}  // namespace

MemoryPrediction predict_memory(const ir::StepProgram& program, int rank, std::string_view backend,
                                int64_t capacity_bytes, double crowding, int64_t limit_bytes) {
  return walked(program, rank, backend, capacity_bytes, crowding, limit_bytes);
}

// The peak is of one of the walks that a prediction takes; what lives does not depend on where it lies.
std::vector<ir::Walk::Live> live_at_peak(const ir::StepProgram& program, int rank, std::string_view backend,
                                         int64_t peak_bytes, double crowding) {
  for (const Come come : {Come::all, Come::up_to_limits}) {
    DryIssuer issuer(program, rank, backend, crowding, come);
    issuer.until_bytes = peak_bytes;
    ir::Walk walk(program, rank, 0);
    walk.skip_repeats = walk.keep_peak = true;
    walk.peak_from_bytes = peak_bytes;
    for (int p = 0; p < ir::kPurposes; ++p) {
      const auto purpose = static_cast<ir::Purpose>(p);
      if (program.actions_of(rank, purpose).empty()) continue;
      try {
        walk.run_step(issuer, purpose);
      } catch (const DryIssuer::Reached&) {
        return walk.live_at_peak();
      }
    }
  }
  return {};
}

double crowding_of(const ir::Listing& listing, const Room& room) {
  double ranks = 1, most = 1, least = 1;
  for (const ir::Op& op : listing.ops) {
    if (op.def->moves != ir::Moves::counts) continue;
    const auto group = static_cast<double>(op.attributes.integer("ranks"));
    const auto holders = group / static_cast<double>(op.attributes.integer("slices"));
    const auto chosen = static_cast<double>(listing.value(op.operand("experts")).shape[1].count);
    // A token has as many rows here as it has choices, if there are so many experts here.
    const auto here = static_cast<double>(op.attributes.integer("experts")) / holders +
                      static_cast<double>(op.attributes.integer_or("copies", 0));
    // Even rows are fewer by those that experts without computation have.
    const auto experts = static_cast<double>(op.attributes.integer("experts"));
    const double more = 1 + static_cast<double>(op.attributes.integer_or("without", 0)) / experts;
    ranks = std::max(ranks, group * more);
    least = std::max(least, more);
    most = std::max(most, holders * std::min(chosen, here) / chosen * more);
  }
  return std::min(room.whole ? most : ranks, least * room.crowding);
}

int64_t rough_arena_bytes(const ir::StepProgram& program, int rank, std::string_view backend, const Room& room) {
  const double crowding = crowding_of(program, rank, room);
  const MemoryPrediction roomy = walked(program, rank, backend, 0, crowding);
  if (roomy.host_reserved_bytes == 0) return roomy.reserved_bytes;
  for (const double more : {1.0, 1.05, 1.1, 1.2, 1.35}) {
    const auto capacity =
        ir::storage_bytes(static_cast<int64_t>(more * static_cast<double>(roomy.peak_live_bytes)));
    try {
      walked(program, rank, backend, capacity, crowding);
      return capacity;
    } catch (const ir::OutOfMemory&) {  // as in arena_bytes
    }
  }
  return roomy.reserved_bytes;
}

bool keeps_to(const ir::StepProgram& program, int rank, std::string_view backend, int64_t limit_bytes,
              const Room& room) {
  const double crowding = crowding_of(program, rank, room);
  try {
    walked(program, rank, backend, limit_bytes, room.whole ? crowding : 1);
    if (room.whole) place_uneven_steps(program, rank, backend, limit_bytes, crowding, Come::by_turns, false);
    return true;
  } catch (const ir::OutOfMemory&) {
    return false;
  }
}

int64_t arena_bytes(const ir::StepProgram& program, int rank, std::string_view backend, int64_t limit_bytes,
                    bool tried, const Room& room) {
  const double crowding = crowding_of(program, rank, room);
  const Come come = room.whole ? Come::by_turns : Come::any_share;
  const MemoryPrediction roomy = walked(program, rank, backend, 0, crowding);
  // Values copied to the host free their place late, and where there is room the arena grows meanwhile.
  const int64_t least = roomy.host_reserved_bytes > 0 ? roomy.peak_live_bytes : roomy.reserved_bytes;
  for (const double more : {1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.35, 1.5, 2.0, 3.0}) {
    const auto capacity = ir::storage_bytes(static_cast<int64_t>(more * static_cast<double>(least)));
    if (capacity >= limit_bytes) break;
    try {
      walked(program, rank, backend, capacity, crowding);
      if (crowding > 1) walked(program, rank, backend, capacity, 1);
      if (crowding > 1 && tried) {
        const bool tight = roomy.host_reserved_bytes > 0;
        place_uneven_steps(program, rank, backend, capacity, crowding, come, tight);
        // Steps that were not drawn may part the free space a little more.
        if (tight) return std::min(limit_bytes, ir::storage_bytes(capacity + capacity / 32));
      }
      return capacity;
    } catch (const ir::OutOfMemory&) {  // fragments; a little more room helps
    }
  }
  walked(program, rank, backend, limit_bytes, room.whole ? crowding : 1);
  if (room.whole && tried) place_uneven_steps(program, rank, backend, limit_bytes, crowding, come, false);
  return limit_bytes;
}

}  // namespace heddle::runtime
