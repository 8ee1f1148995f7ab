// heddle convert: a released model to a run's folder, and a run to a released model's, tensor by tensor.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/say.h"
#include "heddle/cli/command.h"
#include "heddle/cli/commands.h"
#include "heddle/config/model_json.h"
#include "heddle/data/tokenizer/files/tokenizer_files.h"
#include "heddle/observe/units.h"
#include "heddle/session/run_data.h"
#include "heddle/session/run_folder.h"
#include "heddle/session/text/companions.h"
#include "heddle/train/adapters/base.h"
#include "heddle/train/adapters/peft_files.h"
#include "heddle/train/audit/digest_sums.h"
#include "heddle/train/average.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/released_source.h"

namespace heddle::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kWeightsOf = "weights of";  // a released model's folder, which a checkpoint was made of
constexpr int64_t kChunkElements = int64_t{1} << 20;

struct ConvertOptions {
  std::string from, to;
  std::string dtype = "bf16";
  std::string shard_bytes = "5GiB";
  int64_t average = 0;  // checkpoints; 0: none
  std::string base;     // how an adapter names the model beneath it
  bool adapter = false, merge = false, averaged = false, json = false;
};

/// Figures reported at the end.
struct Converted {
  std::string kind, folder;
  int64_t tensors = 0, parameters = 0, bytes = 0;
  std::string tokenizer;
  std::vector<std::string> notes;
};

std::string path_in(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

int64_t elements_of(const std::vector<train::ParameterTensor>& parameters) {
  int64_t count = 0;
  for (const train::ParameterTensor& each : parameters) count += each.tensor.elements();
  return count;
}

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

Converted to_run(const std::string& from, const std::string& to) {
  Converted done{.kind = "run", .folder = to};
  config::RunConfig config;
  config.model = config::read_huggingface_config(path_in(from, "config.json"), &done.notes);
  config.name = fs::path(to).filename().string();
  config.output = to;
  const std::string tokenizer = data::tokenizer_in(from);
  config.train.sequence_length =
      std::min<int64_t>(config.train.sequence_length, config.model.max_position_embeddings);
  const plan::Lowered lowered = train::text_of_model(config.model);
  const std::vector<train::StateTensor> state = train::state_tensors(lowered, plan::Mesh({}));
  const std::vector<train::ParameterTensor> parameters = train::master_tensors(lowered, plan::Mesh({}));
  const train::ReleasedSource source(from, parameters);
  data::TokenizerFiles files;
  if (!tokenizer.empty()) {
    files = data::load_tokenizer(tokenizer);
    session::check_vocabulary(tokenizer, data::Tokenizer(files.spec, tokenizer).vocabulary(),
                              config.model.vocab_size);
  }

  session::HeldFolder held = session::new_run_folder(config);
  std::map<std::string_view, size_t> index;
  for (size_t i = 0; i < parameters.size(); ++i) index[parameters[i].tensor.name] = i;
  std::vector<formats::TensorHeading> headings;
  for (const train::StateTensor& tensor : state) headings.push_back({tensor.name, tensor.dtype, tensor.shape});
  train::CheckpointState at;
  at.model = config.model;
  at.seed = static_cast<uint64_t>(config.seed);
  at.layout = {{kWeightsOf, fs::absolute(from).lexically_normal().string()}};
  std::vector<uint8_t> chunk(static_cast<size_t>(kChunkElements) * 8);
  session::keep_companions(from, to);
  train::save_checkpoint(held.folder.checkpoints(), at, headings,
                         [&](const formats::TensorHeading& tensor, const auto& write) {
                           const int64_t width = size_of(tensor.dtype), elements = tensor.size_bytes() / width;
                           const auto known = index.find(tensor.name);
                           if (known == index.end()) std::fill(chunk.begin(), chunk.end(), uint8_t{0});  // moments
                           for (int64_t first = 0; first < elements; first += kChunkElements) {
                             const int64_t count = std::min(kChunkElements, elements - first);
                             if (known != index.end())
                               source.read(known->second, first, count, tensor.dtype, chunk.data());
                             write(chunk.data(), static_cast<size_t>(count * width));
                           }
                         });
  if (!tokenizer.empty()) data::keep_tokenizer(files, to);
  config.data.tokenizer = done.tokenizer = held.folder.tokenizer();
  config.data.source = "";                                    // its training data are not known here
  write_file(held.folder.config(), config::toml_of(config));  // from here on the folder holds a run
  done.tensors = std::ssize(parameters);
  done.parameters = elements_of(parameters);
  done.bytes = bytes_in(to);
  return done;
}

bool keeps_averages(const train::Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const train::SavedTensor& tensor) { return tensor.name.starts_with("average."); });
}

