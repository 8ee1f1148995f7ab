// Cases of the ops that select keys. They are apart from op_cases.h for its length: who runs those runs these too.
#pragma once

#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {

/// A rank of cp and tp, of queries that are its part of each sequence of S.
struct SelectionRank {
  int cp = 1, cp_index = 0, tp = 1, tp_index = 0;
  int64_t own(int64_t S) const { return S / (cp * tp); }
  int64_t position(int64_t t, int64_t S) const {
    return ir::position(tp_index * own(S) + t % own(S), S, cp_index, cp);
  }
  void place(OpCase& op) const {
    op.place.index[static_cast<size_t>(ir::Axis::cp)] = cp_index;
    op.place.degree[static_cast<size_t>(ir::Axis::cp)] = cp;
    op.place.index[static_cast<size_t>(ir::Axis::tp)] = tp_index;
    op.place.degree[static_cast<size_t>(ir::Axis::tp)] = tp;
    if (cp > 1) op.attributes.set("cp", int64_t{cp});
    if (tp > 1) op.attributes.set("tp", int64_t{tp});
  }
};

/// Up to k positions at random for each row of B sequences of S, among those that it sees; −1 behind them.
inline Tensor random_choice(int64_t B, int64_t S, int64_t k, const SelectionRank& rank, uint64_t seed) {
  const RandomKey key(seed);
  Tensor chosen(Dtype::i32, {B * rank.own(S), k}, -1);
  for (int64_t t = 0; t < chosen.shape[0]; ++t) {
    const int64_t seen = rank.position(t, S) + 1;
    std::vector<int64_t> open(static_cast<size_t>(seen));
    std::iota(open.begin(), open.end(), 0);
    while (std::ssize(open) > k)
      open.erase(open.begin() +
                 static_cast<std::ptrdiff_t>(key.bits(static_cast<uint64_t>(t * S) + open.size()) % open.size()));
    for (size_t j = 0; j < open.size(); ++j)
      chosen.values[static_cast<size_t>(t * k) + j] = static_cast<double>(open[j]);
  }
  return chosen;
}

/// Blocks of keys that queries of sequences of S read.
struct BlockLists {
  int64_t S = 1, block = 1, columns = 1, lists = 1;
  bool tail = false, documents = false;
  SelectionRank rank = {};

  /// The positions that row t may read: those of its document up to its own.
  std::pair<int64_t, int64_t> seen(int64_t t) const {
    const int64_t own = rank.position(t, S);
    const Tensor starts = document_starts(t / rank.own(S) + 1, S);
    return {documents ? static_cast<int64_t>(starts.values[static_cast<size_t>(t / rank.own(S) * S + own)]) : 0,
            own + 1};
  }
  /// Numbers of blocks at random, among those that each row sees; with a tail among the whole ones.
  Tensor random(int64_t B, uint64_t seed) const {
    Tensor chosen(Dtype::i32, {B * rank.own(S), lists * columns}, -1);
    for (int64_t t = 0; t < chosen.shape[0]; ++t) {
      const auto [start, end] = seen(t);
      for (int64_t list = 0; list < lists; ++list) {
        const RandomKey key(seed + static_cast<uint64_t>(t * lists + list));
        std::vector<int64_t> open;
        for (int64_t b = start / block; tail ? (b + 1) * block <= end : b * block < end; ++b) open.push_back(b);
        while (std::ssize(open) > columns)
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(key.bits(open.size()) % open.size()));
        for (size_t j = 0; j < open.size(); ++j)
          chosen.values[static_cast<size_t>((t * lists + list) * columns) + j] = static_cast<double>(open[j]);
      }
    }
    return chosen;
  }
  void set(OpCase& op) const {
    op.attributes.set("block", block);
    if (tail) op.attributes.set("tail", int64_t{1});
    if (lists > 1) op.attributes.set("lists", lists);
    rank.place(op);
  }
};

