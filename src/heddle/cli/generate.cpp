// heddle generate: a text continued by a trained run.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/data/tokenizer/tokenizer_json.h"
#include "heddle/session/continue_text.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/run_data.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

namespace {

struct GenerateOptions {
  std::string run;  // folder
  std::vector<std::string> set;
  std::string prompt = "The ";
  int64_t tokens = 128;
  double temperature = 0.8;
  int64_t seed = 1;
  bool json = false;
};

int generate(const GenerateOptions& options) {
  const session::RunFolder folder{options.run};
  if (!std::filesystem::exists(folder.config()))
    config_error("{}: no run folder (it has no config.toml)", options.run);
  config::RunConfig config = config::read_run_config(folder.config(), options.set);
  if (!std::filesystem::exists(folder.tokenizer())) {
    config_error("{}: the run has no tokenizer.json; its data came as tokens", options.run);
  }
  const data::Tokenizer tokenizer(data::read_tokenizer(folder.tokenizer()), folder.tokenizer());
  session::check_vocabulary(folder.tokenizer(), tokenizer.vocabulary(), config.model.vocab_size);
  std::vector<std::string> refused;
  const std::optional<train::Checkpoint> checkpoint = train::latest_checkpoint(folder.checkpoints(), &refused);
  for (const std::string& reason : refused)
    fmt::print(stderr, "heddle: passed over: {}\n", session::terminal_text(reason));
  if (!checkpoint) config_error("{}: no checkpoint in {}", options.run, folder.checkpoints());
  const config::RunConfig usual;  // one rank, whatever the run had
  config.mesh_ranks = usual.mesh_ranks;
  config.plan.mesh = usual.plan.mesh;
  config.plan.parallel = usual.plan.parallel;
  train::Trainer trainer(train::trainer_options_of(config));
  train::load_trainer(*checkpoint, trainer);

  const session::Continuation how{options.tokens, options.temperature, static_cast<uint64_t>(options.seed)};
  if (options.json) {
    const std::string text = session::continue_text(trainer, tokenizer, options.prompt, how);
    const nlohmann::ordered_json json{
        {"run", options.run},   {"step", trainer.steps_done()},       {"prompt", options.prompt},
        {"continuation", text}, {"temperature", options.temperature}, {"seed", options.seed}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return kDone;
  }
  fmt::print("{}", session::terminal_text(options.prompt));
  session::continue_text(trainer, tokenizer, options.prompt, how, [](std::string_view piece) {
    fmt::print("{}", session::terminal_text(piece));
    std::fflush(stdout);
  });
  fmt::print("\n");
  return kDone;
}

}  // namespace

void add_generate(CLI::App& app) {
  auto [command, options] = add_command(app, "generate", "Continue a text with a trained run", generate);
  command.add_option("RUN", options.run, "The run's folder, such as runs/demo")->required();
  add_set(command, options.set);
  command.add_option("--prompt", options.prompt, "The text to continue");
  command.add_option("--tokens", options.tokens, "At most so many tokens")->check(CLI::Range(1, 1 << 20));
  command.add_option("--temperature", options.temperature, "0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  command.add_option("--seed", options.seed, "Of the draws")->check(CLI::NonNegativeNumber);
  add_json(command, options.json);
}

}  // namespace heddle::cli