// Points parameters at the tensors of a checkpoint, or at the averages that it keeps of them.
void take_stored(const train::Checkpoint& checkpoint, std::vector<train::ParameterTensor>& parameters,
                 bool averaged = false) {
  for (train::ParameterTensor& each : parameters) {
    const bool takes_average = averaged && each.parameter.trained && !each.parameter.frozen;
    const train::SavedTensor& stored =
        checkpoint.at(takes_average ? "average." + each.tensor.name : each.tensor.name);
    if (stored.shape != each.tensor.shape)
      config_error("{}: tensor '{}' is [{}], [{}] is expected", checkpoint.path(), stored.name,
                   fmt::join(stored.shape, ", "), fmt::join(each.tensor.shape, ", "));
    // A weight that is not trained has no master: it lies in the run's own type.
    const bool is_weight = !each.parameter.trained && stored.type == formats::StoredType::bf16;
    each.tensor.dtype = is_weight ? Dtype::bf16 : stored.type == formats::StoredType::f64 ? Dtype::f64 : Dtype::f32;
    if (stored.type != formats::stored_type(each.tensor.dtype))
      config_error("{}: tensor '{}' is {}, F32 is expected", checkpoint.path(), stored.name, name_of(stored.type));
    // The exported tensors are only read.
    each.tensor.pieces.clear();
    for (const auto& piece : stored.pieces())
      each.tensor.pieces.emplace_back(const_cast<uint8_t*>(piece.data()), piece.size());
  }
}

// The adapters that a checkpoint holds.
std::vector<train::ParameterTensor> stored_adapters(const train::Checkpoint& checkpoint,
                                                    const std::vector<train::ParameterTensor>& all) {
  std::vector<train::ParameterTensor> own = all;
  std::erase_if(own, [](const train::ParameterTensor& each) { return each.parameter.frozen; });
  take_stored(checkpoint, own);
  return own;
}

/// The run that a checkpoint is of.
std::string run_of(const train::Checkpoint& checkpoint) {
  return fs::path(checkpoint.path()).parent_path().parent_path().string();
}

// Writes a released model, in the type and the shards that are asked for, with what stands beside `run`.
void write_released(const std::string& to, const model::ModelConfig& model,
                    const std::vector<train::ParameterTensor>& parameters, const std::string& run,
                    const ConvertOptions& options) {
  train::Release how{.stored = options.dtype == "f32"   ? Dtype::f32
                               : options.dtype == "f64" ? Dtype::f64
                                                        : Dtype::bf16,
                     .shard_bytes = config::parse_bytes(options.shard_bytes)};
  session::add_companions(run, model.max_position_embeddings, how);
  train::export_released(to, model, parameters, how);
}

// Returns loadable weights beneath an adapter, given those at `path`: a released folder, also one that they were
// taken in from. Otherwise they are exported, beside the adapter.
std::string loadable_base(const std::string& path, const ConvertOptions& options, Converted& done) {
  if (!options.base.empty()) return options.base;
  const auto told = [&](const std::string& base, const std::string& why) {
    done.notes.push_back(fmt::format("base_model_name_or_path is {}, {}; --base names another", base, why));
    return base;
  };
  if (path.empty()) {
    done.notes.emplace_back(
        "base_model_name_or_path is empty: the weights beneath were drawn from the seed, and lie nowhere");
    return "";
  }
  if (!fs::exists(path_in(path, "state.json"))) return told(path, "the released model that the run began from");
  const train::Checkpoint beneath(path);
  const train::CheckpointState& state = beneath.state();
  const auto from = state.layout.find(kWeightsOf);
  if (state.step == 0 && from != state.layout.end() && fs::exists(path_in(from->second, "config.json")))
    return told(from->second, "the released model that the run's frozen weights are from");
  const std::string base = fs::absolute(path_in(options.to, "base")).lexically_normal().string();
  std::vector<train::ParameterTensor> weights = train::masters_of_model(state.model);
  take_stored(beneath, weights);
  write_released(base, state.model, weights, run_of(beneath), options);
  return told(base, fmt::format("made of {}", path));
}

Converted to_adapter(const train::Checkpoint& checkpoint, const ConvertOptions& options) {
  Converted done{.kind = "PEFT adapter", .folder = options.to};
  if (fs::exists(path_in(options.to, "adapter_config.json")))
    config_error("--to {}: the folder holds an adapter already", options.to);
  const train::CheckpointState& state = checkpoint.state();
  const passes::Adapters chosen = train::adapters_of(state.adapters, checkpoint.path());
  std::vector<train::ParameterTensor> all = train::masters_of_model(state.model, chosen);
  const std::vector<train::ParameterTensor> own = stored_adapters(checkpoint, all);
  std::erase_if(all, [](const train::ParameterTensor& each) { return !each.parameter.frozen; });
  all.insert(all.end(), own.begin(), own.end());
  const std::string base = loadable_base(train::base_path_of(state.adapters), options, done);
  train::export_adapters(options.to, state.model, chosen, all, base);
  done.tensors = std::ssize(own);
  done.parameters = elements_of(own);
  done.bytes = bytes_in(options.to);
  return done;
}