inline OpCase attention_to_blocks(const std::string& name, Dtype X, int64_t B, int64_t h, int64_t hk,
                                  const BlockLists& of) {
  const int64_t rows = B * of.rank.own(of.S);
  OpCase op{name,
            "chosen_attention",
            {activation(random_tensor(X, {rows, h * 5}, 66)), activation(random_tensor(X, {B * of.S, hk * 5}, 67)),
             activation(random_tensor(X, {B * of.S, hk * 4}, 68)), metadata(of.random(B, 69))},
            {{"heads", h}, {"kv_heads", hk}, {"head_dim", 5}, {"value_dim", 4}, {"sequence", of.S}, {"scale", 0.4}},
            {}};
  if (of.documents) {
    op.in.insert(op.in.end(), {absent(), absent()});
    op.in.push_back({document_starts(B, of.S), Role::input});
  }
  of.set(op);
  return op;
}

/// Sequences that end within a block, documents that begin within one, one list and several, blocks of one key.
inline std::vector<std::pair<std::string, BlockLists>> block_lists() {
  std::vector<std::pair<std::string, BlockLists>> all{
      {"blocks", {.S = 18, .block = 4, .columns = 2}},
      {"blocks_of_each_head", {.S = 18, .block = 4, .columns = 2, .lists = 2}},
      {"blocks_of_one", {.S = 9, .block = 1, .columns = 4, .lists = 2}},
      {"blocks_and_tail", {.S = 18, .block = 4, .columns = 2, .tail = true}},
      {"blocks_of_documents", {.S = 23, .block = 3, .columns = 3, .lists = 2, .documents = true}},
      {"blocks_and_tail_of_documents", {.S = 23, .block = 5, .columns = 2, .tail = true, .documents = true}},
      {"blocks_many_rows", {.S = 150, .block = 8, .columns = 3, .lists = 2}}};
  for (const int index : {0, 1}) {
    all.emplace_back(fmt::format("blocks_rank{}", index), BlockLists{.S = 16,
                                                                     .block = 3,
                                                                     .columns = 2,
                                                                     .lists = 2,
                                                                     .documents = true,
                                                                     .rank = {.cp = 2, .cp_index = index}});
  }
  return all;
}

/// Sizes of an indexer's loss, and of the share of attention that it reads.
struct LossSizes {
  int64_t S = 9, h = 2, chosen = 0;  // chosen: so many a query and list; 0: all
  bool documents = false, weighted = true;
  int64_t rate = 1;              // tokens of an entry
  int64_t block = 0;             // keys of a block that is chosen
  bool lists = false;            // each head has a list
  bool of_blocks = false;        // the share is of blocks
  int64_t group = 1, width = 5;  // of the share: heads of a key head, their width
  SelectionRank rank = {};

  int64_t keys() const { return S / rate; }
  int64_t list_count() const { return lists ? h : 1; }
  int64_t rows(int64_t B) const { return B * rank.own(S); }
  int64_t columns() const {
    if (chosen == 0) return list_count() * (of_blocks ? S / block : keys());
    return list_count() * chosen * (block > 0 && !of_blocks ? block : 1);
  }
  /// The positions that row t may read: those of its document up to its own.
  std::pair<int64_t, int64_t> seen(int64_t t) const {
    return BlockLists{.S = S, .documents = documents, .rank = rank}.seen(t);
  }
  Tensor choice(int64_t B) const {
    const bool whole = of_blocks || rate > 1;
    return BlockLists{.S = S,
                      .block = whole ? std::max(block, rate) : std::max<int64_t>(1, block),
                      .columns = chosen,
                      .lists = list_count(),
                      .tail = whole,
                      .documents = documents,
                      .rank = rank}
        .random(B, 75);
  }
  /// Calls body(list, column, key) for each key that row t reads, of the column of its list.
  template <class Body>
  void for_each_key(const Tensor& chosen_numbers, int64_t t, Body body) const {
    const auto [start, end] = seen(t);
    for (int64_t list = 0; list < list_count(); ++list) {
      for (int64_t key = 0; chosen == 0 && key < keys(); ++key) {
        const bool reads = rate > 1    ? key >= start / rate && (key + 1) * rate <= end
                           : of_blocks ? key >= start && key < end / block * block
                                       : key >= start && key < end;
        if (reads) body(list, of_blocks ? key / block : key, key);
      }
      for (int64_t c = 0; c < chosen; ++c) {
        const auto n = static_cast<int64_t>(
            chosen_numbers.values[static_cast<size_t>((t * list_count() + list) * chosen + c)]);
        if (n >= 0 && block == 0) body(list, c, n);
        for (int64_t i = 0; n >= 0 && i < block; ++i) {
          if (n * block + i >= start && n * block + i < end)
            body(list, of_blocks ? c : c * block + i, n * block + i);
        }
      }
    }
  }

