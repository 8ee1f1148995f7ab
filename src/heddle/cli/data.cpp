// heddle data: text to tokenizer and token file.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/standard_input.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/data/prepare_data.h"
#include "heddle/data/tokenizer/tokenizer.h"
#include "heddle/observe/progress.h"
#include "heddle/observe/table.h"
#include "heddle/observe/terminal/doing.h"
#include "heddle/observe/units.h"

namespace heddle::cli {

namespace {

struct DataOptions {
  std::string source;
  std::string out;
  int64_t vocabulary = 8192;
  bool any_bytes = false;
  std::string key = "text";
  std::string tokenizer;
  bool chat = false;
  data::SampleKeys samples;
  std::string chat_template;
  int64_t threads = 0;
  bool json = false;
};

using Json = nlohmann::ordered_json;

Json json_of(const data::PreparedData& d) {
  Json json{{"tokenizer", d.tokenizer},
            {"prefix", d.prefix},
            {"was_up_to_date", d.was_up_to_date},
            {"vocabulary", d.vocabulary},
            {"documents", d.documents},
            {"repeated_documents", d.repeated_documents},
            {"heldout_documents", d.heldout_documents},
            {"tokens", d.tokens},
            {"text_bytes", d.text_bytes},
            {"bytes_per_token", d.bytes_per_token},
            {"unigram_nats_per_token", d.unigram_nats_per_token},
            {"unigram_bits_per_byte", d.unigram_bits_per_byte},
            {"targets", d.targets},
            {"samples_without_answer", d.without_targets},
            {"answers_left_out", d.answers_left_out},
            {"packages", Json::array()}};
  for (const data::CorpusPackage& p : d.packages) {
    json["packages"].push_back(
        {{"name", p.name}, {"licence", p.licence}, {"files", p.files}, {"text_bytes", p.text_bytes}});
  }
  return json;
}

void print(const data::PreparedData& d) {
  const observe::Terminal terminal = observe::describe_terminal(1);
  if (!d.packages.empty()) {
    observe::Table table(
        {{"package"}, {"licence"}, {"files", observe::Align::right}, {"text", observe::Align::right}});
    for (const data::CorpusPackage& p : d.packages) {
      table.row({p.name, observe::cut_to_width(p.licence, 48), fmt::format("{}", p.files),
                 observe::bytes_text(static_cast<double>(p.text_bytes))});
    }
    fmt::print("{}\n", table.text(terminal));
  }
  fmt::print("{}{} documents ({} held out, {} repeated ones dropped), {} of text\n",
             d.was_up_to_date ? "up to date: " : "", observe::grouped_text(d.documents),
             observe::grouped_text(d.heldout_documents), observe::grouped_text(d.repeated_documents),
             observe::bytes_text(static_cast<double>(d.text_bytes)));
  fmt::print("{} tokens of a vocabulary of {}, {:.2f} bytes a token\n", observe::grouped_text(d.tokens),
             observe::grouped_text(d.vocabulary), d.bytes_per_token);
  if (d.targets > 0) {
    fmt::print("{} tokens are targets, in {} samples; {} samples without an answer dropped\n",
               observe::grouped_text(d.targets), observe::grouped_text(d.documents),
               observe::grouped_text(d.without_targets));
  }
  if (d.answers_left_out > 0) {
    fmt::print(
        "warning: {} earlier answers are no targets, for the template writes them otherwise where more follows\n",
        observe::grouped_text(d.answers_left_out));
  }
  fmt::print("knowing word frequencies alone: {:.3f} nats a token, {:.3f} bits a byte\n", d.unigram_nats_per_token,
             d.unigram_bits_per_byte);
  if (d.heldout_documents == 0)
    fmt::print(
        "warning: no document was held out (about 2 in 100 are): a run on this text measures no held-out loss\n");
  fmt::print("tokenizer   {}\ntoken file  {}.bin, .idx\n", d.tokenizer, d.prefix);
}

data::PreparedData prepare(const DataOptions& options) {
  observe::Doing doing("reading text");
  const data::Progress progress = [&](std::string_view what, double share) { doing.now(what, share); };
  int64_t vocabulary = options.vocabulary;
  if (!options.tokenizer.empty()) {
    const data::TokenizerFiles own = data::load_tokenizer(options.tokenizer);
    vocabulary = data::Tokenizer(own.spec, options.tokenizer).vocabulary();
    data::place_tokenizer(own, options.tokenizer, options.out);
  }
  if (options.source == "demo") return data::prepare_demo_data(options.out, vocabulary, progress);
  std::string source = options.source;
  if (source == kStandardInput) source = keep_standard_input(options.out);
  if (options.chat) {
    return data::prepare_samples(source, options.out, vocabulary,
                                 {.keys = options.samples,
                                  .chat_template = options.chat_template,
                                  .tokenizer = options.tokenizer,
                                  .bytes = options.any_bytes ? data::Bytes::any : data::Bytes::text},
                                 progress);
  }
  return data::prepare_text_data(source, options.out, vocabulary, progress,
                                 {options.any_bytes ? data::Bytes::any : data::Bytes::text, options.key},
                                 static_cast<int>(options.threads));
}

int data(const DataOptions& options) {
  const data::PreparedData prepared = prepare(options);
  if (options.json) {
    fmt::print("{}\n", json_of(prepared).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print(prepared);
  }
  return kDone;
}

}  // namespace

void add_data(Commands& all) {
  auto [command, options] =
      add_command(all, "data", "Prepare text: train a tokenizer and write the token file", data);
  command
      .option("SOURCE", options.source,
              "\"demo\" (texts of Debian packages), a .txt or .jsonl file (also .gz, .zst), a folder, or - for the "
              "standard input, which is kept in DIR")
      .required();
  command.option("--out", options.out, "The folder to prepare it in").required().called("DIR");
  command.option("--vocabulary", options.vocabulary, "Tokens of the tokenizer").from(258, 1 << 21);
  command
      .option("--tokenizer", options.tokenizer,
              "Use this one: tokenizer.json, SentencePiece's .model, a tiktoken file, or a folder with one; "
              "otherwise one is trained")
      .called("FILE");
  command.option("--key", options.key, "Where a line of .jsonl holds its document").called("KEY");
  command.option(
      "--chat", options.chat,
      "Lines of .jsonl are samples to fine-tune on, prompts with their answers or conversations; only answers "
      "are targets");
  command.option("--prompt-key", options.samples.prompt, "Where a sample holds its prompt")
      .called("KEY")
      .needs("--chat");
  command.option("--answer-key", options.samples.answer, "Where it holds the answer").called("KEY").needs("--chat");
  command.option("--messages-key", options.samples.messages, "Where it holds its conversation")
      .called("KEY")
      .needs("--chat");
  command.option("--weight-key", options.samples.weight, "Where it says how much its targets count, a number")
      .called("KEY")
      .needs("--chat");
  command
      .option("--pairs", options.samples.pairs,
              "Lines are pairs of answers to one prompt, of which the first is preferred (train.objective dpo)")
      .needs("--chat");
  command.option("--chosen-key", options.samples.chosen, "Where a pair holds the preferred answer")
      .called("KEY")
      .needs("--pairs");
  command.option("--rejected-key", options.samples.rejected, "Where it holds the other")
      .called("KEY")
      .needs("--pairs");
  command
      .option("--chat-template", options.chat_template,
              "The template of conversations, a .jinja file or a .json with one; otherwise the one beside the "
              "tokenizer")
      .called("FILE")
      .needs("--chat");
  command.option("--threads", options.threads, "That tokenize; 0: one a core").from(0, 1024);
  command.option("--any-bytes", options.any_bytes,
                 "Take text with bytes that are no UTF-8 or control characters, which is refused otherwise");
  add_json(command, options.json);
}

}  // namespace heddle::cli
