// heddle eval: how likely a run's model finds texts, and which choices of tasks it prefers.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/base/utf8.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/cli/line/on_ranks.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"
#include "heddle/session/eval/heldout_task.h"
#include "heddle/session/eval/score.h"
#include "heddle/session/rank_run.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/run_data.h"
#include "heddle/session/text/continue_text.h"
#include "heddle/train/agreement.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::cli {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostTextBytes = int64_t{1} << 32;

struct EvalOptions {
  std::string run;  // folder
  std::vector<std::string> set, texts, tasks;
  int64_t limit = 0, ranks = 0;
  bool no_heldout = false, averaged = false, json = false;
};

struct Scores {
  int64_t step = 0;
  std::vector<std::pair<std::string, session::TextScore>> texts;
  std::vector<session::TaskScore> tasks;
  std::vector<std::string> notes;
};

// The run's configuration, a sequence at a time: on one rank, unless ranks are asked for.
config::RunConfig config_of(const EvalOptions& options, int ranks) {
  const session::RunFolder folder{options.run};
  session::check_is_run(folder);
  config::RunConfig config = config::read_run_config(folder.config(), options.set);
  const bool laid_out = ranks > 0 || std::any_of(options.set.begin(), options.set.end(),
                                                 [](const std::string& key) { return key.starts_with("mesh."); });
  if (!laid_out) {
    const config::RunConfig usual;
    config.mesh_ranks = usual.mesh_ranks;
    config.plan.mesh = usual.plan.mesh;
    config.plan.parallel = usual.plan.parallel;
  } else if (ranks > 0 && ranks != config.ranks()) {
    config.mesh_ranks = ranks;
    if (config.plan.mesh.dp > 0) config.plan.mesh.dp = 0;
    if (ranks % config.copy_ranks() != 0)
      config_error("{} ranks, a copy of the model takes {}", ranks, config.copy_ranks());
  }
  config.plan.snapshot_every = 0;
  config.plan.memory.budget_bytes = 0;  // of steps
  config.plan.memory.budget_share = 0;
  config.train.microbatch = 1;
  config.train.global_batch = config.data_ranks();
  return config;
}

Scores scores_of(const EvalOptions& options, const config::RunConfig& config, comm::World* world) {
  const session::RunFolder folder{options.run};
  Scores all;
  train::RankExchange ranks(world);
  std::optional<data::Tokenizer> tokenizer;
  if (const std::string path = folder.tokenizer(); !path.empty()) {
    tokenizer.emplace(data::read_tokenizer(path), path);
    session::check_vocabulary(path, tokenizer->vocabulary(), config.model.vocab_size);
  } else if (!options.texts.empty() || !options.tasks.empty()) {
    config_error("{}: the run has no tokenizer; its data came as tokens", options.run);
  }
  const bool own_task = std::find(options.tasks.begin(), options.tasks.end(), "heldout") != options.tasks.end();
  // A run that a released model was made into was trained on no text that is known here.
  const bool has_text = !config.data.source.empty();
  if (!has_text && (own_task || (options.texts.empty() && options.tasks.empty()))) {
    config_error(
        "{}: the run has no text of its own (data.source is empty), so none is held out; --text FILE or --tasks "
        "FILE names one",
        options.run);
  }
  const bool scores_heldout = !options.no_heldout && has_text;
  session::RunData data;
  if (scores_heldout || own_task) {
    if (ranks.leads()) data = session::open_run_data(config);
    ranks.any(false);  // rank 0 has prepared it
    if (!ranks.leads()) data = session::open_run_data(config);
  }

  // Rank 0 reads it whole and names it to the others.
  std::optional<train::Checkpoint> checkpoint =
      ranks.leads() ? train::latest_checkpoint(folder.checkpoints(), &all.notes) : std::nullopt;
  for (std::string& refused : all.notes) refused = "passed over: " + refused;
  if (ranks.leads() && !checkpoint) config_error("{}: no checkpoint in {}", options.run, folder.checkpoints());
  const std::string path = ranks.from_first_rank(checkpoint ? checkpoint->path() : "");
  if (!checkpoint) checkpoint.emplace(path, train::Checkpoint::Verify::headings);
  config::RunConfig plain = config;  // tokens are asked for, whatever was learnt of them
  plain.plan.objective = {};
  train::Trainer trainer(train::trainer_options_of(plain, ranks.rank(), session::sharing_of(world)), world);
  train::load_trainer(*checkpoint, trainer);
  if (options.averaged) {
    if (config.plan.update.average_decay <= 0)
      config_error("--averaged: {} keeps no average of its weights (train.average_decay)", options.run);
    train::copy_averages(trainer.state(), train::Average::becomes_master);
    trainer.weights_changed();
  }
  all.step = trainer.steps_done();

  std::optional<observe::Doing> doing;
  if (ranks.leads()) doing.emplace("evaluating");
  const auto progress = [&](const std::string& what) {
    return [&doing, what](int64_t done, int64_t of) {
      if (doing) doing->now(what, static_cast<double>(done) / static_cast<double>(of));
    };
  };
  if (scores_heldout) {
    const int64_t most = options.limit > 0 ? options.limit : data.dataset->heldout_sequences();
    const auto heldout = data.heldout(most);
    if (heldout.empty()) {
      all.notes.emplace_back("no document is held out of the run's data");
    } else {
      all.texts.emplace_back("held out", session::score_sequences(trainer, heldout, progress("held-out text")));
    }
  }
  for (const std::string& text : options.texts) {
    const std::string bytes = read_file(text, kMostTextBytes);
    if (!is_valid_utf8(bytes)) config_error("--text {}: no UTF-8", text);
    data::Encoder encoder(*tokenizer);
    std::vector<data::TokenId> ids;
    if (tokenizer->end_of_text() >= 0) ids.push_back(tokenizer->end_of_text());
    encoder.encode(bytes, ids);
    auto windows = session::windows_of(ids, trainer);
    const bool whole = options.limit == 0 || std::ssize(windows) <= options.limit;
    if (!whole) windows.resize(static_cast<size_t>(options.limit));
    session::TextScore score = session::score_sequences(trainer, windows, progress(text));
    if (whole) score.bytes = std::ssize(bytes);
    all.texts.emplace_back(text, score);
  }
  for (const std::string& task : options.tasks) {
    const session::Task items = task == "heldout" ? session::heldout_task(data, *tokenizer, options.limit)
                                                  : session::read_task(task, options.limit);
    all.tasks.push_back(session::score_task(trainer, *tokenizer, items, progress(items.name)));
    if (all.tasks.back().cut > 0)
      all.notes.push_back(fmt::format("{}: {} choices lost the beginning of their context, {} tokens are seen",
                                      items.name, all.tasks.back().cut, config.train.sequence_length));
  }
  return all;
}