  /// The loss, of shares that are random.
  OpCase loss(const std::string& name, Dtype X, int64_t B) const {
    Tensor share = random_tensor(wide(X), {rows(B), columns()}, 74);
    for (double& v : share.values) v = std::abs(v) + 0.01;
    OpCase op{
        name,
        "index_loss",
        {activation(random_tensor(X, {rows(B), h * 6}, 71)), activation(random_tensor(X, {B * keys(), 6}, 72)),
         weighted ? activation(random_tensor(wide(X), {rows(B), h}, 73)) : absent(), metadata(share),
         metadata(Tensor(wide(X), {2}, std::vector{3.0, 0.5})), chosen > 0 ? metadata(choice(B)) : absent(),
         documents ? Operand{document_starts(B, S), Role::input} : absent()},
        {{"heads", h}, {"head_dim", 6}, {"sequence", S}, {"scale", 0.3}, {"weight", 0.7}, {"scale_index", 1}},
        {}};
    set(op);
    if (lists) op.attributes.set("lists", h);
    return op;
  }
  /// The share of attention whose lse is random. Its rows are those of a tp group.
  OpCase share(const std::string& name, Dtype X, int64_t B) const {
    OpCase op{
        name,
        "attention_share",
        {activation(random_tensor(X, {rows(B), h * group * width}, 81)),
         activation(random_tensor(X, {B * keys(), h * width}, 82)),
         metadata(random_tensor(wide(X), {rows(B), h * group}, 83)), chosen > 0 ? metadata(choice(B)) : absent(),
         documents ? Operand{document_starts(B, S), Role::input} : absent()},
        {{"heads", h * group}, {"kv_heads", h}, {"head_dim", width}, {"sequence", S}, {"scale", 0.4}},
        {}};
    set(op);
    if (lists) op.attributes.set("lists", h);
    if (of_blocks) op.attributes.set("of_blocks", int64_t{1});
    if (of_blocks) op.attributes.set("block", block);
    return op;
  }

 private:
  void set(OpCase& op) const {
    if (rate > 1) op.attributes.set("rate", rate).set("keys", keys());
    if (block > 0 && chosen > 0) op.attributes.set("block", block);
    rank.place(op);
  }
};

/// Losses of indexers, by name. Those of of_blocks are of shares alone: to their loss a block is an entry.
inline std::vector<std::pair<std::string, LossSizes>> loss_sizes() {
  std::vector<std::pair<std::string, LossSizes>> all{
      {"chosen", {.chosen = 4}},
      {"all", {.h = 3}},
      {"documents", {.S = 17, .documents = true, .group = 2}},
      {"many_rows", {.S = 150, .h = 1, .chosen = 12}},
      {"no_weights", {.chosen = 4, .documents = true, .weighted = false}},
      {"entries", {.S = 18, .rate = 4, .group = 3}},
      {"entries_of_documents", {.S = 23, .documents = true, .weighted = false, .rate = 3}},
      {"chosen_entries", {.S = 23, .h = 1, .chosen = 2, .documents = true, .rate = 3, .group = 4}},
      {"lists", {.S = 13, .documents = true, .weighted = false, .lists = true, .group = 2}},
      {"blocks", {.S = 18, .chosen = 2, .weighted = false, .block = 4, .lists = true, .group = 2}},
      {"blocks_of_one_list", {.S = 18, .h = 1, .chosen = 2, .weighted = false, .block = 4, .lists = true}},
      {"blocks_of_documents",
       {.S = 23, .chosen = 3, .documents = true, .weighted = false, .block = 3, .lists = true}},
      {"blocks_many_rows", {.S = 150, .chosen = 3, .weighted = false, .block = 8, .lists = true}},
      {"sums_of_blocks", {.S = 18, .chosen = 2, .block = 4, .of_blocks = true, .group = 2}},
      {"sums_of_all_blocks", {.S = 23, .documents = true, .block = 5, .of_blocks = true}},
      {"sums_of_blocks_of_documents", {.S = 23, .chosen = 2, .documents = true, .block = 3, .of_blocks = true}}};
  for (const int index : {0, 1, 2, 3}) {
    const SelectionRank rank{.cp = 2, .cp_index = index / 2, .tp = 2, .tp_index = index % 2};
    all.emplace_back(fmt::format("chosen_rank{}", index), LossSizes{.S = 16, .chosen = 3, .rank = rank});
    all.emplace_back(fmt::format("all_rank{}", index), LossSizes{.S = 16, .documents = true, .rank = rank});
    all.emplace_back(fmt::format("entries_rank{}", index),
                     LossSizes{.S = 16, .chosen = 2, .documents = true, .rate = 3, .rank = rank});
    all.emplace_back(fmt::format("all_entries_rank{}", index), LossSizes{.S = 16, .rate = 3, .rank = rank});
  }
  for (const int index : {0, 1}) {
    const SelectionRank rank{.cp = 2, .cp_index = index};
    all.emplace_back(
        fmt::format("blocks_rank{}", index),
        LossSizes{
            .S = 16, .chosen = 2, .documents = true, .weighted = false, .block = 3, .lists = true, .rank = rank});
    all.emplace_back(fmt::format("sums_rank{}", index),
                     LossSizes{.S = 16, .documents = true, .block = 3, .of_blocks = true, .rank = rank});
  }
  return all;
}

