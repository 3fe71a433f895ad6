// Batch rows in 8 bits for machines' products of bytes, which want one side without a sign.
//
// Weights are stored with kZero added, so that none is negative. A block's sum starts at -kZero times
// the sum of its inputs, which takes that out again. Sums of a block are whole numbers, so they're
// exact in any order.
#pragma once

#include <algorithm>
#include <cstring>

#include "simd.h"

namespace rwkv {

template <int64_t kBlock, int kZero>
struct ByteRows {
  // What stands behind a prepared row's bytes, once for each block of inputs.
  struct Block {
    float scale;
    int32_t start;
  };

  static int64_t blocks(int64_t inputs) { return (inputs + kBlock - 1) / kBlock; }
  static int64_t row_bytes(int64_t inputs) {
    return round_up(blocks(inputs) * int64_t(kBlock + sizeof(Block)), 64);
  }
  static Block about(const char* row, int64_t inputs, int64_t block) {
    Block found;
    memcpy(&found, row + blocks(inputs) * kBlock + block * sizeof found, sizeof found);
    return found;
  }

  static void prepare(const float* x, int64_t inputs, void* row) {
    char* bytes = static_cast<char*>(row);
    for (int64_t b = 0; b < blocks(inputs); b++) {
      alignas(64) float values[kBlock] = {};
      memcpy(values, x + b * kBlock, std::min(kBlock, inputs - b * kBlock) * sizeof(float));
      const Block found = pack(values, reinterpret_cast<int8_t*>(bytes) + b * kBlock);
      memcpy(bytes + blocks(inputs) * kBlock + b * sizeof found, &found, sizeof found);
    }
  }

 private:
  // Adding this number leaves a small number's nearest whole one in the lowest bits.
  static constexpr float kRounder = 12582912.0f;

  static Block pack(const float* values, int8_t* bytes) {
    Vec largest = {}, bad = {};
    for (int64_t k = 0; k < kBlock; k += kLanes) {
      const Vec v = load(values + k);
      largest = max(largest, max(v, Vec{} - v));
      bad = bad + (v - v);  // 0, or NaN where an input is no finite number
    }
    alignas(64) float lanes[kLanes];
    store(lanes, largest);
    const float most = *std::max_element(lanes, lanes + kLanes);
    const Vec inverse = set(most > 0 ? 127.0f / most : 0.0f);
    alignas(64) int32_t whole[kBlock];
    for (int64_t k = 0; k < kBlock; k += kLanes) {
      const Vec moved = fma(load(values + k), inverse, set(kRounder));
      const Bits rounded = bits(moved) - bits(set(kRounder));
      memcpy(whole + k, &rounded, sizeof rounded);
    }
    int32_t total = 0;
    for (int64_t k = 0; k < kBlock; k++) {
      bytes[k] = static_cast<int8_t>(whole[k]);
      total += bytes[k];
    }
    return {most / 127.0f + sum(bad), -kZero * total};
  }
};

}  // namespace rwkv
