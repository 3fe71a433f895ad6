// The few vector operations that differ between instruction sets, under one name each.
//
// `Vec` holds kLanes floats; + - * / work on it as on a float (GCC's vector types). The compiler
// may not contract a * b + c by itself (-ffp-contract=off), so that a result never depends on which
// template it was computed in: whoever wants one rounding writes fma().
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace rwkv {

inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

using F4 = float __attribute__((vector_size(16)));
using I4 = int __attribute__((vector_size(16)));

#if defined(__AVX512F__)

inline constexpr int kLanes = 16;
using Vec = __m512;

inline Vec set(float x) { return _mm512_set1_ps(x); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }

inline Vec load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline Vec load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
inline void store_f16(uint16_t* p, Vec v) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline F4 fold4(Vec v) {  // 16 lanes to 4, halves added to halves
  const __m256 low = _mm512_castps512_ps256(v);
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
  const __m256 half = low + high;
  return (F4)(_mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
}

#elif defined(__AVX2__)

inline constexpr int kLanes = 8;
using Vec = __m256;

inline Vec set(float x) { return _mm256_set1_ps(x); }
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }

inline Vec load_bf16(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline Vec load_f16(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
inline void store_f16(uint16_t* p, Vec v) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
inline F4 fold4(Vec v) {
  return (F4)(_mm256_castps256_ps128(v) + _mm256_extractf128_ps(v, 1));
}

#elif defined(__aarch64__)

inline constexpr int kLanes = 4;
using Vec = float32x4_t;

inline Vec set(float x) { return vdupq_n_f32(x); }
inline Vec load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, Vec v) { vst1q_f32(p, v); }
inline Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
inline Vec min(Vec a, Vec b) { return vminq_f32(a, b); }
inline Vec max(Vec a, Vec b) { return vmaxq_f32(a, b); }

inline Vec load_bf16(const uint16_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
inline Vec load_f16(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
inline void store_f16(uint16_t* p, Vec v) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v)));
}
inline F4 fold4(Vec v) { return (F4)v; }

#else
#error "no vector operations for this machine"
#endif

using Bits = int32_t __attribute__((vector_size(sizeof(Vec))));

inline Bits bits(Vec v) { return (Bits)v; }

// Round to nearest even, NaN stays NaN.
inline void store_bf16(uint16_t* p, Vec v) {
#if defined(__AVX512BF16__)
  _mm256_storeu_si256((__m256i*)p, (__m256i)_mm512_cvtneps_pbh(v));
#else
  using Unsigned = uint32_t __attribute__((vector_size(sizeof(Vec))));
  const Unsigned raw = (Unsigned)v;
  const Unsigned rounded = raw + 0x7FFF + ((raw >> 16) & 1);
  const Unsigned kept = (v == v) ? rounded : (raw | 0x400000);
  using Half = uint16_t __attribute__((vector_size(sizeof(Vec) / 2)));
  const Half out = __builtin_convertvector(kept >> 16, Half);
  memcpy(p, &out, sizeof out);
#endif
}

// The sums of four vectors: halves are added to halves until one number is left.
inline F4 sum4(Vec a, Vec b, Vec c, Vec d) {
  const F4 p = fold4(a), q = fold4(b), r = fold4(c), s = fold4(d);
  const F4 pq = __builtin_shuffle(p, q, I4{0, 1, 4, 5}) + __builtin_shuffle(p, q, I4{2, 3, 6, 7});
  const F4 rs = __builtin_shuffle(r, s, I4{0, 1, 4, 5}) + __builtin_shuffle(r, s, I4{2, 3, 6, 7});
  return __builtin_shuffle(pq, rs, I4{0, 2, 4, 6}) + __builtin_shuffle(pq, rs, I4{1, 3, 5, 7});
}

inline float sum(Vec v) {
  const F4 f = fold4(v);
  const float even = f[0] + f[2], odd = f[1] + f[3];
  return even + odd;
}

// Vectors of fewer than kLanes elements: what lies behind them is neither read nor written.
template <class T>
struct Few {
  T values[kLanes] = {};
  Few() = default;
  Few(const T* p, int64_t count) { memcpy(values, p, count * sizeof(T)); }
  void put(T* p, int64_t count) const { memcpy(p, values, count * sizeof(T)); }
};
inline Vec load_part(const float* p, int64_t count) { return load(Few<float>(p, count).values); }
inline void store_part(float* p, Vec v, int64_t count) {
  Few<float> part;
  store(part.values, v);
  part.put(p, count);
}

}  // namespace rwkv
