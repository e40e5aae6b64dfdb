// The kernels, compiled once per instruction set. The including file defines AMLDIST_VECTOR_BYTES; compiler flags
// select the instructions.
//
// Everything is in an unnamed namespace and uses no standard template. The linker might merge such a function between
// files and put code for a newer processor on the path of an older one.
//
// Vectors are those of GCC and clang (vector_size), so one source serves every width, and scalar tails use the same
// functors.
#pragma once

#include <cstddef>
#include <cstdint>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "collective/kernels/reductions.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t vector_bytes = AMLDIST_VECTOR_BYTES;
// Vectors in flight per source: enough independent loads to hide the cache's latency.
constexpr std::size_t unroll = 4;

template <typename T>
struct VectorOf {
  typedef T type __attribute__((vector_size(vector_bytes)));
};
template <typename T>
using Vector = typename VectorOf<T>::type;

template <typename To, typename From>
inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
template <typename V>
inline V load(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}
template <typename V>
inline void store_cached(void* to, V v) {
  __builtin_memcpy(to, &v, sizeof v);
}
template <typename V>
inline void store_streaming(void* to, V v) {  // `to` is aligned to the vector
#if defined(__AVX512F__) && AMLDIST_VECTOR_BYTES == 64
  _mm512_stream_si512(static_cast<__m512i*>(to), bits_as<__m512i>(v));
#elif defined(__AVX2__) && AMLDIST_VECTOR_BYTES == 32
  _mm256_stream_si256(static_cast<__m256i*>(to), bits_as<__m256i>(v));
#elif defined(__SSE2__)
  _mm_stream_si128(static_cast<__m128i*>(to), bits_as<__m128i>(v));
#else
  __builtin_memcpy(to, &v, sizeof v);
#endif
}
inline void fence_streaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

// ---- operators ----
// Signed sums and products are formed unsigned: they wrap around.
template <typename T>
struct Unsigned {
  using type = T;
};
template <>
struct Unsigned<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct Unsigned<std::int16_t> {
  using type = std::uint16_t;
};
template <>
struct Unsigned<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Unsigned<std::int64_t> {
  using type = std::uint64_t;
};

template <calls::ReduceOp op, typename V>
inline V combine(V a, V b) {
  if constexpr (op == calls::ReduceOp::sum || op == calls::ReduceOp::avg) return a + b;
  if constexpr (op == calls::ReduceOp::prod) return a * b;
  if constexpr (op == calls::ReduceOp::max) return a > b ? a : b;
  if constexpr (op == calls::ReduceOp::band) return a & b;
  if constexpr (op == calls::ReduceOp::bor) return a | b;
  if constexpr (op == calls::ReduceOp::bxor) return a ^ b;
  return a < b ? a : b;
}

// The average: `sum` by the number of ranks, integers towards zero. 8 and 16 bit cannot hold every number of ranks, so
// they are divided as float32, for which there are vector instructions. That is exact: a sum of up to 16 bit is off the
// next whole number by at least 1 / ranks, and the quotient's rounding error is below 2^-8 / ranks. (A number of ranks
// that float32 cannot hold is far above every sum, and the quotient is 0.)
template <typename T>
inline T divided(T sum, std::size_t ranks) {
  if constexpr (sizeof(T) < sizeof(std::int32_t)) {
    return static_cast<T>(static_cast<float>(sum) / static_cast<float>(ranks));
  } else {
    return sum / static_cast<T>(ranks);
  }
}
template <typename T, typename V>
inline V divided_vector(V sums, std::size_t ranks) {
  if constexpr (sizeof(T) < sizeof(std::int32_t)) {
    T lanes[sizeof(V) / sizeof(T)];
    __builtin_memcpy(lanes, &sums, sizeof sums);
    for (T& lane : lanes) lane = divided<T>(lane, ranks);
    return load<V>(lanes);
  } else {
    return sums / static_cast<T>(ranks);
  }
}

// ---- arithmetic types ----
// A lane type says how a vector of stored elements becomes a vector to calculate with, and back.
template <typename T>
struct Native {
  using Stored = T;
  using Accumulator = Vector<T>;
  using Arithmetic = T;
  static Accumulator read(const void* from) { return load<Accumulator>(from); }
  static Accumulator to_stored(Accumulator v) { return v; }
  static T read_one(const T* from) { return *from; }
  static void write_one(T* to, T value) { *to = value; }
};

