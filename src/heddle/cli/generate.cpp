// heddle generate: texts continued by a trained run, or a conversation with it.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "heddle/base/error.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/base/say.h"
#include "heddle/base/utf8.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/data/chat/chat_template.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/session/run_checkpoint.h"
#include "heddle/session/run_data.h"
#include "heddle/session/signals.h"
#include "heddle/session/text/chat.h"
#include "heddle/train/adapters/peft_files.h"
#include "heddle/train/adapters/start_adapters.h"
#include "heddle/train/run_config_plan.h"
#include "heddle/train/start_weights.h"

namespace heddle::cli {

namespace {

using nlohmann::ordered_json;

constexpr const char* kTurn = "\\n{}\\n";

struct GenerateOptions {
  std::string run;  // folder
  std::vector<std::string> set;
  std::string adapter;                // folder, of PEFT's files
  std::optional<std::string> prompt;  // "-": standard input
  std::string prompts;                // file, "-": standard input
  int64_t tokens = 128;
  session::Sampling sampling{.temperature = 0.8};
  std::vector<std::string> stop;
  int64_t seed = 1;
  int64_t at_once = 8;
  bool no_cache = false;
  bool chat = false;
  std::optional<std::string> turn;
  std::string chat_arguments, chat_date;
  bool json = false;
};

// Reads the escapes of what shells make awkward to write: \n, \t and a backslash.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next != 'n' && next != 't' && next != '\\') {
      out += text[i];
      continue;
    }
    out += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
    ++i;
  }
  return out;
}

// A run's newest checkpoint on one rank, and what its texts are made with.
struct Opened {
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::unique_ptr<train::Trainer> trainer;
  std::unique_ptr<session::NextLogits> model;
  int64_t step = 0;
  bool cached = false;
  size_t window = 0;
};

// Adapters of a folder beside a run's weights, which stay as they are.
void load_beside(const train::Checkpoint& checkpoint, const std::string& adapter, train::Trainer& trainer) {
  trainer.initialise();
  train::start_from(checkpoint.path(), config::StartMoments::fresh, trainer);
  train::start_adapters_from(adapter, trainer);
}

Opened open(const GenerateOptions& options, int64_t texts) {
  const session::RunFolder folder{options.run};
  session::check_is_run(folder);
  config::RunConfig config = config::read_run_config(folder.config(), options.set);
  const std::string tokenizer = folder.tokenizer();
  if (tokenizer.empty()) {
    config_error("{}: the run has no tokenizer; its data came as tokens", options.run);
  }
  Opened opened;
  opened.tokenizer = std::make_unique<data::Tokenizer>(data::read_tokenizer(tokenizer), tokenizer);
  session::check_vocabulary(tokenizer, opened.tokenizer->vocabulary(), config.model.vocab_size);
  std::vector<std::string> refused;
  const std::optional<train::Checkpoint> checkpoint = train::latest_checkpoint(folder.checkpoints(), &refused);
  for (const std::string& reason : refused)
    say(stderr, "heddle: passed over: {}\n", session::terminal_text(reason));
  if (!checkpoint) config_error("{}: no checkpoint in {}", options.run, folder.checkpoints());
  const config::RunConfig usual;  // one rank, whatever the run had
  config.mesh_ranks = usual.mesh_ranks;
  config.plan.mesh = usual.plan.mesh;
  config.plan.parallel = usual.plan.parallel;
  config.plan.objective = usual.plan.objective;
  config.plan.snapshot_every = usual.plan.snapshot_every;
  config.plan.memory.budget_bytes = usual.plan.memory.budget_bytes;  // of steps
  config.plan.memory.budget_share = usual.plan.memory.budget_share;
  if (!options.adapter.empty()) {
    if (config.plan.lora.rank > 0)
      config_error("--adapter: {} has adapters of its own; heddle convert --merge makes weights of them",
                   options.run);
    config.plan.lora = train::adapters_in(options.adapter, config.model);
  }
  opened.cached = !options.no_cache;
  opened.trainer = std::make_unique<train::Trainer>(
      train::trainer_options_of(config, 0, {}, opened.cached ? std::min(texts, options.at_once) : 0));
  if (options.adapter.empty()) {
    train::load_trainer(*checkpoint, *opened.trainer);
  } else {
    load_beside(*checkpoint, options.adapter, *opened.trainer);
  }
  opened.step = checkpoint->state().step;
  opened.model =
      opened.cached ? session::logits_from_cache(*opened.trainer) : session::logits_anew(*opened.trainer);
  opened.window = static_cast<size_t>(opened.trainer->options().plan.sequence_length);
  return opened;
}

