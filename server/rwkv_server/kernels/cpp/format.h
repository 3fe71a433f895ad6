// How each kind of stored weight is multiplied: one `Format` per kind, all with the same members.
//
//   kTileN, kTileM        most weight rows and batch rows that tile() takes at once
//   kStreamN              weight rows that tile() takes at once where memory sets the pace: as few as
//                         keep the processor busy
//   row_bytes(inputs)     bytes of one prepared batch row; a multiple of 64
//   prepare(x, inputs, row)   turn fp32 inputs into what is multiplied, zeros up to row_bytes
//   kChunk                most inputs that tile() is given at once
//   tile<TN, TM>(w, n, k, end, x, stride, out, ld)   what the inputs from k to `end` add to the
//                         outputs n… of TM rows: out[j * ld + i]
//
// The promise that all keep: an output is the same sum in the same order whichever tile it falls
// into. So each of a tile's outputs has an accumulator of its own, which runs along the inputs, and
// the lanes of all accumulators are folded in the same way. A request's numbers then don't depend
// on what else is in its batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "abi.h"
#include "simd.h"

namespace rwkv {

// How far ahead of itself a tile asks for bytes that lie one after the other.
inline constexpr int64_t kAhead = 8 << 10;

// Fold a tile's accumulators into out[j * ld + i].
template <int TN, int TM>
inline void finish(const Vec (&acc)[TN][TM], float* out, int64_t ld) {
  const auto put4 = [&](int i, int j, F4 sums) { memcpy(out + j * ld + i, &sums, sizeof sums); };
#if defined(__AVX512F__)
  if constexpr (TN == 4 && TM == 4) {
    // The same folding for sixteen vectors at once, transposing on the way.
    __m512 v[4];
    for (int i = 0; i < 4; i++) {
      const __m512 p = _mm512_shuffle_f32x4(acc[i][0], acc[i][1], 0x44) +
                       _mm512_shuffle_f32x4(acc[i][0], acc[i][1], 0xEE);
      const __m512 q = _mm512_shuffle_f32x4(acc[i][2], acc[i][3], 0x44) +
                       _mm512_shuffle_f32x4(acc[i][2], acc[i][3], 0xEE);
      v[i] = _mm512_shuffle_f32x4(p, q, 0x88) + _mm512_shuffle_f32x4(p, q, 0xDD);
    }
    const auto pairs = [](__m512 a, __m512 b) {
      const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
      return _mm512_castpd_ps(_mm512_unpacklo_pd(x, y)) +
             _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    };
    const __m512 a = pairs(v[0], v[1]), b = pairs(v[2], v[3]);
    const __m512 sums = _mm512_shuffle_ps(a, b, 0x88) + _mm512_shuffle_ps(a, b, 0xDD);
    put4(0, 0, (F4)_mm512_castps512_ps128(sums));
    put4(0, 1, (F4)_mm512_extractf32x4_ps(sums, 1));
    put4(0, 2, (F4)_mm512_extractf32x4_ps(sums, 2));
    put4(0, 3, (F4)_mm512_extractf32x4_ps(sums, 3));
    return;
  }
#endif
  for (int j = 0; j < TM; j++) {
    int i = 0;
    for (; i + 4 <= TN; i += 4) {
      put4(i, j, sum4(acc[i][j], acc[i + 1][j], acc[i + 2][j], acc[i + 3][j]));
    }
    for (; i < TN; i++) out[j * ld + i] = sum(acc[i][j]);
  }
}

// Formats whose weights and inputs are widened or multiplied lane by lane; `Ops` does one step.
template <class Ops>
struct Lanes {
  static constexpr int64_t kChunk = 1024;
  static constexpr int kTileN = Ops::kTileN, kTileM = Ops::kTileM;
  static constexpr int kStreamN = Ops::kStreamN;
  using Stored = typename Ops::Stored;
  using Prepared = typename Ops::Prepared;
  // Tiles of several batch rows don't keep memory busy; what comes next is asked for ahead of time.
  static constexpr int64_t kAheadRows = 8, kAheadBytes = 12 << 10;

  static int64_t row_bytes(int64_t inputs) {
    return round_up(inputs * sizeof(Prepared), 64);
  }
  static void prepare(const float* x, int64_t inputs, void* row) {
    Prepared* out = static_cast<Prepared*>(row);
    const int64_t padded = row_bytes(inputs) / sizeof(Prepared);
    int64_t k = 0;
    for (; k + kLanes <= inputs; k += kLanes) Ops::store_input(out + k, load(x + k));
    if (k < inputs) {
      Ops::store_input(out + k, load_part(x + k, inputs - k));
      k += kLanes;
    }
    for (; k < padded; k += kLanes) Ops::store_input(out + k, Vec{});
  }

