// The table of a run's keys. Those of the plan stand in plan/switches.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/bias_rate.h"
#include "heddle/config/run_config.h"
#include "heddle/model/keys.h"
#include "heddle/plan/setting_table.h"
#include "heddle/plan/switches.h"

namespace heddle::config {

namespace {

using enum plan::MathsClass;
using plan::page;

constexpr double kMostCount = 1 << 30;  // keeps products of two counts within 64 bits
constexpr double kTiny = plan::Row::kTiny;

using Data = RunConfig::Data;
using Train = RunConfig::Train;
using Device = RunConfig::Device;

class Table : public plan::SettingTable<RunConfig> {
 public:
  /// The plan's rows of a section.
  void of_plan(std::string_view section) {
    for (const plan::Setting<plan::Choices>& s : plan::settings()) {
      if (s.key.substr(0, s.key.find('.')) != section) continue;
      Setting& here = all_.emplace_back();
      static_cast<plan::Row&>(here) = s;
      here.get = [get = s.get](const RunConfig& c) { return get(c.plan); };
      here.set = [set = s.set](RunConfig& c, const Value& v) { set(c.plan, v); };
    }
  }
  void model(const model::Key& key) {
    Setting& s = add("model." + key.name, kind_of(key.kind), key.meaning);
    s.least = key.least;
    s.most = key.most;
    s.words = key.words;
    s.synonyms = key.synonyms;
    if (!key.open.empty()) s.unset = key.open;
    if (key.of == model::Key::Of::grouped || key.of == model::Key::Of::recurrent ||
        key.of == model::Key::Of::stateful || key.of == model::Key::Of::streams ||
        key.of == model::Key::Of::ngrams || key.of == model::Key::Of::compressed ||
        key.of == model::Key::Of::latent_grouped || key.of == model::Key::Of::grouped_compressed)
      s.unset = s.text_of(key.get(model::ModelConfig()));
    s.get = [&key](const RunConfig& c) { return key.get(c.model); };
    s.set = [&key](RunConfig& c, const Value& v) { key.set(c.model, v); };
    s.present = [&key](const RunConfig& c) {
      return model::has_key(c.model, key) && (key.given == nullptr || key.given(c.model));
    };
  }
  // Keys of a run whose length is counted in steps, and of one that ends by the clock.
  static Setting& of_steps(Setting& s) {
    s.present = [](const RunConfig& c) { return !c.length().by_clock(); };
    return s;
  }
  static Setting& of_clock(Setting& s) {
    s.present = [](const RunConfig& c) { return c.length().by_clock(); };
    return s;
  }
  Setting& row(std::string_view key) {
    const auto at = std::find_if(all_.begin(), all_.end(), [&](const Setting& s) { return s.key == key; });
    HEDDLE_CHECK(at != all_.end(), "no row is called '{}'", key);
    return *at;
  }

