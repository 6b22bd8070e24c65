// Attention of a few queries over the keys and values of one head, which lie place after place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tiles.h"
#include "vector.h"

#ifndef __has_builtin  // GCC before 10
#define __has_builtin(name) 0
#endif

namespace {

constexpr int MOST_HEAD_DIM = 256;

// What one query sees: the places from `begin` to `end`. `query` is scaled; it and `out` are as wide as a head.
struct View {
  const float* query;
  int64_t begin, end;
  float* out;
};

template <int... Is>
Floats pick(Floats a, Floats b) {
#if __has_builtin(__builtin_shufflevector)
  return __builtin_shufflevector(a, b, Is...);
#else  // GCC before 12
  return __builtin_shuffle(a, b, Ints{Is...});
#endif
}

// Lane i is the sum over the lanes of v[i].
Floats sums_of(Floats* v) {
  for (int i = 0; i < 8; ++i)
    v[i] = pick<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(v[i], v[i + 8]) +
           pick<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(v[i], v[i + 8]);
  for (int i = 0; i < 4; ++i)
    v[i] = pick<0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27>(v[i], v[i + 4]) +
           pick<4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31>(v[i], v[i + 4]);
  for (int i = 0; i < 2; ++i)
    v[i] = pick<0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29>(v[i], v[i + 2]) +
           pick<2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31>(v[i], v[i + 2]);
  return pick<0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30>(v[0], v[1]) +
         pick<1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31>(v[0], v[1]);
}

int64_t down_to(int64_t size, int64_t number) { return number / size * size; }
int64_t up_to(int64_t size, int64_t number) { return down_to(size, number + size - 1); }

// Scores from `begin` to `end` become e^(score - largest), all others up to `padded` 0; the sum of all.
float exponentials(float* scores, int64_t begin, int64_t end, int64_t padded) {
  const int64_t first = down_to(LANES, begin), last = up_to(LANES, end);
  std::fill(scores, scores + first, 0.0f);
  std::fill(scores + first, scores + begin, -INFINITY);
  std::fill(scores + end, scores + last, -INFINITY);
  std::fill(scores + last, scores + padded, 0.0f);
  Floats most = widen(scores + first);
  for (int64_t i = first + LANES; i < last; i += LANES) {
    const Floats next = widen(scores + i);
    const Ints more = next > most;
    most = (Floats)(((Ints)next & more) | ((Ints)most & ~more));
  }
  float largest[LANES];
  store(largest, most);
  const float top = *std::max_element(largest, largest + LANES);
  Floats total{};
  for (int64_t i = first; i < last; i += LANES) {
    const Floats e = exponential(widen(scores + i) - top);
    put(scores + i, e);
    total += e;
  }
  return sum(total);
}

// Attention of `count` views, in vector registers.
template <typename T, int D>
void attend_by_lines(const View* views, int64_t count, const T* keys, const T* values, int64_t, float* work) {
  constexpr int width = D * LANES, tile = D >= 8 ? 2 : 4;
  for (const View* const all = views + count; views < all;) {
    const int64_t begin = views->begin, places = views->end - begin, padded = up_to(LANES, places);
    int64_t some = 1;  // of the same places
    while (some < tile && views + some < all && views[some].begin == begin && views[some].end == views->end) ++some;
    for (int64_t block = 0; block < padded; block += LANES) {
      for (int64_t v = 0; v < some; ++v) {
        Floats products[LANES];
        for (int i = 0; i < LANES; ++i) {
          const T* key = keys + (begin + std::min(block + i, places - 1)) * width;
          Floats product = widen(key) * widen(views[v].query);
          for (int d = 1; d < D; ++d) product += widen(key + d * LANES) * widen(views[v].query + d * LANES);
          products[i] = product;
        }
        put(work + v * padded + block, sums_of(products));
      }
    }
    float totals[tile];
    for (int64_t v = 0; v < some; ++v) totals[v] = exponentials(work + v * padded, 0, places, padded);
    const float* shares[tile];
    for (int v = 0; v < tile; ++v) shares[v] = work + std::min<int64_t>(v, some - 1) * padded;
    Floats sums[tile][D];
    for (int v = 0; v < tile; ++v)
      for (int d = 0; d < D; ++d) sums[v][d] = Floats{};
    for (int64_t place = 0; place < places; ++place) {
      for (int d = 0; d < D; ++d) {
        const Floats value = widen(values + (begin + place) * width + d * LANES);
        for (int v = 0; v < tile; ++v) sums[v][d] += value * shares[v][place];
      }
    }
    for (int64_t v = 0; v < some; ++v)
      for (int d = 0; d < D; ++d) put(views[v].out + d * LANES, sums[v][d] / totals[v]);
    views += some;
  }
}

#ifdef PLT_TILES
// Row i of v becomes column i.
void transpose(Floats* v) {
  Floats w[LANES];
  for (int i = 0; i < LANES; i += 2) {
    w[i] = pick<0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30>(v[i], v[i + 1]);
    w[i + 1] = pick<1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31>(v[i], v[i + 1]);
  }
  for (int i = 0; i < LANES; i += 4)
    for (int j = i; j < i + 2; ++j) {
      v[j] = pick<0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29>(w[j], w[j + 2]);
      v[j + 2] = pick<2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31>(w[j], w[j + 2]);
    }
  for (int i = 0; i < LANES; i += 8)
    for (int j = i; j < i + 4; ++j) {
      w[j] = pick<0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27>(v[j], v[j + 4]);
      w[j + 4] = pick<4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31>(v[j], v[j + 4]);
    }
  for (int j = 0; j < 8; ++j) {
    v[j] = pick<0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23>(w[j], w[j + 8]);
    v[j + 8] = pick<8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31>(w[j], w[j + 8]);
  }
}

// Pairs of bfloat16 numbers, the first one's low.
Floats paired(Floats low, Floats high) {
  bfloat16 narrow[2][LANES];
  put(narrow[0], low);
  put(narrow[1], high);
  return (Floats)(__builtin_convertvector(load<Halves>(narrow[0]), Words) |
                  (__builtin_convertvector(load<Halves>(narrow[1]), Words) << 16));
}

// 32 numbers each of two rows as 32 pairs; pairs 0-3, 8-11, 16-19 and 24-27 in the first half, as the instruction has it.
void pair_rows(const bfloat16* low, const bfloat16* high, Floats* first, Floats* second) {
  const __m512i a = load<__m512i>(low), b = load<__m512i>(high);
  *first = (Floats)_mm512_unpacklo_epi16(a, b);
  *second = (Floats)_mm512_unpackhi_epi16(a, b);
}

// Attention by tile registers, all of which hold 16 rows, for up to 16 views at a time over all places that any of them
// sees: scores (places, views) from tiles of 16 keys as they lie, then sums (views, 16 dimensions) from pairs of values.
// Meanwhile values, then the keys that will be asked for next (`next` numbers further), are fetched.
template <int D>
void attend_by_tiles(const View* views, int64_t count, const bfloat16* keys, const bfloat16* values, int64_t next,
                     float* work) {
  static_assert(D % 2 == 0, "a tile takes 32 inputs");
  constexpr int width = D * LANES, bytes = width * sizeof(bfloat16);
  for (; count > 0; views += LANES, count -= LANES) {
    const int64_t some = std::min<int64_t>(LANES, count);
    int64_t begin = views->begin, end = views->end;
    for (int64_t v = 1; v < some; ++v) {
      begin = std::min(begin, views[v].begin);
      end = std::max(end, views[v].end);
    }
    const bfloat16* const first_key = keys + begin * width;
    const bfloat16* const first_value = values + begin * width;
    const int64_t places = end - begin, padded = up_to(TILE_INPUTS, places);
    float* const scores = work;                                       // (16 views, padded)
    bfloat16* const shares = (bfloat16*)(scores + LANES * padded);    // (16 views, padded)
    Floats* const query_pairs = (Floats*)(shares + LANES * padded);   // (width / 2, 16 views) of pairs
    Floats* const value_pairs = query_pairs + width / 2;              // (4, 16 pairs of places, 16 dimensions)
    bfloat16* const last = (bfloat16*)(value_pairs + LANES * 4);      // (16, width)
    Floats block[TILE_ROWS], other[TILE_ROWS];
    for (int d = 0; d < D; ++d) {
      for (int v = 0; v < LANES; ++v) block[v] = v < some ? widen(views[v].query + d * LANES) : Floats{};
      transpose(block);
      for (int pair = 0; pair < LANES / 2; ++pair)
        query_pairs[d * LANES / 2 + pair] = paired(block[2 * pair], block[2 * pair + 1]);
    }
    touched_by_tiles(query_pairs);
    for (int64_t place = 0; place < padded; place += TILE_ROWS) {
      const bfloat16* from = first_key + place * width;
      if (place + TILE_ROWS > places) {
        const int64_t left = std::max<int64_t>(0, places - place);
        std::memcpy(last, from, left * bytes);
        std::memset(last + left * width, 0, (TILE_ROWS - left) * bytes);
        from = last;
        touched_by_tiles(last);
      }
      for (int line = 0; line < TILE_ROWS * D / 2; ++line) fetch(first_value + place * width + line * TILE_INPUTS);
      _tile_zero(0);
      for (int step = 0; step < D / 2; ++step) {
        _tile_loadd(4, from + step * TILE_INPUTS, bytes);
        _tile_loadd(6, query_pairs + step * TILE_ROWS, 64);
        _tile_dpbf16ps(0, 4, 6);
      }
      _tile_stored(0, block, 64);
      transpose(block);
      for (int64_t v = 0; v < some; ++v) put(scores + v * padded + place, block[v]);
    }
    float totals[LANES];
    for (int64_t v = 0; v < some; ++v) {
      float* own = scores + v * padded;
      totals[v] = exponentials(own, views[v].begin - begin, views[v].end - begin, padded);
      for (int64_t i = 0; i < padded; i += LANES) put(shares + v * padded + i, widen(own + i));
    }
    std::memset(shares + some * padded, 0, (LANES - some) * padded * sizeof(bfloat16));
    touched_by_tiles(shares);
    for (int chunk = 0; chunk < D; chunk += 4) {  // of dimensions: registers 0-3 hold four times 16 of them
      const int many = std::min(4, D - chunk);
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t from = 0; from < padded; from += TILE_INPUTS) {
        for (int pair = 0; pair < LANES; ++pair) {
          const int64_t place = from + 2 * pair;
          const bfloat16* low = first_value + std::min(place, places - 1) * width;
          const bfloat16* high = first_value + std::min(place + 1, places - 1) * width;
          if (chunk == 0)
            for (int line = 0; line < D; ++line) fetch(first_key + next + place * width + line * TILE_INPUTS);
          for (int d = 0; d < many; d += 2)
            pair_rows(low + (chunk + d) * LANES, high + (chunk + d) * LANES, value_pairs + d * LANES + pair,
                      value_pairs + (d + 1) * LANES + pair);
        }
        touched_by_tiles(value_pairs);
        _tile_loadd(4, shares + from, padded * sizeof(bfloat16));
        _tile_loadd(6, value_pairs, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, value_pairs + LANES, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (many > 2) {
          _tile_loadd(6, value_pairs + 2 * LANES, 64);
          _tile_dpbf16ps(2, 4, 6);
          _tile_loadd(7, value_pairs + 3 * LANES, 64);
          _tile_dpbf16ps(3, 4, 7);
        }
      }
      const auto take = [&](int d) {
        for (int64_t v = 0; v < some; ++v) {
          const Floats low = block[v] / totals[v], high = other[v] / totals[v];
          put(views[v].out + d * LANES, pick<0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23>(low, high));
          put(views[v].out + (d + 1) * LANES,
              pick<8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31>(low, high));
        }
      };
      _tile_stored(0, block, 64);
      _tile_stored(1, other, 64);
      take(chunk);
      if (many > 2) {
        _tile_stored(2, block, 64);
        _tile_stored(3, other, 64);
        take(chunk + 2);
      }
    }
  }
}
#endif

// Floats of scratch memory that attention over so many places needs.
int64_t attention_floats(int64_t head_dim, int64_t places) {
  const int64_t room = up_to(TILE_INPUTS, places);
  return LANES * room * 3 / 2 + (8 + 8) * head_dim + LANES * LANES * 4;
}

template <typename T>
using Attend = void (*)(const View*, int64_t, const T*, const T*, int64_t, float*);

template <typename T, int D>
Attend<T> best_attend() {
#ifdef PLT_TILES
  if constexpr (std::is_same_v<T, bfloat16> && D % 2 == 0)
    if (may_use_tiles()) return attend_by_tiles<D>;
#endif
  return attend_by_lines<T, D>;
}

template <typename T>
Attend<T> attend_for(int64_t head_dim) {
  switch (head_dim) {
    case 16: return best_attend<T, 1>();
    case 32: return best_attend<T, 2>();
    case 48: return best_attend<T, 3>();
    case 64: return best_attend<T, 4>();
    case 80: return best_attend<T, 5>();
    case 96: return best_attend<T, 6>();
    case 128: return best_attend<T, 8>();
    case 160: return best_attend<T, 10>();
    case 192: return best_attend<T, 12>();
    case 256: return best_attend<T, 16>();
    default: return nullptr;
  }
}

}  // namespace
