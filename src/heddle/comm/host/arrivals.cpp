// The places of arrivals: rows lie by (expert, source, token), and arrive by source.
#include <cstring>
#include <vector>

#include "heddle/comm/host/row_work.h"

namespace heddle::comm::host {

namespace {

/// The first row of each (expert, source), and the sources in the order in which they arrive.
struct Order {
  explicit Order(const device::PlaceRows& args)
      : first_PG(static_cast<size_t>(args.P * args.G)), source_of_turn(static_cast<size_t>(args.G)) {
    int32_t row = 0;
    for (int64_t e = 0; e < args.P; ++e) {
      for (int64_t s = 0; s < args.G; ++s) {
        first_PG[e * args.G + s] = row;
        row += args.n_2GP[(args.G + s) * args.P + e];
      }
    }
    for (int64_t s = 0; s < args.G; ++s) source_of_turn[args.turn_G[s]] = s;
  }
  std::vector<int32_t> first_PG;
  std::vector<int64_t> source_of_turn;
};

}  // namespace

void place_rows(const device::PlaceRows& args, void*) {
  const Order order(args);
  const bool by_token = args.arrive_G != nullptr;
  const int64_t words = args.gate_words + (by_token ? 1 : 0);
  int32_t arrival = 0, many = 0, alone = 0;  // of the sources before
  for (const int64_t s : order.source_of_turn) {
    const int32_t own_alone = by_token && args.marked ? args.arrive_alone_G[s] : 0;
    const int32_t own_many = by_token ? args.arrive_G[s] - own_alone : 0;
    const auto first_code = static_cast<int32_t>((many + alone) * args.L);
    for (int64_t e = 0; e < args.P; ++e) {
      const int32_t count = args.n_2GP[(args.G + s) * args.P + e];
      const int32_t first = order.first_PG[e * args.G + s];
      for (int32_t row = first; row < first + count; ++row, ++arrival) {
        if (args.row_of_arrival != nullptr) args.row_of_arrival[arrival] = row;
        if (args.header_S != nullptr) {
          const int32_t* header = args.header_S + arrival * words;
          const int64_t gate_bytes = args.gate_words * 4;
          std::memcpy(static_cast<std::byte*>(args.g_S) + row * gate_bytes, header,
                      static_cast<size_t>(gate_bytes));
          if (by_token) {
            const int32_t code = header[args.gate_words];
            args.code_S[row] = code < 0 ? ~(~code + first_code) : code + first_code;
          }
        }
        if (!by_token) {
          if (args.from_S != nullptr) args.from_S[row] = arrival;
          continue;
        }
        const int32_t code = args.code_S[row], known = code < 0 ? ~code : code;
        const auto token = static_cast<int32_t>(known / args.L);
        if (args.from_S != nullptr) args.from_S[row] = token;
        if (args.leaf_UL == nullptr) continue;
        args.leaf_UL[known] = row;
        args.key_UL[known] = static_cast<int32_t>(e);
        const int32_t in_list = token - many - alone;  // all rows of a token write the same
        args.to_U[token] = code < 0 ? ~(alone + in_list - own_many) : many + in_list;
      }
    }
    many += own_many;
    alone += own_alone;
  }
}

}  // namespace heddle::comm::host