// One a line; empty lines are none.
std::vector<std::string> read_prompts(const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20;
  const bool standard = path == kStandardInput;
  const std::string place = standard ? "standard input" : path;
  std::ifstream file;
  if (!standard) {
    file.open(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) config_error("--prompts: {}: cannot be read", path);
  }
  std::istream& from = standard ? std::cin : file;
  std::vector<std::string> prompts;
  size_t bytes = 0, number = 0;
  for (std::string line; std::getline(from, line);) {
    ++number;
    bytes += line.size();
    if (bytes > kMostBytes) config_error("--prompts: {}: more than {} bytes", place, kMostBytes);
    if (line.ends_with('\r')) line.pop_back();
    if (!is_valid_utf8(line)) config_error("--prompts: {}: line {} is no UTF-8", place, number);
    if (!line.empty()) prompts.push_back(std::move(line));
  }
  if (prompts.empty()) config_error("--prompts: {}: no line holds a prompt", place);
  return prompts;
}

// All of standard input is one text. The line end that `echo` puts last is none of it: a text is continued where it
// stops, and after a line end another line would begin.
std::string prompt_of_standard_input() {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::string text = standard_input(kMostBytes);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty()) config_error("--prompt -: the standard input is empty");
  if (!is_valid_utf8(text)) config_error("--prompt -: the standard input is no UTF-8");
  return text;
}

std::string prompt_of(const GenerateOptions& options) {
  if (options.prompt == kStandardInput) return prompt_of_standard_input();
  return options.prompt.value_or("The ");
}

void show(std::string_view text) {
  say("{}", session::terminal_text(text));
  check_heard();  // a closed output wants no more
}

ordered_json json_of(std::string_view prompt, const session::Continued& made) {
  return {
      {"prompt", prompt}, {"continuation", made.text}, {"tokens", made.drawn}, {"end", session::word_of(made.end)}};
}
std::string text_of(const ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

session::Continuation continuation(const GenerateOptions& options) {
  session::Continuation how{.tokens = options.tokens,
                            .sampling = options.sampling,
                            .seed = static_cast<uint64_t>(options.seed),
                            .stop = {}};
  for (const std::string& word : options.stop) {
    how.stop.push_back(unescaped(word));
    if (word.empty()) config_error("--stop: an empty word would end every text");
  }
  return how;
}

bool stop_asked() { return session::Signals::take().stop; }

int status_of(const std::vector<session::Continued>& made) {
  for (const session::Continued& each : made) {
    if (each.end == session::End::interrupted) return kInterrupted;
  }
  return kDone;
}

int continue_prompts(const GenerateOptions& options) {
  const session::Continuation how = continuation(options);
  const std::vector<std::string> prompts =
      options.prompts.empty() ? std::vector<std::string>{prompt_of(options)} : read_prompts(options.prompts);
  const Opened opened = open(options, std::ssize(prompts));
  std::vector<std::vector<data::TokenId>> ids;
  ids.reserve(prompts.size());
  for (const std::string& prompt : prompts) ids.push_back(session::prompt_ids(*opened.tokenizer, prompt));
  const bool one = options.prompts.empty();
  session::Watch watch{.piece = {}, .ended = {}, .interrupted = stop_asked};
  std::vector<std::optional<std::string>> waiting(prompts.size());  // texts that come after one still under way
  size_t next = 0;
  if (one && !options.json) {
    show(prompts[0]);
    watch.piece = [](size_t, std::string_view piece) { show(piece); };
  } else if (!options.json) {
    watch.ended = [&](size_t text, const session::Continued& made) {
      waiting[text] = prompts[text] + made.text;
      for (; next < waiting.size() && waiting[next]; ++next) show(*waiting[next] + "\n\n");
    };
  }
  const auto start = std::chrono::steady_clock::now();
  const std::vector<session::Continued> made = session::continue_texts(
      *opened.model, *opened.tokenizer, opened.window, ids, static_cast<size_t>(options.at_once), how, watch);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (!options.json) {
    if (one) say("\n");
    return status_of(made);
  }
  int64_t drawn = 0;
  for (const session::Continued& each : made) drawn += each.drawn;
  ordered_json json{{"run", options.run}, {"step", opened.step}};
  if (!options.adapter.empty()) json["adapter"] = options.adapter;
  if (one) json.update(json_of(prompts[0], made[0]));
  json.update({{"temperature", options.sampling.temperature},
               {"top_k", options.sampling.top_k},
               {"top_p", options.sampling.top_p},
               {"seed", options.seed},
               {"cache", opened.cached},
               {"seconds", took.count()},
               {"tokens_per_second", static_cast<double>(drawn) / took.count()}});
  if (!one) {
    json["continuations"] = ordered_json::array();
    for (size_t i = 0; i < made.size(); ++i) json["continuations"].push_back(json_of(prompts[i], made[i]));
  }
  say("{}\n", text_of(json, 2));
  return status_of(made);
}

int converse(const GenerateOptions& options) {
  if (options.prompt == kStandardInput)
    config_error("--prompt -: with --chat the standard input holds the lines; accepted: a text");
  const Opened opened = open(options, 1);
  const std::string kept = options.turn ? "" : data::chat_template_beside(options.run);
  if (kept.empty() && (!options.chat_arguments.empty() || !options.chat_date.empty()))
    config_error("--chat-arguments and --chat-date go to a chat template, and {}",
                 options.turn ? "--turn takes the place of one" : options.run + " has none");
  const std::string beginning = options.prompt.value_or("");
  session::Chat chat =
      kept.empty() ? session::Chat(*opened.model, *opened.tokenizer, opened.window, continuation(options),
                                   unescaped(options.turn.value_or(kTurn)), std::string_view(beginning))
                   : session::Chat(
                         *opened.model, *opened.tokenizer, opened.window, continuation(options),
                         data::with_told(data::load_chat_template(kept), options.chat_arguments, options.chat_date),
                         beginning);
  const bool ask = ::isatty(STDIN_FILENO) == 1 && !options.json;
  session::Watch watch{.piece = {}, .ended = {}, .interrupted = stop_asked};
  if (!options.json) watch.piece = [](size_t, std::string_view piece) { show(piece); };
  for (std::string line;;) {
    if (ask) show("> ");
    if (!std::getline(std::cin, line)) break;  // the end, or a signal
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    line = replace_invalid_utf8(line);
    const session::Continued answer = chat.answer(line, watch);
    if (options.json) {
      show(text_of(json_of(line, answer), -1) + "\n");
    } else if (!answer.text.ends_with('\n')) {
      show("\n");
    }
    if (answer.end == session::End::interrupted) break;
  }
  const bool interrupted = stop_asked();
  if (ask) show("\n");
  return interrupted ? kInterrupted : kDone;
}

int generate(const GenerateOptions& options) {
  const session::Signals signals;
  session::Signals::answer("", "");  // the text ends where it is
  return options.chat ? converse(options) : continue_prompts(options);
}

}  // namespace

