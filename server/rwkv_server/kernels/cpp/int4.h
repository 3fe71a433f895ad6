// Weights in 4 bits, a scale for each kGroup inputs; inputs in 8 bits, a scale for as many.
//
// Two values a byte: of a group's 32 bytes the low halves are its first 32 inputs, the high halves
// its last. A weight is (value - 8) * scale.
#pragma once

#include "abi.h"
#include "byte_rows.h"

namespace rwkv {

struct Int4 : ByteRows<64, 8> {
  static constexpr int kTileN = 4, kTileM = 2, kStreamN = 1;
  static constexpr int64_t kGroup = 64, kChunk = 1024;

  template <int TN, int TM>
  static void tile(const Matrix& w, int64_t n, int64_t begin, int64_t end, const char* x,
                   int64_t stride, float* out, int64_t ld) {
    const uint8_t* weights = static_cast<const uint8_t*>(w.data) + n * (w.inputs / 2);
    const float* scales = static_cast<const float*>(w.scales) + n * (w.inputs / kGroup);
    const int64_t groups = w.inputs / kGroup;
#if defined(__AVX512VNNI__)
    const __m512i shift = _mm512_set_epi64(4, 4, 4, 4, 0, 0, 0, 0);
    const __m512i nibble = _mm512_set1_epi8(15);
    Vec acc[TN][TM] = {};
    for (int64_t k = begin; k < end; k += kGroup) {
      __m512i in[TM], start[TM];
      Vec scale[TM];
      for (int j = 0; j < TM; j++) {
        const char* row = x + j * stride;
        const Block block = about(row, w.inputs, k / kGroup);
        in[j] = _mm512_loadu_si512(row + k);
        start[j] = _mm512_maskz_set1_epi32(1, block.start);
        scale[j] = set(block.scale);
      }
      for (int i = 0; i < TN; i++) {
        const uint8_t* from = weights + i * (w.inputs / 2) + k / 2;
        __builtin_prefetch(from + kAhead);
        const __m512i pairs =
            _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        const __m512i values = _mm512_and_si512(_mm512_srlv_epi64(pairs, shift), nibble);
        const Vec weight_scale = set(scales[i * groups + k / kGroup]);
        for (int j = 0; j < TM; j++) {
          const __m512i whole = _mm512_dpbusd_epi32(start[j], values, in[j]);
          acc[i][j] = fma(_mm512_cvtepi32_ps(whole), weight_scale * scale[j], acc[i][j]);
        }
      }
    }
    finish(acc, out, ld);
#else
    for (int i = 0; i < TN; i++) {
      for (int j = 0; j < TM; j++) {
        const char* row = x + j * stride;
        float acc = 0;
        for (int64_t k = begin; k < end; k += kGroup) {
          const Block block = about(row, w.inputs, k / kGroup);
          const uint8_t* from = weights + i * (w.inputs / 2) + k / 2;
          const int8_t* in = reinterpret_cast<const int8_t*>(row) + k;
          int32_t whole = block.start;
          for (int64_t p = 0; p < kGroup / 2; p++) {
            whole += (from[p] & 15) * in[p] + (from[p] >> 4) * in[p + kGroup / 2];
          }
          acc += static_cast<float>(whole) * (scales[i * groups + k / kGroup] * block.scale);
        }
        out[j * ld + i] = acc;
      }
    }
#endif
  }
};

}  // namespace rwkv
