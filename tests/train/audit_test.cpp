// Digests of weights and of what ops have made: the same on every layout and every time, other where a bit was
// flipped, and then the op, the rank and the tensor are named.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/train/audit/op_digests.h"
#include "heddle/train/audit/replica_check.h"
#include "heddle/train/audit/weight_digest.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_run.h"

namespace heddle::train {
namespace {

constexpr int kStepsAudit = 3;

config::RunConfig run_of(const std::vector<std::string>& set) {
  config::RunConfig c = small_config(8);
  c.model.topk_bias = true;
  c.model.bias_update_rate = 1e-3;
  return with_keys(c, set);
}

std::vector<std::string> digests_of(const std::vector<std::string>& set) {
  RankTrainers ranks(trainer_options_of(run_of(set)));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  std::vector<std::string> digests;
  ranks.each([&](Trainer& trainer) {
    WeightDigest digest(trainer);
    for (int step = 0; step < kStepsAudit; ++step) {
      trainer.step(random_sequences(trainer, trainer.sequences_per_step(), 11 + static_cast<uint64_t>(step)));
      const std::string taken = digest.take();
      if (trainer.ranks().leads()) digests.push_back(taken);
    }
  });
  return digests;
}

TEST(WeightDigest, IsTheSameOnEveryLayout) {
  for (const auto& [dtype, moments] :
       {std::pair{"f32", "fp32"}, {"bf16", "fp32"}, {"f32", "fp8"}, {"bf16", "fp8"}}) {
    const std::string word = fmt::format("device.dtype={}", dtype), kept = fmt::format("train.moments={}", moments);
    const std::vector<std::string> one = digests_of({word, kept, "train.exact_sums=true"});
    EXPECT_EQ(std::set<std::string>(one.begin(), one.end()).size(), one.size()) << "every step moves the weights";
    for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
             {"mesh.dp=2"}, {"mesh.dp=2", "mesh.ep=2"}, {"mesh.pp=2"}, {"mesh.dp=2", "mesh.pp=2", "mesh.ep=2"}}) {
      std::vector<std::string> set{word, kept, "train.exact_sums=true"};
      set.insert(set.end(), layout.begin(), layout.end());
      EXPECT_EQ(digests_of(set), one) << dtype << ' ' << fmt::format("{}", fmt::join(layout, " "));
    }
  }
}

TEST(WeightDigest, IsTheSameWhereverTheMasterLies) {
  for (const char* moments : {"train.moments=fp32", "train.moments=bf16", "train.moments=fp8"}) {
    std::vector<std::string> set{"device.dtype=bf16", "device.pack_weights=false", moments, "memory.master=full"};
    const std::vector<std::string> usual = digests_of(set);
    for (const char* other : {"memory.master=split", "memory.optimizer=swap"}) {
      set.back() = other;
      EXPECT_EQ(digests_of(set), usual) << moments << " " << other;
    }
  }
}

// One bit, in what one op of one rank makes in one microbatch of one step. The kernel that stands in for the op's
// own is a plain function: what it needs is here.
struct Flip {
  int microbatch = 0;
  std::atomic<int> times{0};
  device::Kernel kernel = nullptr;
} flip;

void flipped(const device::KernelCall& call) {
  flip.kernel(call);
  if (call.microbatch != flip.microbatch || flip.times.fetch_add(1) > 0) return;
  const device::TensorView& made = call.out.empty() ? call.updates[0] : call.out[0];
  auto* bytes = made.as<unsigned char>();
  bytes[made.elements() * size_of(made.dtype) / 2] ^= 0x20;
}

struct Drawn {
  int listing = 0;
  uint32_t op = 0;
};

// An op of the rank's training listing that makes something whose every bit counts.
Drawn drawn_op(Trainer& trainer, RandomKey key) {
  const int listing = trainer.lowered().program.listing_of(trainer.ranks().rank(), ir::Purpose::train);
  const std::vector<ir::Op>& ops = trainer.lowered().program.listings[static_cast<size_t>(listing)].ops;
  for (uint64_t i = 0;; ++i) {
    const auto op = static_cast<uint32_t>(key.bits(i) % ops.size());
    const std::string_view kind = ops[op].kind();
    if (kind == "linear" || kind == "linear_wgrad" || kind == "attention" || kind == "add_rms_norm")
      return {listing, op};
  }
}

