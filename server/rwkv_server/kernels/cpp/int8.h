// Weights in 8 bits, one scale an output; inputs in 8 bits, one scale for each kBlock of them.
#pragma once

#include "abi.h"
#include "byte_rows.h"

namespace rwkv {

struct Int8 : ByteRows<128, 128> {
  static constexpr int kTileN = 4, kTileM = 2, kStreamN = 1;
  static constexpr int64_t kBlock = 128, kChunk = 1024;

  template <int TN, int TM>
  static void tile(const Matrix& w, int64_t n, int64_t k, int64_t end, const char* x,
                   int64_t stride, float* out, int64_t ld) {
    sum_up<TN, TM>(w, n, k, end, x, stride, out, ld);
    const float* scales = static_cast<const float*>(w.scales) + n;
    for (int j = 0; j < TM; j++) {
      for (int i = 0; i < TN; i++) out[j * ld + i] *= scales[i];
    }
  }

 private:
  static const uint8_t* weights(const Matrix& w, int64_t n) {
    return static_cast<const uint8_t*>(w.data) + n * w.inputs;
  }

#if defined(__AVX512VNNI__)
  static __m512i part(const uint8_t* p, int64_t count) {
    if (count >= 64) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi8(count > 0 ? (uint64_t(1) << count) - 1 : 0, p);
  }

  template <int TN, int TM>
  static void sum_up(const Matrix& w, int64_t n, int64_t k, int64_t end, const char* x,
                     int64_t stride, float* out, int64_t ld) {
    Vec acc[TN][TM] = {};
    for (; k < end; k += kBlock) {
      __m512i low[TM], high[TM], start[TM];
      Vec scale[TM];
      for (int j = 0; j < TM; j++) {
        const char* row = x + j * stride;
        const Block block = about(row, w.inputs, k / kBlock);
        low[j] = _mm512_loadu_si512(row + k);
        high[j] = _mm512_loadu_si512(row + k + 64);
        start[j] = _mm512_maskz_set1_epi32(1, block.start);
        scale[j] = set(block.scale);
      }
      for (int i = 0; i < TN; i++) {
        const uint8_t* from = weights(w, n + i) + k;
        __builtin_prefetch(from + kAhead);
        __builtin_prefetch(from + kAhead + 64);
        const __m512i a = part(from, end - k), b = part(from + 64, end - k - 64);
        for (int j = 0; j < TM; j++) {
          const __m512i first = _mm512_dpbusd_epi32(start[j], a, low[j]);
          const __m512i whole = _mm512_dpbusd_epi32(first, b, high[j]);
          acc[i][j] = fma(_mm512_cvtepi32_ps(whole), scale[j], acc[i][j]);
        }
      }
    }
    finish(acc, out, ld);
  }
#else
  template <int TN, int TM>
  static void sum_up(const Matrix& w, int64_t n, int64_t begin, int64_t end, const char* x,
                     int64_t stride, float* out, int64_t ld) {
    for (int i = 0; i < TN; i++) {
      for (int j = 0; j < TM; j++) {
        const char* row = x + j * stride;
        float acc = 0;
        for (int64_t k = begin; k < end; k += kBlock) {
          const Block block = about(row, w.inputs, k / kBlock);
          const uint8_t* from = weights(w, n + i) + k;
          const int8_t* in = reinterpret_cast<const int8_t*>(row) + k;
          const int64_t here = std::min(kBlock, end - k);
          int32_t whole = block.start;
          for (int64_t p = 0; p < here; p++) whole += int32_t(from[p]) * in[p];
          acc += static_cast<float>(whole) * block.scale;
        }
        out[j * ld + i] = acc;
      }
    }
  }
#endif
};

}  // namespace rwkv
