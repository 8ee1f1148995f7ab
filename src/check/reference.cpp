#include "check/reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "check/difference.h"
#include "heddle/base/error.h"
#include "heddle/base/random.h"
#include "heddle/model/loss_scale.h"
#include "heddle/train/step/batch.h"

namespace heddle::check {

namespace {

// The longest sum of the program, in terms.
double longest_sum(const model::ModelConfig& model, const Layout& layout) {
  const auto tokens = static_cast<double>(layout.sequences * layout.sequence_length);
  return std::max({static_cast<double>(model.hidden_size), static_cast<double>(model.intermediate_size),
                   static_cast<double>(model.vocab_size), tokens});
}

// The mean over labels of each microbatch counts the same.
train::Sequences weighed(const Dump& dump) {
  train::Sequences all = dump.sequences;
  if (dump.layout.loss == LossMean::tokens) return all;
  const auto each = static_cast<size_t>(dump.layout.sequences);
  for (size_t first = 0; first < all.size(); first += each) {
    double count = 0;
    for (size_t s = first; s < first + each; ++s) {
      for (size_t i = 0; i + 1 < all.tokens[s].size(); ++i) count += all.is_target(s, i + 1);
    }
    for (size_t s = first; s < first + each; ++s)
      all.weights.emplace_back(all.tokens[s].size(), count > 0 ? static_cast<float>(1 / count) : 0.F);
  }
  return all;
}

std::vector<std::string> known_names(const std::vector<Module>& modules) {
  std::vector<std::string> names;
  for (const Module& module : modules) names.push_back(module.name);
  return names;
}

}  // namespace

Numbers updated(const Numbers& weight, const Numbers& gradient, double norm, const Adamw& rule, bool decays) {
  Numbers next = weight;
  const double clip = rule.clip_norm > 0 && norm > rule.clip_norm ? rule.clip_norm / norm : 1;
  for (size_t i = 0; i < next.size(); ++i) {
    const double g = clip * gradient[i], decay = decays ? rule.weight_decay * weight[i] : 0;
    next[i] -= rule.lr * (g / (std::abs(g) + rule.eps) + decay);
  }
  return next;
}

Reference::Reference(const Dump& dump)
    : dump_(dump),
      names_(dump.layout.model),
      weights_(names_.joined(dump.start, dump.path + "/start.safetensors")),
      plan_(plan_of(dump.layout, true)),
      lowered_(plan::lower(dump.layout.model, plan_)),
      modules_(modules_of(dump.layout.model, lowered_.program.listings[0])),
      sequences_(weighed(dump)) {
  for (const Module& module : modules_) {  // what scores have is made within the choice of experts
    const bool inner = module.name.ends_with(".mlp.scores");
    gradients_[module.value] = inner ? "" : gradient_of(lowered_.program.listings[0], module.value);
  }
  check_names();
  loss_scale_ = train::scales_of(sequences_, dump.layout.model, plan_)[model::kScaleNextToken];
  for (size_t s = 0; s < sequences_.size(); ++s) {
    double count = 0;
    for (size_t i = 0; i + 1 < sequences_.tokens[s].size(); ++i) count += sequences_.is_target(s, i + 1);
    labels_.push_back(count);
  }
  const double sums = std::sqrt(longest_sum(dump.layout.model, dump.layout));
  noise_ = dump.layout.dtype == Dtype::f64 ? 8 * unit_of(Dtype::f64) * sums
                                           : unit_of(dump.layout.dtype) + sums * unit_of(Dtype::f32);
  run_all();
  turn_choices();
  const ir::Listing& listing = lowered_.program.listings[0];
  for (auto& [key, whole] : wholes_) {
    const auto& [stage, name, microbatch] = key;
    const Module* of_module = module(name);
    if (of_module != nullptr && (stage == Stage::forward || stage == Stage::backward)) {
      const std::string value = stage == Stage::forward ? of_module->value : gradients_.at(of_module->value);
      const int64_t width = of_module->columns > 0
                                ? of_module->columns
                                : listing.value(listing.find(of_module->value)).shape.back().count;
      whole.dims = {dump.layout.sequences, dump.layout.sequence_length, width};
      whole.order = written_at(listing, value);
    } else if (const std::vector<int64_t>* dims = names_.dims(name)) {
      whole.dims = *dims;
    } else {
      whole.dims = {1};
    }
  }
}

const Module* Reference::module(const std::string& name) const {
  const auto at = std::find_if(modules_.begin(), modules_.end(), [&](const Module& m) { return m.name == name; });
  return at == modules_.end() ? nullptr : &*at;
}

// All that is wrong with the names, microbatches and shapes of records is reported before anything runs.
void Reference::check_names() const {
  for (const RankDump& rank : dump_.ranks) {
    for (const Record& record : rank.records) {
      const std::string place = fmt::format("{}/rank-{:05}/index.json", dump_.path, record.rank);
      const std::string name = formats::printable(record.name);
      if (record.stage == Stage::forward || record.stage == Stage::backward) {
        const std::vector<std::string> known = known_names(modules_);
        const Module* found = module(record.name);
        if (found == nullptr)
          config_error("{}: {}: the model has no module '{}'{}", place, word_of(record.stage), name,
                       did_you_mean(record.name, known));
        if (record.stage == Stage::backward && gradients_.at(found->value).empty())
          config_error("{}: backward: {} has no gradient", place, name);
      } else if (record.stage == Stage::norm) {
        if (record.name != "loss" && record.name != "grad_norm")
          config_error("{}: norm: '{}', accepted: loss, grad_norm", place, name);
      } else if (names_.dims(record.name) == nullptr) {
        config_error("{}: {}: the model has no weight '{}'{}", place, word_of(record.stage), name,
                     did_you_mean(record.name, names_.names()));
      }
      if (record.stage == Stage::weight && !dump_.layout.optimizer)
        config_error("{}: weight of {}: layout.json has no optimizer", place, name);
    }
  }
}

// The plain run and those with random rounding. Where the dump tells choices of experts, all runs keep those of the
// plain run. If rounding can have made the dump's choices from these, all is run again with the dump's.
void Reference::run_all() {
  const ChosenRows given = chosen_rows(dump_, modules_);
  choices_.clear();
  for (const auto& [at, rows] : given) choices_[at].resize(rows.size());
  const auto count = static_cast<size_t>(dump_.layout.model.num_experts_per_tok);
  for (auto& [key, values] : run(0, 0, [&](std::string_view value, int microbatch, Captured&logits) {
         const auto rows = given.find({std::string(value), microbatch});
         if (rows == given.end()) return;
         const auto experts = static_cast<size_t>(logits.dims.back());
         for (size_t r = 0; r < rows->second.size(); ++r) {
           if (rows->second[r].empty()) continue;
           choices_.at(rows->first)[r] =
               largest(std::span(logits.values).subspan(r * experts, experts), count, false);
         }
       }))
    wholes_[key].values = std::move(values);
  add_rounded();
  if (take_choices(given)) add_rounded();
}

void Reference::add_rounded() {
  for (auto& [key, whole] : wholes_) whole.rounded.clear();
  for (int k = 0; k < kRuns; ++k) {
    for (auto& [key, values] :
         run(noise_, static_cast<uint64_t>(k) + 1, [&](std::string_view value, int microbatch, Captured&logits) {
           keep_choices(value, microbatch, {}, logits);
         }))
      wholes_.at(key).rounded.push_back(std::move(values));
  }
}

// How far two logits of a row may lie from their order. A row that is equal to the reference is off by less.
double Reference::near(const Whole& logits, size_t row) const {
  const auto experts = static_cast<size_t>(dump_.layout.model.n_routed_experts);
  double off = 0;
  for (const Numbers& rounded : logits.rounded) {
    double sum = 0;
    for (size_t i = row * experts; i < (row + 1) * experts; ++i)
      sum += (rounded[i] - logits.values[i]) * (rounded[i] - logits.values[i]);
    off = std::max({off, std::sqrt(sum / static_cast<double>(experts)), root_mean_square(rounded, logits.values)});
  }
  return 2 * std::sqrt(static_cast<double>(experts)) * kRowMargin * off;
}

// Runs again with the dump's choices. False: they are those that there are.
bool Reference::take_choices(const ChosenRows& given) {
  if (given.empty()) return false;
  std::map<AtMicrobatch, const Whole*> logits_of;
  for (const Module& one : modules_) {
    for (int m = 0; m < plan_.microbatches && is_router(one.name); ++m)
      logits_of[{one.value, m}] = find({Stage::forward, one.name, m});
  }
  std::map<Key, Numbers> plain = run(0, 0, [&](std::string_view value, int microbatch, Captured& logits) {
    const auto rows = given.find({std::string(value), microbatch});
    if (rows == given.end()) return;
    const auto experts = static_cast<size_t>(logits.dims.back());
    for (size_t r = 0; r < rows->second.size(); ++r) {
      const Chosen& wanted = rows->second[r];
      const auto row = std::span(logits.values).subspan(r * experts, experts);
      if (wanted.empty()) continue;
      const double over = overlap(row, wanted);
      if (over < 0) {
        choices_.at(rows->first)[r] = wanted;
      } else if (over <= near(*logits_of.at(rows->first), r)) {
        choices_.at(rows->first)[r] = wanted;
        choose(row, wanted);
        ++taken_choices_;
      } else {
        choices_.at(rows->first)[r] = largest(row, wanted.size(), false);
      }
    }
  });
  if (taken_choices_ == 0) return false;
  for (auto& [key, values] : plain) wholes_[key].values = std::move(values);
  return true;
}

void Reference::keep_choices(std::string_view value, int microbatch, const ir::Coordinates& at,
                             Captured& logits) const {
  const auto rows = choices_.find({std::string(value), microbatch});
  if (rows == choices_.end()) return;
  const auto experts = static_cast<size_t>(logits.dims.back());
  const int64_t count = std::ssize(logits.values) / static_cast<int64_t>(experts),
                length = dump_.layout.sequence_length;
  const int cp = at.of(ir::Axis::cp);
  const int64_t local = count / dump_.layout.sequences,
                first = local * cp == length ? 0 : at.at(ir::Axis::tp) * local;
  for (int64_t t = 0; t < count; ++t) {
    const int64_t position = ir::position(first + t % local, length, at.at(ir::Axis::cp), cp);
    const Chosen& chosen = rows->second.at(static_cast<size_t>(t / local * length + position));
    if (!chosen.empty())
      choose(std::span(logits.values).subspan(static_cast<size_t>(t) * experts, experts), chosen);
  }
}

// Choices that the dump does not tell are turned round where rounding decides them.
void Reference::turn_choices() {
  std::map<std::string, double, std::less<>> near;
  bool open = false;
  for (const auto& [key, whole] : wholes_) {
    const auto& [stage, name, microbatch] = key;
    if (stage != Stage::forward || !is_router(name)) continue;
    const std::string& value = module(name)->value;
    for (const Numbers& rounded : whole.rounded)
      near[value] = std::max(near[value], kRowMargin * root_mean_square(rounded, whole.values));
    const auto known = choices_.find({value, microbatch});
    open = open || known == choices_.end() ||
           std::any_of(known->second.begin(), known->second.end(), [](const Chosen& c) { return c.empty(); });
  }
  const auto chosen = static_cast<size_t>(dump_.layout.model.num_experts_per_tok);
  for (const bool all : {true, false}) {
    if (!open || (!all && near_choices_ == 0)) return;
    int64_t turned = 0;
    const RandomKey seed(1000 + (all ? 1 : 2));
    std::map<Key, Numbers> values =
        run(noise_, 1000 + (all ? 1 : 2), [&](std::string_view value, int microbatch, Captured& logits) {
          keep_choices(value, microbatch, {}, logits);
          const auto known = choices_.find({std::string(value), microbatch});
          const auto experts = static_cast<size_t>(logits.dims.back());
          std::vector<size_t> order(experts);
          for (size_t row = 0; row < logits.values.size() && chosen < experts; row += experts) {
            if (known != choices_.end() && !known->second[row / experts].empty()) continue;
            std::iota(order.begin(), order.end(), row);
            std::sort(order.begin(), order.end(),
                      [&](size_t a, size_t b) { return logits.values[a] > logits.values[b]; });
            double &last = logits.values[order[chosen - 1]], &next = logits.values[order[chosen]];
            const uint64_t coin = seed.with(value).with(static_cast<uint64_t>(microbatch)).bits(row);
            if (last - next > near.find(value)->second || (!all && coin % 2 == 0)) continue;
            std::swap(last, next);
            ++turned;
          }
        });
    near_choices_ = std::max(near_choices_, turned);
    if (turned == 0) return;
    for (auto& [key, numbers] : values) wholes_.at(key).rounded.push_back(std::move(numbers));
  }
}

std::map<Key, Numbers> Reference::run(double noise, uint64_t seed, const Route& route) const {
  RunRequest request;
  std::set<std::string, std::less<>> wanted{"ce_next_token"};
  for (const RankDump& rank : dump_.ranks) {
    for (const Record& record : rank.records) {
      const Module* of_module = module(record.name);
      if (of_module == nullptr) continue;
      if (record.stage == Stage::forward) wanted.insert(of_module->value);
      if (record.stage == Stage::backward) wanted.insert(gradients_.at(of_module->value));
      if (record.stage != Stage::forward) continue;
      const std::string layer = of_module->value.substr(0, of_module->value.find('.') + 1);
      if (record.name.ends_with("self_attn.core"))
        wanted.insert({layer + "q", layer + "k", layer + "v_proj"});  // what it is made of
      if (record.name.ends_with("v_proj"))
        wanted.insert({layer + "q_proj", layer + "k_proj"});  // of the same joint product
    }
  }
  std::set<std::string, std::less<>> routers;
  for (const Module& one : modules_) {
    if (is_router(one.name)) routers.insert(one.value);
  }
  wanted.insert(routers.begin(), routers.end());
  request.changed = [&](std::string_view value) { return routers.contains(value); };
  request.after = [&](std::string_view value, int microbatch, const ir::Coordinates&, Captured& logits) {
    route(value, microbatch, logits);
  };
  request.wanted = [&](std::string_view value) { return wanted.contains(value); };
  request.noise = noise;
  request.noise_of_losses = noise > 0 ? noise_ - unit_of(dump_.layout.dtype) : 0;
  request.noise_of_sums = noise > 0 && dump_.layout.sums == Dtype::bf16 ? unit_of(Dtype::bf16) : 0;
  request.seed = seed;
  std::vector<RankValues> values = run_program(dump_.layout.model, plan_, weights_, sequences_, request);
  std::map<Key, Numbers> all;
  take(all, values[0]);
  add_updates(all);
  return all;
}

void Reference::take(std::map<Key, Numbers>& all, RankValues& values) const {
  Weights sums;
  for (auto& [at, gradient] : values.gradients) {
    Numbers& sum = sums[at.first];
    sum.resize(gradient.size(), 0.0);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
  }
  double square = 0;
  for (const std::string& name : names_.names()) {
    Numbers gradient = names_.parted(name, sums);
    for (const double x : gradient) square += x * x;
    if (!gradient.empty()) all[{Stage::gradient, name, -1}] = std::move(gradient);
  }
  all[{Stage::norm, "grad_norm", -1}] = {std::sqrt(square)};
  double loss = 0;
  for (const auto& [at, captured] : values.values) {
    if (at.first == "ce_next_token") loss += captured.values[0] * loss_scale_;
  }
  all[{Stage::norm, "loss", -1}] = {loss};
  for (const Module& module : modules_) {
    const auto columns_of = [&](const std::string& value, Stage stage) {
      for (int m = 0; m < plan_.microbatches; ++m) {
        const auto found = values.values.find({value, m});
        if (value.empty() || found == values.values.end()) continue;
        const Captured& captured = found->second;
        const int64_t width = captured.dims.back();
        const int64_t columns = module.columns > 0 ? module.columns : width;
        Numbers numbers;
        for (int64_t row = 0; row < std::ssize(captured.values) / width; ++row) {
          const auto from = captured.values.begin() + row * width + module.first;
          numbers.insert(numbers.end(), from, from + columns);
        }
        all[{stage, module.name, m}] = std::move(numbers);
      }
    };
    columns_of(module.value, Stage::forward);
    columns_of(gradients_.at(module.value), Stage::backward);
  }
}

void Reference::add_updates(std::map<Key, Numbers>& all) const {
  if (!dump_.layout.optimizer) return;
  const double norm = all.at({Stage::norm, "grad_norm", -1})[0];
  for (const std::string& name : names_.names()) {
    const auto gradient = all.find({Stage::gradient, name, -1});
    if (gradient == all.end()) continue;
    const auto& [dims, weight] = dump_.start.at(name);
    all[{Stage::weight, name, -1}] =
        updated(weight, gradient->second, norm, *dump_.layout.optimizer, dims.size() > 1);
  }
}

bool Reference::cancels(const Record& record) const {
  const model::ModelConfig& m = dump_.layout.model;
  return m.norm_topk_prob && m.num_experts_per_tok == 1 && record.name.find(".mlp.gate") != std::string::npos &&
         !record.name.ends_with("_proj") && !record.name.ends_with("_proj.weight") &&
         record.stage != Stage::forward;
}

Key Reference::key_of(const Record& record) const {
  int microbatch = -1;
  if (record.microbatch >= 0)
    microbatch = record.microbatch * dump_.layout.mesh.dp +
                 dump_.ranks[static_cast<size_t>(record.rank)].at.at(ir::Axis::dp);
  const Stage stage = record.stage == Stage::local_gradient ? Stage::gradient : record.stage;
  return {stage, record.name, microbatch};
}

const Whole* Reference::find(const Key& key) const {
  const auto at = wholes_.find(key);
  return at == wholes_.end() ? nullptr : &at->second;
}

const Whole& Reference::of(const Record& record) const {
  const Whole* whole = find(key_of(record));
  if (whole == nullptr)
    config_error("{}/rank-{:05}/index.json: {}: the reference has no such tensor", dump_.path, record.rank,
                 record.text());
  if (record.slice.of != whole->dims)
    config_error("{}/rank-{:05}/index.json: {}: 'of' is [{}], the model's is [{}]", dump_.path, record.rank,
                 record.text(), fmt::join(record.slice.of, ", "), fmt::join(whole->dims, ", "));
  return *whole;
}

}  // namespace heddle::check
