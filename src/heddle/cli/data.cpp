// heddle data: text to tokenizer and token file.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "heddle/base/files/standard_input.h"
#include "heddle/base/say.h"
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
  std::string chat_template, chat_arguments, chat_date, end_of_text;
  std::string repeated = "auto";
  bool skip_bad_lines = false;
  int64_t threads = 0;
  bool json = false;
};

using Json = nlohmann::ordered_json;

Json json_of(const data::PreparedData& d) {
  return {{"tokenizer", d.tokenizer},
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
          {"keeps_repeated", d.keeps_repeated},
          {"unwritten_messages", d.unwritten_messages},
          {"fields_passed_over", d.unread},
          {"files_passed_over", d.passed_over.files},
          {"lines_passed_over", d.passed_over.lines},
          {"first_lines_passed_over", d.passed_over.first_lines},
          {"chat_date", d.chat_date},
          {"end_of_text", d.end_of_text},
          {"warnings", data::warnings_of(d)},
          {"packages", data::json_of(d.packages)}};
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
    say("{}\n", table.text(terminal));
  }
  say("{}{} documents ({} held out, {} repeated ones {}), {} of text\n", d.was_up_to_date ? "up to date: " : "",
      observe::grouped_text(d.documents), observe::grouped_text(d.heldout_documents),
      observe::grouped_text(d.repeated_documents), d.keeps_repeated ? "kept" : "dropped",
      observe::bytes_text(static_cast<double>(d.text_bytes)));
  say("{} tokens of a vocabulary of {}, {:.2f} bytes a token\n", observe::grouped_text(d.tokens),
      observe::grouped_text(d.vocabulary), d.bytes_per_token);
  if (d.targets > 0) {
    say("{} tokens are targets, in {} samples; {} samples without an answer dropped\n",
        observe::grouped_text(d.targets), observe::grouped_text(d.documents),
        observe::grouped_text(d.without_targets));
  }
  if (!d.chat_date.empty()) say("the chat template got {} as today's date (--chat-date)\n", d.chat_date);
  for (const std::string& warning : data::warnings_of(d)) say("warning: {}\n", warning);
  say("loss of a model that knows word frequencies only: {:.3f} nats a token, {:.3f} bits a byte\n",
      d.unigram_nats_per_token, d.unigram_bits_per_byte);
  if (d.heldout_documents == 0)
    say("warning: no document was held out (about 2 in 100 are): a run on this text measures no held-out loss\n");
  say("tokenizer   {}\ntoken file  {}.bin, .idx\n", d.tokenizer, d.prefix);
}

data::PreparedData prepare(const DataOptions& options) {
  observe::Doing doing("reading text");
  const data::Progress progress = [&](std::string_view what, double share) { doing.now(what, share); };
  int64_t vocabulary = options.vocabulary;
  if (!options.tokenizer.empty()) {
    const data::TokenizerFiles own = data::load_tokenizer(options.tokenizer, options.end_of_text);
    vocabulary = data::Tokenizer(own.spec, options.tokenizer).vocabulary();
    data::place_tokenizer(own, options.tokenizer, options.out);
  }
  if (options.source == "demo") return data::prepare_demo_data(options.out, vocabulary, progress);
  const Repeated repeated = from_word<Repeated>(options.repeated);
  std::string source = options.source;
  if (source == kStandardInput) source = keep_standard_input(options.out);
  if (options.chat) {
    return data::prepare_samples(source, options.out, vocabulary,
                                 {.keys = options.samples,
                                  .chat_template = options.chat_template,
                                  .chat_arguments = options.chat_arguments,
                                  .chat_date = options.chat_date,
                                  .tokenizer = options.tokenizer,
                                  .bytes = options.any_bytes ? data::Bytes::any : data::Bytes::text,
                                  .skip_bad_lines = options.skip_bad_lines,
                                  .repeated = repeated},
                                 progress);
  }
  return data::prepare_text_data(
      source, options.out, vocabulary, progress,
      {options.any_bytes ? data::Bytes::any : data::Bytes::text, options.key, options.skip_bad_lines},
      static_cast<int>(options.threads), repeated);
}

