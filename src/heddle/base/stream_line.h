// A line of memory written past the caches. Whoever reads it on another core needs a fence (_mm_sfence) first.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>

namespace heddle {

/// Copies 64 bytes. `to`: a multiple of 16.
inline void stream_line(void* to, const void* from) {
  const auto* in = static_cast<const __m128i*>(from);
  auto* out = static_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

}  // namespace heddle
#endif
