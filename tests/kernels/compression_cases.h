// Cases of compressed keys and of the map of groups of heads (ops/compression.cpp): one series and two, sequences
// that end within an entry, documents that begin within one, entries of one token, columns that are no multiple of
// a vector; and attention to joined keys, with sinks.
#pragma once

#include "tests/kernels/selection_cases.h"

namespace heddle::op_runner {

struct EntrySizes {
  int64_t S = 1, m = 1, series = 1, d = 1;
  bool documents = false, gated = true;
};

inline OpCase compress_rows_case(const std::string& name, Dtype X, int64_t B, const EntrySizes& of) {
  const int64_t columns = of.series * of.d;
  OpCase op{
      name,
      "compress_rows",
      {activation(random_tensor(X, {B * of.S, columns}, 81)), activation(random_tensor(X, {B * of.S, columns}, 82)),
       weight(random_tensor(wide(X), {of.m, columns}, 83))},
      {{"sequence", of.S}, {"rate", of.m}, {"series", of.series}},
      {}};
  if (!of.gated) op.in[1] = op.in[2] = absent();
  if (of.documents) op.in.push_back({document_starts(B, of.S), Role::input});
  return op;
}

/// Numbers of keys among `keys` rows of a sequence of S, as a list of the window and of entries has them.
inline Tensor random_list(int64_t B, int64_t S, int64_t keys, int64_t columns, uint64_t seed) {
  Tensor list(Dtype::i32, {B * S, columns}, -1);
  for (int64_t t = 0; t < B * S; ++t) {
    const RandomKey key(seed + static_cast<uint64_t>(t));
    std::vector<int64_t> chosen{t % S};
    for (int64_t n = 0; n < keys && std::ssize(chosen) < columns; ++n) {
      if (n != t % S && (n < t % S || n >= S) && key.bits(static_cast<uint64_t>(n)) % 3 == 0) chosen.push_back(n);
    }
    std::sort(chosen.begin(), chosen.end());
    for (size_t j = 0; j < chosen.size(); ++j)
      list.values[static_cast<size_t>(t * columns) + j] = static_cast<double>(chosen[j]);
  }
  return list;
}

/// A list of keys, and its numbers by the definition.
struct Listed {
  int64_t B = 2, S = 12, m = 4, window = 3, chosen = 0;  // chosen: so many entries a query; 0: all
  bool documents = false;
  SelectionRank rank;

