// An op of one rank throws: every rank ends, nobody reads what was never written, and all name the one cause.
#include "heddle/base/failure.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "heddle/passes/host/offload.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

constexpr int kRanks = 4, kFailing = 1;

// Ops of the step's beginning and end have microbatch -1, and throw; those of others do in their second.
std::map<const ir::Op*, device::Kernel> kernels_of_broken;

void fail(const device::KernelCall& call) {
  if (call.microbatch != 0) throw SystemError(0, "the kernel fails");
  kernels_of_broken.at(call.op)(call);
}

// What communicates while it computes fails in the middle: at its second piece, with others on their way.
std::map<const ir::Op*, device::Kernel> products_of_broken;
int pieces_run = 0;

void fail_at_a_piece(const device::KernelCall& call) {
  device::KernelCall broken = call;
  products_of_broken[call.product.op] = call.product.run;
  broken.product.run = [](const device::KernelCall& piece) {
    if (++pieces_run == 2) throw SystemError(0, "the kernel fails");
    products_of_broken.at(piece.op)(piece);
  };
  kernels_of_broken.at(call.op)(broken);
}

std::set<std::string> kinds_of(const ir::StepProgram& program) {
  std::set<std::string> kinds;
  for (const ir::Action& action : program.actions_of(kFailing)) {
    const ir::Block& block = program.blocks[static_cast<size_t>(action.block)];
    for (const ir::Step& step : block.steps) {
      kinds.insert(
          std::string(program.listings[static_cast<size_t>(block.listings[step.slot])].ops[step.op].kind()));
    }
  }
  return kinds;
}

// Kinds that were seen are passed over.
void fail_in_every_kind(const plan::Plan& plan, const model::ModelConfig& config = tiny_model()) {
  static std::set<std::string> seen;
  const plan::Mesh mesh(plan.mesh);
  const plan::Lowered lowered = plan::lower(config, plan);
  const std::vector<Batch> batches = tiny_batches(config, plan, 5);
  for (const std::string& kind : kinds_of(lowered.program)) {
    if (!seen.insert(kind).second) continue;
    comm::ThreadWorlds thread_worlds(kRanks);
    std::vector<std::string> said(kRanks);
    std::vector<bool> is_effect(kRanks, false);
    kernels_of_broken.clear();
    products_of_broken.clear();
    pieces_run = 0;
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        const auto world = thread_worlds.world(r);
        const runtime::MeshCommunicators communicators(*world, lowered.program, mesh);
        runtime::ExecutorOptions options;
        options.rank = r;
        options.place = mesh.at(r);
        options.backend = "reference";
        options.capacity_bytes = 1 << 22;
        options.communicators = communicators.by_channel();
        options.poison = true;
        try {
          runtime::Executor executor(lowered.program, options);
          for (const int s : lowered.program.listings_of(r)) {
            const ir::Listing& listing = lowered.program.listings[static_cast<size_t>(s)];
            for (uint32_t i = 0; r == kFailing && i < listing.ops.size(); ++i) {
              if (listing.ops[i].kind() == kind) {
                const device::Kernel how = listing.ops[i].def->by_pieces ? fail_at_a_piece : fail;
                kernels_of_broken[&listing.ops[i]] = executor.replace(s, i, how);
              }
            }
          }
          executor.run_step(inputs_of(batches[static_cast<size_t>(r)], executor));
        } catch (const PeerError& error) {
          is_effect[static_cast<size_t>(r)] = true;
          said[static_cast<size_t>(r)] = error.reason;
        } catch (const std::exception& error) {
          said[static_cast<size_t>(r)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string cause = fmt::format("the kernel fails (rank {}, {}", kFailing, kind);
    EXPECT_TRUE(said[kFailing].starts_with(cause)) << kind << ": " << said[kFailing];
    const bool at_the_end = said[kFailing].find("phase end") != std::string::npos;
    for (size_t r = 0; r < said.size(); ++r) {
      if (said[r].empty() && at_the_end) continue;  // nothing of its step was left that the other could miss
      EXPECT_EQ(said[r], said[kFailing]) << kind << ", rank " << r;
      EXPECT_EQ(is_effect[r], r != kFailing) << kind << ", rank " << r;
    }
  }
}

TEST(Failure, OfAnyOpOfADataRankIsToldOnce) {
  plan::Plan plan = tiny_plan(1, kRanks, true);
  plan.parallel.exchange.topology = ir::Topology::rank;
  plan.memory.offload = passes::offload_groups("input");
  fail_in_every_kind(plan);
}

TEST(Failure, OfAnyOpOfAPipelineRankIsToldOnce) { fail_in_every_kind(tiny_plan(2, 2, true)); }

TEST(Failure, OfAnyOpOfATensorRankIsToldOnce) {
  plan::Plan plan = tiny_plan(1, 2, true);
  plan.mesh.tp = 2;
  plan.parallel.tp_overlap = plan::TpOverlap::fused;
  plan.parallel.tp_panels = 2;
  const model::ModelConfig config = divisible_model();
  EXPECT_EQ(kinds_of(plan::lower(config, plan).program).count("gather_product"), 1u);
  fail_in_every_kind(plan, config);
}

// Counts of rows that nobody has counted are not taken for numbers of rows.
TEST(Failure, ImpossibleCountsAreRefused) {
  const plan::Plan plan = tiny_plan(1, 2, true);
  TinyRun run(tiny_model(), plan, "reference", 1 << 22);
  EXPECT_GT(kinds_of(run.lowered().program).count("counts_to_host"), 0u);
  const model::ModelConfig config = tiny_model();
  const plan::Mesh mesh(plan.mesh);
  comm::ThreadWorlds thread_worlds(2);
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const auto world = thread_worlds.world(r);
      const runtime::MeshCommunicators communicators(*world, run.lowered().program, mesh);
      runtime::ExecutorOptions options;
      options.rank = r;
      options.place = mesh.at(r);
      options.backend = "reference";
      options.capacity_bytes = 1 << 22;
      options.communicators = communicators.by_channel();
      const device::Kernel too_many = [](const device::KernelCall& call) {
        for (const device::TensorView& out : call.out) {
          for (int64_t j = 0; j < out.elements(); ++j) out.as<int32_t>()[j] = 1 << 20;
        }
      };
      try {
        const ir::StepProgram& program = run.lowered().program;
        runtime::Executor executor(program, options);
        for (const int s : program.listings_of(r)) {
          const ir::Listing& listing = program.listings[static_cast<size_t>(s)];
          for (uint32_t i = 0; r == 0 && i < listing.ops.size(); ++i) {
            if (listing.ops[i].kind() == "counts_to_host") executor.replace(s, i, too_many);
          }
        }
        executor.run_step(inputs_of(tiny_batches(config, plan, 5)[static_cast<size_t>(r)], executor));
      } catch (const std::exception& error) {
        said[static_cast<size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(said[0].find(" rows, of at most "), std::string::npos) << said[0];
  EXPECT_TRUE(said[1].starts_with("communication stopped: ")) << said[1];
}

}  // namespace
}  // namespace heddle::test