inline std::vector<CaseMaker> selection_cases() {
  std::vector<CaseMaker> cases;
  cases.push_back({"detached_linear", [](Dtype X, int64_t B) {
                     return OpCase{
                         "detached_linear",
                         "detached_linear",
                         {metadata(random_tensor(X, {B * 9, 17}, 1)), weight(random_tensor(X, {6, 17}, 2))},
                         {{"wide", 1}},
                         {}};
                   }});
  const auto attention = [&](std::string name, int64_t S, int64_t h, int64_t hk, int64_t k, SelectionRank rank = {},
                             bool sinks = false) {
    cases.push_back(
        {name, [=](Dtype X, int64_t B) {
           OpCase op{
               name,
               "chosen_attention",
               {activation(random_tensor(X, {B * rank.own(S), h * 5}, 61)),
                activation(random_tensor(X, {B * S, hk * 5}, 62)),
                activation(random_tensor(X, {B * S, hk * 4}, 63)), metadata(random_choice(B, S, k, rank, 64))},
               {{"heads", h}, {"kv_heads", hk}, {"head_dim", 5}, {"value_dim", 4}, {"sequence", S}, {"scale", 0.4}},
               {}};
           if (sinks) op.in.insert(op.in.end(), {absent(), weight(random_tensor(wide(X), {h}, 65))});
           rank.place(op);
           return op;
         }});
  };
  attention("chosen_attention", 9, 2, 2, 4);
  attention("chosen_attention_grouped_heads", 17, 4, 2, 3);
  attention("chosen_attention_of_one", 7, 2, 2, 1);
  attention("chosen_attention_of_all", 7, 2, 1, 7);
  attention("chosen_attention_many_rows", 150, 1, 1, 20);
  attention("chosen_attention_with_sinks", 9, 4, 2, 4, {}, true);
  for (const int index : {0, 1}) {
    attention(fmt::format("chosen_attention_rank{}", index), 12, 2, 2, 4, {.cp = 2, .cp_index = index});
    attention(fmt::format("chosen_attention_with_sinks_rank{}", index), 12, 2, 2, 4, {.cp = 2, .cp_index = index},
              true);
  }

  for (const auto& [name, lists] : block_lists()) {
    const std::string case_name = "chosen_attention_" + name;
    cases.push_back({case_name, [case_name, lists = lists](Dtype X, int64_t B) {
                       return attention_to_blocks(case_name, X, B, 4, 2, lists);
                     }});
  }

  for (const auto& [name, sizes] : loss_sizes()) {
    if (sizes.of_blocks) continue;
    const std::string case_name = "index_loss_of_" + name;
    cases.push_back(
        {case_name, [case_name, sizes = sizes](Dtype X, int64_t B) { return sizes.loss(case_name, X, B); }});
  }
  return cases;
}

}  // namespace heddle::op_runner
