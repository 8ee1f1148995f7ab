#include "heddle/plan/shared_parameters.h"

#include <algorithm>
#include <tuple>

#include "heddle/ir/uses.h"

namespace heddle::plan {

namespace {

// The first stage of the pipeline, or the first copy, that a rank runs and that uses the parameter.
int first_stage_of(const model::Parameter& p, const ir::Uses& uses, const std::vector<int>& own) {
  const ir::Op* first = uses.first_reader(p.value);
  return own[first == nullptr ? 0 : static_cast<size_t>(first->chunk)];
}

// The copies of which pipeline ranks one rank would meet, as it adds up the uses of a parameter: last written
// first. Uses differ by their layer, and within one by what they do: embeddings come before heads.
std::string order_of_uses(const std::string& name, const std::vector<model::RankText>& texts,
                          const std::vector<std::pair<int, int>>& holders) {
  std::vector<std::tuple<int, bool, int>> uses;  // layer, head, copy
  for (size_t copy = 0; copy < holders.size(); ++copy) {
    const ir::Listing& listing = texts[holders[copy].second].listing;
    const ir::Uses of_text(listing);
    for (const int reader : of_text.readers(listing.find(name))) {
      const ir::Op& op = of_text.op(reader);
      if (op.def->made_again) continue;      // what reads its result has the sum that its gradient is added to
      if (!op.def->differentiate) continue;  // parts of a ring leave the gradient of sinks to its end
      uses.emplace_back(op.layer, op.part == "head", static_cast<int>(copy));
    }
  }
  if (uses.size() <= 2) return "";  // two have one sum
  std::sort(uses.rbegin(), uses.rend());
  std::string order;
  for (const auto& [layer, head, copy] : uses) order += fmt::format("{}{}", order.empty() ? "" : ",", copy);
  return order;
}

}  // namespace

SharedParameters join_copies(std::vector<model::RankText>& texts, const schedule::Placement& placement) {
  std::map<std::string, std::vector<std::pair<int, int>>> holders;   // name -> (stage, pipeline rank)
  std::map<std::string, std::set<std::set<std::string_view>>> uses;  // name -> op kinds, of each holder
  for (size_t r = 0; r < texts.size(); ++r) {
    const std::vector<int> own = placement.stages_of(static_cast<int>(r));
    const ir::Uses of_text(texts[r].listing);
    for (const model::Parameter& p : texts[r].parameters) {
      holders[p.name].emplace_back(first_stage_of(p, of_text, own), static_cast<int>(r));
      std::set<std::string_view> kinds;
      for (const int op : of_text.readers(p.value)) kinds.insert(of_text.op(op).kind());
      uses[p.name].insert(kinds);
    }
  }
  for (model::RankText& text : texts) {
    for (model::Parameter& p : text.parameters) {
      std::vector<std::pair<int, int>>& of = holders.at(p.name);
      if (of.size() == 1 || p.start == model::Parameter::Start::rope_table) continue;
      std::sort(of.begin(), of.end());
      p.on_several_stages = true;
      for (size_t i = 0; i < of.size(); ++i)
        p.replica_group += fmt::format("{}{}", i == 0 ? '@' : '+', of[i].second);
    }
  }
  SharedParameters shared;
  for (const auto& [name, kinds] : uses) {
    if (kinds.size() > 1) shared.unlike.insert(name);
  }
  for (const auto& [name, of] : holders) {
    if (of.size() == 1) continue;
    if (const std::string order = order_of_uses(name, texts, of); !order.empty()) shared.order[name] = order;
  }
  return shared;
}

}  // namespace heddle::plan
