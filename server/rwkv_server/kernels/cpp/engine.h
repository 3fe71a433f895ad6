// All layers of a model for all rows of a step.
//
// Rows go through a layer in blocks of up to kRows. A layer is a sequence of phases whose tasks are
// independent of each other; see pool.h. Activations are fp32, rounded only where they are kept or
// multiplied: the two shift states and v_first have the model's type.
#pragma once

#include <cstdlib>

#include "gemm.h"
#include "rows.h"
#include "wkv7.h"

namespace rwkv {

// Limits of what a row or a head may hold on the stack; cpu_layers.py checks them.
inline constexpr int64_t kMaxSize = 16384, kMaxHead = 256;

// Memory for one block's activations, grown and never given back.
class Scratch {
 public:
  ~Scratch() { free(data_); }
  template <class T = float>
  T* take(int64_t bytes) {
    const int64_t at = used_;
    used_ += round_up(bytes, 64);
    return reinterpret_cast<T*>(data_ + at);
  }
  // Lays the block out twice: once to know its size, once for good.
  template <class Layout>
  void lay_out(const Layout& layout) {
    used_ = 0;
    layout();
    if (used_ > size_) {
      free(data_);
      size_ = round_up(used_, 64);
      data_ = static_cast<char*>(aligned_alloc(64, size_));
      if (!data_) abort();
    }
    used_ = 0;
    layout();
  }

 private:
  char* data_ = nullptr;
  int64_t size_ = 0, used_ = 0;
};

// A segment's rows within the block.
struct Part {
  int64_t row, rows, slot;
};

class Engine {
 public:
  Engine(const Model* model, int threads) : model_(model), pool_(threads) {}

  Pool& pool() { return pool_; }

  void forward(const void* hidden, void* v_first, void* out, int64_t rows, const Span* spans,
               int64_t count) {
    const Model& m = *model_;
    const int64_t real = count ? spans[count - 1].row + spans[count - 1].rows : 0;
    v_first_ = static_cast<char*>(v_first);
    float* x = static_cast<float*>(aligned_alloc(64, round_up(rows * m.size * 4 + 64, 64)));
    if (!x) abort();
    const int64_t row = m.size * type_bytes(m.type);
    each_row(real, [&](int64_t i) {
      read_row(static_cast<const char*>(hidden) + i * row, m.type, m.size, x + i * m.size);
    });
    for (int64_t layer = 0; layer < m.layers; layer++) {
      int64_t span = 0, offset = 0;
      for (int64_t start = 0; start < real; start += kRows) {
        const int64_t size = std::min(kRows, real - start);
        parts_count_ = 0;
        for (int64_t taken = 0; taken < size;) {
          const int64_t here = std::min(size - taken, spans[span].rows - offset);
          parts_[parts_count_++] = {taken, here, spans[span].slot};
          taken += here;
          offset += here;
          if (offset == spans[span].rows) {
            span++;
            offset = 0;
          }
        }
        block(m.layer[layer], layer == 0 && m.first, start, size, x + start * m.size);
      }
    }
    each_row(rows, [&](int64_t i) {
      char* to = static_cast<char*>(out) + i * row;
      float* from = x + i * m.size;
      if (i >= real) {
        memset(to, 0, row);
        return;
      }
      if (m.norm.weight) norm_row(from, m.norm.weight, m.norm.bias, m.norm_eps, m.size, from);
      write_row(from, m.type, m.size, to);
    });
    free(x);
  }

  void linear(const Matrix& w, const void* x, int32_t type, int64_t rows, float* out) {
    const int64_t inputs = round_up(w.inputs, kLanes), bytes = w.inputs * type_bytes(type);
    char* prepared = nullptr;
    float* wide = nullptr;
    scratch_.lay_out([&] {
      prepared = scratch_.take<char>(std::min(rows, kRows) * row_bytes(w));
      wide = scratch_.take(inputs * 4);
    });
    for (int64_t start = 0; start < rows; start += kRows) {
      const int64_t count = std::min(kRows, rows - start);
      for (int64_t i = 0; i < count; i++) {
        const char* row = static_cast<const char*>(x) + (start + i) * bytes;
        widen(row, type, w.inputs, wide);
        prepare(w, wide, prepared + i * row_bytes(w));
      }
      const Product product{&w, prepared, out + start * w.outputs, w.outputs, false};
      multiply(pool_, &product, 1, count);
    }
  }

 private:
  const Model* model_;
  Pool pool_;
  Scratch scratch_;
  char* v_first_ = nullptr;
  Part parts_[kRows];
  int64_t parts_count_ = 0;

  static void widen(const char* row, int32_t type, int64_t count, float* out) {
    const int64_t whole = count / kLanes * kLanes;
    read_row(row, type, whole, out);
    char rest[kLanes * 4] = {};
    const int64_t width = type_bytes(type);
    memcpy(rest, row + whole * width, (count - whole) * width);
    if (whole < count) read_row(rest, type, kLanes, out + whole);
  }

  // Few rows are not worth waking anyone for.
  template <class Task>
  void each_row(int64_t rows, const Task& task) {
    const int64_t share = std::max<int64_t>(4, (rows + pool_.threads() - 1) / pool_.threads());
    pool_.run((rows + share - 1) / share, [&](int64_t index, int) {
      const int64_t end = std::min(rows, (index + 1) * share);
      for (int64_t i = index * share; i < end; i++) task(i);
    });
  }

  // The row before each row of its segment: in the block, or kept in the state.
  template <class Use>
  void with_previous(const float* x, const Slots& slots, const Use& use) {
    const Model& m = *model_;
    int64_t start[kRows];
    for (int64_t p = 0; p < parts_count_; p++) {
      for (int64_t t = 0; t < parts_[p].rows; t++) start[parts_[p].row + t] = t ? -1 : p;
    }
    const Part& last = parts_[parts_count_ - 1];
    each_row(last.row + last.rows, [&](int64_t i) {
      if (start[i] < 0) {
        use(i, x + (i - 1) * m.size);
        return;
      }
      float kept[kMaxSize];
      read_row(slots.data + parts_[start[i]].slot * slots.stride, m.type, m.size, kept);
      use(i, kept);
    });
  }

  void keep_last(const float* x, const Slots& slots) {
    const Model& m = *model_;
    each_row(parts_count_, [&](int64_t p) {
      const int64_t end = parts_[p].row + parts_[p].rows - 1;
      write_row(x + end * m.size, m.type, m.size, slots.data + parts_[p].slot * slots.stride);
    });
  }

  void block(const Layer& l, bool first, int64_t start, int64_t rows, float* x) {
    const Model& m = *model_;
    if (first) {
      each_row(rows, [&](int64_t i) {
        float* row = x + i * m.size;
        norm_row(row, l.pre_norm.weight, l.pre_norm.bias, m.norm_eps, m.size, row);
      });
    }
    time_mix(l, first, start, rows, x);
    channel_mix(l, rows, x);
  }

  void time_mix(const Layer& l, bool first, int64_t start, int64_t rows, float* x);
  void channel_mix(const Layer& l, int64_t rows, float* x);
};

}  // namespace rwkv