/// Weights with adapters merged into them, in f32, and where they lie.
struct Merged {
  std::vector<std::vector<float>> values;
  std::vector<train::ParameterTensor> parameters;
};

Merged merged(const train::Checkpoint& checkpoint) {
  const train::CheckpointState& state = checkpoint.state();
  const passes::Adapters chosen = train::adapters_of(state.adapters, checkpoint.path());
  const std::string base = train::base_path_of(state.adapters);
  if (base.empty())
    config_error("{}: its frozen weights were drawn from the seed: --adapter alone", checkpoint.path());
  if (!fs::exists(base)) config_error("{}: its frozen weights are gone: {}", checkpoint.path(), base);
  if (const auto was = state.adapters.find("digest of the base");
      was == state.adapters.end() || was->second != train::digest_of_weights(base))
    config_error("{}: {} holds other weights than its adapters belong to", checkpoint.path(), base);
  Merged all;
  all.parameters = train::masters_of_model(state.model);
  std::optional<train::Checkpoint> stored;
  std::optional<train::ReleasedSource> released;
  if (fs::exists(path_in(base, "state.json"))) {
    stored.emplace(base);
  } else {
    released.emplace(base, all.parameters);
  }
  for (size_t i = 0; i < all.parameters.size(); ++i) {
    formats::LogicalTensor& tensor = all.parameters[i].tensor;
    tensor.dtype = Dtype::f32;
    std::vector<float>& values = all.values.emplace_back(static_cast<size_t>(tensor.elements()));
    if (stored) {
      const train::SavedTensor& from = stored->at(tensor.name);
      if (from.elements() != tensor.elements())
        config_error("{}: tensor '{}' has {} elements, {} are expected", base, tensor.name, from.elements(),
                     tensor.elements());
      from.read(0, tensor.elements(), Dtype::f32, values.data());
    } else {
      released->read(i, 0, tensor.elements(), Dtype::f32, values.data());
    }
    tensor.pieces = {{reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(float)}};
  }
  train::merge_adapters(chosen, stored_adapters(checkpoint, train::masters_of_model(state.model, chosen)),
                        all.parameters);
  return all;
}

Converted to_released(const std::string& from, const ConvertOptions& options) {
  Converted done{.kind = "released model", .folder = options.to};
  if (fs::exists(path_in(options.to, "config.json")))
    config_error("--to {}: the folder holds a model already", options.to);
  const bool is_run = fs::exists(path_in(from, "checkpoints"));
  const train::Checkpoint checkpoint =
      train::open_checkpoint(is_run ? path_in(from, "checkpoints") : from, &done.notes);
  for (std::string& refused : done.notes) refused = "passed over: " + refused;
  const bool adapted = !checkpoint.state().adapters.empty();
  if (adapted && !options.adapter && !options.merge)
    config_error("{}: it holds adapters alone: --adapter writes them, --merge the model with them", from);
  if (!adapted && (options.adapter || options.merge))
    config_error("{}: it holds no adapters, --{} is for those", from, options.adapter ? "adapter" : "merge");
  if (options.averaged && (adapted || !keeps_averages(checkpoint)))
    config_error("{}: {}", from,
                 adapted ? "--averaged is for a run of all weights"
                         : "it keeps no average of its weights (train.average_decay)");
  if (!options.base.empty() && !options.adapter) config_error("--base is for an adapter: --adapter");
  if (options.adapter) {
    Converted adapter = to_adapter(checkpoint, options);
    adapter.notes.insert(adapter.notes.begin(), done.notes.begin(), done.notes.end());
    return adapter;
  }
  const model::ModelConfig& model = checkpoint.state().model;
  Merged all;
  if (adapted) {
    all = merged(checkpoint);
  } else {
    all.parameters = train::masters_of_model(model);
    take_stored(checkpoint, all.parameters, options.averaged);
  }
  const std::vector<train::ParameterTensor>& parameters = all.parameters;
  write_released(options.to, model, parameters, is_run ? from : run_of(checkpoint), options);
  done.tensors = std::ssize(parameters);
  done.parameters = elements_of(parameters);
  done.bytes = bytes_in(options.to);
  return done;
}

