#include "heddle/comm/row_lists.h"

#include <algorithm>

namespace heddle::comm {

SourceRows::SourceRows(const RoutingPlan& plan, const int32_t* experts_Tk, int64_t tokens)
    : tokens_(tokens), slices_(plan.slices), experts_each_(plan.experts_each) {
  const int64_t holders = plan.ranks / plan.slices, experts = holders * experts_each_, k = plan.top_k;
  start_.assign(static_cast<size_t>(experts + 1), 0);
  for (int64_t i = 0; i < tokens * k; ++i) ++start_[static_cast<size_t>(experts_Tk[i]) + 1];
  for (size_t e = 1; e < start_.size(); ++e) start_[e] += start_[e - 1];
  slots_.resize(static_cast<size_t>(tokens * k));
  index_of_.resize(slots_.size());
  tokens_on_.resize(static_cast<size_t>(holders));
  std::vector<int64_t> next(start_.begin(), start_.end() - 1);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = t * k; i < (t + 1) * k; ++i) {
      const int64_t expert = experts_Tk[i], holder = expert / experts_each_;
      const int64_t at = next[static_cast<size_t>(expert)]++;
      slots_[static_cast<size_t>(at)] = static_cast<int32_t>(i);
      index_of_[static_cast<size_t>(i)] =
          static_cast<int32_t>(at - start_[static_cast<size_t>(holder * experts_each_)]);
      std::vector<int32_t>& on = tokens_on_[static_cast<size_t>(holder)];
      if (on.empty() || on.back() != t) on.push_back(static_cast<int32_t>(t));
    }
  }
}

std::span<const int32_t> SourceRows::of(int64_t rank, int64_t e) const {
  const auto expert = static_cast<size_t>(rank / slices_ * experts_each_ + e);
  return {slots_.data() + start_[expert], static_cast<size_t>(start_[expert + 1] - start_[expert])};
}

std::span<const int32_t> SourceRows::of(int64_t rank) const {
  const int64_t first = start_[static_cast<size_t>(rank / slices_ * experts_each_)];
  const int64_t end = start_[static_cast<size_t>((rank / slices_ + 1) * experts_each_)];
  return {slots_.data() + first, static_cast<size_t>(end - first)};
}

std::vector<int32_t> SourceRows::tokens_on_node(const Places& places, int node) const {
  std::vector<bool> there(static_cast<size_t>(tokens_), false);
  for (const int rank : places.members[static_cast<size_t>(node)]) {
    for (const int32_t t : tokens_on(rank)) there[static_cast<size_t>(t)] = true;
  }
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < tokens_; ++t) {
    if (there[static_cast<size_t>(t)]) tokens.push_back(static_cast<int32_t>(t));
  }
  return tokens;
}

std::vector<bool> SourceRows::alone_on(std::span<const int> ranks) const {
  const auto k = std::ssize(slots_) / std::max<int64_t>(1, tokens_);
  std::vector<uint8_t> rows(static_cast<size_t>(tokens_), 0);  // 2 stands for more
  for (const int rank : ranks) {
    for (const int32_t slot : of(rank)) {
      uint8_t& count = rows[static_cast<size_t>(slot / k)];
      count = static_cast<uint8_t>(std::min(count + 1, 2));
    }
  }
  std::vector<bool> alone;
  for (const uint8_t count : rows) alone.push_back(count == 1);
  return alone;
}

std::vector<int64_t> Arrivals::blocks(const RoutingPlan& plan) {
  std::vector<int64_t> start{0};
  for (int64_t e = 0; e < plan.experts_each; ++e) {
    for (int64_t s = 0; s < plan.ranks; ++s) start.push_back(start.back() + plan.received(s, e));
  }
  return start;
}

Arrivals::Arrivals(const RoutingPlan& plan) {
  const std::vector<int64_t> block = blocks(plan);
  struct Row {
    int32_t token;
    int64_t expert, row;
    bool alone;
  };
  std::vector<Row> rows;
  for (int64_t s = 0; s < plan.ranks; ++s) {
    rows.clear();
    for (int64_t e = 0; e < plan.experts_each; ++e) {
      const auto b = static_cast<size_t>(e * plan.ranks + s);
      for (int64_t r = block[b]; r < block[b + 1]; ++r) {
        const int32_t token = plan.token_S[r];
        rows.push_back({token < 0 ? ~token : token, e, r, token < 0});
      }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.token < b.token; });
    of_source.push_back(std::ssize(of_token));
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || rows[i].token != rows[i - 1].token) {
        of_token.push_back(std::ssize(row));
        alone.push_back(rows[i].alone);
      }
      row.push_back(rows[i].row);
      expert.push_back(rows[i].expert);
    }
  }
  of_source.push_back(std::ssize(of_token));
  of_token.push_back(std::ssize(row));
}

Passing::Passing(const RoutingPlan& plan, const Places& places)
    : sources(places.sources_of(places.self)), first{0} {
  for (const int s : sources) first.push_back(first.back() + plan.tokens_of(s));
}

void Passing::read(const RoutingPlan& plan) {
  for (size_t i = 0; i < sources.size(); ++i) {
    rows.emplace_back(plan, plan.passing_Qk + first[i] * plan.top_k, first[i + 1] - first[i]);
  }
}

}  // namespace heddle::comm
