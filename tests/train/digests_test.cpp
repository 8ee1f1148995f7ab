// What is known of a state by its digests is compared wherever it is read: a tensor that was changed together with
// its checksums is no longer what was saved.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/files/output_file.h"
#include "heddle/train/audit/weight_digest.h"
#include "heddle/train/average.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/saved/checked_json.h"
#include "heddle/train/trainer_checkpoint.h"
#include "tests/support/scratch_folder.h"
#include "tests/train/rank_trainers.h"
#include "tests/train/small_options.h"

namespace heddle::train {
namespace {

using nlohmann::json;
constexpr int64_t kSequencesAtOnce = 1;
const plan::Degrees kWhole{}, kSharded{.tp = 2, .dp = 2};

// A checkpoint of step 2, and the digests of the trainer that saved it.
struct Saved {
  ScratchFolder folder;
  std::string path, weights, moments;

  explicit Saved(const plan::Degrees& mesh) {
    RankTrainers ranks(small_options(mesh, kSequencesAtOnce));
    ranks.each([](Trainer& trainer) { trainer.initialise(); });
    for (uint64_t step = 0; step < 2; ++step) ranks.step(random_sequences(ranks[0], kSequences, step));
    ranks.each([&](Trainer& trainer) {
      const std::string of_weights = WeightDigest(trainer).take(),
                        of_moments = WeightDigest(trainer, WeightDigest::Of::beside).take(),
                        saved = save_trainer(folder / "all", {}, trainer);
      if (trainer.ranks().leads()) weights = of_weights, moments = of_moments, path = saved;
    });
  }
  std::string manifest() const { return path + "/state.json"; }
  json state() const { return checked_json(read_file(manifest(), 1 << 26), manifest()); }
  void write(json state) const {
    state.erase("checksum");
    write_file(manifest(), checked_text(state));
  }
};

std::string refusal_digests(const std::function<void()>& act) {
  try {
    act();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Turns a high bit of the first element of a tensor, in the file that holds it, and makes its checksums right.
void damage(const Saved& saved, const std::string& name) {
  json state = saved.state();
  const bool sharded = state.contains("shards");
  json* shard = nullptr;
  for (json& each : sharded ? state["shards"] : state) {
    if (sharded && shard == nullptr && each["tensors"].contains(name)) shard = &each;
  }
  const std::string path =
      saved.path + "/" + (sharded ? (*shard)["file"].get<std::string>() : std::string("model.safetensors"));
  std::string bytes = read_file(path, 1 << 26);
  const auto header = *reinterpret_cast<const uint64_t*>(bytes.data());
  const auto offsets = json::parse(bytes.substr(8, header)).at(name).at("data_offsets").get<std::vector<size_t>>();
  char* const first = bytes.data() + 8 + header + offsets[0];
  first[6] = static_cast<char>(first[6] ^ 0x08);  // of an exponent, in f64
  write_file(path, bytes);
  const size_t size = offsets[1] - offsets[0];
  if (sharded) {
    std::string sums;
    for (const uint32_t sum : chunk_sums(first, size)) sums += checksum_text(sum);
    (*shard)["tensors"][name]["sums"] = sums;
  } else {
    state["tensors"][name] = checksum_text(crc32c(first, size));
  }
  saved.write(state);
}

const std::string kName = "model.layers.1.self_attn.o_proj.weight";

class Digests : public testing::TestWithParam<plan::Degrees> {};

TEST_P(Digests, OfACheckpointAreThoseOfTheTrainer) {
  const Saved saved(GetParam());
  const CheckpointState state = Checkpoint(saved.path).state();
  EXPECT_EQ(state.weights_digest, saved.weights);
  EXPECT_EQ(state.moments_digest, saved.moments);
  EXPECT_NE(saved.weights, saved.moments);
}

TEST_P(Digests, FindWhatWasChangedWithItsChecksums) {
  for (const auto& [name, what] : {std::pair{kName, "its weights have"},
                                   {"m." + kName, "its moments have"},
                                   {"v." + kName, "its moments have"}}) {
    const Saved saved(GetParam());
    damage(saved, name);
    EXPECT_NE(refusal_digests([&] { Checkpoint{saved.path}; }).find(what), std::string::npos) << name;
    // Every reader opens by one of these.
    EXPECT_NE(refusal_digests([&] { open_checkpoint(saved.path); }).find(what), std::string::npos);
    EXPECT_NE(refusal_digests([&] { latest_checkpoint(saved.folder / "all"); }).find(what), std::string::npos);
  }
}

TEST_P(Digests, MayBeMissingFromOlderCheckpoints) {
  const Saved saved(GetParam());
  json state = saved.state();
  state.erase("weights_digest");
  state.erase("moments_digest");
  if (state.contains("shards"))
    for (json& shard : state["shards"]) shard.erase("digest");
  saved.write(state);
  const Checkpoint old(saved.path);
  EXPECT_EQ(old.state().weights_digest, "");
  RankTrainers ranks(small_options({}, kSequencesAtOnce));
  ranks.each([&](Trainer& trainer) { load_trainer(old, trainer); });
  EXPECT_EQ(WeightDigest(ranks[0]).take(), saved.weights);
}

TEST(Digests, ThatAStateSaysMustBeThoseOfItsTensors) {
  const ScratchFolder folder;
  RankTrainers ranks(small_options({}, kSequencesAtOnce));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  EXPECT_THROW(save_trainer(folder / "a", {.weights_digest = "0123456789abcdef"}, ranks[0]), Error);
  EXPECT_FALSE(latest_checkpoint(folder / "a"));
}

TEST(Digests, OfAMeanAreItsOwn) {
  const ScratchFolder folder;
  RankTrainers ranks(small_options({}, kSequencesAtOnce));
  ranks.each([](Trainer& trainer) { trainer.initialise(); });
  std::string last;
  for (uint64_t step = 0; step < 2; ++step) {
    ranks.step(random_sequences(ranks[0], kSequences, step));
    save_trainer(folder / "all", {}, ranks[0]);
    last = WeightDigest(ranks[0]).take();
  }
  save_average(folder / "all", 2, folder / "mean");
  EXPECT_NE(open_checkpoint(folder / "mean").state().weights_digest, last);
}

INSTANTIATE_TEST_SUITE_P(Forms, Digests, testing::Values(kWhole, kSharded),
                         [](const auto& of) { return of.param.tp == 1 ? "Whole" : "Sharded"; });

// A manifest is as long as it says many runs; what these say must not cost more than the shard's bytes.
TEST(Shards, RefuseRunsOfMoreThanTheyHoldBeforeTheyAreFollowed) {
  const Saved saved(kSharded);
  json state = saved.state();
  constexpr int64_t kMany = int64_t{1} << 32;
  state["tensors"][kName]["shape"] = {kMany};
  for (json& shard : state["shards"]) {
    if (shard["tensors"].contains(kName)) shard["tensors"][kName]["runs"] = {{0, 1, 1, kMany}};
  }
  saved.write(state);
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const std::string why = refusal_digests([&] { Checkpoint{saved.path}; });
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_NE(why.find("its runs others"), std::string::npos) << why;
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 << 10) << "KiB";
}

TEST(Runs, AreCoveredInMemoryOfTheirNumber) {
  constexpr int64_t kMany = int64_t{1} << 26;
  const std::vector<Runs> even{{0, 1, 2, kMany / 2, 0}}, odd{{1, 1, 2, kMany / 2, 0}};
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  EXPECT_TRUE(cover({&even, &odd}, kMany));
  EXPECT_FALSE(cover({&even, &even}, kMany));
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 << 10) << "KiB";
}

}  // namespace
}  // namespace heddle::train
