// The scratch of the ops of an exchange: named parts of one stretch of memory, by sizes that are known before an op
// runs. The same table says how many bytes there are and where each part lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace heddle::comm {

/// Hands out parts of a stretch of memory, each aligned to 256 bytes. Without a base it only adds up.
class Carver {
 public:
  static constexpr int64_t kAlignment = 256;
  static int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  std::span<T> take(int64_t count) {
    const int64_t at = bytes_;
    bytes_ += padded(count * static_cast<int64_t>(sizeof(T)));
    if (base_ == nullptr) return {};
    return {reinterpret_cast<T*>(base_ + at), static_cast<size_t>(count)};
  }
  std::span<std::byte> take_bytes(int64_t count) { return take<std::byte>(count); }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

/// The letters are those of device/exchange_work.h; F sums are forwarded here.
struct ExchangeSizes {
  int64_t T, k, slices, G, P, Q, S, F;
  int64_t row_bytes, sum_bytes, gate_bytes;
  bool plain;        // as the op's attribute says: where it says "auto", any topology may come of it
  bool in_place;     // RowWork::in_place
  bool gates;        // gates, or their gradients, travel with the rows
  int64_t room = 0;  // rows of a slot, where what travels to each rank lies in slots (SlotLists)
  int64_t rest = 0;  // of those of a second round, whose rows come home beside the first one's

