#include "heddle/session/run_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"
#include "heddle/base/random.h"
#include "heddle/data/content_hash.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/session/agent/run_memory.h"
#include "heddle/session/agent/shared_segments.h"
#include "heddle/session/run_data.h"
#include "heddle/train/audit/weight_digest.h"
#include "heddle/train/controllers/outliers.h"
#include "heddle/train/saved/segment.h"

namespace heddle::session {

namespace {

constexpr const char *kSource = "source", *kTokenizer = "hash of tokenizer.json";

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

// False where train.moments has changed: what is loaded was converted.
bool moments_as_saved(const train::Checkpoint& checkpoint, train::Trainer& trainer) {
  const std::vector<train::StateTensor> state = trainer.state();
  return std::all_of(state.begin(), state.end(), [&](const train::StateTensor& tensor) {
    return tensor.is_master || tensor.is_frozen() ||
           checkpoint.at(tensor.name).type == formats::stored_type(tensor.dtype);
  });
}

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

std::string logged_digest(const RunFolder& folder, int64_t step, std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder.metrics(), ignored)) return "";
  observe::MetricsHistory log;
  try {
    log = observe::read_metrics(folder.metrics(), observe::BrokenLines::skip);
  } catch (const SystemError& error) {  // the log is only looked at
    warnings.push_back(fmt::format("{}: the weights are not compared with it; training goes on", error.what()));
    return "";
  }
  const auto at = std::find_if(log.steps.begin(), log.steps.end(),
                               [&](const observe::StepMetrics& each) { return each.step == step; });
  return at == log.steps.end() ? "" : at->weights_digest;
}

std::string digest_mismatch(const train::Checkpoint& checkpoint, const std::string& logged,
                            train::Trainer& trainer) {
  using train::WeightDigest;
  const auto mismatch = [&](const std::string& said, WeightDigest::Of of, const char* what, const char* by) {
    const std::string found = said.empty() ? "" : WeightDigest(trainer, of).take();
    if (found == said) return std::string();
    return fmt::format("{}: its {}, loaded, have the digest {}, and {} says {}", checkpoint.path(), what, found, by,
                       said);
  };
  const train::CheckpointState& state = checkpoint.state();
  const bool by_log = state.weights_digest.empty();
  std::string wrong = mismatch(by_log ? logged : state.weights_digest, WeightDigest::Of::weights, "weights",
                               by_log ? "the run's log" : "it");
  if (!wrong.empty() || !moments_as_saved(checkpoint, trainer)) return wrong;
  return mismatch(state.moments_digest, WeightDigest::Of::beside, "moments", "it");
}

std::string other_log_note(const train::Checkpoint& checkpoint, const std::string& logged) {
  const std::string& said = checkpoint.state().weights_digest;
  if (said.empty() || logged.empty() || said == logged) return "";
  return fmt::format(
      "{}: its weights have the digest {}, the run's log has {} of step {}: it is of another training than the log",
      checkpoint.path(), said, logged, checkpoint.state().step);
}

std::optional<int64_t> return_to_checkpoint(const RunFolder& folder, train::Trainer& trainer) {
  auto& outliers = trainer.controllers().get<train::Outliers>();
  const train::OutlierHistory now = outliers.history();
  const config::RunProgress done = trainer.done();
  std::optional<train::Checkpoint> checkpoint =
      trainer.ranks().leads() ? train::latest_checkpoint(folder.checkpoints(), nullptr, done.steps - now.in_a_row)
                              : std::nullopt;
  const std::string path = trainer.ranks().from_first_rank(checkpoint ? checkpoint->path() : "");
  if (path.empty()) return std::nullopt;
  if (!checkpoint) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
  const train::CheckpointState& then = checkpoint->state();
  train::load_trainer(*checkpoint, trainer);
  if (const std::string wrong = digest_mismatch(*checkpoint, "", trainer); !wrong.empty())
    config_error("{}", wrong);
  outliers.set_history(train::rolled_back_to(outliers.history(), now, done.steps - then.step));
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
    config_error("--resume: {} does not say how long it was trained; go on with --steps N", checkpoint.path());
  }
  if (length.reached({state.step, state.trained_s})) {
    config_error("--resume: {} has done {}: nothing is left to do", folder.path,
                 length.by_clock() ? fmt::format("{:.3g} minutes, train.minutes is {}", state.trained_s / 60,
                                                 config.train.minutes)
                 : config.train.epochs > 0 ? fmt::format("{} steps, and train.epochs ({:g}) comes to {}",
                                                         state.step, config.train.epochs, length.steps)
                                           : fmt::format("{} steps, train.steps is {}", state.step, length.steps));
  }
}

std::optional<SavedState> newest_state(const RunFolder& folder, const config::RunConfig& config,
                                       const std::map<std::string, std::string>& data,
                                       std::vector<std::string>& warnings, const LastSteps& last) {
  const auto passed_over = [&](const std::vector<std::string>& reasons) {
    for (const std::string& reason : reasons) warnings.push_back("passed over: " + reason);
  };
  std::vector<std::string> refused;
  std::optional<train::Checkpoint> memory = train::newest_in_memory(
      memory_folders(folder), true, &refused, 0, 0, shared_segments(folder, &refused), last.in_memory);
  if (!memory) passed_over(refused);
  // A newer checkpoint on disk that opens counts, whatever is named there.
  std::optional<train::Checkpoint> disk;
  if (!memory || train::newest_step(folder.checkpoints()) > memory->state().step) {
    refused.clear();
    try {
      disk = train::latest_checkpoint(folder.checkpoints(), &refused, last.on_disk);
    } catch (const ConfigError& error) {
      if (!memory) throw;
      refused.emplace_back(error.what());
    }
    passed_over(refused);
  }
  if (disk && memory && disk->state().step <= memory->state().step) disk.reset();
  if (!disk && !memory) return std::nullopt;
  SavedState newest{disk ? std::move(*disk) : std::move(*memory), !disk};
  check_goes_on(newest.checkpoint, folder, config, data, warnings);
  return newest;
}

}  // namespace heddle::session