TEST(OpDigests, NameTheOpWhoseBitWasFlipped) {
  const std::string folder = ::testing::TempDir() + "op_digests";
  for (uint64_t number = 0; number < 12; ++number) {
    std::filesystem::remove_all(folder);
    const RandomKey key = RandomKey(number).with("flip");
    std::vector<std::string> set{"device.dtype=bf16"};
    if (number % 3 > 0) set.emplace_back("mesh.dp=2");
    if (number % 3 > 1) set.emplace_back("mesh.pp=2");
    RankTrainers ranks(trainer_options_of(run_of(set)));
    const int hurt = static_cast<int>(key.bits(1000) % static_cast<uint64_t>(ranks.size()));
    const int64_t hurt_step = 1 + static_cast<int64_t>(key.bits(1001) % kStepsAudit);
    const Drawn op = drawn_op(ranks[hurt], key);
    const ir::Op& text = ranks[hurt].lowered().program.listings[static_cast<size_t>(op.listing)].ops[op.op];
    flip.microbatch = ir::once_a_step(text.phase) ? -1 : static_cast<int>(key.bits(1002) % 2);
    for (const bool recording : {true, false}) {
      ranks.each([](Trainer& trainer) { trainer.initialise(); });
      flip.times = 1;  // not before its step
      if (recording) flip.kernel = ranks[hurt].executor().replace(op.listing, op.op, flipped);
      std::string found;
      ranks.each([&](Trainer& trainer) {
        OpRecorder recorder(trainer);
        const OpDigestFiles files(folder, trainer);
        for (int64_t step = 1; step <= hurt_step; ++step) {
          const Sequences sequences =
              random_sequences(trainer, trainer.sequences_per_step(), 11 + static_cast<uint64_t>(step));
          trainer.ranks().any(false);
          if (trainer.ranks().rank() == hurt && step == hurt_step) flip.times = 0;
          recorder.take();
          trainer.step(sequences);
          const OpDigests made = recorder.take();
          if (recording) {
            files.write(step, made, kStepsAudit);
            continue;
          }
          const std::string first = first_difference(trainer, *files.read(step), made);
          if (trainer.ranks().leads()) found = first;
          EXPECT_EQ(first.empty(), step != hurt_step) << number << ", step " << step << ": " << first;
        }
      });
      if (recording) ranks[hurt].executor().replace(op.listing, op.op, flip.kernel);
      if (recording) continue;
      const std::string place =
          fmt::format("of {}{} (phase {}, microbatch {}{})", text.kind(),
                      text.layer >= 0 ? fmt::format(" in layer {}", text.layer) : "", ir::name_of(text.phase),
                      flip.microbatch, ranks.size() > 1 ? fmt::format(", rank {}", hurt) : "");
      EXPECT_TRUE(found.ends_with(place)) << number << ": " << found << ", not " << place;
    }
  }
}

TEST(CopyCheck, NamesTheCopyThatDiffers) {
  const std::string kCut = "model.layers.0.self_attn.o_proj.weight", kNorm = "model.norm.weight";
  for (const std::vector<std::string>& set :
       std::vector<std::vector<std::string>>{{"mesh.dp=4"},
                                             {"mesh.dp=4", "mesh.ep=2", "device.dtype=bf16"},
                                             {"mesh.dp=2", "mesh.tp=2", "device.dtype=bf16"},
                                             {"mesh.dp=2", "mesh.cp=2", "device.dtype=f32"},
                                             {"mesh.dp=2", "mesh.pp=2", "memory.optimizer=swap"},
                                             {"mesh.dp=4", "parallel.shard=weights", "parallel.shard_ranks=2"}}) {
    const std::string layout = fmt::format("{}", fmt::join(set, " "));
    RankTrainers ranks(trainer_options_of(run_of(set)));
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    for (int step = 0; step < kStepsAudit; ++step)
      ranks.step(random_sequences(ranks[0], ranks[0].sequences_per_step(), static_cast<uint64_t>(step)));
    ranks.each([&](Trainer& trainer) { EXPECT_EQ(differing_replica(trainer), "") << layout; });
    ranks.each([&](Trainer& trainer) {
      const int rank = trainer.ranks().rank();
      if (rank == 1) {
        const int stage = trainer.mesh().at(rank).at(ir::Axis::pp);
        const ir::Listing& listing = trainer.lowered().program.listings[static_cast<size_t>(stage)];
        const ir::ValueId run = listing.find("shard." + kCut);
        const ir::ValueId hurt =
            run != ir::none ? run : listing.find(stage == 0 ? "model.layers.0.input_layernorm.weight" : kNorm);
        trainer.executor().view(stage, hurt).as<unsigned char>()[5] ^= 0x40;
      }
      const std::string found = differing_replica(trainer);
      const bool is_cut = layout.find("shard_ranks") != layout.npos;
      EXPECT_TRUE(found.find((is_cut ? kCut : "norm.weight") + "' on rank") != found.npos)
          << layout << ": " << found;
      EXPECT_TRUE(found.find('1') != found.npos) << layout << ": " << found;
    });
  }
}

TEST(OpDigests, RefuseBrokenFiles) {
  const std::string folder = ::testing::TempDir() + "broken_digests";
  std::filesystem::remove_all(folder);
  RankTrainers ranks(trainer_options_of(run_of({})));
  Trainer& trainer = ranks[0];
  const OpDigestFiles files(folder, trainer);
  const OpDigests some{{{0, 1, 2}, 3}, {{0, 4, 5}, 6}};
  files.write(7, some, 1);
  EXPECT_EQ(*files.read(7), some);
  const std::string path = folder + "/step-000007/rank-0000.ops";
  std::string whole = read_file(path, 1 << 20);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string bad = whole;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    write_file(path, bad);
    EXPECT_THROW(files.read(7), ConfigError) << "byte " << i;
    write_file(path, whole.substr(0, i));
    EXPECT_THROW(files.read(7), ConfigError) << "cut at " << i;
  }
  write_file(path, whole);
  files.write(8, some, 1);
  EXPECT_FALSE(std::filesystem::exists(folder + "/step-000007"));
  EXPECT_FALSE(files.read(7));
}

}  // namespace
}  // namespace heddle::train
