// The WKV-7 recurrence of one head: rows one after the other, the state in place.
//
//   removed = kk^T S;  S = diag(w) S - (kk a) removed^T + k v^T;  y = r^T S
//
// S is (key, value), values side by side. Values don't meet each other, so they are taken side by
// side, some vectors at once; S stays in the first-level cache. One pass over S per row: while a row
// is read in, what the next row will remove is summed up. Whether a row is alone in its call or not
// changes no order of sums.
#pragma once

#include "vmath.h"

namespace rwkv {

// One row's inputs of a head.
struct Read {
  const float *w, *kk, *b, *k, *r;  // (keys,), b = kk * a
  const float* v;                   // (values,)
};

// `Count` vectors of value columns; the last one may hold fewer than kLanes of them.
template <int Count>
struct Columns {
  int64_t last;  // columns of the last vector

  Vec get(const float* p, int i) const {
    return i == Count - 1 && last < kLanes ? load_part(p + i * kLanes, last) : load(p + i * kLanes);
  }
  void put(float* p, int i, Vec v) const {
    if (i == Count - 1 && last < kLanes) {
      store_part(p + i * kLanes, v, last);
    } else {
      store(p + i * kLanes, v);
    }
  }

  void removed(const float* state, int64_t keys, int64_t ld, const float* kk, float* taken) const {
    Vec out[Count] = {};
    for (int64_t key = 0; key < keys; key++) {
      const Vec weight = set(kk[key]);
      // The next head's state lies behind this one's; in a decoding step each comes from memory.
      for (int i = 0; i < Count; i++) {
        __builtin_prefetch(state + (keys + key) * ld + i * kLanes, 1);
      }
      for (int i = 0; i < Count; i++) out[i] = fma(weight, get(state + key * ld, i), out[i]);
    }
    for (int i = 0; i < Count; i++) put(taken, i, out[i]);
  }

  // Take one row; `taken` holds what it removes and then what `next` removes (null: nothing).
  void step(float* state, int64_t keys, int64_t ld, const Read& row, const float* v,
            const float* next, float* taken, float* y) const {
    Vec out[Count] = {}, after[Count] = {}, value[Count], gone[Count];
    for (int i = 0; i < Count; i++) {
      value[i] = get(v, i);
      gone[i] = get(taken, i);
    }
    for (int64_t key = 0; key < keys; key++) {
      float* place = state + key * ld;
      const Vec w = set(row.w[key]), b = set(-row.b[key]), k = set(row.k[key]), r = set(row.r[key]);
      const Vec kk = set(next ? next[key] : 0.0f);
      for (int i = 0; i < Count; i++) {
        const Vec s = fma(k, value[i], fma(b, gone[i], w * get(place, i)));
        put(place, i, s);
        out[i] = fma(r, s, out[i]);
        after[i] = fma(kk, s, after[i]);
      }
    }
    for (int i = 0; i < Count; i++) {
      put(y, i, out[i]);
      put(taken, i, after[i]);
    }
  }
};

// Calls back with the columns from `first` on: use(Columns<n>{…}, first).
template <class Use>
inline void for_columns(int64_t values, const Use& use) {
  int64_t first = 0;
  for (; first + 4 * kLanes <= values; first += 4 * kLanes) use(Columns<4>{kLanes}, first);
  const int64_t rest = values - first, last = rest % kLanes ? rest % kLanes : kLanes;
  switch ((rest + kLanes - 1) / kLanes) {
    case 1: use(Columns<1>{last}, first); break;
    case 2: use(Columns<2>{last}, first); break;
    case 3: use(Columns<3>{last}, first); break;
    case 4: use(Columns<4>{last}, first); break;
    default: break;
  }
}

inline constexpr int64_t kMaxValues = 1024;

// All rows of one head. enter(t) gives row t's inputs, in order and one row ahead; y(t) is where
// its output goes; leave(t) is told that it's there.
template <class Enter, class Out, class Leave>
inline void recur(float* state, int64_t keys, int64_t values, int64_t count, const Enter& enter,
                  const Out& y, const Leave& leave) {
  if (count == 0) return;
  alignas(64) float taken[kMaxValues];
  Read row = enter(0);
  for_columns(values, [&](auto columns, int64_t first) {
    columns.removed(state + first, keys, values, row.kk, taken + first);
  });
  for (int64_t t = 0; t < count; t++) {
    const Read next = t + 1 < count ? enter(t + 1) : Read{};
    float* out = y(t);
    for_columns(values, [&](auto columns, int64_t first) {
      columns.step(state + first, keys, values, row, row.v + first, next.kk, taken + first,
                   out + first);
    });
    leave(t);
    row = next;
  }
}

}  // namespace rwkv