ordered_json json_of(const session::Estimate& e) {
  return {{"mean", e.mean}, {"stderr", e.error}, {"low", e.low}, {"high", e.high}};
}

ordered_json json_of(const std::string& run, const Scores& scores) {
  ordered_json json{
      {"run", run}, {"step", scores.step}, {"texts", ordered_json::array()}, {"tasks", ordered_json::array()}};
  for (const auto& [name, score] : scores.texts) {
    ordered_json text{{"name", name},
                      {"tokens", score.tokens},
                      {"windows", score.windows},
                      {"loss", json_of(score.loss)},
                      {"perplexity", score.perplexity()}};
    if (score.bytes > 0) text["bits_per_byte"] = score.bits_per_byte();
    json["texts"].push_back(text);
  }
  for (const session::TaskScore& score : scores.tasks) {
    json["tasks"].push_back({{"name", score.name},
                             {"items", score.items},
                             {"chance", score.chance},
                             {"acc", json_of(score.accuracy)},
                             {"acc_norm", json_of(score.normalised)},
                             {"chosen", score.chosen}});
  }
  json["notes"] = scores.notes;
  return json;
}

std::string percent_of(const session::Estimate& e) {
  return fmt::format("{:.1f} % ({:.1f} to {:.1f})", 100 * e.mean, 100 * e.low, 100 * e.high);
}

void print(const std::string& run, const Scores& scores) {
  constexpr auto right = observe::Align::right;
  for (const std::string& note : scores.notes) say(stderr, "heddle: {}\n", session::terminal_text(note));
  say("{}, step {}; ± and (… to …) are 95 % intervals\n", run, scores.step);
  if (!scores.texts.empty()) {
    observe::Table table(
        {{"text"}, {"tokens", right}, {"loss", right}, {"perplexity", right}, {"bits a byte", right}});
    for (const auto& [name, s] : scores.texts) {
      table.row(
          {name, observe::grouped_text(s.tokens), fmt::format("{:.4f} ± {:.4f}", s.loss.mean, 1.96 * s.loss.error),
           fmt::format("{:.2f}", s.perplexity()), s.bytes > 0 ? fmt::format("{:.3f}", s.bits_per_byte()) : "-"});
    }
    say("\n{}", table.text(observe::describe_terminal(1)));
  }
  if (scores.tasks.empty()) return;
  observe::Table table({{"task"}, {"items", right}, {"acc", right}, {"acc_norm", right}, {"chance", right}});
  for (const session::TaskScore& s : scores.tasks) {
    table.row({s.name, observe::grouped_text(s.items), percent_of(s.accuracy), percent_of(s.normalised),
               fmt::format("{:.1f} %", 100 * s.chance)});
  }
  say("\n{}", table.text(observe::describe_terminal(1)));
}

int eval(const EvalOptions& options) {
  if (options.no_heldout && options.texts.empty() && options.tasks.empty())
    config_error("--no-heldout leaves nothing to evaluate; --text or --tasks names something");
  Scores scores;
  const auto tell = [&] {
    if (options.json) {
      say("{}\n", json_of(options.run, scores).dump(2, ' ', false, ordered_json::error_handler_t::replace));
    } else {
      print(options.run, scores);
    }
    return kDone;
  };
  const auto run = [&](const config::RunConfig& config, comm::World* world) {
    Scores own = scores_of(options, config, world);
    if (world == nullptr || world->rank() == 0) scores = std::move(own);
  };
  const auto configured = [&](int ranks) { return config_of(options, ranks); };
  return on_ranks(static_cast<int>(options.ranks), configured, run, tell);
}

}  // namespace

void add_eval(Commands& all) {
  constexpr int64_t kMostThreadRanks = 1024;
  auto [command, options] =
      add_command(all, "eval", "Perplexity of held-out and other text, and tasks decided by likelihood", eval);
  command.option("RUN", options.run, "The run's folder, such as runs/demo").required();
  add_set(command, options.set);
  command.option("--text", options.texts, "A text file to be scored; may be given again").called("FILE");
  command
      .option("--tasks", options.tasks,
              "JSON lines in the form of lm-evaluation-harness, or heldout: the text's own continuation among "
              "four; may be given again")
      .called("FILE");
  command.option("--limit", options.limit, "Most sequences of a text and items of a task").from(1);
  command.option("--averaged", options.averaged,
                 "Evaluate the average of the weights that the run keeps (train.average_decay)");
  command.option("--no-heldout", options.no_heldout, "Leave out the run's held-out text");
  command.option("--ranks", options.ranks, "Ranks as threads of this process, in the run's layout")
      .from(1, kMostThreadRanks);
  add_json(command, options.json);
}

}  // namespace heddle::cli
