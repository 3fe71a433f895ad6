// Weights in 4 bits, a scale for each group of kGroup inputs: decoded to bf16 and multiplied as such.
//
// Two values a byte: of a group's 32 bytes the low halves are its first 32 inputs, the high halves
// its last. A weight is (value - 8) * scale, scales are fp32. For more than one batch row, weight rows
// are decoded into a small buffer that serves them all; the products and their order are those of
// bf16 either way.
#pragma once

#include <vector>

#include "format.h"

namespace rwkv {

struct Int4 {
  static constexpr bool kDecodes = true;
  using As = Bf16;
  static constexpr int kTileN = As::kTileN, kTileM = As::kTileM, kTallN = 4, kTallM = 0;
  static constexpr int64_t kGroup = 64, kChunk = As::kChunk;

  static int64_t row_bytes(int64_t inputs) { return As::row_bytes(inputs); }
  static void prepare(const float* x, int64_t inputs, void* row) { As::prepare(x, inputs, row); }

  // The weights of output n from input k to `end`, to their places in out (inputs,).
  static void decode(const Matrix& w, int64_t n, int64_t k, int64_t end, uint16_t* out) {
    for (; k < end; k += kGroup) {
      __builtin_prefetch(values(w, n) + k / 2 + kAhead);
      group(w, n, k).write(out + k);
    }
  }

  // What the inputs from k to `end` add to the outputs n… of one batch row.
  template <int TN>
  static void one_row(const Matrix& w, int64_t n, int64_t k, int64_t end, const char* x,
                      float* out) {
#if defined(__AVX512BF16__)
    Vec acc[TN][1] = {};
    for (; k < end; k += kGroup) {
      const __m512bh low = (__m512bh)_mm512_loadu_si512(x + k * 2);
      const __m512bh high = (__m512bh)_mm512_loadu_si512(x + k * 2 + 64);
      for (int i = 0; i < TN; i++) {
        __builtin_prefetch(values(w, n + i) + k / 2 + kAhead);
        const Group weights = group(w, n + i, k);
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], (__m512bh)weights.low, low);
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], (__m512bh)weights.high, high);
      }
    }
    finish(acc, out, 0);
#else
    thread_local std::vector<uint16_t> decoded;
    decoded.resize(w.inputs);
    const Matrix plain{decoded.data(), nullptr, 1, w.inputs, kBf16};
    for (int i = 0; i < TN; i++) {
      decode(w, n + i, k, end, decoded.data());
      As::tile<1, 1>(plain, 0, k, end, x, 0, out + i, 0);
    }
#endif
  }

 private:
  static constexpr int64_t kAhead = 4 << 10;
  static constexpr float kLevels[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

  static const uint8_t* values(const Matrix& w, int64_t n) {
    return static_cast<const uint8_t*>(w.data) + n * (w.inputs / 2);
  }

  // A group's weights in bf16.
  struct Group {
#if defined(__AVX512BF16__)
    __m512i low, high;
    Group(const uint8_t* from, float scale) {
      const __m256i levels = (__m256i)_mm512_cvtneps_pbh(load(kLevels) * set(scale));
      const __m512i table = _mm512_castsi256_si512(levels);
      const __m512i pairs = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i*)from));
      low = _mm512_permutexvar_epi16(_mm512_and_si512(pairs, _mm512_set1_epi16(15)), table);
      high = _mm512_permutexvar_epi16(_mm512_srli_epi16(pairs, 4), table);
    }
    void write(uint16_t* out) const {
      _mm512_storeu_si512(out, low);
      _mm512_storeu_si512(out + kGroup / 2, high);
    }
#else
    const uint8_t* from;
    uint16_t table[16];
    Group(const uint8_t* bytes, float scale) : from(bytes) {
      for (int i = 0; i < 16; i += kLanes) store_bf16(table + i, load(kLevels + i) * set(scale));
    }
    void write(uint16_t* out) const {
      for (int64_t k = 0; k < kGroup / 2; k++) {
        out[k] = table[from[k] & 15];
        out[k + kGroup / 2] = table[from[k] >> 4];
      }
    }
#endif
  };
  static Group group(const Matrix& w, int64_t n, int64_t k) {
    const float* scales = static_cast<const float*>(w.scales) + n * (w.inputs / kGroup);
    return Group(values(w, n) + k / 2, scales[k / kGroup]);
  }
};

}  // namespace rwkv
