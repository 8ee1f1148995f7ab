// Says which row of a cache a row of `cache_rows` goes to, and which rows are seen (ops/cache.cpp).
#pragma once

#include "heddle/device/kernel_call.h"

namespace heddle::kernels {

struct CachePlaces {
  explicit CachePlaces(const device::KernelCall& call)
      : S(call.op->attributes.integer_or("sequence", 0)),
        keys(call.op->attributes.integer_or("keys", S)),
        offset(call.op->attributes.integer_or("offset", 0)),
        rate(call.op->attributes.integer_or("rate", 0)),
        entries(rate > 0 && call.in[0].dim(0) != call.in[1].dim(0) ? S / rate : 0) {}

  /// Returns the cache's row for row t of x. It is negative where row t stands nowhere or ends no entry.
  int64_t row(const int32_t* places, int64_t t) const {
    const int64_t at = entries > 0 ? t / entries * S + (t % entries + 1) * rate - 1 : t;
    if (S == 0 || places[at] < 0) return places[at];
    const int64_t position = places[at] % S, first = places[at] / S * keys + offset;
    if (rate == 0) return first + position;
    return (position + 1) % rate == 0 ? first + position / rate : -1;
  }

  int64_t S, keys, offset, rate;
  int64_t entries;  // that x has of a sequence; 0: x has a row a token
};

/// Returns the first row that a window or chunks (0: none) leave, of `seen` rows up to one's own.
inline int64_t first_seen(int64_t seen, int64_t window, int64_t chunk) {
  if (chunk > 0) return seen > 0 ? (seen - 1) / chunk * chunk : 0;
  return window > 0 && seen > window ? seen - window : 0;
}

}  // namespace heddle::kernels