template <typename T, std::size_t bytes>
struct SizedVector {
  typedef T type __attribute__((vector_size(bytes)));
};
using HalfWords = typename SizedVector<std::uint16_t, vector_bytes / 2>::type;

inline std::uint16_t bfloat16_of(float value) {
  auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // quiet NaN
  bits += 0x7fffU + ((bits >> 16) & 1U);  // to nearest, ties to even
  return static_cast<std::uint16_t>(bits >> 16);
}
inline float float_of_bfloat16(std::uint16_t stored) {
  const std::uint32_t bits = static_cast<std::uint32_t>(stored) << 16;
  return bits_as<float>(bits);
}

struct Bfloat16 {
  using Stored = std::uint16_t;
  using Accumulator = Vector<float>;
  using Arithmetic = float;
  using Words = Vector<std::uint32_t>;
  static Accumulator read(const void* from) {
    const Words wide = __builtin_convertvector(load<HalfWords>(from), Words) << 16;
    return bits_as<Accumulator>(wide);
  }
  static HalfWords to_stored(Accumulator v) {
    const Words bits = bits_as<Words>(v);
    const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const Words quiet = (bits >> 16) | 0x40U;
    return __builtin_convertvector((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded, HalfWords);
  }
  static float read_one(const std::uint16_t* from) { return float_of_bfloat16(*from); }
  static void write_one(std::uint16_t* to, float value) { *to = bfloat16_of(value); }
};

inline float float_of_half(std::uint16_t half) {
#ifdef __F16C__
  return _cvtsh_ss(half);
#else
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude < 0x400U) {  // zero and subnormal: a multiple of 2^-24
    return bits_as<float>(bits_as<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24F) | sign);
  }
  const std::uint32_t exponent = magnitude >= 0x7c00U ? 0x70000000U : 0x38000000U;  // infinity and NaN keep theirs
  const std::uint32_t bits = sign | ((magnitude << 13) + exponent);
  return bits_as<float>(bits);
#endif
}

