#include "tests/check/made_dump.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "check/modules.h"
#include "check/program_run.h"
#include "check/reference.h"
#include "heddle/base/files/output_file.h"
#include "heddle/base/random.h"
#include "heddle/config/run_config.h"
#include "heddle/formats/safetensors.h"
#include "heddle/model/parameter_layout.h"
#include "tests/support/tiny_models.h"

namespace heddle::test {

namespace {

using check::Numbers;
using check::Record;
using check::Slice;
using check::Stage;
using ir::Axis;
using Json = nlohmann::ordered_json;

std::string word_of_dtype(Dtype dtype) {
  return dtype == Dtype::bf16 ? "bf16" : dtype == Dtype::f32 ? "fp32" : "fp64";
}

double rounded(double x, Dtype dtype) {
  if (dtype == Dtype::bf16) return static_cast<float>(bf16(static_cast<float>(x)));
  return dtype == Dtype::f32 ? static_cast<float>(x) : x;
}

void write_file(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

// Ranges of increasing indices.
std::vector<check::Range> ranges_of(const std::vector<int64_t>& indices) {
  std::vector<check::Range> ranges;
  for (const int64_t i : indices) {
    if (!ranges.empty() && ranges.back().end == i)
      ++ranges.back().end;
    else
      ranges.push_back({i, i + 1});
  }
  return ranges;
}

// The box of a tensor's elements that are marked.
Slice box_of(const std::vector<int64_t>& dims, const Numbers& marked) {
  Slice slice{dims, {}};
  int64_t behind = std::ssize(marked);
  for (const int64_t dim : dims) {
    behind /= dim;
    std::vector<uint8_t> held(static_cast<size_t>(dim), 0);
    for (int64_t i = 0; i < std::ssize(marked); ++i) {
      if (marked[static_cast<size_t>(i)] != 0) held[static_cast<size_t>(i / behind % dim)] = 1;
    }
    std::vector<int64_t> indices;
    for (int64_t i = 0; i < dim; ++i) {
      if (held[static_cast<size_t>(i)] != 0) indices.push_back(i);
    }
    slice.at.push_back(ranges_of(indices));
  }
  return slice;
}

class Writer {
 public:
  Writer(std::string folder, const Made& made)
      : folder_(std::move(folder)), made_(made), mesh_(made.mesh), names_(made.model) {
    layout_.model = made.model, layout_.mesh = made.mesh, layout_.dtype = made.dtype;
    layout_.microbatches = made.microbatches, layout_.sequences = made.sequences,
    layout_.sequence_length = made.sequence_length;
    layout_.loss = made.loss;
    std::filesystem::create_directories(folder_);
    make_start();
  }

  void write() {
    plan::Plan plan = check::plan_of(layout_, false);
    plan.dtype = made_.dtype;
    lowered_.emplace(plan::lower(made_.model, plan));
    check::RunRequest request;
    request.wanted = [](std::string_view) { return true; };
    request.edit = made_.edit;
    train::Sequences sequences = sequences_;
    const std::vector<check::RankValues> all = check::run_program(made_.model, plan, start_, sequences, request);
    write_layout();
    write_start();
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      records_.clear();
      if (made_.forward) add_values(rank, all[static_cast<size_t>(rank)]);
      add_gradients(rank, all);
      write_rank(rank);
    }
  }

 private:
  void make_start() {
    const RandomKey key(made_.seed);
    for (const std::string& name : names_.names()) {
      const std::vector<int64_t>& dims = *names_.dims(name);
      Numbers values(
          static_cast<size_t>(std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>())));
      const bool norm = name.find("norm.weight") != std::string::npos;
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = rounded((norm ? 1 : 0) + 0.3 * key.with(name).normal(i), made_.dtype);
      released_[name] = {dims, std::move(values)};
    }
    start_ = names_.joined(released_, "the test");
    const int64_t count = int64_t{made_.mesh.dp} * made_.microbatches * made_.sequences;
    for (int64_t s = 0; s < count; ++s) {
      std::vector<int32_t>& ids = sequences_.tokens.emplace_back();
      std::vector<uint8_t>& masked = sequences_.masked.emplace_back();
      for (int64_t i = 0; i <= made_.sequence_length; ++i) {
        const uint64_t bits = key.with("tokens").bits(static_cast<uint64_t>(s * 1000 + i));
        ids.push_back(static_cast<int32_t>(bits % static_cast<uint64_t>(made_.model.vocab_size)));
        masked.push_back(made_.masks && bits / 64 % static_cast<uint64_t>(2 + s % 3) == 0 ? 1 : 0);
      }
    }
  }

