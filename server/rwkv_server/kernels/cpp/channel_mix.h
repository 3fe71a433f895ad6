// The feed-forward half of a layer.
#pragma once

#include "engine.h"

namespace rwkv {

inline void Engine::channel_mix(const Layer& l, int64_t rows, float* x) {
  const Model& m = *model_;
  float *normed = nullptr, *wide = nullptr;
  char *mixed = nullptr, *squared = nullptr;
  const int64_t mixed_bytes = row_bytes(l.ffn_key), squared_bytes = row_bytes(l.ffn_value);
  scratch_.lay_out([&] {
    normed = scratch_.take(rows * m.size * 4);
    mixed = scratch_.take<char>(rows * mixed_bytes);
    wide = scratch_.take(rows * m.wide * 4 + 64);
    squared = scratch_.take<char>(rows * squared_bytes);
  });
  each_row(rows, [&](int64_t i) {
    float* row = normed + i * m.size;
    norm_row(x + i * m.size, l.ffn_norm.weight, l.ffn_norm.bias, m.norm_eps, m.size, row);
    round_row(row, m.type, m.size);
  });
  with_previous(normed, l.channel_shift, [&](int64_t i, const float* before) {
    float row[kMaxSize];
    mix_row(normed + i * m.size, before, l.ffn_mix, m.size, row);
    prepare(l.ffn_key, row, mixed + i * mixed_bytes);
  });
  keep_last(normed, l.channel_shift);
  const Product key{&l.ffn_key, mixed, wide, m.wide, false};
  multiply(pool_, &key, 1, rows);
  each_row(rows, [&](int64_t i) {
    float* row = wide + i * m.wide;
    for (int64_t j = 0; j < m.wide; j++) {
      const float positive = row[j] < 0 ? 0 : row[j];  // NaN stays NaN
      row[j] = positive * positive;
    }
    prepare(l.ffn_value, row, squared + i * squared_bytes);
  });
  const Product value{&l.ffn_value, squared, x, m.size, true};
  multiply(pool_, &value, 1, rows);
}

}  // namespace rwkv