inline std::uint16_t half_of_float(float value) {
#ifdef __F16C__
  const __m128i halves = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<std::uint16_t>(_mm_extract_epi16(halves, 0));
#else
  auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  bits &= 0x7fffffffU;
  if (bits > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);   // NaN
  if (bits >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to infinity
  if (bits < 0x38800000U) {  // subnormal: let the adder round at 2^-24
    return static_cast<std::uint16_t>(sign | (bits_as<std::uint32_t>(bits_as<float>(bits) + 0.5F) - 0x3f000000U));
  }
  bits += 0xfffU + ((bits >> 13) & 1U) - 0x38000000U;
  return static_cast<std::uint16_t>(sign | (bits >> 13));
#endif
}

struct Half {
  using Stored = std::uint16_t;
  using Accumulator = Vector<float>;
  using Arithmetic = float;
  static constexpr std::size_t lanes = vector_bytes / sizeof(float);
  static Accumulator read(const void* from) {
#if defined(__AVX512F__) && AMLDIST_VECTOR_BYTES == 64
    return bits_as<Accumulator>(_mm512_maskz_cvtph_ps(0xffff, bits_as<__m256i>(load<HalfWords>(from))));
#elif defined(__F16C__) && AMLDIST_VECTOR_BYTES == 32
    return bits_as<Accumulator>(_mm256_cvtph_ps(bits_as<__m128i>(load<HalfWords>(from))));
#else
    Accumulator v;
    const HalfWords words = load<HalfWords>(from);
    for (std::size_t i = 0; i < lanes; ++i) v[i] = float_of_half(words[i]);
    return v;
#endif
  }
  static HalfWords to_stored(Accumulator v) {
#if defined(__AVX512F__) && AMLDIST_VECTOR_BYTES == 64
    return bits_as<HalfWords>(_mm512_maskz_cvtps_ph(0xffff, bits_as<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__F16C__) && AMLDIST_VECTOR_BYTES == 32
    return bits_as<HalfWords>(_mm256_cvtps_ph(bits_as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
#else
    HalfWords words;
    for (std::size_t i = 0; i < lanes; ++i) words[i] = half_of_float(v[i]);
    return words;
#endif
  }
  static float read_one(const std::uint16_t* from) { return float_of_half(*from); }
  static void write_one(std::uint16_t* to, float value) { *to = half_of_float(value); }
};

// ---- folds ----
template <typename Lane, calls::ReduceOp op>
inline void fold_one(const Fold& work, std::size_t i) {
  using Stored = typename Lane::Stored;
  using Wrapping = typename Unsigned<typename Lane::Arithmetic>::type;
  using Kind = typename Lane::Arithmetic;
  auto result = Lane::read_one(static_cast<const Stored*>(work.sources[0]) + i);
  for (std::size_t s = 1; s < work.source_count; ++s) {
    const auto next = Lane::read_one(static_cast<const Stored*>(work.sources[s]) + i);
    if constexpr (op == calls::ReduceOp::max || op == calls::ReduceOp::min) {
      result = combine<op, Kind>(result, next);
    } else if constexpr (sizeof(Kind) < sizeof(int)) {  // avoid the signed overflow of a promoted product
      result = static_cast<Kind>(
          combine<op, std::uint32_t>(static_cast<std::uint32_t>(result), static_cast<std::uint32_t>(next)));
    } else {
      result = static_cast<Kind>(combine<op, Wrapping>(static_cast<Wrapping>(result), static_cast<Wrapping>(next)));
    }
  }
  if constexpr (op == calls::ReduceOp::avg) result = divided<Kind>(result, work.divisor);
  Lane::write_one(static_cast<Stored*>(work.dst) + i, result);
  if (work.second != nullptr) Lane::write_one(static_cast<Stored*>(work.second) + i, result);
}

template <typename Lane, calls::ReduceOp op>
inline typename Lane::Accumulator combined(typename Lane::Accumulator a, typename Lane::Accumulator b) {
  if constexpr (op == calls::ReduceOp::max || op == calls::ReduceOp::min) {
    return combine<op>(a, b);
  } else {
    using Wrapping = Vector<typename Unsigned<typename Lane::Arithmetic>::type>;
    const Wrapping result = combine<op>(bits_as<Wrapping>(a), bits_as<Wrapping>(b));
    return bits_as<typename Lane::Accumulator>(result);
  }
}

template <bool streaming, typename V>
inline void store_as(void* to, V v) {
  if constexpr (streaming) store_streaming(to, v);
  else store_cached(to, v);
}

template <typename Lane>
constexpr std::size_t lanes_of = sizeof(typename Lane::Accumulator) / sizeof(typename Lane::Arithmetic);

// Folds `blocks` vectors from element `at` on.
template <typename Lane, calls::ReduceOp op, std::size_t blocks, bool streaming, bool both>
inline void fold_vectors(const Fold& work, std::size_t at) {
  using Stored = typename Lane::Stored;
  constexpr std::size_t lanes = lanes_of<Lane>;
  typename Lane::Accumulator sums[blocks];
  const auto* first = static_cast<const Stored*>(work.sources[0]) + at;
  for (std::size_t b = 0; b < blocks; ++b) sums[b] = Lane::read(first + b * lanes);
  for (std::size_t s = 1; s < work.source_count; ++s) {
    const auto* source = static_cast<const Stored*>(work.sources[s]) + at;
    for (std::size_t b = 0; b < blocks; ++b) sums[b] = combined<Lane, op>(sums[b], Lane::read(source + b * lanes));
  }
  auto* dst = static_cast<Stored*>(work.dst) + at;
  auto* second = static_cast<Stored*>(work.second);  // null if there is only one result
  for (std::size_t b = 0; b < blocks; ++b) {
    if constexpr (op == calls::ReduceOp::avg)
      sums[b] = divided_vector<typename Lane::Arithmetic>(sums[b], work.divisor);
    const auto result = Lane::to_stored(sums[b]);
    store_as<streaming>(dst + b * lanes, result);
    if constexpr (both) {
      store_streaming(second + at + b * lanes, result);
    } else if (second != nullptr) {
      store_cached(second + at + b * lanes, result);
    }
  }
}

// The rest after the whole unrolled vectors. These two are compiled once for each type and operator and called by all
// variants below: inlined there, they were two thirds of the build time of this file.
template <typename Lane, calls::ReduceOp op>
[[gnu::noinline]] void fold_ones(const Fold& work, std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i) fold_one<Lane, op>(work, i);
}

template <typename Lane, calls::ReduceOp op>
[[gnu::noinline]] void fold_rest(const Fold& work, std::size_t from) {
  std::size_t i = from;
  for (; i + lanes_of<Lane> <= work.count; i += lanes_of<Lane>) fold_vectors<Lane, op, 1, false, false>(work, i);
  for (; i < work.count; ++i) fold_one<Lane, op>(work, i);
}

// Folds the elements before the first whole vector of `dst`, which is aligned to its elements; returns how many.
template <typename Lane, calls::ReduceOp op>
std::size_t fold_head(const Fold& work) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(work.dst) % vector_bytes;
  const std::size_t missing = past == 0 ? 0 : (vector_bytes - past) / sizeof(typename Lane::Stored);
  const std::size_t head = missing < work.count ? missing : work.count;
  if (head != 0) fold_ones<Lane, op>(work, 0, head);
  return head;
}

template <typename Lane, calls::ReduceOp op, bool streaming, bool both>
void fold_all(const Fold& work) {
  constexpr std::size_t step = unroll * lanes_of<Lane>;
  std::size_t i = streaming ? fold_head<Lane, op>(work) : 0;
  for (; i + step <= work.count; i += step) fold_vectors<Lane, op, unroll, streaming, both>(work, i);
  if (i < work.count) fold_rest<Lane, op>(work, i);
  if constexpr (streaming || both) fence_streaming();
}

// Two sources: every all-reduce of two ranks. This version takes up to a third less time, because the addresses are in
// registers (the compiler must assume that a store changes `work`) and each result is written in consecutive cache
// lines. Prefetching the other rank's lines helps with one result and hurts with two (`twice`).
template <typename Lane, calls::ReduceOp op, bool streaming, bool both, bool twice>
void fold_pair(const Fold& work) {
  using Stored = typename Lane::Stored;
  using Accumulator = typename Lane::Accumulator;
  constexpr std::size_t lanes = lanes_of<Lane>;
  constexpr std::size_t ahead = 512 / sizeof(Stored);
  const auto* const a = static_cast<const Stored*>(work.sources[0]);
  const auto* const b = static_cast<const Stored*>(work.sources[1]);
  auto* const dst = static_cast<Stored*>(work.dst);
  auto* const second = static_cast<Stored*>(work.second);
  const std::size_t count = work.count;
  std::size_t i = streaming ? fold_head<Lane, op>(work) : 0;
  for (; i + unroll * lanes <= count; i += unroll * lanes) {
    Accumulator sums[unroll];
    for (std::size_t u = 0; u < unroll; ++u) {
      if constexpr (!twice) {
        __builtin_prefetch(a + i + ahead + u * lanes);
        __builtin_prefetch(b + i + ahead + u * lanes);
      }
      sums[u] = combined<Lane, op>(Lane::read(a + i + u * lanes), Lane::read(b + i + u * lanes));
      if constexpr (op == calls::ReduceOp::avg)
        sums[u] = divided_vector<typename Lane::Arithmetic>(sums[u], work.divisor);
    }
    for (std::size_t u = 0; u < unroll; ++u) store_as<streaming>(dst + i + u * lanes, Lane::to_stored(sums[u]));
    if constexpr (twice) {
      for (std::size_t u = 0; u < unroll; ++u) store_as<both>(second + i + u * lanes, Lane::to_stored(sums[u]));
    }
  }
  if (i < count) fold_rest<Lane, op>(work, i);
  if constexpr (streaming || both) fence_streaming();
}

template <typename Lane, calls::ReduceOp op, bool streaming, bool both>
void fold_some(const Fold& work) {
  if (work.source_count != 2) fold_all<Lane, op, streaming, both>(work);
  else if (both || work.second != nullptr) fold_pair<Lane, op, streaming, both, true>(work);
  else fold_pair<Lane, op, streaming, both, false>(work);
}

template <typename A, typename B>
constexpr bool is_same = false;
template <typename A>
constexpr bool is_same<A, A> = true;

template <typename T>
constexpr bool is_integer = static_cast<T>(1) / static_cast<T>(2) == 0;

template <typename Lane, calls::ReduceOp op>
void fold(const Fold& work) {
  using Stored = typename Lane::Stored;
  using Kind = typename Lane::Arithmetic;
  if constexpr (op == calls::ReduceOp::avg && is_integer<Kind>) {  // dividing takes longer than any way of storing
    fold_rest<Lane, op>(work, 0);
    return;
  }
  if constexpr (is_same<Lane, Native<float>> && op == calls::ReduceOp::sum) {  // can_stream_second()
    const bool begins_line = reinterpret_cast<std::uintptr_t>(work.second) % 64 == 0;
    if (work.store != Store::streaming && work.second != nullptr && work.second_store == Store::streaming &&
        begins_line) {
      fold_some<Lane, op, false, true>(work);
      return;
    }
  }
  // Half-width stores have no streaming form, so they stay in the caches.
  if constexpr (sizeof(Stored) == sizeof(Kind)) {
    const auto dst = reinterpret_cast<std::uintptr_t>(work.dst);
    const auto second = reinterpret_cast<std::uintptr_t>(work.second);
    if (work.store == Store::streaming && dst % sizeof(Stored) == 0) {
      const bool alike =
          work.second != nullptr && work.second_store == Store::streaming && (dst - second) % vector_bytes == 0;
      if (alike) fold_some<Lane, op, true, true>(work);
      else fold_some<Lane, op, true, false>(work);
      return;
    }
  }
  fold_some<Lane, op, false, false>(work);
}

void copy_bytes(void* dst, const void* src, std::size_t bytes, Store store) {
  if (store != Store::streaming || bytes < 4096) {
    __builtin_memcpy(dst, src, bytes);
    return;
  }
  using V = Vector<std::uint8_t>;
  auto* to = static_cast<std::uint8_t*>(dst);
  const auto* from = static_cast<const std::uint8_t*>(src);
  const std::size_t head = (vector_bytes - reinterpret_cast<std::uintptr_t>(to) % vector_bytes) % vector_bytes;
  __builtin_memcpy(to, from, head);
  std::size_t i = head;
  for (; i + unroll * vector_bytes <= bytes; i += unroll * vector_bytes) {
    V block[unroll];
    for (std::size_t b = 0; b < unroll; ++b) block[b] = load<V>(from + i + b * vector_bytes);
    for (std::size_t b = 0; b < unroll; ++b) store_streaming(to + i + b * vector_bytes, block[b]);
  }
  __builtin_memcpy(to + i, from + i, bytes - i);
  fence_streaming();
}

// Bits are combined as bytes, whatever their type: one function for each operator.
template <calls::ReduceOp op, std::size_t bytes>
void fold_bits(const Fold& work) {
  Fold wide = work;
  wide.count *= bytes;
  fold<Native<std::uint8_t>, op>(wide);
}

#define AMLDIST_BITS(bytes)                                                          \
  &fold_bits<calls::ReduceOp::band, bytes>, &fold_bits<calls::ReduceOp::bor, bytes>, \
      &fold_bits<calls::ReduceOp::bxor, bytes>
// Sums and products of signed integers wrap around, so they are those of the unsigned ones.
#define AMLDIST_OPS(Ring, Lane)                                                                             \
  &fold<Ring, calls::ReduceOp::sum>, &fold<Ring, calls::ReduceOp::prod>, &fold<Lane, calls::ReduceOp::max>, \
      &fold<Lane, calls::ReduceOp::min>, &fold<Lane, calls::ReduceOp::avg>
#define AMLDIST_INTEGER(Ring, Lane) AMLDIST_OPS(Ring, Lane), AMLDIST_BITS(sizeof(Lane::Stored))
#define AMLDIST_REAL(Lane) AMLDIST_OPS(Lane, Lane), nullptr, nullptr, nullptr
// Indexed by DataType and ReduceOp; null if can_combine() is false. A sum of bools is their or, a product their and.
constexpr Reductions::FoldFunction fold_table[calls::data_types * calls::reduce_ops] = {
    AMLDIST_INTEGER(Native<std::uint8_t>, Native<std::int8_t>),
    AMLDIST_INTEGER(Native<std::uint8_t>, Native<std::uint8_t>),
    AMLDIST_INTEGER(Native<std::uint32_t>, Native<std::int32_t>),
    AMLDIST_INTEGER(Native<std::uint32_t>, Native<std::uint32_t>),
    AMLDIST_INTEGER(Native<std::uint64_t>, Native<std::int64_t>),
    AMLDIST_INTEGER(Native<std::uint64_t>, Native<std::uint64_t>),
    AMLDIST_REAL(Half),
    AMLDIST_REAL(Native<float>),
    AMLDIST_REAL(Native<double>),
    AMLDIST_REAL(Bfloat16),
    AMLDIST_INTEGER(Native<std::uint16_t>, Native<std::int16_t>),
    AMLDIST_INTEGER(Native<std::uint16_t>, Native<std::uint16_t>),
    &fold_bits<calls::ReduceOp::bor, 1>,  // bool: sum
    &fold_bits<calls::ReduceOp::band, 1>,
    &fold_bits<calls::ReduceOp::bor, 1>,
    &fold_bits<calls::ReduceOp::band, 1>,
    nullptr,
    AMLDIST_BITS(1)};
#undef AMLDIST_REAL
#undef AMLDIST_INTEGER
#undef AMLDIST_BITS
#undef AMLDIST_OPS

}  // namespace
}  // namespace amldist::collective
