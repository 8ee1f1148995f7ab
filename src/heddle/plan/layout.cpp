#include "heddle/plan/layout.h"

#include <algorithm>
#include <limits>

#include "heddle/base/error.h"
#include "heddle/model/text/decoder.h"

namespace heddle::plan {

namespace {

constexpr size_t kMostLetters = 100000;

// "Et*3|(tt|)*2" to "Ettt|tt|tt|".
class LettersReader {
 public:
  explicit LettersReader(const std::string& text) : text_(text) {}

  std::string read() {
    const std::string letters = sequence();
    if (at_ < text_.size()) fail("a ')' without its '('");
    return letters;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    config_error("parallel.layout '{}', character {}: {}; accepted are E, t, m, L, '|', '(…)' and '*count'",
                 text_.size() > 80 ? text_.substr(0, 80) + "…" : text_, at_ + 1, why);
  }

  std::string sequence() {
    std::string letters;
    while (at_ < text_.size() && text_[at_] != ')') {
      const char c = text_[at_];
      std::string unit;
      if (c == '(') {
        if (++depth_ > 8) fail("more than 8 parentheses inside each other");
        ++at_;
        unit = sequence();
        if (at_ == text_.size()) fail("a '(' without its ')'");
        --depth_;
      } else if (c != ',' && c != ' ') {
        if (std::string("EtmL|").find(c) == std::string::npos) fail(fmt::format("found '{}'", c));
        unit = c;
      }
      ++at_;
      const int64_t times = count();
      if (letters.size() + unit.size() * static_cast<size_t>(times) > kMostLetters) fail("too many layers");
      for (int64_t i = 0; i < times; ++i) letters += unit;
    }
    return letters;
  }

  int64_t count() {
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    ++at_;
    int64_t times = 0;
    const size_t first = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      times = times * 10 + (text_[at_] - '0');
      if (times > static_cast<int64_t>(kMostLetters)) fail("too many layers");
    }
    if (at_ == first) fail("'*' needs a count");
    return times;
  }

