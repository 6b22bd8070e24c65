// Attention of a few queries over the keys and values of one head, which lie place after place.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "tiles.h"
#include "vector.h"

namespace {

template <int... Is>
Floats pick(Floats a, Floats b) { return __builtin_shufflevector(a, b, Is...); }

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

// Scores become e^(score - largest), those from `places` to `padded` 0; the sum of all.
float exponentials(float* scores, int64_t places, int64_t padded) {
  std::fill(scores + places, scores + padded, -INFINITY);
  Floats most = widen(scores);
  for (int64_t i = LANES; i < padded; i += LANES) {
    const Floats next = widen(scores + i);
    const Ints more = next > most;
    most = (Floats)(((Ints)next & more) | ((Ints)most & ~more));
  }
  float largest[LANES];
  store(largest, most);
  const float top = *std::max_element(largest, largest + LANES);
  Floats total{};
  for (int64_t i = 0; i < padded; i += LANES) {
    const Floats e = exponential(widen(scores + i) - top);
    put(scores + i, e);
    total += e;
  }
  return sum(total);
}

// Attention of `count` queries (each D * 16 floats, scaled) over `places` keys and values; out has the queries' layout.
template <typename T, int D>
void attend(const float* queries, int64_t count, const T* keys, const T* values, int64_t places, int64_t, float* weights,
            float* out) {
  constexpr int width = D * LANES, tile = D >= 8 ? 2 : 4;
  const int64_t padded = (places + LANES - 1) / LANES * LANES;
  for (int64_t begin = 0; begin < padded; begin += LANES) {
    for (int64_t q = 0; q < count; ++q) {
      Floats products[LANES];
      for (int i = 0; i < LANES; ++i) {
        const T* key = keys + std::min(begin + i, places - 1) * width;
        Floats product = widen(key) * widen(queries + q * width);
        for (int d = 1; d < D; ++d) product += widen(key + d * LANES) * widen(queries + q * width + d * LANES);
        products[i] = product;
      }
      store(weights + q * padded + begin, sums_of(products));
    }
  }
  float totals[count];
  for (int64_t q = 0; q < count; ++q) totals[q] = exponentials(weights + q * padded, places, padded);
  for (int64_t first = 0; first < count; first += tile) {
    const int64_t some = std::min<int64_t>(tile, count - first);
    Floats sums[tile][D];
    for (int q = 0; q < tile; ++q)
      for (int d = 0; d < D; ++d) sums[q][d] = Floats{};
    const float* rows[tile];
    for (int q = 0; q < tile; ++q) rows[q] = weights + (first + std::min<int64_t>(q, some - 1)) * padded;
    for (int64_t place = 0; place < places; ++place) {
      for (int d = 0; d < D; ++d) {
        Floats value = widen(values + place * width + d * LANES);
        for (int q = 0; q < tile; ++q) sums[q][d] += value * rows[q][place];
      }
    }
    for (int64_t q = 0; q < some; ++q)
      for (int d = 0; d < D; ++d) store(out + (first + q) * width + d * LANES, sums[q][d] / totals[first + q]);
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

// `attend` for up to 16 queries at a time by tile registers, all of which hold 16 rows: scores (places, queries) from
// tiles of 16 keys as they lie, then sums (queries, 16 dimensions) from pairs of values. Meanwhile values, then the keys
// that will be asked for next (`next` numbers further), are fetched.
template <int D>
void attend_by_tiles(const float* queries, int64_t count, const bfloat16* keys, const bfloat16* values, int64_t places,
                     int64_t next, float* work, float* out) {
  static_assert(D % 2 == 0, "a tile takes 32 inputs");
  constexpr int width = D * LANES, bytes = width * sizeof(bfloat16);
  const int64_t padded = (places + TILE_INPUTS - 1) / TILE_INPUTS * TILE_INPUTS;
  float* const scores = work;                                        // (16 queries, padded)
  bfloat16* const shares = (bfloat16*)(scores + LANES * padded);     // (16 queries, padded)
  Floats* const query_pairs = (Floats*)(shares + LANES * padded);    // (width / 2, 16 queries) of pairs
  Floats* const value_pairs = query_pairs + width / 2;               // (D, 16 pairs of places, 16 dimensions)
  bfloat16* const last = (bfloat16*)(value_pairs + LANES * D);       // (16, width)
  for (int64_t first = 0; first < count; first += LANES) {
    const int64_t some = std::min<int64_t>(LANES, count - first);
    Floats block[LANES];
    for (int d = 0; d < D; ++d) {
      for (int q = 0; q < LANES; ++q)
        block[q] = q < some ? load<Floats>(queries + (first + q) * width + d * LANES) : Floats{};
      transpose(block);
      for (int pair = 0; pair < LANES / 2; ++pair)
        query_pairs[d * LANES / 2 + pair] = paired(block[2 * pair], block[2 * pair + 1]);
    }
    touched_by_tiles(query_pairs);
    for (int64_t place = 0; place < padded; place += TILE_ROWS) {
      const bfloat16* from = keys + place * width;
      if (place + TILE_ROWS > places) {
        const int64_t left = std::max<int64_t>(0, places - place);
        std::memcpy(last, from, left * bytes);
        std::memset(last + left * width, 0, (TILE_ROWS - left) * bytes);
        from = last;
        touched_by_tiles(last);
      }
      for (int line = 0; line < TILE_ROWS * D / 2; ++line) __builtin_prefetch(values + place * width + line * TILE_INPUTS);
      _tile_zero(0);
      for (int step = 0; step < D / 2; ++step) {
        _tile_loadd(4, from + step * TILE_INPUTS, bytes);
        _tile_loadd(6, query_pairs + step * TILE_ROWS, 64);
        _tile_dpbf16ps(0, 4, 6);
      }
      _tile_stored(0, block, 64);
      transpose(block);
      for (int64_t q = 0; q < some; ++q) store(scores + q * padded + place, block[q]);
    }
    float totals[LANES];
    for (int64_t q = 0; q < some; ++q) {
      totals[q] = exponentials(scores + q * padded, places, padded);
      for (int64_t i = 0; i < padded; i += LANES) put(shares + q * padded + i, widen(scores + q * padded + i));
    }
    std::memset(shares + some * padded, 0, (LANES - some) * padded * sizeof(bfloat16));
    touched_by_tiles(shares);
    for (int chunk = 0; chunk < D; chunk += 4) {  // of dimensions: registers 0-3 hold four times 16 of them
      const int many = std::min(4, D - chunk);
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t begin = 0; begin < padded; begin += TILE_INPUTS) {
        for (int pair = 0; pair < LANES; ++pair) {
          const int64_t place = begin + 2 * pair;
          const bfloat16* low = values + std::min(place, places - 1) * width;
          const bfloat16* high = values + std::min(place + 1, places - 1) * width;
          if (chunk == 0)
            for (int line = 0; line < D; ++line) __builtin_prefetch(keys + next + place * width + line * TILE_INPUTS);
          for (int d = chunk; d < chunk + many; d += 2)
            pair_rows(low + d * LANES, high + d * LANES, value_pairs + d * LANES + pair,
                      value_pairs + (d + 1) * LANES + pair);
        }
        const Floats* pairs = value_pairs + chunk * LANES;
        touched_by_tiles(pairs);
        _tile_loadd(4, shares + begin, padded * sizeof(bfloat16));
        _tile_loadd(6, pairs, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, pairs + LANES, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (many > 2) {
          _tile_loadd(6, pairs + 2 * LANES, 64);
          _tile_dpbf16ps(2, 4, 6);
          _tile_loadd(7, pairs + 3 * LANES, 64);
          _tile_dpbf16ps(3, 4, 7);
        }
      }
      Floats other[TILE_ROWS];
      const auto take = [&](int d) {
        for (int64_t q = 0; q < some; ++q) {
          float* to = out + (first + q) * width + d * LANES;
          const Floats low = block[q] / totals[q], high = other[q] / totals[q];
          put(to, pick<0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23>(low, high));
          put(to + LANES, pick<8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31>(low, high));
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

// Floats of the scratch memory that attention of so many queries needs.
int64_t attention_floats(int64_t queries, int64_t head_dim, int64_t places) {
  const int64_t room = (places + TILE_INPUTS) / TILE_INPUTS * TILE_INPUTS;
  return std::max(queries * room, LANES * room * 3 / 2 + (LANES + 8 + 8) * head_dim);
}

template <typename T>
using Attend = void (*)(const float*, int64_t, const T*, const T*, int64_t, int64_t, float*, float*);

template <typename T, int D>
Attend<T> best_attend() {
#ifdef PLT_TILES
  if constexpr (std::is_same_v<T, bfloat16> && D % 2 == 0)
    if (may_use_tiles()) return attend_by_tiles<D>;
#endif
  return attend<T, D>;
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
