// The WKV-7 recurrence and its gradient for training on CPUs: fp32, head size 64.
//
// Per head, with S of key x value (one vector lane per value index, so that the forward pass needs
// no horizontal sum):
//   sa = S^T z;  S = diag(w) S + b sa^T + k v^T;  y = S^T r
// Every array is (B, T, H, 64), contiguous. The forward pass keeps the state at the start of every
// chunk of 16 steps; the backward pass recomputes the states of one chunk and walks back.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr int N = 64, CHUNK = 16, LANES = 16, V = N / LANES;
typedef float vec __attribute__((vector_size(LANES * sizeof(float))));
typedef float half __attribute__((vector_size(8 * sizeof(float))));
typedef float quarter __attribute__((vector_size(4 * sizeof(float))));

struct Shape {
  int batch, time, heads;
  long at(int row, int t, int head) const { return ((long(row) * time + t) * heads + head) * N; }
  int chunks() const { return (time + CHUNK - 1) / CHUNK; }
};

struct State {
  vec key[N][V];
};

struct Row {
  vec lane[V];
};

inline Row load(const float *from) {
  Row row;
  std::memcpy(&row, from, sizeof row);
  return row;
}

inline void store(float *to, const Row &row) { std::memcpy(to, &row, sizeof row); }

inline float sum(vec x) {
  half h = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
           __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
  return (q[0] + q[1]) + (q[2] + q[3]);
}

// One step from `before` to `after` (may be the same); returns sa, adds S^T r to y if r is given.
inline Row step(const State &before, State &after, const float *w, const float *k, const float *v,
                const float *z, const float *b, const float *r, Row *y) {
  Row sa = {}, out = {};
  for (int j = 0; j < N; j++)
    for (int i = 0; i < V; i++) sa.lane[i] += before.key[j][i] * z[j];
  const Row value = load(v);
  for (int j = 0; j < N; j++)
    for (int i = 0; i < V; i++) {
      vec s = before.key[j][i] * w[j] + sa.lane[i] * b[j] + value.lane[i] * k[j];
      after.key[j][i] = s;
      if (r) out.lane[i] += s * r[j];
    }
  if (y) *y = out;
  return sa;
}

void parallel(int tasks, int threads, const std::function<void(int)> &run) {
  std::atomic<int> next{0};
  auto work = [&] {
    for (int task; (task = next++) < tasks;) run(task);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < std::min(threads, tasks); i++) others.emplace_back(work);
  work();
  for (auto &other : others) other.join();
}

struct Inputs {
  const float *r, *w, *k, *v, *z, *b;
};
struct Gradients {
  float *r, *w, *k, *v, *z, *b;
};

// One step back: turns the gradient of the state after step t into that of the state before it.
// Results are collected in locals, which the compiler knows that no input aliases.
inline void step_back(State &grad, const State &before, const State &after, const Row sa,
                      const Row dy, const Inputs &in, const Gradients &out, long at) {
  float w[N], k[N], z[N], b[N], r[N], dr[N], dk[N], db[N], dw[N], dz[N];
  std::memcpy(w, in.w + at, sizeof w);
  std::memcpy(k, in.k + at, sizeof k);
  std::memcpy(z, in.z + at, sizeof z);
  std::memcpy(b, in.b + at, sizeof b);
  std::memcpy(r, in.r + at, sizeof r);
  const Row v = load(in.v + at);
  Row dv = {}, dsa = {};
  for (int j = 0; j < N; j++) {
    vec of_r = {}, of_k = {}, of_b = {};
    for (int i = 0; i < V; i++) {
      const vec g = grad.key[j][i] + dy.lane[i] * r[j];
      grad.key[j][i] = g;
      dv.lane[i] += g * k[j];
      dsa.lane[i] += g * b[j];
      of_r += dy.lane[i] * after.key[j][i];
      of_k += v.lane[i] * g;
      of_b += sa.lane[i] * g;
    }
    dr[j] = sum(of_r);
    dk[j] = sum(of_k);
    db[j] = sum(of_b);
  }
  for (int j = 0; j < N; j++) {
    vec of_w = {}, of_z = {};
    for (int i = 0; i < V; i++) {
      const vec g = grad.key[j][i], s = before.key[j][i];
      of_w += g * s;
      of_z += dsa.lane[i] * s;
      grad.key[j][i] = g * w[j] + dsa.lane[i] * z[j];
    }
    dw[j] = sum(of_w);
    dz[j] = sum(of_z);
  }
  store(out.v + at, dv);
  std::memcpy(out.r + at, dr, sizeof dr);
  std::memcpy(out.k + at, dk, sizeof dk);
  std::memcpy(out.b + at, db, sizeof db);
  std::memcpy(out.w + at, dw, sizeof dw);
  std::memcpy(out.z + at, dz, sizeof dz);
}

}  // namespace

extern "C" void wkv7_forward(int batch, int time, int heads, const float *r, const float *w,
                             const float *k, const float *v, const float *z, const float *b,
                             float *y, float *saved, int threads) {
  const Shape shape{batch, time, heads};
  parallel(batch * heads, threads, [&](int task) {
    const int row = task / heads, head = task % heads;
    float *keep = saved + long(task) * shape.chunks() * N * N;
    State state = {};
    for (int t = 0; t < time; t++) {
      if (t % CHUNK == 0) std::memcpy(keep + long(t / CHUNK) * N * N, &state, sizeof state);
      const long at = shape.at(row, t, head);
      Row out;
      step(state, state, w + at, k + at, v + at, z + at, b + at, r + at, &out);
      store(y + at, out);
    }
  });
}

extern "C" void wkv7_backward(int batch, int time, int heads, const float *r, const float *w,
                              const float *k, const float *v, const float *z, const float *b,
                              const float *dy, const float *saved, float *dr, float *dw, float *dk,
                              float *dv, float *dz, float *db, int threads) {
  const Shape shape{batch, time, heads};
  const Inputs in{r, w, k, v, z, b};
  const Gradients out{dr, dw, dk, dv, dz, db};
  parallel(batch * heads, threads, [&](int task) {
    const int row = task / heads, head = task % heads;
    const float *kept = saved + long(task) * shape.chunks() * N * N;
    std::vector<State> states(CHUNK + 1);
    Row sa[CHUNK];
    State grad = {};
    for (int chunk = shape.chunks() - 1; chunk >= 0; chunk--) {
      const int first = chunk * CHUNK, steps = std::min(CHUNK, time - first);
      std::memcpy(&states[0], kept + long(chunk) * N * N, sizeof(State));
      for (int s = 0; s < steps; s++) {
        const long at = shape.at(row, first + s, head);
        sa[s] = step(states[s], states[s + 1], w + at, k + at, v + at, z + at, b + at, nullptr,
                     nullptr);
      }
      for (int s = steps - 1; s >= 0; s--) {
        const long at = shape.at(row, first + s, head);
        step_back(grad, states[s], states[s + 1], sa[s], load(dy + at), in, out, at);
      }
    }
  });
}
