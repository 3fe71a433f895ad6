// What Python hands over: tables of plain pointers and numbers, the same fields in cpu_tables.py.
//
// Nothing here owns memory. Pointers are to contiguous row-major arrays that outlive the calls.
#pragma once

#include <cstdint>

namespace rwkv {

enum Type : int32_t { kF32 = 0, kBf16 = 1, kF16 = 2 };
// Formats of matrices alone; those above are formats too.
enum Packed : int32_t { kInt8 = 3, kInt4 = 4 };

struct Matrix {
  const void* data;    // (outputs, inputs)
  const void* scales;  // of packed formats: see int8.h and int4.h
  int64_t outputs, inputs;
  int32_t format;
};

// One state tensor of a layer's slots, in place: slot s begins at data + s * stride.
struct Slots {
  char* data;
  int64_t stride;  // bytes
};

struct Norm {
  const float *weight, *bias;  // null where there is none
};

struct Layer {
  Norm pre_norm, attn_norm, ffn_norm, group_norm;
  const float* mixes;  // (6, size): r w k v a g
  const float *k_k, *k_a, *r_k, *ffn_mix;
  const float *w_bias, *a_bias, *v_bias;
  Matrix r, k, v, o;
  Matrix w_down, w_up, a_down, a_up, v_down, v_up, g_down, g_up;  // v_*: none in layer 0
  Matrix ffn_key, ffn_value;
  Slots time_shift, wkv, channel_shift;
};

struct Model {
  int64_t size, heads, head_dim, wide, layers;
  float norm_eps, group_norm_eps;
  int32_t type;  // of hidden rows, v_first and the two shift states
  int32_t first;  // whether layer 0 of the table is the model's: it writes v_first
  const Layer* layer;
  Norm norm;  // the final one, null weight where another rank has it
};

// A segment: consecutive rows of one request, and the slot of its state.
struct Span {
  int64_t row, rows, slot;
};

}  // namespace rwkv
