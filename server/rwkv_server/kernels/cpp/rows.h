// What happens to one batch row beside matrix products: norms, types, mixing.
//
// Rows are fp32; `count` is a multiple of kLanes here, which cpu_layers.py sees to.
#pragma once

#include "abi.h"
#include "vmath.h"

namespace rwkv {

inline int64_t type_bytes(int32_t type) { return type == kF32 ? 4 : 2; }

inline void read_row(const void* from, int32_t type, int64_t count, float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const uint16_t* narrow = static_cast<const uint16_t*>(from) + i;
    store(out + i, type == kF32    ? load(static_cast<const float*>(from) + i)
                   : type == kBf16 ? load_bf16(narrow)
                                   : load_f16(narrow));
  }
}

inline void write_row(const float* from, int32_t type, int64_t count, void* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec x = load(from + i);
    uint16_t* narrow = static_cast<uint16_t*>(out) + i;
    if (type == kF32) {
      store(static_cast<float*>(out) + i, x);
    } else if (type == kBf16) {
      store_bf16(narrow, x);
    } else {
      store_f16(narrow, x);
    }
  }
}

// To the nearest number that `type` has, so that a row is the same from memory and from a state.
inline void round_row(float* x, int32_t type, int64_t count) {
  if (type == kF32) return;
  uint16_t narrow[kLanes];
  for (int64_t i = 0; i < count; i += kLanes) {
    write_row(x + i, type, kLanes, narrow);
    read_row(narrow, type, kLanes, x + i);
  }
}

// (x - mean) / sqrt(variance + eps), scaled and shifted; `out` may be `x`.
inline void norm_row(const float* x, const float* weight, const float* bias, float eps,
                     int64_t count, float* out) {
  Vec total{};
  for (int64_t i = 0; i < count; i += kLanes) total = total + load(x + i);
  const Vec mean = set(sum(total) / count);
  Vec squares{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec d = load(x + i) - mean;
    squares = fma(d, d, squares);
  }
  const Vec scale = set(1.0f / __builtin_sqrtf(sum(squares) / count + eps));
  for (int64_t i = 0; i < count; i += kLanes) {
    store(out + i, fma((load(x + i) - mean) * scale, load(weight + i), load(bias + i)));
  }
}

// x + (before - x) * mix
inline void mix_row(const float* x, const float* before, const float* mix, int64_t count,
                    float* out) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec here = load(x + i);
    store(out + i, fma(load(before + i) - here, load(mix + i), here));
  }
}

}  // namespace rwkv
