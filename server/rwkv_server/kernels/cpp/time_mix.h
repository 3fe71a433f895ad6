// The recurrent half of a layer.
#pragma once

#include "engine.h"

namespace rwkv {

inline constexpr float kDecayScale = -0.6065306597126334f;  // -exp(-1/2)

// What the projections make of a block's rows: fp32, each (rows, size).
struct Projected {
  float *r, *k, *v, *w, *a, *v_gate, *g;
};

// One head's row between the projections and the recurrence.
struct HeadRow {
  alignas(64) float w[kMaxHead], kk[kMaxHead], b[kMaxHead], k[kMaxHead], v[kMaxHead];
  float bonus;
};

// Everything of a head that comes before the recurrence: decay, keys, value residual, bonus.
inline void gate_row(const Layer& l, const Projected& p, int64_t at, int64_t channel,
                     int64_t count, const float* v_first, HeadRow& out) {
  Vec squares{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec kk = load(p.k + at + i) * load(l.k_k + channel + i);
    store(out.kk + i, kk);
    squares = fma(kk, kk, squares);
  }
  const float length = __builtin_sqrtf(sum(squares));
  const Vec scale = set(1.0f / (length > 1e-12f ? length : 1e-12f));
  Vec bonus{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t c = channel + i, j = at + i;
    const Vec w = sigmoid(load(p.w + j) + load(l.w_bias + c));
    store(out.w + i, exp(w * set(kDecayScale)));
    const Vec a = sigmoid(load(p.a + j) + load(l.a_bias + c));
    const Vec kk = load(out.kk + i) * scale;
    store(out.kk + i, kk);
    store(out.b + i, kk * a);
    const Vec k = load(p.k + j) * fma(a - set(1.0f), load(l.k_a + c), set(1.0f));
    store(out.k + i, k);
    bonus = fma(load(p.r + j) * k, load(l.r_k + c), bonus);
    Vec v = load(p.v + j);
    if (v_first) {
      v = fma(load(v_first + i) - v, sigmoid(load(p.v_gate + j) + load(l.v_bias + c)), v);
    }
    store(out.v + i, v);
  }
  out.bonus = sum(bonus);
}

// Everything of a head that comes after it: norm, bonus, gate.
inline void leave_row(const Layer& l, const Projected& p, int64_t at, int64_t channel,
                      int64_t count, float eps, const HeadRow& row, float* y) {
  norm_row(y, l.group_norm.weight + channel, l.group_norm.bias + channel, eps, count, y);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec out = fma(set(row.bonus), load(row.v + i), load(y + i));
    store(y + i, out * load(p.g + at + i));
  }
}

inline void Engine::time_mix(const Layer& l, bool first, int64_t start, int64_t rows, float* x) {
  const Model& m = *model_;
  // In the order of l.mixes; the v gate reads what v reads.
  const Matrix* inputs[7] = {&l.r, &l.w_down, &l.k, &l.v, &l.a_down, &l.g_down, &l.v_down};
  const Matrix* ups[7] = {nullptr, &l.w_up, nullptr, nullptr, &l.a_up, &l.g_up, &l.v_up};
  const int kinds = first ? 6 : 7;
  float *normed = nullptr, *y = nullptr, *down[7] = {}, *full[7] = {};
  char *mixed[7] = {}, *inner[7] = {}, *left = nullptr;
  scratch_.lay_out([&] {
    normed = scratch_.take(rows * m.size * 4);
    for (int i = 0; i < kinds; i++) {
      mixed[i] = scratch_.take<char>(rows * row_bytes(*inputs[i]));
      full[i] = scratch_.take(rows * m.size * 4);
      if (!ups[i]) continue;
      down[i] = scratch_.take(rows * round_up(ups[i]->inputs, kLanes) * 4);
      inner[i] = scratch_.take<char>(rows * row_bytes(*ups[i]));
    }
    y = scratch_.take(rows * m.size * 4);
    left = scratch_.take<char>(rows * row_bytes(l.o));
  });

  each_row(rows, [&](int64_t i) {
    float* row = normed + i * m.size;
    norm_row(x + i * m.size, l.attn_norm.weight, l.attn_norm.bias, m.norm_eps, m.size, row);
    round_row(row, m.type, m.size);
  });
  with_previous(normed, l.time_shift, [&](int64_t i, const float* before) {
    float row[kMaxSize];
    for (int kind = 0; kind < kinds; kind++) {
      const int mix = kind == 6 ? 3 : kind;
      mix_row(normed + i * m.size, before, l.mixes + mix * m.size, m.size, row);
      prepare(*inputs[kind], row, mixed[kind] + i * row_bytes(*inputs[kind]));
    }
  });
  keep_last(normed, l.time_shift);

  Product products[7];
  for (int i = 0; i < kinds; i++) {
    float* to = ups[i] ? down[i] : full[i];
    const int64_t ld = ups[i] ? round_up(ups[i]->inputs, kLanes) : m.size;
    products[i] = {inputs[i], mixed[i], to, ld, false};
  }
  multiply(pool_, products, kinds, rows);

  each_row(rows, [&](int64_t i) {
    for (int kind = 0; kind < kinds; kind++) {
      if (!ups[kind]) continue;
      const int64_t ld = round_up(ups[kind]->inputs, kLanes);
      float* row = down[kind] + i * ld;
      for (int64_t j = 0; j < ld && (kind == 1 || kind == 5); j += kLanes) {
        store(row + j, kind == 1 ? tanh(load(row + j)) : sigmoid(load(row + j)));
      }
      prepare(*ups[kind], row, inner[kind] + i * row_bytes(*ups[kind]));
    }
  });
  int count = 0;
  for (int i = 0; i < kinds; i++) {
    if (ups[i]) products[count++] = {ups[i], inner[i], full[i], m.size, false};
  }
  multiply(pool_, products, count, rows);

  const Projected p{full[0], full[2], full[3], full[1], full[4], full[6], full[5]};
  const int64_t dim = m.head_dim, type = type_bytes(m.type);
  pool_.run(parts_count_ * m.heads, [&](int64_t task, int) {
    const Part& part = parts_[task / m.heads];
    const int64_t channel = task % m.heads * dim;
    HeadRow kept[2];
    float* state = reinterpret_cast<float*>(l.wkv.data + part.slot * l.wkv.stride);
    const auto enter = [&](int64_t t) {
      HeadRow& row = kept[t & 1];
      const int64_t at = (part.row + t) * m.size + channel;
      char* stored = v_first_ + ((start + part.row + t) * m.size + channel) * type;
      alignas(64) float value[kMaxHead];
      if (!first) read_row(stored, m.type, dim, value);
      gate_row(l, p, at, channel, dim, first ? nullptr : value, row);
      if (first) write_row(row.v, m.type, dim, stored);
      return Read{row.w, row.kk, row.b, row.k, p.r + at, row.v};
    };
    const auto place = [&](int64_t t) { return y + (part.row + t) * m.size + channel; };
    recur(state + channel * dim, dim, dim, part.rows, enter, place, [&](int64_t t) {
      const int64_t at = (part.row + t) * m.size + channel;
      leave_row(l, p, at, channel, dim, m.group_norm_eps, kept[t & 1], place(t));
    });
  });

  each_row(rows, [&](int64_t i) {
    prepare(l.o, y + i * m.size, left + i * row_bytes(l.o));
  });
  const Product out{&l.o, left, x, m.size, true};
  multiply(pool_, &out, 1, rows);
}

}  // namespace rwkv