int data(const DataOptions& options) {
  const data::PreparedData prepared = prepare(options);
  if (options.json) {
    say("{}\n", json_of(prepared).dump(2, ' ', false, Json::error_handler_t::replace));
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
              "\"demo\" (texts of Debian packages), a file of text or of JSON (.txt, .jsonl, .json; also .gz, "
              ".zst), a folder, or - for the standard input, which is kept in DIR")
      .required();
  command.option("--out", options.out, "The folder to prepare it in").required().called("DIR");
  command.option("--vocabulary", options.vocabulary, "Tokens of the tokenizer").from(258, 1 << 21);
  command
      .option("--tokenizer", options.tokenizer,
              "The tokenizer: tokenizer.json, SentencePiece's .model, a tiktoken file, or a folder with one; "
              "otherwise one is trained")
      .called("FILE");
  command.option("--key", options.key, "Field of a JSON line with its document").called("KEY");
  command.option("--chat", options.chat,
                 "JSON lines are samples to fine-tune on, prompts with their answers or conversations; only "
                 "answers are targets");
  command.option("--prompt-key", options.samples.prompt, "Field of a sample with its prompt")
      .called("KEY")
      .needs("--chat");
  command.option("--answer-key", options.samples.answer, "Field of a sample with the answer")
      .called("KEY")
      .needs("--chat");
  command.option("--messages-key", options.samples.messages, "Field of a sample with its conversation")
      .called("KEY")
      .needs("--chat");
  command
      .option("--weight-key", options.samples.weight, "Field of a sample with the weight of its targets, a number")
      .called("KEY")
      .needs("--chat");
  command
      .option("--pairs", options.samples.pairs,
              "Lines are pairs of answers to one prompt, of which the first is preferred (train.objective dpo)")
      .needs("--chat");
  command.option("--chosen-key", options.samples.chosen, "Field of a pair with the preferred answer")
      .called("KEY")
      .needs("--pairs");
  command.option("--rejected-key", options.samples.rejected, "Field of a pair with the other answer")
      .called("KEY")
      .needs("--pairs");
  command
      .option("--chat-template", options.chat_template,
              "The template of conversations, a .jinja file or a .json with one; otherwise the one beside the "
              "tokenizer")
      .called("FILE")
      .needs("--chat");
  command
      .option("--chat-arguments", options.chat_arguments,
              "More variables of the template: \"enable_thinking=false effort=high\", or a JSON object")
      .called("WORDS")
      .needs("--chat");
  command
      .option("--chat-date", options.chat_date,
              "The day that strftime_now returns to the template, such as 2025-06-28; otherwise 2025-01-01")
      .called("DAY")
      .needs("--chat");
  command
      .option("--last-answer-only", options.samples.last_answer_only,
              "Only the last answer of a conversation is a target")
      .needs("--chat");
  command
      .option("--end-of-text", options.end_of_text,
              "The token that ends a document, by its text or id; otherwise the one named by the tokenizer or a "
              "file beside it")
      .called("TOKEN")
      .needs("--tokenizer");
  command
      .option("--repeated", options.repeated,
              "Repeated texts: keep, drop, or auto (samples are kept, documents dropped)")
      .among(all_words<Repeated>())
      .called("WORD");
  command.option("--skip-bad-lines", options.skip_bad_lines,
                 "Skip JSON lines that cannot be read, and count them; otherwise the first one is an error");
  command.option("--threads", options.threads, "That tokenize; 0: one a core").from(0, 1024);
  command.option("--any-bytes", options.any_bytes,
                 "Take text with bytes that are no UTF-8 or control characters, which is refused otherwise");
  add_json(command, options.json);
}

}  // namespace heddle::cli
