// heddle dump: loss, logits and gradients of a released model on given tokens, for other implementations to be held
// against.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/model/token_rows.h"
#include "heddle/config/run_config.h"
#include "heddle/train/adapters/peft_files.h"
#include "heddle/train/adapters/start_adapters.h"
#include "heddle/train/model_dump.h"
#include "heddle/train/run_config_plan.h"
#include "heddle/train/start_weights.h"

namespace heddle::cli {

namespace {

using PlainJson = nlohmann::json;

struct DumpOptions {
  std::string model, tokens, labels, out;
  std::vector<std::string> set;
  bool json = false;
};

// One step of all sequences on one rank, in f32 unless --set says otherwise.
config::RunConfig config_of(const DumpOptions& options, const TokenRows& sequences) {
  std::vector<std::string> set{"model.hf=" + options.model + "/config.json", "device.dtype=f32",
                               fmt::format("train.global_batch={}", sequences.size()),
                               fmt::format("train.microbatch={}", sequences.size()),
                               fmt::format("train.sequence_length={}", sequences[0].size())};
  set.insert(set.end(), options.set.begin(), options.set.end());
  std::vector<std::string> warnings;
  config::RunConfig config = config::parse_run_config("", "the model", set, &warnings);
  for (const std::string& warning : warnings) say(stderr, "heddle: warning: {}\n", warning);
  // Other implementations are compared as they predict.
  config.model.embedding_dropout = config.model.residual_dropout = config.model.attention_dropout = 0;
  if (config.ranks() != 1) config_error("dump: mesh asks for {} ranks, a dump is of one", config.ranks());
  if (config.train.sequence_length != std::ssize(sequences[0]) ||
      config.train.global_batch != std::ssize(sequences)) {
    config_error("dump: train.sequence_length and train.global_batch are those of --tokens: {} and {}",
                 sequences[0].size(), sequences.size());
  }
  if (!config.data.attend_across_documents && config.data.document_end < 0)
    config_error("dump: without data.attend_across_documents, data.document_end must say which id ends a document");
  return config;
}

int dump(const DumpOptions& options) {
  const TokenRows sequences = read_token_rows(options.tokens);
  std::vector<std::vector<uint8_t>> masked;
  if (!options.labels.empty()) masked = read_label_mask(options.labels, sequences);
  const config::RunConfig config = config_of(options, sequences);
  for (const std::vector<int32_t>& sequence : sequences) {
    for (const int32_t id : sequence) {
      if (id >= config.model.vocab_size) {
        config_error("--tokens {}: the id {} is outside of the model's {} (vocab_size)", options.tokens, id,
                     config.model.vocab_size);
      }
    }
  }
  train::Trainer trainer(train::trainer_options_of(config));
  trainer.initialise();
  train::start_from(options.model, config::StartMoments::fresh, trainer);
  if (!config.train.start_adapter.empty()) train::start_adapters_from(config.train.start_adapter, trainer);
  const train::StepResult step = train::dump_model(options.out, trainer, {sequences, masked});
  if (options.json) {
    say("{}\n", PlainJson{{"model", options.model},
                          {"out", options.out},
                          {"sequences", sequences.size()},
                          {"tokens", sequences[0].size()},
                          {"loss", step.next_token_loss()},
                          {"grad_norm", step.gradient_norm()}}
                    .dump(2));
  } else {
    say("{} sequences of {} tokens: loss {:.6f}, gradient norm {:.6f}; written: {}\n", sequences.size(),
        sequences[0].size(), step.next_token_loss(), step.gradient_norm(), options.out);
  }
  return kDone;
}

}  // namespace

void add_dump(Commands& all) {
  auto [command, options] =
      add_command(all, "dump", "Loss, logits and every gradient of a released model, to compare with", dump);
  command.option("MODEL_DIR", options.model, "A folder with config.json and safetensors").required();
  command.option("--tokens", options.tokens, "A JSON file of token ids, [[id, ...], ...]: sequences of one length")
      .called("FILE")
      .required();
  command
      .option("--labels", options.labels,
              "A file of the same form with each token's label: itself, or -100: not predicted")
      .called("FILE");
  command.option("--out", options.out, "The safetensors file to write").called("FILE").required();
  add_set(command, options.set);
  add_json(command, options.json);
}

}  // namespace heddle::cli
