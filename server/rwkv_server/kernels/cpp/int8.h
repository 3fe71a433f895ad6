// Weights in 8 bits, one scale an output; inputs in 8 bits, one scale for each kBlock of them.
//
// Stored weights are q + 128 from 0 to 255, as the machines' products of bytes want one side without
// a sign. A block's sum starts at -128 times the sum of its inputs, which takes the 128 out again.
// Sums of a block are whole numbers, so they're exact in any order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "abi.h"
#include "simd.h"

namespace rwkv {

struct Int8 {
  static constexpr bool kDecodes = false;
  static constexpr int kTileN = 4, kTileM = 2, kTallN = 4, kTallM = 0;
  static constexpr int64_t kBlock = 128, kChunk = 1024;

  // What stands behind a prepared row's bytes, once for each block.
  struct Block {
    float scale;
    int32_t start;
  };

  static int64_t blocks(int64_t inputs) { return (inputs + kBlock - 1) / kBlock; }
  static int64_t row_bytes(int64_t inputs) {
    return round_up(blocks(inputs) * int64_t(kBlock + sizeof(Block)), 64);
  }

  static void prepare(const float* x, int64_t inputs, void* row) {
    int8_t* bytes = static_cast<int8_t*>(row);
    Block* about = reinterpret_cast<Block*>(bytes + blocks(inputs) * kBlock);
    for (int64_t b = 0; b < blocks(inputs); b++) {
      const int64_t count = std::min(kBlock, inputs - b * kBlock);
      alignas(64) float values[kBlock] = {};
      memcpy(values, x + b * kBlock, count * sizeof(float));
      about[b] = pack(values, bytes + b * kBlock);
    }
  }

  template <int TN, int TM>
  static void tile(const Matrix& w, int64_t n, int64_t k, int64_t end, const char* x,
                   int64_t stride, float* out, int64_t ld) {
    const uint8_t* weights = static_cast<const uint8_t*>(w.data) + n * w.inputs;
    sum_up<TN, TM>(w, weights, k, end, x, stride, out, ld);
    const float* scales = static_cast<const float*>(w.scales) + n;
    for (int j = 0; j < TM; j++) {
      for (int i = 0; i < TN; i++) out[j * ld + i] *= scales[i];
    }
  }

 private:
  // Adding this number leaves a small number's nearest whole one in the lowest bits.
  static constexpr float kRounder = 12582912.0f;

  static Block pack(const float* values, int8_t* bytes) {
    Vec largest = {}, bad = {};
    for (int64_t k = 0; k < kBlock; k += kLanes) {
      const Vec v = load(values + k);
      largest = max(largest, max(v, Vec{} - v));
      bad = bad + (v - v);  // 0, or NaN where an input is no finite number
    }
    alignas(64) float lanes[kLanes];
    store(lanes, largest);
    const float most = *std::max_element(lanes, lanes + kLanes);
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    int32_t total = 0;
    for (int64_t k = 0; k < kBlock; k += kLanes) {
      const Vec moved = fma(load(values + k), set(inverse), set(kRounder));
      const Bits whole = bits(moved) - bits(set(kRounder));
      int32_t q[kLanes];
      memcpy(q, &whole, sizeof q);
      for (int i = 0; i < kLanes; i++) {
        bytes[k + i] = static_cast<int8_t>(q[i]);
        total += bytes[k + i];
      }
    }
    return {most / 127.0f + sum(bad), -128 * total};
  }

#if defined(__AVX512VNNI__)
  static __m512i part(const uint8_t* p, int64_t count) {
    if (count >= 64) return _mm512_loadu_si512(p);
    return _mm512_maskz_loadu_epi8(count > 0 ? (uint64_t(1) << count) - 1 : 0, p);
  }

  template <int TN, int TM>
  static void sum_up(const Matrix& w, const uint8_t* weights, int64_t k, int64_t end,
                     const char* x, int64_t stride, float* out, int64_t ld) {
    constexpr int64_t kAhead = 8 << 10;
    Vec acc[TN][TM] = {};
    const int64_t count = blocks(w.inputs);
    for (int64_t b = k / kBlock; b * kBlock < end; b++) {
      const int64_t left = end - b * kBlock;
      __m512i in[TM][2], start[TM];
      Vec scale[TM];
      for (int j = 0; j < TM; j++) {
        const char* row = x + j * stride;
        Block about;
        memcpy(&about, row + count * kBlock + b * sizeof about, sizeof about);
        in[j][0] = _mm512_loadu_si512(row + b * kBlock);
        in[j][1] = _mm512_loadu_si512(row + b * kBlock + 64);
        start[j] = _mm512_maskz_set1_epi32(1, about.start);
        scale[j] = set(about.scale);
      }
      for (int i = 0; i < TN; i++) {
        const uint8_t* from = weights + i * w.inputs + b * kBlock;
        __builtin_prefetch(from + kAhead);
        __builtin_prefetch(from + kAhead + 64);
        const __m512i low = part(from, left), high = part(from + 64, left - 64);
        for (int j = 0; j < TM; j++) {
          const __m512i whole = _mm512_dpbusd_epi32(
              _mm512_dpbusd_epi32(start[j], low, in[j][0]), high, in[j][1]);
          acc[i][j] = fma(_mm512_cvtepi32_ps(whole), scale[j], acc[i][j]);
        }
      }
    }
    for (int j = 0; j < TM; j++) {
      for (int i = 0; i < TN; i++) out[j * ld + i] = sum(acc[i][j]);
    }
  }
#else
  template <int TN, int TM>
  static void sum_up(const Matrix& w, const uint8_t* weights, int64_t k, int64_t end,
                     const char* x, int64_t stride, float* out, int64_t ld) {
    const int64_t count = blocks(w.inputs);
    for (int i = 0; i < TN; i++) {
      for (int j = 0; j < TM; j++) {
        const int8_t* row = reinterpret_cast<const int8_t*>(x + j * stride);
        float acc = 0;
        for (int64_t b = k / kBlock; b * kBlock < end; b++) {
          Block about;
          memcpy(&about, row + count * kBlock + b * sizeof about, sizeof about);
          const uint8_t* from = weights + i * w.inputs + b * kBlock;
          const int64_t here = std::min(kBlock, end - b * kBlock);
          int32_t whole = about.start;
          for (int64_t p = 0; p < here; p++) whole += int32_t(from[p]) * row[b * kBlock + p];
          acc += static_cast<float>(whole) * about.scale;
        }
        out[j * ld + i] = acc;
      }
    }
  }
#endif
};

}  // namespace rwkv
