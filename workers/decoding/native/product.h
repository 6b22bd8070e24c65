// Products of a few rows with a block of 16 outputs of a packed matrix, at the speed at which the block can be read.
//
// A block is a run of 64-byte lines, one per step along the input: 16 outputs of one input (float32) or of two
// (bfloat16). Sixteen bfloat16 lines are also just what an AMX tile register takes, so processors with AMX multiply up
// to 16 rows in the time of one. Products of bfloat16 numbers are summed in float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tiles.h"
#include "vector.h"

namespace {

constexpr int MOST_ROWS = 12;  // that are multiplied at once with a line, without tiles
constexpr int AHEAD_LINES = 32, AHEAD_OF_TILES = 16, AHEAD_OF_BLOCKS = 32;

// How one line of weights is multiplied into a row's 16 sums.
template <typename T>
struct Line;

template <>
struct Line<bfloat16> {
  static constexpr int inputs = 2;
  static Floats multiply(Floats sums, const bfloat16* line, const bfloat16* x) {
    const uint32_t pair = load<uint32_t>(x);
    const Words weights = load<Words>(line);
#ifdef PLT_PAIRS
    return (Floats)_mm512_dpbf16_ps((__m512)sums, (__m512bh)weights, (__m512bh)_mm512_set1_epi32((int)pair));
#else
    const uint32_t low = pair << 16, high = pair & 0xffff0000u;
    sums += (Floats)(weights << 16) * load<float>(&low);
    return sums + (Floats)(weights & 0xffff0000u) * load<float>(&high);
#endif
  }
};

template <>
struct Line<float> {
  static constexpr int inputs = 1;
  static Floats multiply(Floats sums, const float* line, const float* x) { return sums + load<Floats>(line) * *x; }
};

// The inputs of a product, (rows, width). With tiles row after row, a line more apart than they are wide, lest they all
// fall on the same places of the cache; without tiles what meets one line of weights lies together. `data` has room for
// `padded(rows)` times `width` floats.
template <typename T>
class Inputs {
 public:
  Inputs(void* data, int64_t rows, int64_t width)
      : data((T*)data), rows(rows), width(width), tiled(use_tiles(width)),
        step(tiled ? per : rows * per), row_step(tiled ? width + TILE_INPUTS : per) {}

  static constexpr int per = Line<T>::inputs;

  static bool use_tiles(int64_t width) {
    return std::is_same_v<T, bfloat16> && width % TILE_INPUTS == 0 && may_use_tiles();
  }

  // 16 inputs of a row, from input `i` on.
  void put(int64_t i, int64_t row, Floats value) const {
    T narrow[LANES];
    ::put(narrow, value);
    T* to = data + i / per * step + row * row_step;
    for (int n = 0; n < LANES; n += per, to += step) std::memcpy(to, narrow + n, per * sizeof(T));
  }

  T* const data;
  const int64_t rows, width;
  const bool tiled;
  const int64_t step, row_step;
};

#ifdef PLT_TILES
// N tiles of rows times B blocks: registers 0-3 hold sums, 4 and 5 inputs, 6 and 7 weights.
template <int N, int B>
void multiply_in_tiles(const bfloat16* block, int64_t apart, const bfloat16* x, int64_t width, int64_t stride,
                       int64_t tile_rows, Floats* out, int64_t out_apart) {
  constexpr int tile = TILE_ROWS * LANES * 2, line = LANES * 2;
  const int64_t bytes = stride * sizeof(bfloat16);
  touched_by_tiles(x);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < width; i += TILE_INPUTS, block += tile, x += TILE_INPUTS) {
    for (int b = 0; b < B; ++b)
      for (int ahead = 0; ahead < TILE_ROWS; ++ahead)
        fetch(block + b * apart + (AHEAD_OF_TILES + ahead) * line);
    _tile_loadd(4, x, bytes);
    if constexpr (N > 1) _tile_loadd(5, x + tile_rows * stride, bytes);
    _tile_loadd(6, block, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (N > 1) _tile_dpbf16ps(1, 5, 6);
    if constexpr (B > 1) {
      _tile_loadd(7, block + apart, 64);
      _tile_dpbf16ps(2, 4, 7);
      if constexpr (N > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  for (int b = 0; b < B; ++b)  // the next blocks arrive while these sums are used
    for (int ahead = 0; ahead < AHEAD_OF_BLOCKS; ++ahead) fetch(block + (B - 1 + b) * apart + ahead * line);
  _tile_stored(0, out, 64);
  if constexpr (N > 1) _tile_stored(1, out + tile_rows, 64);
  if constexpr (B > 1) _tile_stored(2, out + out_apart, 64);
  if constexpr (B > 1 && N > 1) _tile_stored(3, out + out_apart + tile_rows, 64);
}
#endif

// M rows, line by line.
template <typename T, int M>
void multiply_lines(const T* block, int64_t lines, const T* x, int64_t rows, Floats* out) {
  constexpr int per = Line<T>::inputs, line = LANES * per, steps = M <= 4 ? 4 : 2;
  Floats sums[M][steps];
  for (int m = 0; m < M; ++m)
    for (int s = 0; s < steps; ++s) sums[m][s] = Floats{};
  int64_t i = 0;
  for (; i + steps <= lines; i += steps, block += steps * line) {
    for (int s = 0; s < steps; ++s, x += rows * per) {
      fetch(block + (AHEAD_LINES + s) * line);
      for (int m = 0; m < M; ++m) sums[m][s] = Line<T>::multiply(sums[m][s], block + s * line, x + m * per);
    }
  }
  for (; i < lines; ++i, block += line, x += rows * per)
    for (int m = 0; m < M; ++m) sums[m][0] = Line<T>::multiply(sums[m][0], block, x + m * per);
  for (int m = 0; m < M; ++m) {
    for (int s = 1; s < steps; ++s) sums[m][0] += sums[m][s];
    out[m] = sums[m][0];
  }
}

template <typename T, int M = MOST_ROWS>
void multiply_some(const T* block, int64_t lines, const T* x, int64_t some, int64_t rows, Floats* out) {
  if (M == some)
    multiply_lines<T, M>(block, lines, x, rows, out);
  else if constexpr (M > 1)
    multiply_some<T, M - 1>(block, lines, x, some, rows, out);
}

// 16 outputs of every row: lane i of out[row] is output i. With two blocks, `apart` numbers apart, those of the second are
// `room` after the first's; `room` is at least `padded(rows)`.
template <typename T>
void multiply_blocks(const T* block, int64_t blocks, int64_t apart, const Inputs<T>& x, Floats* out, int64_t room) {
#ifdef PLT_TILES
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (x.tiled) {
      const int64_t tiles = tile_count(x.rows), per = rows_per_tile(x.rows);
      for (int64_t tile = 0; tile < tiles; tile += 2) {
        const bool both = tile + 1 < tiles;
        const auto multiply = blocks == 1 ? (both ? multiply_in_tiles<2, 1> : multiply_in_tiles<1, 1>)
                                          : (both ? multiply_in_tiles<2, 2> : multiply_in_tiles<1, 2>);
        multiply(block, apart, x.data + tile * per * x.row_step, x.width, x.row_step, per, out + tile * per, room);
      }
      return;
    }
  }
#endif
  for (int64_t b = 0; b < blocks; ++b)
    for (int64_t done = 0; done < x.rows; done += MOST_ROWS)
      multiply_some(block + b * apart, x.width / x.per, x.data + done * x.per,
                    std::min<int64_t>(x.rows - done, MOST_ROWS), x.rows, out + b * room + done);
}

}  // namespace