  void write_layout() {
    config::RunConfig config;
    config.model = made_.model;
    Json json{{"format", "heddle-check 1"},
              {"trainer", "Heddle's own program"},
              {"model", {{"toml", config::toml_of(config, config::RunConfig())}}}};
    json["mesh"] = {{"tp", made_.mesh.tp}, {"cp", made_.mesh.cp}, {"dp", made_.mesh.dp},
                    {"pp", made_.mesh.pp}, {"ep", made_.mesh.ep}, {"etp", made_.mesh.etp}};
    json["sequence_parallel"] = true;
    json["dtype"] = word_of_dtype(made_.dtype);
    json["microbatches"] = made_.microbatches;
    json["sequences"] = made_.sequences;
    json["sequence_length"] = made_.sequence_length;
    json["loss"] = heddle::word_of(made_.loss);
    if (made_.optimizer) json["optimizer"] = {{"lr", 0.01}, {"weight_decay", 0.1}, {"clip_norm", 0.5}};
    write_file(folder_ + "/layout.json", json.dump(1));
  }

  void write_start() {
    std::vector<formats::TensorHeading> headings;
    for (const auto& [name, tensor] : released_) headings.push_back({name, Dtype::f32, tensor.first});
    const auto count = std::ssize(sequences_.tokens);
    headings.push_back({"tokens", Dtype::i32, {count, made_.sequence_length + 1}});
    formats::sort_for_file(headings);
    formats::SafetensorsWriter file(folder_ + "/start.safetensors", headings);
    for (const formats::TensorHeading& heading : headings) {
      if (heading.name == "tokens") {
        for (const std::vector<int32_t>& ids : sequences_.tokens)
          file.write(ids.data(), ids.size() * sizeof(int32_t));
        continue;
      }
      const Numbers& values = released_.at(heading.name).second;
      const std::vector<float> narrow(values.begin(), values.end());
      file.write(narrow.data(), narrow.size() * sizeof(float));
    }
    file.commit();
    if (!made_.masks) return;
    // With marks: the file is written anew, for they are of another type.
    write_marks();
  }

  // The format's own text, for safetensors of bytes are no type of ours.
  void write_marks() {
    const std::string path = folder_ + "/start.safetensors";
    std::string file = read_file(path, int64_t{1} << 30);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    Json header = Json::parse(file.substr(8, length));
    std::string body = file.substr(8 + length);
    std::string marks;
    for (const std::vector<uint8_t>& masked : sequences_.masked) {
      for (size_t i = 1; i < masked.size(); ++i) marks += static_cast<char>(masked[i] == 0 ? 1 : 0);
    }
    header["loss_mask"] = {{"dtype", "U8"},
                           {"shape", {sequences_.masked.size(), made_.sequence_length}},
                           {"data_offsets", {body.size(), body.size() + marks.size()}}};
    const std::string text = header.dump();
    length = text.size();
    write_file(path, std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + body + marks);
  }

  const ir::Listing& listing_of(int rank) const {
    return lowered_->program.listings[static_cast<size_t>(lowered_->program.listing_of(rank, ir::Purpose::train))];
  }

  void add(Record record, int rank) {
    record.rank = rank;
    if (made_.change) made_.change(record, mesh_.at(rank));
    if (made_.keeps && !made_.keeps(record)) return;
    records_.push_back(std::move(record));
  }