 private:
  static plan::Row::Kind kind_of(model::Key::Kind kind) {
    switch (kind) {
      case model::Key::Kind::boolean: return plan::Row::Kind::boolean;
      case model::Key::Kind::integer: return plan::Row::Kind::integer;
      case model::Key::Kind::number: return plan::Row::Kind::number;
      case model::Key::Kind::word: return plan::Row::Kind::word;
    }
    return plan::Row::Kind::word;
  }
};

void run_settings(Table& t) {
  t.word<&RunConfig::name>("name", "Name of the run, in its report and of its folder.")
      .also_called({"run_name", "experiment_name"});
  t.integer<&RunConfig::seed>("seed", 0, 0x1p63, "Seed of the weights' start and of the order of the data.")
      .also_called({"random_seed"});
  t.word<&RunConfig::output>("output", "The run's folder; empty stands for runs/NAME.")
      .also_called({"output_dir", "out_dir", "save", "save_dir", "run_dir"});
}

void model_settings(Table& t) {
  for (const model::Key& key : model::keys()) t.model(key);
  t.row("model.num_nextn_predict_layers")
      .acts(changes_maths, "Layers that predict further tokens than the next while training; 0 switches it off.",
            "each depth costs a layer and another output head", page("multi_token_prediction"));
  t.row("model.sequence_aux_loss_alpha")
      .acts(changes_maths, "Weight of the balance loss within each sequence; 0 switches it off.",
            "one small op a MoE layer each way", page("router_losses"));
  t.row("model.z_loss_weight")
      .acts(changes_maths, "Weight of the penalty on large router logits; 0 switches it off.",
            "one small op a MoE layer each way", page("router_losses"));
  t.row("model.recurrence")
      .acts(changes_maths,
            "Gives layers a recurrence along the sequence instead of attention; none switches it off.",
            "a state of each head in place of all earlier keys: work that grows with the sequence, not its square",
            page("recurrence"));
  t.row("model.index_topk")
      .acts(changes_maths,
            "Lets each query attend to the keys that an indexer scores highest, so many; 0 switches it off.",
            "the scores of all keys, by narrower heads; attention to the chosen keys alone", page("key_selection"));
  t.row("model.index_stage")
      .acts(
          changes_maths,
          "Trains indexers towards attention: sparse, with all other weights, on the keys that they chose; dense, "
          "alone, on all keys, while attention is whole; off, not at all.",
          "scores of attention once more, and the indexer's backward", page("key_selection"));
  t.row("model.index_loss_weight")
      .acts(changes_maths, "Weight of the divergence of each indexer from its layer's attention.", "nothing",
            page("key_selection"));
  t.row("model.compression_pattern")
      .acts(
          changes_maths,
          "Lets queries see a window of tokens, and behind it entries that each stand for many tokens; a letter a "
          "layer says which.",
          "a product and a softmax a token make the entries; attention to the window and to entries alone",
          page("compressed_keys"));
  t.row("model.zero_expert_num")
      .acts(changes_maths, "Adds experts without computation, so many, for a router to choose; 0 switches it off.",
            "a multiply of the token's row; fewer rows travel and are computed, with a host stall a layer on one "
            "rank "
            "too",
            page("routers"));
  t.row("model.shortcut_experts")
      .acts(changes_maths, "Lets the experts of every second layer add to the stream behind the next layer.",
            "nothing; their rows travel beside a whole layer's compute", page("routers"));
  t.row("model.sparse_mixer")
      .acts(changes_maths, "Gates two experts a token one after the other, by logits close to the best.",
            "one small op a MoE layer each way", page("routers"));
  t.row("model.num_hash_layers")
      .acts(changes_maths,
            "Lets layers with experts among so many first ones choose them by token id, from a fixed table; 0 "
            "switches "
            "it off.",
            "four bytes an expert of each token id, a table a layer; a row of it is read in place of a choice",
            page("routers"));
  t.row("model.hyper_connections")
      .acts(
          changes_maths,
          "Makes so many streams of the residual, which each block reads and writes to by weights of the token; 0 "
          "switches it off.",
          "so many times the residual's memory and messages of a pipeline; a narrow product and two passes over "
          "the streams a block",
          page("hyper_connections"));
  t.row("model.ngram_layers")
      .acts(changes_maths,
            "Lets these layers add embeddings of the last tokens to their streams, whose rows hashes of n-grams "
            "choose; "
            "empty switches it off.",
            "model.ngram_heads × (model.ngram_size − 1) tables of about model.ngram_vocab_size rows a layer; two "
            "maps "
            "and a convolution of all streams",
            page("ngrams"));
  constexpr const char* kDropoutCost = "a word of Philox an element each way; nothing is stored";
  t.row("model.embedding_dropout")
      .acts(changes_maths, "Dropout of the embedded tokens while training; 0 switches it off.", kDropoutCost,
            page("dropout"));
  t.row("model.residual_dropout")
      .acts(changes_maths,
            "Dropout of what attention and MLP add to the residual stream while training; 0 switches it off.",
            kDropoutCost, page("dropout"));
  t.row("model.attention_dropout")
      .acts(changes_maths, "Dropout of attention's probabilities while training; 0 switches it off.",
            "a word of Philox a probability, twice backward; nothing is stored; attention runs on kernels of fewer "
            "operations a second",
            page("dropout"));
  t.row("model.bias_balance")
      .acts(changes_maths,
            "Moves the balancing biases by a rate against the load, by a rate that falls, by what shares lack, or "
            "to where "
            "the step's scores would have been balanced.",
            "quantile: the margins of all tokens, counted in 208 bins an expert and summed over the ranks",
            page("bias_balance"));
  t.row("model.bias_update_rate")
      .acts(changes_maths,
            "Distance by which a step moves each expert's selection bias against its load; 0 holds the biases "
            "still. By default biases can travel equally far in runs of any length.",
            "one small op a MoE layer at the end of the step", page("bias_balance"))
      .unset =
      fmt::format("{} ÷ the run's steps, from {} to {}", BiasRate::kTravel, BiasRate::kLeast, BiasRate::kMost);
}

void data_settings(Table& t) {
  constexpr auto d = &RunConfig::data;
  t.word<d, &Data::source>(
       "data.source",
       "\"demo\" (novels and dictionaries of Debian packages), a file of text or of JSON (.txt, .jsonl, "
       ".json; also .gz, .zst) or a folder of them, or the prefix of a token file (PREFIX.bin and PREFIX.idx); or "
       "several, each behind its weight: \"0.7 PREFIX 0.3 PREFIX\".")
      .also_called({"dataset", "data_path", "train_data", "train_file"});
  t.word<d, &Data::validation>(
       "data.validation",
       "A text or token file that is held out whole, as the validation set; empty: a share of "
       "the training text is (data.heldout_fraction).")
      .also_called({"valid_data_path", "val_data", "eval_data", "validation_file", "eval_file"});
  t.word<d, &Data::text_key>("data.text_key", "Field of a JSON line with its document.")
      .also_called({"json_keys", "text_column", "text_field", "content_key"});
  t.word<d, &Data::folder>("data.folder", "Folder in which tokenizer and token file are prepared.");
  t.word<d, &Data::tokenizer>("data.tokenizer",
                              "A tokenizer to use: tokenizer.json, SentencePiece's .model, a tiktoken file, or a "
                              "folder with one; empty: one is trained on the text.")
      .also_called({"tokenizer_model", "tokenizer_path", "tokenizer_name_or_path"});
  t.integer<d, &Data::vocabulary>("data.vocabulary", 0, 1 << 21,
                                  "Tokens of a tokenizer that is trained; 0 stands for model.vocab_size.");
  t.number<d, &Data::heldout_fraction>("data.heldout_fraction", 0, 0.5, "Share of documents kept out of training.")
      .also_called({"validation_split", "val_split", "eval_fraction"});
  t.boolean<d, &Data::attend_across_documents>("data.attend_across_documents",
                                               "A token attends to the earlier documents packed into its sequence; "
                                               "otherwise attention ends at the beginning of its document.")
      .acts(changes_maths,
            "A document's tokens do not attend to those packed before it: each document is learned as if alone. "
            "Attention skips blocks that are wholly masked.",
            "one integer a token, from the host", page("attention_masks"))
      .also_called({"reset_attention_mask", "eod_mask", "intra_document_masking", "document_masking",
                    "cross_document_attention", "neat_packing", "block_diagonal_mask"});
  t.integer<d, &Data::document_end>("data.document_end", -1, 1 << 21,
                                    "Without data.attend_across_documents: the token id after which attention "
                                    "ends; -1: it ends at the documents' ends in the token file.")
      .also_called({"eod_token", "eod_id", "eos_token_id"});
  t.boolean<d, &Data::any_bytes>("data.any_bytes",
                                 "Text may hold bytes that are no UTF-8 and control characters; otherwise they are "
                                 "refused, with their place.");
  t.boolean<d, &Data::chat>("data.chat",
                            "JSON lines are samples to fine-tune on: a prompt with its answer, or a conversation. "
                            "Only answers are targets of the loss, and samples are packed whole.");
  t.word<d, &Data::prompt_key>("data.prompt_key", "Field of a sample with its prompt.")
      .also_called({"prompt_column", "instruction_key"});
  t.word<d, &Data::answer_key>("data.answer_key", "Field of a sample with the answer to its prompt.")
      .also_called({"completion_key", "response_key", "completion_column"});
  t.word<d, &Data::messages_key>("data.messages_key", "Field of a sample with its conversation.")
      .also_called({"conversations_key", "messages_column"});
  t.word<d, &Data::chosen_key>("data.chosen_key",
                               "Field of a pair with the preferred answer (train.objective dpo).")
      .also_called({"chosen_column"});
  t.word<d, &Data::rejected_key>("data.rejected_key", "Field of a pair with the other answer.")
      .also_called({"rejected_column"});
  t.word<d, &Data::weight_key>("data.weight_key",
                               "Field of a sample with the weight of its targets, a number from 0 on (1 where it "
                               "is absent); empty: all weigh the same.")
      .acts(changes_maths,
            "The loss is the mean over the targets by their weights: those of a sample of weight 2 count twice.",
            "one number a token, from the host", page("masked_targets"))
      .also_called({"weight_column", "sample_weight_key", "loss_weight_key"});
  t.word<d, &Data::chat_template>("data.chat_template",
                                  "A file with the template that conversations are written by; empty: the one "
                                  "beside the tokenizer (chat_template.jinja, tokenizer_config.json).")
      .also_called({"chat_template_path", "chat_template_file"});
  t.word<d, &Data::chat_arguments>(
       "data.chat_arguments",
       "Variables of the chat template besides the conversation: NAME=VALUE, several separated by blanks or "
       "commas, or a JSON object. true, false, null and numbers keep their type, all else is text.")
      .also_called({"chat_template_kwargs", "chat_template_args", "chat_template_arguments"});
  t.word<d, &Data::chat_date>(
       "data.chat_date",
       "The day that strftime_now() returns to a chat template, such as 2025-06-28; a conversation is then the "
       "same text on every day. Empty: 2025-01-01, and templates with a date of their own use it.")
      .also_called({"date_string", "chat_template_date"});
  t.boolean<d, &Data::last_answer_only>("data.last_answer_only",
                                        "Only the last answer of a conversation is learnt, not those before it.")
      .also_called({"mask_history", "train_on_last_turn", "last_turn_only"});
  t.word<d, &Data::end_of_text>("data.end_of_text",
                                "The token that ends a document and a generated text, by its text or its id; "
                                "empty: the one named by the tokenizer or a file beside it.")
      .also_called({"eos_token", "eod_token_text"});
  t.boolean<d, &Data::skip_bad_lines>("data.skip_bad_lines",
                                      "Lines that cannot be read are skipped and counted, and the first is named; "
                                      "otherwise the first one stops the preparation.")
      .also_called({"ignore_bad_lines", "skip_invalid_lines"});
  t.word<d, &Data::repeated>("data.repeated",
                             "Repeated texts: keep them, drop them, or auto: keep samples, whose repetition is a "
                             "weight, and drop documents.")
      .also_called({"deduplicate", "dedup"});
  t.word<d, &Data::long_samples>(
       "data.long_samples",
       "Samples that are longer than a sequence: refuse them, cut their ends off, or drop them.")
      .acts(changes_maths,
            "Samples that are cut teach the beginnings of their answers; samples that are dropped none.", "nothing",
            page("masked_targets"));
}

void train_settings(Table& t) {
  constexpr auto n = &RunConfig::train;
  t.of_steps(t.integer<n, &Train::steps>("train.steps", 1, 1e12,
                                         "Optimizer steps of the whole run; in its place train.minutes ends it by "
                                         "the clock, and train.epochs counts passes over the data.")
                 .also_called({"max_steps", "train_iters", "num_steps", "iterations", "max_iters", "total_steps"}))
      .present = [](const RunConfig& c) { return !c.length().by_clock() && c.train.epochs == 0; };
  Setting& epochs = t.number<n, &Train::epochs>(
      "train.epochs", kTiny, 1e6,
      "Passes over the training data, in place of train.steps; fractions are accepted. The number of steps follows "
      "once the data is known: the smallest that reads the data so often.");
  epochs.also_called({"num_train_epochs", "num_epochs", "n_epochs", "max_epochs", "total_epochs"});
  epochs.present = [](const RunConfig& c) { return c.train.epochs > 0; };
  Setting& epoch_steps =
      t.integer<n, &Train::steps>("train.epoch_steps", 1, 1e12,
                                  "The number of steps that follows from train.epochs. A run writes it into its "
                                  "folder and computes it anew whenever it begins or resumes.");
  epoch_steps.present = [](const RunConfig& c) { return c.train.epochs > 0 && c.train.steps > 0; };
  epoch_steps.unset = "off";
  t.of_clock(t.number<n, &Train::minutes>(
                  "train.minutes", kTiny, 1e8,
                  "Minutes spent in training steps, in place of train.steps: the learning rate follows the clock, "
                  "and the number of steps follows from it. Evaluations, checkpoints and reports are not counted.")
                 .also_called({"exit_duration_in_mins", "max_minutes", "duration"}));
  t.integer<n, &Train::global_batch>("train.global_batch", 1, 1 << 24, "Sequences of one step.")
      .also_called({"batch_size", "global_batch_size", "gbs", "train_batch_size"});
  Setting& ramp =
      t.add("train.batch_ramp", plan::Row::Kind::word,
            "A batch that grows, \"START INCREMENT SEQUENCES\": the first step has START sequences, and "
            "INCREMENT more come at equal parts of the first SEQUENCES that are read, up to "
            "train.global_batch; empty: none.");
  ramp.also_called({"rampup_batch_size", "batch_rampup", "batch_size_rampup", "batch_size_warmup"})
      .acts(changes_maths, "Begins with steps of few sequences: the same data gives more steps.",
            "the steps of each batch are a schedule of their own", page("batch_ramp"));
  ramp.get = [](const RunConfig& c) { return Value(text_of(c.train.batch_ramp)); };
  ramp.check = [](const std::string& text) { parse_batch_ramp(text); };
  ramp.set = [](RunConfig& c, const Value& value) {
    c.train.batch_ramp = parse_batch_ramp(std::get<std::string>(value));
  };
  t.integer<n, &Train::microbatch>("train.microbatch", 1, 1 << 20, "Sequences computed at a time.")
      .also_called({"micro_batch_size", "microbatch_size", "mbs", "per_device_train_batch_size"});
  t.integer<n, &Train::sequence_length>("train.sequence_length", 1, 1 << 24, "Tokens of a sequence.")
      .also_called({"seq_len", "seq_length", "seqlen", "context_length", "block_size", "max_seq_len", "n_ctx"});
  t.number<n, &Train::learning_rate>("train.learning_rate", 0, 100, "Highest learning rate, after the warm-up.")
      .also_called({"lr", "max_lr", "peak_lr"});
  t.number<n, &Train::min_learning_rate>("train.min_learning_rate", 0, 100,
                                         "Learning rate at the end of the decay.")
      .also_called({"min_lr", "lr_min"});
  t.word<n, &Train::schedule>(
       "train.schedule",
       "Learning rate after the warm-up: cosine and linear fall all the time; wsd is constant and falls in the "
       "last train.decay_steps (train.decay_fraction by the clock); inverse_sqrt falls as one over the root of the "
       "steps, not below train.min_learning_rate.")
      .also_called({"lr_decay_style", "lr_scheduler", "lr_scheduler_type", "lr_schedule"});
  t.of_steps(
      t.integer<n, &Train::warmup_steps>("train.warmup_steps", 0, 1e12,
                                         "Steps in which the learning rate rises from 0.")
          .also_called({"warmup", "lr_warmup_iters", "num_warmup_steps", "warmup_iters", "lr_warmup_steps"}));
  t.of_steps(t.integer<n, &Train::decay_steps>("train.decay_steps", 0, 1e12,
                                               "Last steps of wsd, in which the learning rate falls.")
                 .also_called({"lr_wsd_decay_iters", "lr_decay_iters"}));
  t.of_clock(t.number<n, &Train::warmup_fraction>(
                  "train.warmup_fraction", 0, 1,
                  "With train.minutes: the first part of the time, in which the learning rate rises from 0.")
                 .also_called({"warmup_ratio", "lr_warmup_fraction"}))
      .unset = "0.05";
  t.of_clock(t.number<n, &Train::decay_fraction>(
                 "train.decay_fraction", 0, 1,
                 "With train.minutes: the last part of the time, in which the learning rate of wsd falls."))
      .unset = "0.25";
  t.of_plan("train");
  t.integer<n, &Train::skip_window>(
      "train.skip_window", 1, 10000,
      "Applied steps over which the medians for outliers are taken (train.skip_norm_above, train.skip_loss_above). "
      "Before there are so many, only steps that are not finite are left out.");
  t.integer<n, &Train::roll_back_after>(
      "train.roll_back_after", 0, 1e9,
      "After so many steps left out in a row the run returns to its newest checkpoint from before them and goes on "
      "with the data after them; 0: never.");
  t.integer<n, &Train::checkpoint_every>("train.checkpoint_every", 0, 1e12,
                                         "Steps between checkpoints; 0: only at the end.")
      .also_called({"save_interval", "save_steps", "save_every", "checkpoint_interval"});
  t.number<n, &Train::mtbf_hours>("train.mtbf_hours", 0, 1e6,
                                  "Hours between failures of the whole job: train.snapshot_every and "
                                  "train.checkpoint_every are then only first values, and are chosen anew from the "
                                  "measured costs of snapshots and checkpoints; 0: they are as configured.");
  t.integer<n, &Train::digest_every>("train.digest_every", 0, 1e12,
                                     "Steps between digests of the weights in metrics.jsonl, which `heddle audit` "
                                     "compares; 0: each step on the CPU, "
                                     "with each checkpoint elsewhere.");
  t.integer<n, &Train::compare_copies_every>("train.compare_copies_every", 0, 1e12,
                                             "Steps between comparisons of the weights that several ranks hold; a "
                                             "run whose replicas differ ends. 0: never.");
  t.integer<n, &Train::record_ops>("train.record_ops", 0, 1e6,
                                   "Number of last steps whose digests of every op's results are kept. `heddle "
                                   "audit` finds the faulty op by them. 0: none.");
  t.integer<n, &Train::keep_checkpoints>("train.keep_checkpoints", 1, 1e6,
                                         "Number of newest checkpoints that are kept.")
      .also_called({"save_total_limit"});
  t.integer<n, &Train::eval_every>("train.eval_every", 0, 1e12,
                                   "Steps between evaluations on the held-out text; 0: never.")
      .also_called({"eval_interval", "eval_steps"});
  t.integer<n, &Train::eval_sequences>("train.eval_sequences", 0, 1e9, "Held-out sequences of one evaluation.")
      .also_called({"eval_iters"});
  t.word<n, &Train::sample_prompt>("train.sample_prompt", "Text that the model continues at each evaluation.")
      .text = true;
  t.integer<n, &Train::sample_tokens>("train.sample_tokens", 0, 1 << 20, "Tokens of that continuation; 0: none.");
  t.number<n, &Train::sample_temperature>("train.sample_temperature", 0, 100,
                                          "Its temperature; 0: always the likeliest token.");
  t.integer<n, &Train::trace_step>(
      "train.trace_step", 0, 1e12,
      "The step whose ops the report shows one by one, counted from where this run begins or resumes; 0: none.");
  Setting& timed = t.add("train.op_times_steps", plan::Row::Kind::word,
                         "Steps whose ops are timed on every rank, as in 100-104, for op_times.json in the run's "
                         "folder; empty: none but after an alarm, and when `heddle watch --ops` asks.");
  timed.get = [](const RunConfig& c) { return Value(text_of(c.train.op_times_steps)); };
  timed.check = [](const std::string& text) { parse_step_range(text); };
  timed.set = [](RunConfig& c, const Value& value) {
    c.train.op_times_steps = parse_step_range(std::get<std::string>(value));
  };
  t.word<n, &Train::alarm_command>(
      "train.alarm_command",
      "A program with arguments, separated by blanks, without a shell. Rank 0 runs it when a slow rank or link is "
      "found or has recovered. It reads one JSON object and has 30 s. Empty: none.");
  t.word<n, &Train::start>(
       "train.start",
       "Weights to begin from, in any layout: a run's folder, a checkpoint, or a released model's "
       "folder; empty: drawn from the seed. (A run that was stopped goes on with --resume.)")
      .also_called({"load", "pretrained_checkpoint", "init_from", "model_name_or_path", "finetune"});
  t.word<n, &Train::start_moments>("train.start_moments",
                                   "The optimizer's moments with train.start: fresh begins them at zero, kept "
                                   "takes those of the run or checkpoint.")
      .also_called({"no_load_optim"});
  t.word<n, &Train::start_adapter>("train.start_adapter",
                                   "Adapters to begin from beside frozen weights (lora.rank): a folder with PEFT's "
                                   "adapter_config.json and adapter_model.safetensors; empty: anew.")
      .also_called({"adapter_name_or_path", "peft_model_id"});
}

void device_settings(Table& t) {
  constexpr auto d = &RunConfig::device;
  t.word<d, &Device::backend>(
       "device.backend",
       "host: the CPU's fast kernels; cuda: an NVIDIA GPU a rank; reference: plain loops, which "
       "define the results.",
       {"host", "cuda", "reference"})
      .also_called({"accelerator"});
  t.integer<d, &Device::threads>("device.threads", 0, 4096, "Threads of the compute stream; 0: every core.")
      .also_called({"num_threads", "omp_num_threads"});
  t.word<d, &Device::dtype>(
       "device.dtype",
       "Element type of weights and activations; auto is bf16 where the processor multiplies it, "
       "else f32.")
      .also_called({"precision", "bf16", "mixed_precision", "torch_dtype", "params_dtype"})
      .acts(changes_maths,
            "Element type of weights and activations; sums, norms, router and optimizer are fp32 (fp64 with f64). "
            "Auto is the faster one here: bf16 where matrix products multiply bf16 numbers (a GPU, AMX, AVX-512 "
            "bf16), else f32.",
            "bf16 halves activations and kernel weights but keeps fp32 masters beside them; f64 runs on the "
            "reference backend only",
            page("dtype"));
  t.bytes<d, &Device::memory_bytes>("device.memory_bytes", 0, 9e18,
                                    "The most that a rank's arena may take, such as \"4GiB\"; 0: what the "
                                    "machine has.")
      .also_called({"memory_limit", "max_memory"});
  t.of_plan("device");
  t.boolean<d, &Device::deterministic>("device.deterministic", "Every sum has one fixed order; always on.")
      .acts(bitwise,
            "Every sum has one fixed order, so that a run repeats bit for bit. Always on: there is no unordered "
            "mode.",
            "none", page("deterministic"))
      .words = {"true"};
}

void mesh_settings(Table& t) {
  t.integer<&RunConfig::mesh_ranks>("mesh.ranks", 0, kMostRanks,
                                    "Ranks of the run; 0: as many as the degrees multiply to. The same as --ranks.")
      .also_called({"world_size", "num_gpus", "n_gpus", "nproc_per_node"})
      .acts(reassociates, "How many ranks work on the run, as threads of one process or under MPI.",
            "none by itself: the degrees decide what the ranks do, and mesh.dp takes the rest", page("mesh"))
      .tried({2});
  t.of_plan("mesh");
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = [] {
    Table t;
    run_settings(t);
    model_settings(t);
    data_settings(t);
    train_settings(t);
    t.of_plan("lora");
    device_settings(t);
    mesh_settings(t);
    for (const char* section : {"parallel", "moe", "memory", "fusions"}) t.of_plan(section);
    return t.take();
  }();
  return all;
}

std::vector<std::pair<std::string, std::string>> setting_texts(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Setting& s : settings()) {
    if (!s.present || s.present(config)) texts.emplace_back(s.key, s.text_of(s.get(config)));
  }
  return texts;
}

const Setting* find_setting(std::string_view key) {
  for (const Setting& s : settings()) {
    if (s.key == key) return &s;
  }
  return nullptr;
}

std::vector<std::string> setting_keys() {
  std::vector<std::string> keys{"model.preset", "model.hf"};
  for (const Setting& s : settings()) keys.push_back(s.key);
  return keys;
}

}  // namespace heddle::config