  const std::string& text_;
  size_t at_ = 0;
  int depth_ = 0;
};

std::string letters_of(const model::ModelConfig& config) {
  return "E" + std::string(static_cast<size_t>(config.num_hidden_layers), 't') +
         std::string(static_cast<size_t>(config.num_nextn_predict_layers), 'm') + "L";
}

std::vector<model::StageShare> pieces_of(const std::vector<std::string>& stages) {
  std::vector<model::StageShare> shares;
  int64_t layers = 0, depths = 0;
  for (const std::string& letters : stages) {
    model::StageShare& share = shares.emplace_back();
    share.first_layer = layers;
    share.first_depth = depths + 1;
    share.embedding = letters.find('E') != std::string::npos;
    share.loss = letters.find('L') != std::string::npos;
    share.layers = std::count(letters.begin(), letters.end(), 't');
    share.depths = std::count(letters.begin(), letters.end(), 'm');
    layers += share.layers;
    depths += share.depths;
  }
  return shares;
}

std::vector<std::string> even(const model::ModelConfig& config, int stages) {
  const int64_t each = config.num_hidden_layers / stages, more = config.num_hidden_layers % stages;
  std::vector<std::string> letters;
  for (int s = 0; s < stages; ++s) letters.emplace_back(static_cast<size_t>(each + (s < more ? 1 : 0)), 't');
  letters.front() = "E" + letters.front();
  letters.back() += std::string(static_cast<size_t>(config.num_nextn_predict_layers), 'm') + "L";
  return letters;
}

// Training FLOPs a token of what each letter stands for.
std::vector<double> costs_of(const model::ModelConfig& config, const std::string& letters) {
  model::RankSpec spec;
  model::StageShare all{.embedding = true,
                        .layers = config.num_hidden_layers,
                        .depths = config.num_nextn_predict_layers,
                        .loss = true};
  spec.chunks = {{all, {}, {}, {}}};
  spec.sequence_length = std::min<int64_t>(config.max_position_embeddings, 4096);
  const model::RankText text = decoder_text(config, spec);
  std::vector<double> costs(letters.size(), 0);
  for (const ir::Op& op : text.listing.ops) {
    const bool head = op.layer < 0 || op.part == "head";  // of a depth too
    const size_t at = head ? letters.size() - 1 : static_cast<size_t>(op.layer) + 1;
    costs[at] += op.def->cost(text.listing, op, ir::FixedRows()).flops;
  }
  return costs;
}

// Cuts where the costliest stage is cheapest (dynamic programming over stages and letters).
std::vector<std::string> balanced(const model::ModelConfig& config, int stages) {
  const std::string letters = letters_of(config);
  const std::vector<double> costs = costs_of(config, letters);
  const size_t n = letters.size();
  std::vector<double> sums(n + 1, 0);
  for (size_t i = 0; i < n; ++i) sums[i + 1] = sums[i] + costs[i];
  const auto p = static_cast<size_t>(stages);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(p + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<size_t>> cut(p + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t s = 1; s <= p; ++s) {
    for (size_t end = 0; end <= n; ++end) {
      for (size_t begin = 0; begin <= end; ++begin) {
        const double worst = std::max(best[s - 1][begin], sums[end] - sums[begin]);
        if (worst < best[s][end]) {
          best[s][end] = worst;
          cut[s][end] = begin;
        }
      }
    }
  }
  std::vector<std::string> found(p);
  size_t end = n;
  for (size_t s = p; s > 0; --s) {
    const size_t begin = cut[s][end];
    found[s - 1] = letters.substr(begin, end - begin);
    end = begin;
  }
  return found;
}

}  // namespace

std::vector<std::string> letters_of_layout(const std::string& layout, int stages) {
  const std::string read = LettersReader(layout).read();
  std::vector<std::string> found{""};
  for (const char c : read) {
    if (c == '|') {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  if (std::ssize(found) == stages + 1 && found.back().empty()) found.pop_back();  // a '|' behind the last stage
  if (std::ssize(found) != stages) {
    config_error("parallel.layout has {} stages, the pipeline {} (mesh.pp × parallel.chunks)", found.size(),
                 stages);
  }
  return found;
}

namespace {

std::vector<model::StageShare> shares_of(const std::string& layout, const model::ModelConfig& config, int stages) {
  if (layout == "even") return pieces_of(even(config, stages));
  if (layout == "balanced") return pieces_of(balanced(config, stages));
  const std::vector<std::string> found = letters_of_layout(layout, stages);
  const std::string all = fmt::format("{}", fmt::join(found, ""));
  const std::string wanted = letters_of(config);
  if (all != wanted) {
    const auto count = [&](const std::string& in, char c) { return std::count(in.begin(), in.end(), c); };
    config_error(
        "parallel.layout holds {} E, {} t, {} m and {} L in another order or number than the model, which is E, "
        "{} t, {} m, L",
        count(all, 'E'), count(all, 't'), count(all, 'm'), count(all, 'L'), count(wanted, 't'), count(wanted, 'm'));
  }
  return pieces_of(found);
}

// Layers without an indexer take the choice of a layer of their own stage.
void check_shared_choices(const model::ModelConfig& config, const std::vector<model::StageShare>& shares) {
  if (!config.selects() || config.is_compressed() || config.index_stage == model::IndexStage::dense) return;
  for (const model::StageShare& share : shares) {
    int64_t first = share.first_layer;
    const int64_t end = first + share.layers;
    while (first < end && !(config.has(first, model::Block::attention) && config.selects_in(first))) ++first;
    if (first == end || config.has_indexer(first)) continue;
    std::vector<int64_t> own;
    for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
      if (config.has_indexer(l)) own.push_back(l);
    }
    config_error(
        "parallel.layout begins a stage with layer {}, which takes the keys that a layer before it has chosen "
        "({}); a stage may begin with layer {}",
        first,
        config.index_pattern.empty() ? fmt::format("model.index_topk_freq = {}", config.index_topk_freq)
                                     : fmt::format("model.index_pattern = \"{}\"", config.index_pattern),
        fmt::join(own, ", "));
  }
}

// Layers take keys and values, and rows of embeddings of their own, within their stage.
void check_shared_rows(const model::ModelConfig& config, const std::vector<model::StageShare>& shares) {
  int64_t latest = config.num_hidden_layers;
  for (int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (!config.makes_keys(l)) latest = std::min(latest, config.key_value_layer(l));
  }
  for (const model::StageShare& share : shares) {
    if (share.layers > 0 && !share.embedding && config.layer_embedding_size > 0) {
      config_error(
          "parallel.layout begins a stage with layer {}, whose rows of model.layer_embedding_size = {} are made "
          "where "
          "tokens are embedded; a pipeline of one stage goes with it (mesh.pp × parallel.chunks = 1)",
          share.first_layer, config.layer_embedding_size);
    }
    if (share.layers > 0 && share.first_layer > latest) {
      config_error(
          "parallel.layout begins a stage with layer {}, and the last {} layers take keys and values of layers "
          "from "
          "{} on (model.shared_key_value_layers); a stage may begin with a layer up to {}",
          share.first_layer, config.shared_key_value_layers, latest, latest);
    }
  }
}

}  // namespace

std::vector<model::StageShare> layout_of(const std::string& layout, const model::ModelConfig& config, int stages) {
  std::vector<model::StageShare> shares = shares_of(layout, config, stages);
  check_shared_choices(config, shares);
  check_shared_rows(config, shares);
  return shares;
}

std::string text_of(const std::vector<model::StageShare>& shares) {
  std::string text;
  for (const model::StageShare& share : shares) {
    if (&share != shares.data()) text += '|';
    if (share.embedding) text += 'E';
    text +=
        std::string(static_cast<size_t>(share.layers), 't') + std::string(static_cast<size_t>(share.depths), 'm');
    if (share.loss) text += 'L';
  }
  return text;
}

}  // namespace heddle::plan