  void add_values(int rank, const check::RankValues& values) {
    plan::Plan plan = check::plan_of(layout_, true);
    if (!one_) one_.emplace(plan::lower(made_.model, plan));
    const ir::Coordinates& at = mesh_.at(rank);
    const int tp = at.of(Axis::tp), cp = at.of(Axis::cp);
    const int64_t length = made_.sequence_length, local = length / cp;
    for (const check::Module& module : check::modules_of(made_.model, one_->program.listings[0])) {
      const auto of_value = [&](const std::string& value, Stage stage) {
        for (int m = 0; m < made_.microbatches; ++m) {
          const auto found = values.values.find({value, m});
          if (value.empty() || found == values.values.end()) continue;
          const check::Captured& captured = found->second;
          const ir::Listing& single = one_->program.listings[0];
          const int64_t whole = single.value(single.find(module.value)).shape.back().count,
                        own = captured.dims.back();
          const int64_t columns = module.columns > 0 ? module.columns : whole, cut = whole / own,
                        part = columns / cut;
          const int64_t rows = std::ssize(captured.values) / own / made_.sequences,
                        first = rows == local ? 0 : at.at(Axis::tp) * rows;
          if (rows != local && rows * tp != local) continue;
          if (module.name == "model.embed_tokens" && at.at(Axis::pp) != 0)
            continue;  // what is received has its name
          Record record;
          record.stage = stage, record.name = module.name, record.microbatch = m;
          std::vector<int64_t> positions;
          for (int64_t j = first; j < first + rows; ++j)
            positions.push_back(ir::position(j, length, at.at(Axis::cp), cp));
          const int64_t begin = cut > 1 ? at.at(Axis::tp) * part : 0;
          record.slice = {{made_.sequences, length, columns},
                          {{{0, made_.sequences}}, ranges_of(positions), {{begin, begin + part}}}};
          for (int64_t r = 0; r < rows * made_.sequences; ++r) {
            const auto from = captured.values.begin() + r * own + module.first / cut;
            record.values.insert(record.values.end(), from, from + part);
          }
          add(std::move(record), rank);
        }
      };
      of_value(module.value, Stage::forward);
      if (!module.name.ends_with(".mlp.scores"))
        of_value(check::gradient_of(listing_of(rank), module.value), Stage::backward);
    }
  }

  void add_gradients(int rank, const std::vector<check::RankValues>& all) {
    std::map<std::string, Numbers> marks;
    const ir::Listing& listing = listing_of(rank);
    for (const model::Parameter& p :
         lowered_->parameters[static_cast<size_t>(lowered_->program.listing_of(rank, ir::Purpose::train))]) {
      if (!listing.accumulators.contains(p.value)) continue;
      std::vector<int64_t> dims;
      for (const ir::Dim& dim : listing.value(p.value).shape) dims.push_back(dim.count);
      int64_t elements = 1;
      for (const int64_t dim : model::whole_dims(p, dims, mesh_.at(rank))) elements *= dim;
      Numbers& mark = marks[p.name];
      mark.assign(static_cast<size_t>(elements), 0.0);
      for (const model::Extent& run : model::extents_of(p, dims, mesh_.at(rank)))
        std::fill_n(mark.begin() + run.whole, run.count, 1.0);
    }
    double square = 0;
    for (const std::string& name : names_.names()) {
      Numbers whole;
      for (int other = 0; other < mesh_.ranks(); ++other) {
        for (int m = 0; m < made_.microbatches; ++m) {
          check::Weights parts;
          for (const auto& [at, gradient] : all[static_cast<size_t>(other)].gradients) {
            if (at.second == m) parts[at.first] = gradient;
          }
          check::Part part{mesh_.at(other), other, m, false, names_.parted(name, parts)};
          if (part.whole.empty()) continue;
          const double factor = made_.factor ? made_.factor(name, mesh_.at(rank), part) : 1;
          whole.resize(part.whole.size(), 0.0);
          for (size_t i = 0; i < whole.size(); ++i) whole[i] += factor * part.whole[i];
        }
      }
      for (double& x : whole) square += x * x, x = rounded(x, Dtype::f32);
      const Numbers mark = names_.parted(name, marks);
      if (mark.empty() || whole.empty()) continue;
      Record record;
      record.stage = Stage::gradient, record.name = name;
      record.slice = box_of(*names_.dims(name), mark);
      record.values = check::taken(whole, record.slice);
      if (record.values.empty()) continue;  // an expert of another rank
      add(record, rank);
      if (!made_.optimizer) continue;
      pending_.push_back(std::move(record));
    }
    Record norm;
    norm.stage = Stage::norm, norm.name = "grad_norm", norm.slice = Slice::all({1}),
    norm.values = {std::sqrt(square)};
    add(norm, rank);
    const check::Adamw rule{.lr = 0.01, .weight_decay = 0.1, .clip_norm = 0.5};
    for (Record& record : pending_) {
      const auto& [dims, start] = released_.at(record.name);
      record.stage = Stage::weight;
      record.values = check::updated(check::taken(start, record.slice), record.values, std::sqrt(square), rule,
                                     dims.size() > 1);
      for (double& x : record.values) x = rounded(x, made_.dtype);
      add(record, rank);
    }
    pending_.clear();
  }