void add_generate(Commands& all) {
  auto [command, options] =
      add_command(all, "generate", "Continue texts with a trained run, or talk to it", generate);
  command.option("RUN", options.run, "The run's folder, such as runs/demo").required();
  add_set(command, options.set);
  command
      .option("--adapter", options.adapter,
              "Adapters to add to the run's weights: a folder with PEFT's adapter_config.json and "
              "adapter_model.safetensors")
      .called("FOLDER");
  command.option("--prompt", options.prompt, "The text to continue, -: standard input; with --chat, the beginning")
      .excludes("--prompts");
  command.option("--prompts", options.prompts, "A file of texts to continue, one a line; -: standard input")
      .called("FILE");
  command.option("--tokens", options.tokens, "Most tokens of a text").from(1, 1 << 20);
  command.option("--temperature", options.sampling.temperature, "0: always the likeliest token").from(0.0, 100.0);
  command.option("--top-k", options.sampling.top_k, "Number of likeliest tokens to draw from; 0: all").from(0);
  command.option("--top-p", options.sampling.top_p, "Draw from the fewest of these that make up this probability")
      .from(1e-9, 1.0);
  command
      .option("--stop", options.stop,
              "A word at which a text ends, before it; \\n is a line's end; may be given again")
      .called("WORD");
  command.option("--seed", options.seed, "Of the draws").from(0);
  command.option("--batch", options.at_once, "Texts side by side").from(1, 4096);
  command.option("--no-cache", options.no_cache, "Compute every token of a text again for each new one");
  command.option("--chat", options.chat, "Answer the lines of standard input, each after all before it")
      .excludes("--prompts");
  command
      .option("--turn", options.turn,
              "Form of a line of --chat in the text, at {}; otherwise that of the run's chat template, or between "
              "two line ends")
      .needs("--chat");
  command
      .option("--chat-arguments", options.chat_arguments,
              "More variables of the chat template: \"enable_thinking=false effort=high\", or a JSON object; "
              "otherwise as in training (data.chat_arguments)")
      .called("WORDS")
      .needs("--chat");
  command
      .option("--chat-date", options.chat_date,
              "The day that strftime_now returns to the template, such as 2025-06-28; otherwise as in training "
              "(data.chat_date)")
      .called("DAY")
      .needs("--chat");
  add_json(command, options.json);
}

}  // namespace heddle::cli
