// Sixteen floats at a time, on any processor that the compiler knows.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__) && !defined(PLT_PLAIN)
#define PLT_PAIRS 1  // instructions for bfloat16: narrowing, and products of pairs summed in float32
#include <immintrin.h>
#endif

namespace {

constexpr int LANES = 16;

typedef float Floats __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint16_t bfloat16;

template <typename T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

[[maybe_unused]] float narrow_float(uint32_t bits) { return load<float>(&bits); }

// Asks for a line of memory, into the second cache: the first is too small to wait in.
void fetch(const void* line) { __builtin_prefetch(line, 0, 2); }

Floats widen(const float* from) { return load<Floats>(from); }
Floats widen(const bfloat16* from) { return (Floats)(__builtin_convertvector(load<Halves>(from), Words) << 16); }

void put(float* to, Floats value) { store(to, value); }
void put(bfloat16* to, Floats value) {  // to nearest, ties to even; a NaN stays one
#ifdef PLT_PAIRS
  store(to, _mm512_cvtneps_pbh((__m512)value));
#else
  Words bits = (Words)value;
  Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  Words nan = (Words)((bits & 0x7fffffff) > 0x7f800000);
  store(to, __builtin_convertvector((nan & ((bits >> 16) | 0x40)) | (~nan & rounded), Halves));
#endif
}

float sum(Floats v) {
  float total[LANES];
  store(total, v);
  for (int width = LANES / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) total[i] += total[i + width];
  return total[0];
}

// e^x for x <= 0, to 2 units in the last place; below -87 it is 0.
Floats exponential(Floats x) {
  Ints hidden = x < -87.0f;
  x = (Floats)((Ints)x & ~hidden);
  Floats n = x * 1.44269504f;
  Ints whole = __builtin_convertvector(n - 0.5f, Ints);  // towards zero; x is not positive
  Floats w = __builtin_convertvector(whole, Floats);
  Floats f = x - w * 0.693359375f + w * 2.12194440e-4f;
  Floats p = f * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * f + 8.3334519073e-3f;
  p = p * f + 4.1665795894e-2f;
  p = p * f + 1.6666665459e-1f;
  p = p * f + 5.0000001201e-1f;
  p = p * f * f + f + 1.0f;
  Floats scaled = p * (Floats)((whole + 127) << 23);
  return (Floats)((Ints)scaled & ~hidden);
}

Floats sigmoid(Floats x) {  // e^-|x| never overflows
  Ints negative = x < 0.0f;
  Floats e = exponential((Floats)((Words)x | 0x80000000u));
  Floats top = (Floats)(((Ints)e & negative) | ((Ints)(e - e + 1.0f) & ~negative));
  return top / (1.0f + e);
}

}  // namespace