  void write_rank(int rank) {
    const std::string folder = fmt::format("{}/rank-{:05}", folder_, rank);
    std::filesystem::create_directories(folder);
    const ir::Coordinates& at = mesh_.at(rank);
    Json json{{"rank", rank}};
    for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp, Axis::ep, Axis::etp, Axis::edp})
      json["at"][std::string(ir::name_of(axis))] = at.at(axis);
    json["tensors"] = Json::array();
    std::vector<formats::TensorHeading> headings;
    for (size_t i = 0; i < records_.size(); ++i) {
      const Record& r = records_[i];
      Json row{{"tensor", fmt::format("{:06}", i)},
               {"stage", heddle::word_of(r.stage)},
               {"name", r.name},
               {"of", r.slice.of}};
      if (r.microbatch >= 0) row["microbatch"] = r.microbatch;
      for (const std::vector<check::Range>& ranges : r.slice.at) {
        Json list = Json::array();
        for (const check::Range& range : ranges) list.push_back({range.begin, range.end});
        row["at"].push_back(std::move(list));
      }
      json["tensors"].push_back(std::move(row));
      headings.push_back({fmt::format("{:06}", i), Dtype::f32, r.slice.dims()});
    }
    write_file(folder + "/index.json", json.dump(1));
    formats::SafetensorsWriter file(folder + "/tensors.safetensors", headings);
    for (const Record& r : records_) {
      const std::vector<float> narrow(r.values.begin(), r.values.end());
      file.write(narrow.data(), narrow.size() * sizeof(float));
    }
    file.commit();
  }

  std::string folder_;
  const Made& made_;
  plan::Mesh mesh_;
  check::ReleasedNames names_;
  check::Layout layout_;
  std::map<std::string, std::pair<std::vector<int64_t>, Numbers>> released_;
  check::Weights start_;
  train::Sequences sequences_;
  std::optional<plan::Lowered> lowered_, one_;
  std::vector<Record> records_, pending_;
};

}  // namespace

void write_dump(const std::string& folder, const Made& made) { Writer(folder, made).write(); }

Made drawn(uint64_t number, Dtype dtype, int most_ranks) {
  const RandomKey key = RandomKey(77).with(number);
  uint64_t at = 0;
  const auto of = [&](std::vector<int> choices) { return choices[key.bits(at++) % choices.size()]; };
  Made made;
  made.dtype = dtype;
  made.seed = number + 1;
  model::ModelConfig& c = made.model;
  c = tiny_grouped_model();
  c.vocab_size = 48, c.hidden_size = 24, c.num_attention_heads = 4, c.num_key_value_heads = of({2, 4}),
  c.head_dim = 8;
  c.moe_intermediate_size = 12, c.n_routed_experts = 4, c.num_experts_per_tok = of({1, 2});
  c.first_k_dense_replace = of({0, 1, 2});  // two: dense
  c.tie_word_embeddings = of({0, 0, 1}) != 0;
  c.qk_norm = of({0, 1}) != 0;
  c.attention_bias = of({0, 1}) != 0 ? model::AttentionBias::qkv : model::AttentionBias::none;
  c.sequence_aux_loss_alpha = c.first_k_dense_replace < 2 && of({0, 1}) != 0 ? 0.01 : 0;
  do {
    made.mesh.tp = of({1, 2}), made.mesh.cp = of({1, 1, 2}), made.mesh.dp = of({1, 2}),
    made.mesh.pp = of({1, 1, 2});
    made.mesh.ep = c.first_k_dense_replace < 2 ? of({1, 2}) : 1;
  } while (made.mesh.ranks() > most_ranks || made.mesh.ranks() == 1 || made.mesh.stage_ranks() % made.mesh.ep != 0);
  made.masks = of({0, 1}) != 0;
  made.optimizer = of({0, 0, 1}) != 0;
  made.microbatches = of({1, 2});
  return made;
}

}  // namespace heddle::test
