// Products of weight matrices and batch rows: which tile is computed when, and by whom.
//
// Weights are row-major (outputs, inputs), as they are stored and loaded: nothing is repacked. They
// are read once from memory for up to kRows batch rows.
#pragma once

#include <algorithm>

#include "formats.h"
#include "pool.h"

namespace rwkv {

// Batch rows that go through a layer together: their inputs stay in the second-level cache.
inline constexpr int64_t kRows = 64;
// Outputs of a task. A task's results are gathered before they go out in whole cache lines.
inline constexpr int64_t kOutputs = 64;
// Bytes of prepared inputs that stay in the first-level cache while a task's weights pass by.
inline constexpr int64_t kInputBytes = 24 << 10;

// out (rows, ld) = or += x (rows, inputs) times the transposed matrix.
struct Product {
  const Matrix* w;
  const void* x;  // prepared rows
  float* out;
  int64_t ld;
  bool add;

  int64_t tasks() const { return (w->outputs + kOutputs - 1) / kOutputs; }
};

// All outputs of TN weight rows, summed over the inputs from k to `end`.
template <class F, int TN>
inline void strip(const Matrix& w, int64_t n, int64_t k, int64_t end, const char* x,
                  int64_t stride, int64_t rows, float* out) {
  const auto take = [&](auto count) {
    F::template tile<TN, count>(w, n, k, end, x, stride, out, kOutputs);
    x += count * stride;
    out += count * kOutputs;
    rows -= count;
  };
  while (rows >= F::kTileM) take(std::integral_constant<int, F::kTileM>{});
  if constexpr (F::kTileM > 2) {
    if (rows >= 2) take(std::integral_constant<int, 2>{});
  }
  if (rows > 0) take(std::integral_constant<int, 1>{});
}

// `count` outputs from n on, of all rows: each weight that is read is used for several.
template <class F>
inline void multiply_block(const Product& p, int64_t n, int64_t count, int64_t rows) {
  const int64_t inputs = p.w->inputs, stride = F::row_bytes(inputs);
  const int64_t chunk = std::min(inputs, F::kChunk);
  const int64_t fit = std::min(kRows, kInputBytes * inputs / (stride * chunk));
  const int64_t block = std::max<int64_t>(F::kTileM, fit / F::kTileM * F::kTileM);
  alignas(64) float results[kRows * kOutputs], more[kRows * kOutputs];
  for (int64_t m = 0; m < rows; m += block) {
    const char* x = static_cast<const char*>(p.x) + m * stride;
    const int64_t here = std::min(block, rows - m);
    int64_t i = 0;
    for (int64_t k = 0; k < inputs; k += chunk) {
      const int64_t end = std::min(inputs, k + chunk);
      float* to = k ? more : results;
      for (i = 0; i + F::kTileN <= count; i += F::kTileN) {
        strip<F, F::kTileN>(*p.w, n + i, k, end, x, stride, here, to + i);
      }
      for (; i < count; i++) strip<F, 1>(*p.w, n + i, k, end, x, stride, here, to + i);
      for (i = 0; k && i < here * kOutputs; i++) results[i] += more[i];
    }
    for (int64_t j = 0; j < here; j++) {
      float* out = p.out + (m + j) * p.ld + n;
      const float* from = results + j * kOutputs;
      if (p.add) {
        for (i = 0; i < count; i++) out[i] += from[i];
      } else {
        memcpy(out, from, count * sizeof(float));
      }
    }
  }
}

// `count` outputs from n on, of TM rows that stay in the first-level cache. Few outputs are begun
// before they're finished, so that weights are read in the order in which they lie in memory.
template <class F, int TM>
inline void stream(const Product& p, int64_t n, int64_t count) {
  const int64_t inputs = p.w->inputs, stride = F::row_bytes(inputs);
  const char* x = static_cast<const char*>(p.x);
  const auto take = [&](auto outputs) {
    float sums[TM * outputs], more[TM * outputs];
    F::template tile<outputs, TM>(*p.w, n, 0, std::min(inputs, F::kChunk), x, stride, sums,
                                  outputs);
    for (int64_t k = F::kChunk; k < inputs; k += F::kChunk) {
      const int64_t end = std::min(inputs, k + F::kChunk);
      F::template tile<outputs, TM>(*p.w, n, k, end, x, stride, more, outputs);
      for (int i = 0; i < TM * outputs; i++) sums[i] += more[i];
    }
    for (int j = 0; j < TM; j++) {
      float* out = p.out + j * p.ld + n;
      for (int i = 0; i < outputs; i++) {
        out[i] = p.add ? out[i] + sums[j * outputs + i] : sums[j * outputs + i];
      }
    }
    n += outputs;
  };
  const int64_t end = n + count;
  while (n + F::kStreamN <= end) take(std::integral_constant<int, F::kStreamN>{});
  while (n < end) take(std::integral_constant<int, 1>{});
}

// Which of the two: with few batch rows memory sets the pace, with many the processor does.
template <class F>
inline void multiply_range(const Product& p, int64_t n, int64_t count, int64_t rows) {
  if (rows == 1) return stream<F, 1>(p, n, count);
  if (rows > F::kTileM || rows * F::row_bytes(p.w->inputs) > kInputBytes) {
    return multiply_block<F>(p, n, count, rows);
  }
  if (rows == 2) return stream<F, 2>(p, n, count);
  if constexpr (F::kTileM == 4) {
    return rows == 3 ? stream<F, 3>(p, n, count) : stream<F, 4>(p, n, count);
  }
}

// All products, their tasks shared among the pool's threads.
inline void multiply(Pool& pool, const Product* products, int count, int64_t rows) {
  int64_t total = 0;
  for (int i = 0; i < count; i++) total += products[i].tasks();
  pool.run(total, [&](int64_t task, int) {
    const Product* p = products;
    while (task >= p->tasks()) task -= (p++)->tasks();
    const int64_t n = task * kOutputs, outputs = std::min(kOutputs, p->w->outputs - n);
    with_format(*p->w, [&](auto f) { multiply_range<decltype(f)>(*p, n, outputs, rows); });
  });
}

}  // namespace rwkv