  OpCase make() const {
    const int64_t rows = B * rank.own(S);
    OpCase op{"list_keys", "list_keys", {}, {{"rows", rows}, {"sequence", S}, {"rate", m}, {"window", window}}, {}};
    Tensor choice(Dtype::i32, {rows, std::max<int64_t>(1, chosen)}, -1);
    for (int64_t t = 0; chosen > 0 && t < rows; ++t) {
      for (int64_t j = 0; j < std::min(chosen, (rank.position(t, S) + 1) / m); ++j)
        choice.values[static_cast<size_t>(t * chosen + j)] = static_cast<double>(j);
    }
    op.in = {chosen > 0 ? metadata(choice) : absent(),
             documents ? Operand{document_starts(B, S), Role::input} : absent()};
    rank.place(op);
    op.attributes.set("cp", int64_t{rank.cp});
    return op;
  }
  std::vector<double> expected() const {
    const Tensor starts = documents ? document_starts(B, S) : Tensor(Dtype::i32, {B * S});
    const int64_t columns = std::min(window, S) + (chosen > 0 ? chosen : S / m);
    std::vector<double> all;
    for (int64_t t = 0; t < B * rank.own(S); ++t) {
      const int64_t own = rank.position(t, S), b = t / rank.own(S);
      const auto start = static_cast<int64_t>(starts.values[static_cast<size_t>(b * S + own)]);
      std::vector<double> row;
      for (int64_t n = 0; n <= own; ++n) {
        if (n > own - window && n >= start) row.push_back(static_cast<double>(n));
      }
      int64_t taken = 0;
      for (int64_t n = 0; n < S / m; ++n) {
        const int64_t last = n * m + m - 1;  // of the entry's tokens
        const bool seen = last <= own && (chosen > 0 || last >= start);
        if (seen && (chosen == 0 || taken++ < chosen)) row.push_back(static_cast<double>(S + n));
      }
      row.resize(static_cast<size_t>(columns), -1);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
};

inline std::vector<Listed> lists_of_keys() {
  std::vector<Listed> all{{},
                          {.m = 1},
                          {.S = 11, .window = 30},
                          {.S = 13, .m = 3, .window = 1},
                          {.chosen = 2},
                          {.S = 14, .m = 3, .documents = true},
                          {.S = 16, .m = 5, .window = 6, .documents = true}};
  for (const int index : {0, 1})
    all.push_back({.S = 16, .m = 3, .documents = true, .rank = {.cp = 2, .cp_index = index}});
  return all;
}

inline std::vector<CaseMaker> compression_cases() {
  std::vector<CaseMaker> cases;
  const std::vector<std::pair<std::string, EntrySizes>> entries{
      {"compress_rows", {12, 4, 1, 5, false}},
      {"compress_rows_of_one", {7, 1, 1, 3, false}},
      {"compress_rows_end_within", {11, 4, 1, 19, false}},
      {"compress_rows_documents", {17, 5, 1, 6, true}},
      {"compress_means", {11, 4, 1, 19, false, false}},
      {"compress_means_of_documents", {17, 5, 1, 6, true, false}},
      {"compress_two_series", {12, 4, 2, 5, false}},
      {"compress_two_series_of_one", {5, 1, 2, 2, false}},
      {"compress_two_series_end_within", {11, 3, 2, 17, false}},
      {"compress_two_series_documents", {17, 3, 2, 4, true}}};
  for (const auto& [name, sizes] : entries) {
    cases.push_back(
        {name, [name = name, sizes = sizes](Dtype X, int64_t B) { return compress_rows_case(name, X, B, sizes); }});
  }
  for (const int64_t m : {1, 4}) {
    const std::string name = fmt::format("join_entries_of_{}", m);
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       return OpCase{name,
                                     "join_entries",
                                     {activation(random_tensor(X, {B * 11, 3}, 84)),
                                      activation(random_tensor(X, {B * (11 / m), 3}, 85))},
                                     {{"sequence", int64_t{11}}, {"rate", m}},
                                     {}};
                     }});
  }
  for (const auto& [groups, in, out] : std::vector<std::array<int64_t, 3>>{{1, 5, 3}, {2, 17, 4}, {3, 8, 19}}) {
    const std::string name = fmt::format("block_linear_{}", groups);
    cases.push_back({name, [=, groups = groups, in = in, out = out](Dtype X, int64_t B) {
                       return OpCase{name,
                                     "block_linear",
                                     {activation(random_tensor(X, {B * 7, groups * in}, 86)),
                                      weight(random_tensor(X, {groups * out, in}, 87))},
                                     {{"groups", groups}},
                                     {}};
                     }});
  }
  for (const bool sinks : {false, true}) {
    const std::string name = sinks ? "attention_to_entries_with_sinks" : "attention_to_entries";
    cases.push_back({name, [=](Dtype X, int64_t B) {
                       const int64_t S = 9, m = 2, keys = S + S / m;
                       OpCase op{name,
                                 "chosen_attention",
                                 {activation(random_tensor(X, {B * S, 4 * 5}, 91)),
                                  activation(random_tensor(X, {B * keys, 5}, 92)),
                                  activation(random_tensor(X, {B * keys, 5}, 93)),
                                  metadata(random_list(B, S, keys, 6, 94))},
                                 {{"heads", 4},
                                  {"kv_heads", 1},
                                  {"head_dim", 5},
                                  {"value_dim", 5},
                                  {"sequence", S},
                                  {"scale", 0.4},
                                  {"keys", keys},
                                  {"window", int64_t{3}}},
                                 {}};
                       if (sinks) op.in.insert(op.in.end(), {absent(), weight(random_tensor(wide(X), {4}, 95))});
                       return op;
                     }});
  }
  return cases;
}

}  // namespace heddle::op_runner
