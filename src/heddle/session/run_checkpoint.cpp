#include "heddle/session/run_checkpoint.h"

#include <limits>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/hash.h"
#include "heddle/base/random.h"
#include "heddle/data/content_hash.h"
#include "heddle/session/agent/lend.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/train/audit/weight_digest.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

namespace {

constexpr const char *kSource = "source", *kTokenizer = "hash of tokenizer.json";

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace

std::map<std::string, std::string> identity_of(const RunData& data, const config::RunConfig& config) {
  const auto& files = data.dataset->files();
  uint64_t hash = data::content_hash(*files.front());
  for (size_t i = 1; i < files.size(); ++i) hash = mix_bits(hash ^ data::content_hash(*files[i]));
  std::map<std::string, std::string> identity{{kSource, config.data.source},
                                              {"tokens", fmt::format("{}", data.dataset->tokens())},
                                              {"documents", fmt::format("{}", data.dataset->documents())},
                                              {"hash of the token ids", hex(hash)},
                                              {"heldout_fraction", fmt::format("{}", config.data.heldout_fraction)},
                                              {"sequence_length", fmt::format("{}", config.train.sequence_length)}};
  if (config.plan.objective.of_pairs()) identity["pairs"] = "yes";
  if (files.size() > 1) {
    std::string weights;
    for (const data::BlendPart& part : data::parse_blend(config.data.source))
      weights += fmt::format("{}{}", weights.empty() ? "" : " : ", part.weight);
    identity["weights of the blend"] = weights;
  }
  if (const data::TokenFile* validation = data.dataset->validation()) {
    identity["hash of the validation set"] = hex(data::content_hash(*validation));
  }
  if (!data.tokenizer.empty()) {
    identity[kTokenizer] = hex(data.tokenizer_files.hash());
  }
  return identity;
}

train::CheckpointState state_of_run(const config::RunConfig& config, const std::map<std::string, std::string>& data,
                                    const train::Trainer& trainer, const std::string& digest) {
  train::CheckpointState state;
  state.weights_digest = digest;
  state.consumed_sequences = config.data_after(trainer.steps_done()).consumed;
  state.seed = static_cast<uint64_t>(config.seed);
  state.data = data;
  state.layout = {{"ranks", plan::text_of(trainer.options().plan.mesh)},
                  {"backend", config.device.backend},
                  {"dtype", std::string(name_of(trainer.options().plan.dtype))},
                  {"global_batch", fmt::format("{}", config.train.global_batch)},
                  {"microbatch", fmt::format("{}", config.train.microbatch)},
                  {"sequence_length", fmt::format("{}", config.train.sequence_length)}};
  state.config_hash = hex(hash_bytes(config::toml_of(config)));
  state.generation = trainer.options().snapshots.generation;
  return state;
}

std::string save_run(const RunFolder& folder, const config::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer,
                     const std::string& digest) {
  return train::save_trainer(folder.checkpoints(), state_of_run(config, data, trainer, digest), trainer,
                             static_cast<int>(config.train.keep_checkpoints));
}

std::string digest_mismatch(const train::Checkpoint& checkpoint, train::Trainer& trainer) {
  const std::string& said = checkpoint.state().weights_digest;
  if (said.empty()) return "";
  const std::string found = train::WeightDigest(trainer).take();
  if (found == said) return "";
  return fmt::format("{}: its weights, loaded, have the digest {}, and it says {}", checkpoint.path(), found, said);
}

void check_digest(const train::Checkpoint& checkpoint, train::Trainer& trainer) {
  if (const std::string mismatch = digest_mismatch(checkpoint, trainer); !mismatch.empty())
    config_error("{}", mismatch);
}

std::optional<int64_t> go_back(const RunFolder& folder, train::Trainer& trainer) {
  const train::OutlierHistory now = trainer.outliers();
  const config::RunProgress done = trainer.done();
  std::optional<train::Checkpoint> checkpoint =
      trainer.ranks().leads() ? train::latest_checkpoint(folder.checkpoints(), nullptr, done.steps - now.in_a_row)
                              : std::nullopt;
  const std::string path = trainer.ranks().told_by_first(checkpoint ? checkpoint->path() : "");
  if (path.empty()) return std::nullopt;
  if (!checkpoint) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
  const train::CheckpointState& then = checkpoint->state();
  train::load_trainer(*checkpoint, trainer);
  check_digest(*checkpoint, trainer);
  trainer.set_outliers(train::gone_back(then.outliers, now, done.steps - then.step));
  trainer.set_done(done);
  return then.step;
}

void check_goes_on(const train::Checkpoint& checkpoint, const RunFolder& folder, const config::RunConfig& config,
                   const std::map<std::string, std::string>& data, std::vector<std::string>& warnings) {
  const train::CheckpointState& state = checkpoint.state();
  for (const auto& [key, value] : data) {
    if (key == kSource) continue;
    const auto at = state.data.find(key);
    if (at == state.data.end()) {
      // A run whose tokens came without a tokenizer trains on the same with one; else it is of an older version.
      if (key != kTokenizer) warnings.push_back(fmt::format("{} does not say the {}", checkpoint.path(), key));
    } else if (at->second != value) {
      config_error("--resume: {} was trained {}: {} is {}, was {}", checkpoint.path(),
                   key == kTokenizer ? "with another tokenizer" : "on other data", key, value, at->second);
    }
  }
  if (const auto seed = static_cast<uint64_t>(config.seed); state.seed != seed) {
    config_error("--resume: {} was trained with another seed: seed is {}, was {}", checkpoint.path(), seed,
                 state.seed);
  }
  if (state.consumed_sequences != config.data_after(state.step).consumed) {
    const std::string ramp = config::text_of(config.train.batch_ramp);
    config_error("--resume: {} consumed {} sequences in {} steps, train.global_batch is {}{}", checkpoint.path(),
                 state.consumed_sequences, state.step, config.train.global_batch,
                 ramp.empty() ? "" : fmt::format(" and train.batch_ramp \"{}\"", ramp));
  }
  const config::RunLength length = config.length();
  if (length.by_clock() && state.step > 0 && state.trained_s == 0) {
    config_error("--resume: {} doesn't say how long it was trained; go on with --steps N", checkpoint.path());
  }
  if (length.reached({state.step, state.trained_s})) {
    config_error("--resume: {} has done {}: nothing is left to do", folder.path,
                 length.by_clock() ? fmt::format("{:.3g} minutes, train.minutes is {}", state.trained_s / 60,
                                                 config.train.minutes)
                                   : fmt::format("{} steps, train.steps is {}", state.step, length.steps));
  }
}

std::optional<train::Checkpoint> newest_of_memory(const RunFolder& folder, const config::RunConfig& config,
                                                  const std::map<std::string, std::string>& data,
                                                  std::vector<std::string>& warnings) {
  std::vector<std::string> refused;
  std::optional<train::Checkpoint> found =
      train::newest_in_memory(memory_folders(folder), true, &refused, 0, 0, lent_segments(folder, &refused));
  if (!found) {
    for (const std::string& reason : refused) warnings.push_back("passed over: " + reason);
    return found;
  }
  if (found->state().step < train::newest_step(folder.checkpoints())) return std::nullopt;
  check_goes_on(*found, folder, config, data, warnings);
  return found;
}

std::optional<train::Checkpoint> checkpoint_to_go_on_from(const RunFolder& folder, const config::RunConfig& config,
                                                          const std::map<std::string, std::string>& data,
                                                          std::vector<std::string>& warnings, int64_t last_step) {
  std::vector<std::string> refused;
  std::optional<train::Checkpoint> checkpoint = train::latest_checkpoint(folder.checkpoints(), &refused, last_step);
  for (const std::string& reason : refused) warnings.push_back("passed over: " + reason);
  if (!checkpoint) {
    warnings.push_back(fmt::format("{}: the run {}; it begins anew", folder.path,
                                   last_step == std::numeric_limits<int64_t>::max()
                                       ? "ended before its first checkpoint"
                                       : "has no other checkpoint"));
    return checkpoint;
  }
  check_goes_on(*checkpoint, folder, config, data, warnings);
  return checkpoint;
}

}  // namespace heddle::session
