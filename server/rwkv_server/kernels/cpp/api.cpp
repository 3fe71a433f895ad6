// The C interface that Python calls; see abi.h for what the tables hold.
#include "channel_mix.h"
#include "time_mix.h"

using rwkv::Engine;

#pragma GCC visibility push(default)
extern "C" {

// Any model's table; one without layers serves for `rwkv_linear` and `rwkv_wkv7` alone.
void* rwkv_open(const rwkv::Model* model, int threads) { return new Engine(model, threads); }

void rwkv_close(void* engine) { delete static_cast<Engine*>(engine); }

// Rows of hidden states through all layers; `out` may be `hidden`. Rows behind the last span: 0.
void rwkv_forward(void* engine, const void* hidden, void* v_first, void* out, int64_t rows,
                  const rwkv::Span* spans, int64_t count) {
  static_cast<Engine*>(engine)->forward(hidden, v_first, out, rows, spans, count);
}

// out (rows, outputs) = x (rows, inputs) of `type` times the transposed matrix.
void rwkv_linear(void* engine, const rwkv::Matrix* w, const void* x, int32_t type, int64_t rows,
                 float* out) {
  static_cast<Engine*>(engine)->linear(*w, x, type, rows, out);
}

// The recurrence alone, all fp32: inputs (rows, heads, keys), v and out (rows, heads, values).
void rwkv_wkv7(void* engine, const float* r, const float* log_w, const float* k, const float* v,
               const float* kk, const float* a, rwkv::Slots state, int64_t heads, int64_t keys,
               int64_t values, const rwkv::Span* spans, int64_t count, float* out) {
  using namespace rwkv;
  static_cast<Engine*>(engine)->pool().run(count * heads, [&](int64_t task, int) {
    const Span& span = spans[task / heads];
    const int64_t head = task % heads, padded = round_up(keys, kLanes);
    float* w = static_cast<float*>(aligned_alloc(64, round_up(padded * 2 * span.rows * 4, 64)));
    if (!w) abort();
    float* b = w + padded * span.rows;
    for (int64_t t = 0; t < span.rows; t++) {
      const int64_t at = ((span.row + t) * heads + head) * keys;
      for (int64_t i = 0; i < keys; i += kLanes) {
        const int64_t n = std::min<int64_t>(kLanes, keys - i);
        store(w + t * padded + i, exp(load_part(log_w + at + i, n)));
        store(b + t * padded + i, load_part(kk + at + i, n) * load_part(a + at + i, n));
      }
    }
    float* s = reinterpret_cast<float*>(state.data + span.slot * state.stride);
    recur(
        s + head * keys * values, keys, values, span.rows,
        [&](int64_t t) {
          const int64_t at = ((span.row + t) * heads + head) * keys;
          const int64_t to = ((span.row + t) * heads + head) * values;
          return Read{w + t * padded, kk + at, b + t * padded, k + at, r + at, v + to};
        },
        [&](int64_t t) { return out + ((span.row + t) * heads + head) * values; },
        [](int64_t) {});
    free(w);
  });
}
}
#pragma GCC visibility pop
