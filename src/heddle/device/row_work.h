// The work of collectives on rows between their exchanges, where the rows are: sums in rank order, columns cut and
// joined, the lists and sums of the experts' exchange. The functions belong to a backend, the exchanges to a
// communicator; the executor brings both together. On a device all run in the order of `stream`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "heddle/device/exchange_work.h"
#include "heddle/device/kernel_call.h"

namespace heddle::device {

/// Work of the host in between, in the order of a stream: from what lies at `from` then, to `to`.
struct HostWork {
  const void* from = nullptr;
  void* to = nullptr;
  int64_t from_bytes = 0, to_bytes = 0;
  std::function<void(const std::byte* from, std::byte* to)>
      run;  // of copies, where the host doesn't read the memory
};

struct RowWork {
  /// The host reads this memory, lists and all: rows can be sent from where they lie and received where they
  /// belong.
  bool in_place = false;

  /// out_i = Σ_r in order parts[r·stride + i], in A, rounded once.
  void (*sum_parts)(Dtype dtype, const std::byte* parts, int64_t stride, int64_t ranks, int64_t count, void* out,
                    void* stream);
  /// to += from, in A.
  void (*add)(Dtype dtype, void* to, const void* from, int64_t count, void* stream);
  /// Between rows of all columns and, for each rank in turn, all rows of its columns; `width` bytes a rank.
  void (*cut_columns)(std::byte* whole, std::byte* parts, int64_t rows, int64_t width, int64_t ranks, bool join,
                      void* stream);
  void (*copy)(void* to, const void* from, int64_t bytes, void* stream);
  void (*fill)(void* at, int byte, int64_t bytes, void* stream);
  /// From memory of the host, which may change as soon as this returns.
  void (*upload)(void* to, const void* from, int64_t bytes, void* stream);
  /// to_r = from[index_r ÷ each], rows of H numbers.
  void (*gather)(Dtype dtype, const void* from, int64_t H, const int32_t* index_R, int64_t each, int64_t R,
                 void* to, void* stream);

  /// Returns at once. `run` throws nothing, and calls nothing of the device.
  void (*on_host)(HostWork work, void* stream);

  // The experts' exchange: exchange_work.h.
  /// Lists, or without place_DQ counts only.
  void (*list_tokens)(const ListTokens& args, void* stream);
  void (*tokens_of_places)(const TokensOfPlaces& args, void* stream);
  /// Rows, or without slot_of_R counts only.
  void (*list_rows)(const ListRows& args, void* stream);
  void (*place_rows)(const PlaceRows& args, void* stream);
  void (*sum_tokens)(Dtype rows, const SumTokens& args, void* stream);
  void (*sum_node)(Dtype rows, const SumNode& args, void* stream);
  void (*combine_sums)(Dtype rows, const CombineSums& args, void* stream);
  void (*slot_numbers)(Dtype wide, const SlotNumbers& args, void* stream);
  void (*own_numbers)(const OwnNumbers& args, void* stream);
  void (*choose_route)(const ChooseRoute& args, void* stream);
  // Copies of experts.
  void (*count_experts)(const CountExperts& args, void* stream);
  void (*put_in_slots)(const PutInSlots& args, void* stream);
  /// Makes what counts_to_host makes beside copies: offsets of the P experts here over what all G ranks send.
  void (*local_offsets)(const int32_t* n_2GP, int64_t G, int64_t P, int32_t* offsets, void* stream);
  void (*fit_room)(const FitRoom& args, void* stream);
  /// Null where the host reads this memory.
  void (*rows_in_slots)(const RowsInSlots& args, void* stream);
};

}  // namespace heddle::device
