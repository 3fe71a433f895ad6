// All formats of stored weights, and the choice between them at run time.
#pragma once

#include "format.h"
#include "int4.h"
#include "int8.h"

namespace rwkv {

// Calls back with the format of a matrix as a value: with_format(w, [](auto f) { f.tile… }).
template <class Use>
inline auto with_format(const Matrix& w, const Use& use) {
  switch (w.format) {
    case kBf16: return use(Bf16{});
    case kF16: return use(F16{});
    case kInt8: return use(Int8{});
    case kInt4: return use(Int4{});
    default: return use(F32{});
  }
}

inline int64_t row_bytes(const Matrix& w) {
  return with_format(w, [&](auto f) { return f.row_bytes(w.inputs); });
}
inline void prepare(const Matrix& w, const float* x, void* row) {
  with_format(w, [&](auto f) { f.prepare(x, w.inputs, row); });
}

}  // namespace rwkv
