#include "tests/parity/parity.h"

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "heddle/model/rope_table.h"
#include "heddle/runtime/copy_engine.h"
#include "tests/runtime/tiny_run.h"

namespace heddle::parity {

namespace {

constexpr int64_t kArenaBytesParity = 1 << 25;
constexpr double kOnlySums = 1e-5;  // the tolerance of bf16 where nothing but sums of fp32 numbers differ
// Of gradients that are zero but for rounding: what counts as a norm at least, as a share of the norm of all.
constexpr double kLeastShare = 1e-5, kLeastShareRounded = 2e-2;
// An fp32 number has 29 bits less than one of fp64. Two roundings may be some times as far apart as two others.
constexpr double kFp32Grains = 16 * 0x1p29;
constexpr double kFp64Tolerance = 1e-10;
// A rounding of fp32 opens or closes a ReLU of an indexer, which has few weights.
constexpr double kOpenedScore = 1e-3;

/// |a − b| ÷ |b|; a norm below `least` counts as that: some gradients are zero but for rounding (queries, when all
/// tokens are equal).
double relative(const std::vector<double>& a, const std::vector<double>& b, double least) {
  double difference = 0, norm = least * least;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  if (!std::isfinite(difference)) return INFINITY;
  return difference > 0 ? std::sqrt(difference / norm) : 0;
}

/// What one draw gave on the ranks of a world, by rank 0.
struct Compared {
  std::map<std::string, double> errors;  // of each thing that was compared
  std::set<std::string> beyond;          // those beyond the draw's tolerance
  std::vector<std::string> failures;     // what keeps all from being compared
  bool flipped = false;                  // see kFlipped
};

bool told_by_first(comm::Communicator& all, bool told) {
  const auto own = static_cast<char>(told);
  std::vector<comm::Piece> sends;
  for (int r = 0; r < all.size() && all.rank() == 0; ++r) sends.push_back({r, 0, 1});
  char heard = 0;
  all.exchange(&own, sends, &heard, std::vector<comm::Piece>{{0, 0, 1}});
  return heard != 0;
}

}  // namespace

std::vector<double> sum_to_first(comm::Communicator& all, const std::vector<double>& own) {
  const auto bytes = static_cast<int64_t>(own.size() * sizeof(double));
  const std::vector<comm::Piece> sends{{0, 0, bytes}};
  std::vector<comm::Piece> receives;
  std::vector<double> parts;
  if (all.rank() == 0) {
    parts.resize(own.size() * static_cast<size_t>(all.size()));
    for (int r = 0; r < all.size(); ++r) receives.push_back({r, r * bytes, bytes});
  }
  all.exchange(own.data(), sends, parts.data(), receives);
  std::vector<double> sum(own.size(), 0.0);
  for (size_t i = 0; i < parts.size(); ++i) sum[i % own.size()] += parts[i];
  return sum;
}

namespace {

Compared compare_with_one_rank(const Draw& draw, comm::World& world, comm::Communicator& all, double least_share,
                               const Fault& fault) {
  const std::vector<double> table = model::rope_table(draw.model, draw.plan.sequence_length);
  const auto parameter = [&](const model::Parameter& p, int64_t i) { return draw.parameter(p, i, table); };
  std::unique_ptr<test::TinyRun> one;
  if (world.rank() == 0) {
    one = std::make_unique<test::TinyRun>(draw.model, draw.one_rank(), draw.backend, kArenaBytesParity);
    one->fill(parameter);
    one->run({draw.batch(one->plan(), 0)});
  }
  const plan::Mesh mesh(draw.plan.mesh);
  plan::Lowered lowered = plan::lower(draw.model, draw.plan);
  const plan::Lowered single = plan::lower(draw.model, draw.one_rank());
  std::unique_ptr<test::TinyRun> wide;  // see parity.h
  if (world.rank() == 0 && draw.plan.dtype == Dtype::bf16 && draw.tolerance > kOnlySums) {
    plan::Plan plan = draw.one_rank();
    plan.dtype = Dtype::f64;
    plan.device.fp8 = passes::Fp8::off;
    plan.packed_bytes = nullptr;
    wide = std::make_unique<test::TinyRun>(draw.model, plan, "reference", kArenaBytesParity);
    wide->fill([&](const model::Parameter& p, int64_t i) {
      const double value = parameter(p, i);
      const ir::Listing& listing = single.program.listings[0];
      const bool rounded = listing.value(listing.find(p.name)).dtype == Dtype::bf16;
      return rounded ? static_cast<float>(bf16(static_cast<float>(value))) : value;
    });
    wide->run({draw.batch(plan, 0)});
  }
  for (ir::Listing& listing : lowered.program.listings) {
    for (ir::Op& op : listing.ops) {
      if (fault.text) fault.text(op);
    }
  }
  plan::OnDevice moved = draw.plan.device;
  moved.copy_engine_kb = 1e-3;  // all there is
  runtime::CopyEngine engine(moved, true, world);
  test::RankRun run(draw.plan, mesh, lowered, engine.world(), draw.backend, kArenaBytesParity);
  test::Batch batch = draw.batch(draw.plan, mesh.at(world.rank()).at(ir::Axis::dp));
  run.set_homes(batch.homes);
  run.fill(parameter);
  if (fault.batch) fault.batch(run.place(), batch);
  if (fault.after) {
    run.executor().run_step(test::inputs_of(batch, run.executor()),
                            [&](const ir::Issue& issue, const device::KernelCall& call) {
                              fault.after(lowered.program.listings[static_cast<size_t>(issue.listing)], call);
                            });
  } else {
    run.executor().run_step(test::inputs_of(batch, run.executor()));
  }

  Compared found;
  // Of one rank, and of the difference to it: sums of squares over all gradients.
  double gradients_square = 0, difference_square = 0;
  // What a gradient of zero leaves is the rounding of the terms that cancel in it.
  const double least = world.rank() == 0 ? least_share * one->read(0, "grad_norm")[0] : 0;
  if (!std::isfinite(least)) found.failures.push_back("one rank's own gradients are not finite");
  // Rewards of pairs are differences of sums over all tokens of an answer, so they are as exact as these. The share
  // of pairs that are told right is no number to compare where margins are rounded.
  double rewards = 0;
  const auto compare = [&](const std::string& what, const std::vector<double>& many,
                           const std::vector<double>& expected, double tolerance) {
    const bool of_reward = what.starts_with("reward.");
    if (of_reward && wide && what == model::kRewardAccuracy.name) return;
    const double scale = of_reward ? std::max(least, rewards) : what.starts_with("v.") ? least * least : least;
    const double error = relative(many, expected, scale);
    found.errors[what] = error;
    if (!(error <= tolerance)) found.beyond.insert(what);
  };
  std::vector<std::string> statistics;
  for (const ir::Value& value : single.program.listings[0].values) {
    // Largest logits are no sums over the ranks: the masters that they scale tell.
    const bool summed = value.name != "grad_norm" && !value.name.starts_with(model::kMaxLogits.name);
    if (value.role == ir::Role::statistic && summed) statistics.push_back(value.name);
  }
  for (const auto* kind : {&model::kChosenReward, &model::kRejectedReward}) {
    const std::string name(kind->name);
    if (world.rank() == 0 && single.program.listings[0].find(name) != ir::none)
      rewards = std::max(rewards, std::abs(one->read(0, name)[0]));
  }
  for (const std::string& name : statistics) {
    const ir::Listing& listing = single.program.listings[0];
    std::vector<double> own(static_cast<size_t>(listing.elements(listing.find(name), ir::FixedRows())), 0.0);
    if (run.listing().find(name) != ir::none) own = run.read(name);
    own = sum_to_first(all, own);
    if (world.rank() != 0) continue;
    const std::vector<double> expected = one->read(0, name);
    // In fp32 another order of summing can turn a near tie between experts over: then a token goes elsewhere.
    found.flipped |= (draw.plan.dtype == Dtype::f32 && name.starts_with("load.") && own != expected);
    // Data ranks and copies of stages have some microbatches each: fp64 sums their losses in another order.
    const bool one_sum = draw.plan.mesh.dp == 1 && lowered.placement.routes == 1;
    const double own_error = wide ? 4 * relative(expected, wide->read(0, name), least) : 0;
    compare(name, own, expected, draw.same_bits && one_sum ? 0 : draw.loss_tolerance + own_error);
  }
  for (const model::Parameter& p : single.parameters[0]) {
    if (!p.trained) continue;
    const auto elements = static_cast<size_t>(single.program.listings[0].elements(p.value, ir::FixedRows()));
    // Parts that lie on several ranks are added up here, three or more in any order: what the step makes of them
    // tells.
    const bool many_uses = single.program.listings[0].accumulators.at(p.value).size() > 2 && !draw.plan.exact_sums;
    std::vector<double> gradients;  // of one rank
    const ir::Listing& of_one = single.program.listings[0];
    const bool by_muon = of_one.find("m." + p.name) != ir::none && of_one.find("v." + p.name) == ir::none;
    for (const std::string prefix : {"grad.", "m.", "v.", "master.", "average."}) {
      if (of_one.find(prefix + p.name) == ir::none && (prefix == "v." ? by_muon : prefix == "average.")) continue;
      std::vector<double> sum(elements, 0.0), holders(elements, 0.0);
      run.set_homes(prefix == "grad." ? batch.homes : batch.next_homes);
      run.add_to_whole(prefix, p.name, sum, holders);
      sum = sum_to_first(all, sum);
      holders = sum_to_first(all, holders);
      if (world.rank() != 0) continue;
      const bool gradient = prefix == "grad.";
      for (size_t i = 0; i < elements && !gradient; ++i) sum[i] /= holders[i];
      const std::vector<double> expected = one->whole(prefix, p.name);
      if (gradient) gradients = expected;
      for (size_t i = 0; i < elements && gradient; ++i) {
        gradients_square += expected[i] * expected[i];
        difference_square += (sum[i] - expected[i]) * (sum[i] - expected[i]);
      }
      if (gradient ? draw.same_bits && !many_uses : draw.same_state) {
        compare(prefix + p.name, sum, expected, 0);
        continue;
      }
      const bool moved = prefix == "master." || prefix == "average.";
      if (moved) {
        // AdamW divides a gradient by its own size: what is zero but for rounding moves a master as far as the
        // rest.
        if (draw.plan.dtype != Dtype::f64) continue;
        if (by_muon) {  // which makes a whole matrix of that size, whatever it is made of
          const double norm =
              std::sqrt(std::inner_product(gradients.begin(), gradients.end(), gradients.begin(), 0.0));
          if (norm < least) continue;
        }
        for (size_t i = 0; i < elements && !by_muon; ++i) {
          if (std::abs(gradients[i]) * std::sqrt(static_cast<double>(elements)) < least) sum[i] = expected[i];
        }
      }
      const double tolerance = prefix == "v." ? 3 * draw.tolerance : moved ? 1e2 * draw.tolerance : draw.tolerance;
      const double floor = prefix == "v." ? least * least : least;
      const double own_error = wide ? 4 * relative(expected, wide->whole(prefix, p.name), floor) : 0;
      // A kept moment may be the next number of its type, above or below.
      using passes::Moments;
      const bool narrow = !moved && !gradient && draw.plan.dtype != Dtype::f64;
      const Moments moments = narrow ? draw.plan.update.moments : Moments::fp32;
      const bool byte = moments == Moments::fp8 && prefix == "m.";
      const double grain = (byte ? 0x1p-3 : 0) + (moments == Moments::fp32 ? 0 : 0x1p-8);
      compare(prefix + p.name, sum, expected, tolerance + own_error + grain);
    }
  }
  // Norms are no further from each other than the gradients that they are of, each of which is held above; that is
  // a bound where bf16 rounds elsewhere, and a single number has no other.
  const double apart = wide ? kOnlySums + std::sqrt(difference_square / gradients_square) : draw.tolerance;
  if (world.rank() == 0) compare("grad_norm", run.read("grad_norm"), one->read(0, "grad_norm"), apart);
  return found;
}

}  // namespace

std::vector<std::string> differences(const Draw& draw, comm::World& world, const Fault& fault) {
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto all = world.communicator(everyone, fmt::format("parity.{}", draw.seed));
  const double least_share = draw.plan.dtype == Dtype::f64 ? kLeastShare : kLeastShareRounded;
  Compared found = compare_with_one_rank(draw, world, *all, least_share, fault);
  if (found.flipped) return {std::string(kFlipped)};
  const bool rounded = draw.plan.dtype == Dtype::f32 && found.failures.empty() && !found.beyond.empty();
  double room = 0;
  std::string in_fp64;
  if (told_by_first(*all, rounded)) {
    Draw exact = draw;
    exact.plan.dtype = Dtype::f64;
    const Compared wide = compare_with_one_rank(exact, world, *all, least_share, fault);
    for (const auto& [what, error] : wide.errors) {
      if (found.errors.contains(what)) room = std::max(room, error);
    }
    in_fp64 = fmt::format(", in fp64 nothing by more than {:.3g}", room);
    room = room <= kFp64Tolerance ? kFp32Grains * room : 0;
  }
  std::vector<std::string> lines;
  for (const std::string& failure : found.failures) lines.push_back(fmt::format("{}: {}", draw.text(), failure));
  for (const std::string& what : found.beyond) {
    const bool opens = draw.plan.dtype == Dtype::f32 && what.find(".indexer.") != what.npos;
    if (found.errors[what] <= draw.tolerance + (opens ? std::max(room, kOpenedScore) : room)) continue;
    lines.push_back(fmt::format("{}: {} differs by {:.3g}{}", draw.text(), what, found.errors[what], in_fp64));
  }
  return lines;
}

std::vector<std::string> differences_on_threads(const Draw& draw, const Fault& fault) {
  const int ranks = draw.plan.ranks();
  comm::ThreadWorlds thread_worlds(draw.node_of);
  std::vector<std::thread> threads;
  std::vector<std::string> found;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto world = thread_worlds.world(r);
      try {
        std::vector<std::string> own = differences(draw, *world, fault);
        if (r == 0) found = std::move(own);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(r)] = std::current_exception();
        thread_worlds.abort(fmt::format("rank {}: {}", r, error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (!failure) continue;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      found.push_back(fmt::format("{}: {}", draw.text(), error.what()));
    }
  }
  return found;
}

}  // namespace heddle::parity
