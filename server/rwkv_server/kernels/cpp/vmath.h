// Exponential and what is made of it, on vectors, to about two units in the last place.
#pragma once

#include "simd.h"

namespace rwkv {

inline Vec exp(Vec x) {
  // Of two operands that can't be compared x86 takes the second: NaN stays NaN.
  x = min(set(88.0f), max(set(-87.0f), x));
  const Vec shift = set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec n = fma(x, set(1.44269504f), shift) - shift;
  Vec r = fma(n, set(-0.693359375f), x);
  r = fma(n, set(2.12194440e-4f), r);
  // Taylor's series to the seventh power: |r| <= ln(2) / 2
  Vec p = set(1.0f / 5040);
  p = fma(p, r, set(1.0f / 720));
  p = fma(p, r, set(1.0f / 120));
  p = fma(p, r, set(1.0f / 24));
  p = fma(p, r, set(1.0f / 6));
  p = fma(p, r, set(0.5f));
  p = fma(p, r, set(1.0f));
  p = fma(p, r, set(1.0f));
  const Bits exponent = __builtin_convertvector(n, Bits);
  return (Vec)(bits(p) + (exponent << 23));
}

inline Vec sigmoid(Vec x) { return set(1.0f) / (set(1.0f) + exp(-x)); }

inline Vec tanh(Vec x) {
  // Odd series near 0, where 1 - 2 / (e^2x + 1) would cancel.
  const Vec s = x * x;
  Vec p = set(-6.04854171e-3f);
  p = fma(p, s, set(2.096354631e-2f));
  p = fma(p, s, set(-5.384359651e-2f));
  p = fma(p, s, set(1.333271731e-1f));
  p = fma(p, s, set(-3.333332815e-1f));
  const Vec near = fma(p * s, x, x);
  const Vec far = set(1.0f) - set(2.0f) / (exp(x + x) + set(1.0f));
  return s < set(0.390625f) ? near : far;
}

}  // namespace rwkv