  int64_t leaves() const { return std::min(k, P); }
  int64_t slots() const { return G * room; }
  int64_t all_slots() const { return G * (room + rest); }
  /// Rows that are here at a time.
  int64_t arrived() const { return std::max(S, G * rest); }
  /// Rows of a slot that go with the first message: those of even loads.
  int64_t first() const { return std::min(room, (T * k * slices + G - 1) / G); }
};

/// Numbers of each rank, and the lists of tokens.
struct RouteLists {
  RouteLists(Carver& room, const ExchangeSizes& z) {
    const int64_t tokens = z.plain ? 0 : std::max(z.T, z.Q), lists = z.plain ? 0 : z.Q > 0 ? z.G * z.G : z.G;
    numbers = room.take<int32_t>(6 * z.G + 4);
    std::span<int32_t> left = numbers;
    const auto cut = [&](int64_t count) {
      if (left.empty()) return left;
      const std::span<int32_t> part = left.first(static_cast<size_t>(count));
      left = left.subspan(static_cast<size_t>(count));
      return part;
    };
    for (auto* each : {&node_of_G, &key_of_G, &turn_G, &every_G}) *each = cut(z.G);
    own_first = cut(2);
    own_node = cut(1);
    first_I = cut(z.G + 1);
    members = cut(z.G);
    place_DQ = room.take<int32_t>(z.G * tokens);
    outer_place = room.take<int32_t>(z.Q > 0 ? z.G * tokens : 0);
    for (auto* counts : {&many_DI, &alone_DI, &outer_many, &outer_alone}) *counts = room.take<int32_t>(lists + 1);
  }
  std::span<int32_t> numbers;  // all of the next, for the host to upload at once
  std::span<int32_t> node_of_G, key_of_G, turn_G, every_G, own_first, own_node, first_I, members;
  std::span<int32_t> place_DQ, many_DI, alone_DI;           // of what goes from here to the ranks of experts
  std::span<int32_t> outer_place, outer_many, outer_alone;  // of what goes to nodes
};

/// The lists of the rows that leave and arrive.
struct RowLists {
  RowLists(Carver& room, const ExchangeSizes& z) {
    const int64_t R = z.gates || z.plain || z.Q == 0 ? std::max(z.T, z.Q) * z.k * z.slices : 0;
    offsets = room.take<int32_t>((z.Q > 0 ? z.G * z.G : z.G) * z.P + 1);
    slot_of_R = room.take<int32_t>(R);
    row_of_Qks = room.take<int32_t>(R);
    row_of_arrival = room.take<int32_t>(z.arrived());
  }
  std::span<int32_t> offsets, slot_of_R, row_of_Qks, row_of_arrival;
};

/// Rows by slot, where the host does not know how many go where.
struct SlotLists {
  SlotLists(Carver& room, const ExchangeSizes& z)
      : row_of_slot(room.take<int32_t>(z.G * std::max(z.room, z.rest))) {}
  std::span<int32_t> row_of_slot;
};

/// Rows on their way to the experts. What is packed has room to be packed in.
struct ThereScratch {
  ThereScratch(Carver& room, const ExchangeSizes& z) : routes(room, z), rows(room, z), slots(room, z) {
    const int64_t each = z.k * z.slices, R = std::max({z.T * each, z.Q * each, z.slots()});
    const int64_t U = std::max({z.T * each, z.F, z.slots()});
    const int64_t header_bytes = z.gate_bytes + (z.plain ? 0 : static_cast<int64_t>(sizeof(int32_t)));
    if (z.gates) {
      header_R = room.take_bytes(R * header_bytes);
      header_S = room.take_bytes(z.S * header_bytes);
      gates_Qk = room.take_bytes(z.Q * z.k * z.gate_bytes);
    }
    token_U = room.take<int32_t>(z.plain ? 0 : U);
    from_S = room.take<int32_t>(z.plain && z.in_place ? 0 : z.S);
    for (auto* each : {&first_U, &next_S}) *each = room.take<int32_t>(z.plain || !z.in_place ? 0 : z.S);
    leaving = room.take_bytes(z.in_place ? 0 : U * z.row_bytes);
    arriving = room.take_bytes(z.in_place ? 0 : z.S * z.row_bytes);
    staged_QH = room.take_bytes(z.Q * z.row_bytes);
  }
  RouteLists routes;
  RowLists rows;
  SlotLists slots;
  std::span<int32_t> token_U, from_S;
  std::span<int32_t> first_U, next_S;  // in place: the rows of an arrived token, -1 behind the last
  std::span<std::byte> header_R, header_S, gates_Qk, leaving, arriving, staged_QH;
};

/// Scratch of the return (combine): sums on their way to their tokens.
struct BackScratch {
  BackScratch(Carver& room, const ExchangeSizes& z) : routes(room, z), rows(room, z), slots(room, z) {
    const int64_t each = z.k * z.slices, home = std::max(z.T * each, z.all_slots());
    const int64_t R = std::max(home, z.Q * each);
    const bool passes = z.Q > 0;
    to_U = room.take<int32_t>(z.plain ? 0 : z.S);
    leaf_UL = room.take<int32_t>(z.plain ? 0 : z.S * z.leaves());
    key_UL = room.take<int32_t>(z.plain ? 0 : z.S * z.leaves());
    if (z.gates) {
      number_R = room.take_bytes(R * z.gate_bytes);
      number_S = room.take_bytes(z.arrived() * z.gate_bytes);
      spread_numbers = room.take_bytes(passes ? R * z.gate_bytes : 0);
      home_numbers = room.take_bytes(passes ? z.G * home * z.gate_bytes : 0);
    }
    // A sum or a row each, and room to align the second of two runs.
    const auto of_rows = [&](int64_t count) {
      return count * (z.plain ? z.row_bytes : std::max(z.row_bytes, z.sum_bytes)) + Carver::kAlignment;
    };
    leaving = room.take_bytes(of_rows(passes ? std::max(home, z.F) : home));
    arriving = room.take_bytes(z.plain && z.in_place ? 0 : of_rows(z.arrived()));
    staged_QH = room.take_bytes(passes ? of_rows(z.Q) : 0);
    home_UH = room.take_bytes(passes ? of_rows(std::max(home, z.F)) : 0);
  }
  RouteLists routes;
  RowLists rows;
  SlotLists slots;
  std::span<int32_t> to_U, leaf_UL, key_UL;
  std::span<std::byte> number_R, number_S, spread_numbers, home_numbers;
  std::span<std::byte> leaving, arriving, staged_QH, home_UH;
};

template <class Layout>
int64_t scratch_bytes_of(const ExchangeSizes& sizes) {
  Carver room(nullptr);
  [[maybe_unused]] const Layout layout(room, sizes);
  return room.bytes();
}

}  // namespace heddle::comm