// Makes a run that holds the mean of another's newest checkpoints, with that run's settings.
Converted to_average(const std::string& from, const ConvertOptions& options) {
  Converted done{.kind = "run", .folder = options.to};
  const session::RunFolder run{from};
  session::check_is_run(run);
  config::RunConfig config = config::read_run_config(run.config());
  config.name = fs::path(options.to).filename().string();
  config.output = options.to;
  session::HeldFolder held = session::new_run_folder(config);
  const std::vector<int64_t> steps =
      train::save_average(run.checkpoints(), options.average, held.folder.checkpoints(), &done.notes);
  for (std::string& refused : done.notes) refused = "passed over: " + refused;
  done.notes.push_back(fmt::format("the mean of the checkpoints of steps {}", fmt::join(steps, ", ")));
  session::keep_companions(from, options.to);
  if (const std::string tokenizer = data::tokenizer_in(from); !tokenizer.empty())
    data::keep_tokenizer(data::load_tokenizer(tokenizer), options.to);
  write_file(held.folder.config(), config::toml_of(config));  // from here on the folder holds a run
  const train::Checkpoint made = train::open_checkpoint(held.folder.checkpoints());
  for (const train::SavedTensor& tensor : made.tensors()) {
    if (train::stands_beside_weight(tensor.name)) continue;
    ++done.tensors;
    done.parameters += tensor.elements();
  }
  done.bytes = bytes_in(options.to);
  return done;
}

int convert(const ConvertOptions& options) {
  const std::string& from = options.from;
  if (!fs::is_directory(from)) config_error("{}: no folder, a run's or a released model's is expected", from);
  const bool ours = fs::exists(path_in(from, "checkpoints")) || fs::exists(path_in(from, "state.json"));
  if (!ours && !fs::exists(path_in(from, "config.json")))
    config_error("{}: neither a run (it has no checkpoints) nor a released model (it has no config.json)", from);
  if (options.adapter && options.merge) config_error("--adapter and --merge: one of them");
  if (!ours && (options.adapter || options.merge))
    config_error("{}: --{} is for a run with adapters", from, options.adapter ? "adapter" : "merge");
  if (options.averaged && (!ours || options.average > 0))
    config_error("{}: --averaged is for a run with an average of its weights, by itself", from);
  if (options.average > 0 && (!fs::exists(path_in(from, "checkpoints")) || options.adapter || options.merge))
    config_error("{}: --average is for a run's folder, by itself", from);
  const Converted done = options.average > 0 ? to_average(from, options)
                         : ours              ? to_released(from, options)
                                             : to_run(from, options.to);
  if (options.json) {
    say("{}\n", ordered_json{{"from", from},
                             {"to", done.folder},
                             {"made", done.kind},
                             {"parameters", done.parameters},
                             {"tensors", done.tensors},
                             {"bytes", done.bytes},
                             {"notes", done.notes}}
                    .dump(2));
    return kDone;
  }
  for (const std::string& note : done.notes) say(stderr, "heddle: {}\n", note);
  say("{}: a {} of {} parameters in {}\n", done.folder, done.kind,
      observe::count_text(static_cast<double>(done.parameters)),
      observe::bytes_text(static_cast<double>(done.bytes)));
  if (ours) return kDone;
  say("train on    heddle train CONFIG.toml --set model.hf={}/config.json --set train.start={}{}\n", from,
      done.folder, done.tokenizer.empty() ? "" : " --set data.tokenizer=" + done.tokenizer);
  if (!done.tokenizer.empty()) say("try         heddle generate {}\n", done.folder);
  return kDone;
}

}  // namespace

void add_convert(Commands& all) {
  auto [command, options] = add_command(
      all, "convert", "Make a run of a released Hugging Face model, or a released model of a run", convert);
  command.option("FROM", options.from, "A released model's folder, a run's, or a checkpoint's").required();
  command.option("--to", options.to, "The folder to make").called("FOLDER").required();
  command.option("--dtype", options.dtype, "Of the released values").among({"bf16", "f32", "f64"});
  command.option("--shard-bytes", options.shard_bytes, "Most bytes of a released file").called("BYTES");
  command.option("--average", options.average, "Make a run of the mean of a run's N newest checkpoints")
      .called("COUNT")
      .from(1);
  command.option("--averaged", options.averaged,
                 "Release the average of the weights that the run keeps (train.average_decay)");
  command.option("--adapter", options.adapter, "For a run with adapters: write the adapters alone, as PEFT does");
  command
      .option(
          "--base", options.base,
          "With --adapter: the base model that adapter_config.json names, a released folder or a published name")
      .called("NAME");
  command.option("--merge", options.merge, "For a run with adapters: add them to the base weights");
  add_json(command, options.json);
}

}  // namespace heddle::cli
