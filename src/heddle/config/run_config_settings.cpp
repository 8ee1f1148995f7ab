// The table of configuration keys: type, bounds, meaning.
#include <cmath>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"
#include "heddle/model/keys.h"
#include "heddle/passes/offload.h"
#include "heddle/plan/switches.h"

namespace heddle::config {

namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr double kTiny = std::numeric_limits<double>::min();

using Data = RunConfig::Data;
using Train = RunConfig::Train;
using Device = RunConfig::Device;

template <class T>
Value value_of(const T& t) {
  return Value(t);
}

// A key that is a member of RunConfig, or a member of one of its sections.
template <auto... members>
void bind(Setting& s) {
  s.get = [](const RunConfig& c) { return value_of((c.*....*members)); };
  s.set = [](RunConfig& c, const Value& v) {
    auto& field = (c.*....*members);
    field = std::get<std::remove_reference_t<decltype(field)>>(v);
  };
}

class Table {
 public:
  template <auto... members>
  Setting& integer(std::string key, double least, double most, std::string meaning) {
    return add<members...>(std::move(key), Setting::Kind::integer, std::move(meaning), least, most);
  }
  template <auto... members>
  Setting& number(std::string key, double least, double most, std::string meaning) {
    return add<members...>(std::move(key), Setting::Kind::number, std::move(meaning), least, most);
  }
  template <auto... members>
  void boolean(std::string key, std::string meaning) {
    add<members...>(std::move(key), Setting::Kind::boolean, std::move(meaning));
  }
  template <auto... members>
  Setting& word(std::string key, std::string meaning, std::vector<std::string> accepted = {}) {
    Setting& s = add<members...>(std::move(key), Setting::Kind::word, std::move(meaning));
    s.words = std::move(accepted);
    return s;
  }
  template <auto... members>
  void bytes(std::string key, double least, double most, std::string meaning) {
    add<members...>(std::move(key), Setting::Kind::bytes, std::move(meaning), least, most);
  }
  template <auto... members>
  Setting& add(std::string key, Setting::Kind kind, std::string meaning, double least = 0, double most = 0) {
    Setting& s = all_.emplace_back();
    s.key = std::move(key);
    s.kind = kind;
    s.meaning = std::move(meaning);
    s.least = least;
    s.most = most;
    if (const plan::Switch* known = plan::find_switch(s.key)) s.words = known->values;
    if (kind == Setting::Kind::boolean && s.words.size() == 2) s.words.clear();
    bind<members...>(s);
    return s;
  }
  void model(const model::Key& key) {
    Setting& s = all_.emplace_back();
    s.key = "model." + key.name;
    switch (key.kind) {
      case model::Key::Kind::boolean: s.kind = Setting::Kind::boolean; break;
      case model::Key::Kind::integer: s.kind = Setting::Kind::integer; break;
      case model::Key::Kind::number: s.kind = Setting::Kind::number; break;
      case model::Key::Kind::word: s.kind = Setting::Kind::word; break;
    }
    s.meaning = key.meaning;
    s.least = key.least;
    s.most = key.most;
    s.words = key.words;
    if (!key.open.empty()) s.unset = key.open;
    if (key.of == model::Key::Of::grouped) s.unset = s.text_of(key.get(model::ModelConfig()));
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
  void fusion(const std::string& name) {
    const plan::Switch* known = plan::find_switch("fusions." + name);
    HEDDLE_CHECK(known != nullptr, "the fusion '{}' is no switch", name);
    Setting& s = all_.emplace_back();
    s.key = known->key;
    s.kind = Setting::Kind::boolean;
    s.meaning = known->effect;
    s.get = [name](const RunConfig& c) { return Value(c.fusions.contains(name)); };
    s.set = [name](RunConfig& c, const Value& v) {
      if (std::get<bool>(v)) {
        c.fusions.insert(name);
      } else {
        c.fusions.erase(name);
      }
    };
  }
  std::vector<Setting> take() { return std::move(all_); }

 private:
  std::vector<Setting> all_;
};

void run_settings(Table& t) {
  t.word<&RunConfig::name>("name", "What the run is called: in its report and in the name of its folder.");
  t.integer<&RunConfig::seed>("seed", 0, 9.2e18, "Of the weights' start and the order of the data.");
  t.word<&RunConfig::output>("output", "The run's folder; empty stands for runs/NAME.");
}

void model_settings(Table& t) {
  for (const model::Key& key : model::keys()) t.model(key);
}

void data_settings(Table& t) {
  constexpr auto d = &RunConfig::data;
  t.word<d, &Data::source>("data.source",
                           "\"demo\" (novels and dictionaries of Debian packages), a .txt or .jsonl file or a "
                           "folder of them, or the prefix "
                           "of a token file (PREFIX.bin and PREFIX.idx).");
  t.word<d, &Data::folder>("data.folder", "Where tokenizer and token file are prepared.");
  t.word<d, &Data::tokenizer>("data.tokenizer", "A tokenizer.json to use; empty: one is trained on the text.");
  t.integer<d, &Data::vocabulary>("data.vocabulary", 0, 1 << 21,
                                  "Tokens of a tokenizer that is trained; 0 stands for model.vocab_size.");
  t.number<d, &Data::heldout_fraction>("data.heldout_fraction", 0, 0.5, "Share of documents kept out of training.");
}

void train_settings(Table& t) {
  constexpr auto n = &RunConfig::train;
  t.of_steps(t.integer<n, &Train::steps>("train.steps", 1, 1e12,
                                         "Optimizer steps of the whole run; train.minutes in its place ends it by "
                                         "the clock."));
  t.of_clock(t.number<n, &Train::minutes>(
      "train.minutes", kTiny, 1e8,
      "Minutes spent in training steps, in place of train.steps: the learning rate follows the clock, and steps "
      "come "
      "out as they do. Looks at the held-out text, checkpoints and reports are not counted."));
  t.integer<n, &Train::global_batch>("train.global_batch", 1, 1 << 24, "Sequences of one step.");
  t.integer<n, &Train::microbatch>("train.microbatch", 1, 1 << 20, "Sequences computed at a time.");
  t.integer<n, &Train::sequence_length>("train.sequence_length", 1, 1 << 24, "Tokens of a sequence.");
  t.number<n, &Train::learning_rate>("train.learning_rate", 0, 100, "Highest learning rate, after the warm-up.");
  t.number<n, &Train::min_learning_rate>("train.min_learning_rate", 0, 100,
                                         "Learning rate at the end of the decay.");
  t.word<n, &Train::schedule>(
      "train.schedule",
      "How the learning rate goes after the warm-up: cosine falls all the time, wsd is constant "
      "and falls in the last train.decay_steps (train.decay_fraction by the clock).",
      {"cosine", "wsd", "constant"});
  t.of_steps(t.integer<n, &Train::warmup_steps>("train.warmup_steps", 0, 1e12,
                                                "Steps in which the learning rate rises from 0."));
  t.of_steps(t.integer<n, &Train::decay_steps>("train.decay_steps", 0, 1e12,
                                               "Last steps of wsd, in which the learning rate falls."));
  t.of_clock(t.number<n, &Train::warmup_fraction>(
                 "train.warmup_fraction", 0, 1,
                 "With train.minutes: the first part of the time, in which the learning rate rises from 0."))
      .unset = "0.05";
  t.of_clock(t.number<n, &Train::decay_fraction>(
                 "train.decay_fraction", 0, 1,
                 "With train.minutes: the last part of the time, in which the learning rate of wsd falls."))
      .unset = "0.25";
  t.number<n, &Train::beta1>("train.beta1", 0, 0.999999, "AdamW: decay of the first moment.");
  t.number<n, &Train::beta2>("train.beta2", 0, 0.99999999, "AdamW: decay of the second moment.");
  t.number<n, &Train::epsilon>("train.epsilon", 1e-30, 1, "AdamW: added to the root of the second moment.");
  t.number<n, &Train::weight_decay>("train.weight_decay", 0, 100,
                                    "AdamW: decay of matrices, apart from the gradient.");
  t.number<n, &Train::clip_norm>("train.clip_norm", 0, 1e12, "Largest norm of the whole gradient; 0 is off.");
  t.boolean<n, &Train::exact_sums>("train.exact_sums", "Sums of weight gradients that no layout of ranks changes.");
  t.integer<n, &Train::checkpoint_every>("train.checkpoint_every", 0, 1e12,
                                         "Steps between checkpoints; 0: only at the end.");
  t.integer<n, &Train::keep_checkpoints>("train.keep_checkpoints", 1, 1e6,
                                         "So many of the newest checkpoints stay.");
  t.integer<n, &Train::eval_every>("train.eval_every", 0, 1e12,
                                   "Steps between looks at the held-out text; 0: never.");
  t.integer<n, &Train::eval_sequences>("train.eval_sequences", 0, 1e9, "Held-out sequences of one look.");
  t.word<n, &Train::sample_prompt>("train.sample_prompt", "Text that the model continues at each look.").text =
      true;
  t.integer<n, &Train::sample_tokens>("train.sample_tokens", 0, 1 << 20, "Tokens of that continuation; 0: none.");
  t.number<n, &Train::sample_temperature>("train.sample_temperature", 0, 100,
                                          "Its temperature; 0: always the likeliest token.");
  t.integer<n, &Train::trace_step>(
      "train.trace_step", 0, 1e12,
      "The step, counted from where this run begins or goes on, whose ops the report shows one "
      "by one; 0: none.");
}

void device_settings(Table& t) {
  constexpr auto d = &RunConfig::device;
  t.word<d, &Device::backend>(
      "device.backend",
      "host: the CPU's fast kernels; cuda: an NVIDIA GPU a rank; reference: plain loops, which "
      "define the results.",
      {"host", "cuda", "reference"});
  t.integer<d, &Device::threads>("device.threads", 0, 4096, "Threads of the compute stream; 0: every core.");
  t.word<d, &Device::dtype>(
      "device.dtype",
      "Element type of weights and activations; auto is bf16 where the processor multiplies it, "
      "else f32.",
      {"auto", "bf16", "f32", "f64"});
  t.bytes<d, &Device::memory_bytes>("device.memory_bytes", 0, 9e18,
                                    "The most that a rank's arena may take, such as \"4GiB\"; 0: what the "
                                    "machine has.");
  t.boolean<d, &Device::pack_weights>("device.pack_weights", "Keep weights in the matrix products' own blocking.");
  t.boolean<d, &Device::graphs>("device.graphs",
                                "On cuda, put runs of launches that repeat on a stream as one CUDA graph.");
  t.boolean<d, &Device::deterministic>("device.deterministic", "Every sum has one fixed order; always on.");
}

void mesh_settings(Table& t) {
  constexpr auto m = &RunConfig::mesh;
  using Mesh = RunConfig::Mesh;
  t.integer<m, &Mesh::ranks>("mesh.ranks", 0, kMostRanks,
                             "Ranks of the run; 0: as many as the degrees multiply to. The same as --ranks.");
  t.integer<m, &Mesh::tp>("mesh.tp", 1, 4096, "Tensor parallel ranks: heads, widths and vocabulary are cut.");
  t.integer<m, &Mesh::cp>("mesh.cp", 1, 4096, "Context parallel ranks: sequences are cut.");
  t.integer<m, &Mesh::dp>("mesh.dp", 0, 4096,
                          "Data parallel ranks: the batch is cut; 0: what tp, cp and pp leave of the ranks.");
  t.integer<m, &Mesh::pp>("mesh.pp", 1, 4096, "Pipeline stages: layers are cut.");
  t.integer<m, &Mesh::ep>("mesh.ep", 1, 4096, "Expert parallel ranks: a stage's experts are cut among them.");
  t.integer<m, &Mesh::etp>("mesh.etp", 1, 4096, "Tensor parallel ranks of an expert: its width is cut.");
  t.word<m, &Mesh::order>("mesh.order", "The axes of the ranks, neighbours first.");
  t.word<m, &Mesh::expert_order>("mesh.expert_order",
                                 "The axes of a stage's ranks as the experts see them, neighbours first.");
}

void parallel_settings(Table& t) {
  constexpr auto p = &RunConfig::parallel;
  using P = RunConfig::Parallel;
  t.word<p, &P::schedule>(
      "parallel.schedule",
      "Order of forwards and backwards in the pipeline: a name of `heddle schedule`, or a file with "
      "a schedule's text form.");
  t.integer<p, &P::chunks>("parallel.chunks", 0, 1024,
                           "Pipeline stages a rank, where the schedule leaves it open; 0: its usual number.");
  t.integer<p, &P::group>("parallel.group", 0, 1 << 20,
                          "Microbatches that an interleaved schedule takes at a time; 0: as many as mesh.pp.");
  t.word<p, &P::layout>("parallel.layout",
                        "Layers of each pipeline stage: even, balanced, or letters such as \"Ettt|tt|ttL\".");
  t.word<p, &P::weave>("parallel.weave",
                       "Which blocks are rearranged so that communication runs beside computation.",
                       {"off", "layers", "pairs"});
  t.word<p, &P::context>("parallel.context",
                         "How attention meets the keys that other ranks of the context axis hold.",
                         {"gather", "ulysses", "ring"});
  t.word<p, &P::exchange>("parallel.exchange", "How rows reach experts on other ranks.",
                          {"plain", "rank", "node", "merge", "auto"});
  t.boolean<p, &P::reuse_lists>("parallel.reuse_lists",
                                "The counts of a MoE layer's rows go to the host once a microbatch.");
  t.number<p, &P::within_rate>("parallel.within_rate", 1e-6, 1e6,
                               "GB/s of a rank to others of its node; what exchange auto reckons with.");
  t.number<p, &P::across_rate>("parallel.across_rate", 1e-6, 1e6, "GB/s of a node to others; likewise.");
  t.number<p, &P::within_latency_us>("parallel.within_latency_us", 0, 1e9, "Of a hop within a node; likewise.");
  t.number<p, &P::across_latency_us>("parallel.across_latency_us", 0, 1e9, "Of a hop across nodes; likewise.");
}

void memory_settings(Table& t) {
  Setting& recompute = t.add<&RunConfig::memory, &RunConfig::Memory::recompute>(
      "memory.recompute", Setting::Kind::list, "What the backward makes again instead of keeping it.");
  recompute.check = [](const std::string& text) { passes::parse_groups(text, "recompute"); };
  Setting& offload = t.add<&RunConfig::memory, &RunConfig::Memory::offload>(
      "memory.offload", Setting::Kind::list, "What waits for the backward on the host.");
  t.number<&RunConfig::memory, &RunConfig::Memory::host_rate>(
      "memory.host_rate", 0, 1e6,
      "GB/s between device and host, by which offload reckons what may go; 0: usual for the backend.");
  offload.check = [](const std::string& text) { passes::parse_groups(text, "offload", {passes::kLayerInput}); };
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> all = [] {
    Table t;
    run_settings(t);
    model_settings(t);
    data_settings(t);
    train_settings(t);
    device_settings(t);
    mesh_settings(t);
    parallel_settings(t);
    memory_settings(t);
    for (const std::string& name : passes::fusion_names()) t.fusion(name);
    return t.take();
  }();
  return all;
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

std::string Setting::accepted() const {
  if (kind == Kind::list) return fmt::format("a list of {}", fmt::join(words, ", "));
  if (!words.empty()) return fmt::format("{}", fmt::join(words, ", "));
  const auto range = [&](std::string_view what) {
    const bool bounded = most < (kind == Kind::number ? 1e6 : 1e9) && most < kAny;
    if (bounded) return fmt::format("{} from {} to {}", what, least == kTiny ? 0 : least, most);
    if (least == kTiny) return fmt::format("{} above 0", what);
    return fmt::format("{} of {} or more", what, least);
  };
  switch (kind) {
    case Kind::boolean: return "true or false";
    case Kind::integer: return range("an integer");
    case Kind::number: return range("a number");
    case Kind::bytes: return "a size such as \"4GiB\", or bytes";
    case Kind::word: return "a text";
    case Kind::list: break;
  }
  return "?";
}

}  // namespace heddle::config