  template <int TN, int TM>
  static void tile(const Matrix& w, int64_t n, int64_t k, int64_t end, const char* x,
                   int64_t stride, float* out, int64_t ld) {
    const Stored* weights = static_cast<const Stored*>(w.data) + n * w.inputs;
    Vec acc[TN][TM] = {};
    const int64_t bytes = w.inputs * sizeof(Stored);
    const int64_t ahead = TN == kStreamN ? kAhead / int64_t(sizeof(Stored))
                                         : w.inputs * std::max(kAheadRows, kAheadBytes / bytes);
    for (; k + Ops::kStep <= end; k += Ops::kStep) {
      if constexpr (TN <= kTileN) {
        for (int i = 0; i < TN; i++) __builtin_prefetch(weights + i * w.inputs + k + ahead);
      }
      step<TN, TM>(acc, weights + k, w.inputs, x + k * sizeof(Prepared), stride);
    }
    if (k < end) {
      Stored rest[TN][Ops::kStep] = {};
      for (int i = 0; i < TN; i++) {
        memcpy(rest[i], weights + i * w.inputs + k, (end - k) * sizeof(Stored));
      }
      step<TN, TM>(acc, rest[0], Ops::kStep, x + k * sizeof(Prepared), stride);
    }
    finish(acc, out, ld);
  }

 private:
  template <int TN, int TM>
  static void step(Vec (&acc)[TN][TM], const Stored* weights, int64_t ld, const char* x,
                   int64_t stride) {
    typename Ops::Input in[TM];
    for (int j = 0; j < TM; j++) {
      in[j] = Ops::load_input(reinterpret_cast<const Prepared*>(x + j * stride));
    }
    for (int i = 0; i < TN; i++) {
      const auto weight = Ops::load_weight(weights + i * ld);
      for (int j = 0; j < TM; j++) acc[i][j] = Ops::dot(acc[i][j], weight, in[j]);
    }
  }
};

// Weights of any plain type are widened to fp32; inputs stay fp32.
struct Widened {
  using Prepared = float;
  using Input = Vec;
  static constexpr int kStep = kLanes;
  static constexpr int kTileN = 4, kTileM = kLanes == 8 ? 2 : 4;  // AVX2 has 16 registers
  static constexpr int kNarrowN = kLanes == 16 ? 1 : kLanes == 8 ? 2 : 8;
  static void store_input(float* p, Vec x) { store(p, x); }
  static Vec load_input(const float* p) { return load(p); }
  static Vec dot(Vec acc, Vec w, Vec x) { return fma(w, x, acc); }
};
struct WidenedF32 : Widened {
  using Stored = float;
  static constexpr int kStreamN = kLanes == 4 ? 8 : 1;
  static Vec load_weight(const float* p) { return load(p); }
};
struct WidenedF16 : Widened {
  using Stored = uint16_t;
  static constexpr int kStreamN = kNarrowN;
  static Vec load_weight(const uint16_t* p) { return load_f16(p); }
};

#if defined(__AVX512BF16__)
// bf16 times bf16, two products a lane, summed in fp32; inputs are rounded to bf16.
struct PairsBf16 {
  using Stored = uint16_t;
  using Prepared = uint16_t;
  using Input = __m512bh;
  static constexpr int kStep = 32;
  static constexpr int kTileN = 4, kTileM = 4, kStreamN = 1;
  static void store_input(uint16_t* p, Vec x) { store_bf16(p, x); }
  static __m512bh load_input(const uint16_t* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static __m512bh load_weight(const uint16_t* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static Vec dot(Vec acc, __m512bh w, __m512bh x) { return _mm512_dpbf16_ps(acc, w, x); }
};
using Bf16 = Lanes<PairsBf16>;
#else
struct WidenedBf16 : Widened {
  using Stored = uint16_t;
  static constexpr int kStreamN = kNarrowN;
  static Vec load_weight(const uint16_t* p) { return load_bf16(p); }
};
using Bf16 = Lanes<WidenedBf16>;
#endif
using F16 = Lanes<WidenedF16>;
using F32 = Lanes<WidenedF32>;

}  // namespace rwkv
