// One decode step of a looped transformer on the CPU: all layers for the rows of one new slot, in one parallel region.
//
// The matrix products of a few rows are bound by reading the weights, so everything serves one aim: each thread reads
// its own part of every matrix once, in order, and nothing else takes time. Weights lie in blocks of 16 outputs, one
// cache line per step along the input (bfloat16: two inputs a line), so that a line is multiplied with every row while
// it is in a register. What lies between the products is fused and costs one barrier each.
//
// Rows are (sequence, loop) pairs: row i is loop first + i % rows of sequence i / rows. Everything between the stored
// types (weights, keys, values; inputs of products) is float32. The Python side is workers/decoding/native/slot_pass.py.

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "attention.h"
#include "product.h"
#include "tiles.h"
#include "vector.h"

namespace {

extern "C" struct Layer {
  const float* input_norm;
  const void* query_key_value;
  const void* output;
  const float* mlp_norm;
  const void* gate_up;  // blocks of the SwiGLU gate and of up by turns
  const void* down;
  const float* gate_weight;  // (H, dh) or (H, d); null: the share is fixed
  const float* gate_bias;
  void* places;  // of this layer: (B, 2 Hkv, P, dh) shared, (B, R, 2 Hkv, P, dh) per loop
};

extern "C" struct Pass {
  int64_t threads, batch, rows, first, loops, layers;
  int64_t width, inner, heads, kv_heads, head_dim;  // `inner` is padded to whole blocks
  int64_t slot, places, base, ring, window;
  int64_t shared, gate_reads_query;
  float eps, fixed_share;
  const float *cos, *sin;  // of the slot, (dh) each
};

float inverse_rms(const float* x, int64_t width, float eps) {
  Floats squares{};
  for (int64_t i = 0; i < width; i += LANES) squares += widen(x + i) * widen(x + i);
  return 1.0f / std::sqrt(sum(squares) / float(width) + eps);
}

template <typename T>
void normalise(const float* x, const float* weight, float eps, const Inputs<T>& out) {
  for (int64_t row = 0; row < out.rows; ++row, x += out.width) {
    const float scale = inverse_rms(x, out.width, eps);
    for (int64_t i = 0; i < out.width; i += LANES) out.put(i, row, widen(x + i) * scale * widen(weight + i));
  }
}

void turn(const float* x, const Pass& pass, float scale, float* out) {  // RoPE, rotate_half
  const int64_t half = pass.head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    out[i] = (x[i] * pass.cos[i] + x[i + half] * pass.sin[i]) * scale;
    out[i + half] = (x[i + half] * pass.cos[i + half] + x[i] * pass.sin[i + half]) * scale;
  }
}

struct Range {
  int64_t begin, end;
};

// What the rows of one sequence see and write in one key head.
template <typename T>
class HeadTask {
 public:
  HeadTask(const Pass& pass, const Layer& layer, const float* residual, const float* projected, int64_t sequence,
           int64_t kv_head)
      : pass(pass), layer(layer), residual(residual), projected(projected), kv_head(kv_head),
        group(pass.heads / pass.kv_heads), head_size(pass.places * pass.head_dim) {
    const int64_t copies = pass.shared ? 1 : pass.loops;
    places = (T*)layer.places + sequence * copies * 2 * pass.kv_heads * head_size;
  }

  void run(Attend<T> attend, float* work, int64_t first_row, const Inputs<T>& out) {
    const int64_t dh = pass.head_dim, queries = pass.rows * group;
    float* query = work;
    float* full = query + queries * dh;
    float* local = full + queries * dh;
    float* weights = local + queries * dh;
    write(query);
    if (pass.shared) {
      const Range all = {pass.base, pass.base + pass.slot + 1};
      see(attend, query, queries, pass.first, all, weights, full);
    } else {
      for (int64_t row = 0; row < pass.rows; ++row)
        see(attend, query + row * group * dh, group, pass.first + row, {0, pass.slot + 1}, weights, full + row * group * dh);
    }
    for (int64_t row = 0; row < pass.rows; ++row) {
      const int64_t loop = pass.first + row;
      const bool mixed = loop > 0 && pass.window > 0;
      if (mixed) see(attend, query + row * group * dh, group, loop, recent(loop), weights, local + row * group * dh);
      const float inverse = mixed && layer.gate_weight && !pass.gate_reads_query
                                ? inverse_rms(residual + row * pass.width, pass.width, pass.eps)
                                : 0.0f;
      for (int64_t head = 0; head < group; ++head) {
        const int64_t at = (row * group + head) * dh;
        const float share = mixed ? global_share(row, head, query + at, inverse) : 1.0f;
        for (int64_t i = 0; i < dh; i += LANES) {
          Floats value = widen(full + at + i);
          if (mixed) value = widen(local + at + i) * (1.0f - share) + value * share;
          out.put((kv_head * group + head) * dh + i, first_row + row, value);
        }
      }
    }
  }

 private:
  T* head(int64_t loop, int64_t number) const {
    return places + ((pass.shared ? 0 : loop * 2 * pass.kv_heads) + number) * head_size;
  }

  Range recent(int64_t loop) const {
    if (!pass.shared) return {std::max<int64_t>(0, pass.slot + 1 - pass.window), pass.slot + 1};
    const int64_t begin = (loop - 1) * pass.ring;
    return {begin, begin + std::min(pass.slot + 1, pass.ring)};
  }

  // Turned and scaled queries (row, head of the group); keys and values go where later slots read them.
  void write(float* query) {
    const int64_t dh = pass.head_dim, stride = (pass.heads + 2 * pass.kv_heads) * dh;
    const float scale = 1.0f / std::sqrt(float(dh));
    float turned[256];
    for (int64_t row = 0; row < pass.rows; ++row) {
      const float* own = projected + row * stride;
      for (int64_t head = 0; head < group; ++head)
        turn(own + (kv_head * group + head) * dh, pass, scale, query + (row * group + head) * dh);
      const int64_t loop = pass.first + row;
      int64_t place = pass.slot;
      if (pass.shared) {
        if (loop > 0 && !pass.ring) continue;
        place = loop == 0 ? pass.base + pass.slot : (loop - 1) * pass.ring + pass.slot % pass.ring;
      }
      turn(own + (pass.heads + kv_head) * dh, pass, 1.0f, turned);
      const float* value = own + (pass.heads + pass.kv_heads + kv_head) * dh;
      for (int64_t i = 0; i < dh; i += LANES) {
        put(head(loop, kv_head) + place * dh + i, widen(turned + i));
        put(head(loop, pass.kv_heads + kv_head) + place * dh + i, widen(value + i));
      }
    }
  }

  void see(Attend<T> attend, const float* query, int64_t count, int64_t loop, Range range, float* weights, float* out) {
    const int64_t begin = range.begin * pass.head_dim;
    attend(query, count, head(loop, kv_head) + begin, head(loop, pass.kv_heads + kv_head) + begin,
           range.end - range.begin, head_size, weights, out);
  }

  float global_share(int64_t row, int64_t head, const float* query, float inverse) const {
    if (!layer.gate_weight) return pass.fixed_share;
    const int64_t number = kv_head * group + head, width = pass.gate_reads_query ? pass.head_dim : pass.width;
    const float* x = pass.gate_reads_query ? query : residual + row * pass.width;
    Floats products{};
    for (int64_t i = 0; i < width; i += LANES) products += widen(x + i) * widen(layer.gate_weight + number * width + i);
    const float scale = pass.gate_reads_query ? std::sqrt(float(pass.head_dim)) : inverse;
    return 1.0f / (1.0f + std::exp(-(sum(products) * scale + layer.gate_bias[number])));
  }

  const Pass& pass;
  const Layer& layer;
  const float *residual, *projected;
  const int64_t kv_head, group, head_size;
  T* places;
};

struct Share {  // a thread's part of `count` pieces
  int64_t begin, end;
  Share(int64_t count, int64_t thread, int64_t threads)
      : begin(count * thread / threads), end(count * (thread + 1) / threads) {}
};

int64_t thread_floats(const Pass& p) {
  const int64_t queries = p.rows * p.heads / p.kv_heads;
  const int64_t attending = 3 * queries * p.head_dim + attention_floats(queries, p.head_dim, p.slot + 1);
  return attending + padded(p.batch * p.rows) * (p.width + 2 * LANES);
}

int64_t shared_floats(const Pass& p) {
  return padded(p.batch * p.rows) * ((2 * p.heads + 2 * p.kv_heads) * p.head_dim + p.inner);
}

template <typename T>
void run_layers(const Pass& p, const Layer* layers, float* x, float* work) {
  const int64_t rows = p.batch * p.rows, room = padded(rows);
  const int64_t query_width = p.heads * p.head_dim, projected_width = query_width + 2 * p.kv_heads * p.head_dim;
  const Attend<T> attend = attend_for<T>(p.head_dim);
  float* projected = work;
  float* attended_at = projected + room * projected_width;
  float* activated_at = attended_at + room * query_width;
  float* threads_at = activated_at + room * p.inner;
  const Inputs<T> attended(attended_at, rows, query_width), activated(activated_at, rows, p.inner);
#pragma omp parallel num_threads(p.threads)
  {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    TileRegisters registers(may_use_tiles());
    Floats* out = (Floats*)(threads_at + thread * thread_floats(p));
    float* normalised_at = (float*)(out + 2 * room);
    float* attending = normalised_at + room * p.width;
    const Inputs<T> normalised(normalised_at, rows, p.width);
    const auto product = [&](const void* weight, const Inputs<T>& input, int64_t outputs, auto&& use) {
      const Share mine(outputs / LANES, thread, threads);
      for (int64_t block = mine.begin; block < mine.end; block += 2) {
        const int64_t blocks = std::min<int64_t>(2, mine.end - block), size = input.width * LANES;
        multiply_blocks((const T*)weight + block * size, blocks, size, input, out, room);
        for (int64_t b = 0; b < blocks; ++b) use((block + b) * LANES, out + b * room);
      }
    };
    const auto add = [&](int64_t column, const Floats* sums) {
      for (int64_t row = 0; row < rows; ++row) {
        float* to = x + row * p.width + column;
        put(to, widen(to) + sums[row]);
      }
    };
    registers.hold(rows_per_tile(rows));
    for (int64_t number = 0; number < p.layers; ++number) {
      const Layer& layer = layers[number];
      normalise(x, layer.input_norm, p.eps, normalised);
      product(layer.query_key_value, normalised, projected_width, [&](int64_t column, const Floats* sums) {
        for (int64_t row = 0; row < rows; ++row) put(projected + row * projected_width + column, sums[row]);
      });
#pragma omp barrier
      registers.hold(TILE_ROWS);
      const Share heads(p.batch * p.kv_heads, thread, threads);
      for (int64_t task = heads.begin; task < heads.end; ++task) {
        const int64_t sequence = task / p.kv_heads, row = sequence * p.rows;
        HeadTask<T>(p, layer, x + row * p.width, projected + row * projected_width, sequence, task % p.kv_heads)
            .run(attend, attending, row, attended);
      }
#pragma omp barrier
      registers.hold(rows_per_tile(rows));
      product(layer.output, attended, p.width, add);
#pragma omp barrier
      normalise(x, layer.mlp_norm, p.eps, normalised);
      const Share pairs(p.inner / LANES, thread, threads);
      for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
        const T* gate = (const T*)layer.gate_up + 2 * pair * p.width * LANES;
        multiply_blocks(gate, 2, p.width * LANES, normalised, out, room);
        for (int64_t row = 0; row < rows; ++row)
          activated.put(pair * LANES, row, out[row] * sigmoid(out[row]) * out[room + row]);
      }
#pragma omp barrier
      product(layer.down, activated, p.width, add);
#pragma omp barrier
    }
  }
}

template <typename T>
void run_product(int64_t threads, int64_t rows, int64_t width, int64_t outputs, const T* weight, const float* x,
                 float* work, float* y) {
  const int64_t room = padded(rows);
  Floats* out = (Floats*)work;
  const Inputs<T> inputs(out + threads * room, rows, width);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; i += LANES) inputs.put(i, row, widen(x + row * width + i));
#pragma omp parallel num_threads(threads)
  {
    const int64_t thread = omp_get_thread_num();
    TileRegisters registers(inputs.tiled);
    registers.hold(rows_per_tile(rows));
    const Share mine((outputs + LANES - 1) / LANES, thread, omp_get_num_threads());
    Floats* sums = out + thread * room;
    for (int64_t block = mine.begin; block < mine.end; ++block) {
      const int64_t column = block * LANES, some = std::min<int64_t>(LANES, outputs - column);
      multiply_blocks(weight + block * width * LANES, 1, 0, inputs, sums, room);
      for (int64_t row = 0; row < rows; ++row)
        std::memcpy(y + row * outputs + column, &sums[row], some * sizeof(float));
    }
  }
}

}  // namespace

extern "C" {

int64_t plt_takes_head_dim(int64_t head_dim) { return attend_for<float>(head_dim) != nullptr; }

// What multiplies bfloat16: 2 tile registers, 1 pairs in vector registers, 0 neither.
int64_t plt_instructions() {
#ifdef PLT_PAIRS
  return may_use_tiles() ? 2 : 1;
#else
  return 0;
#endif
}

// Floats of the buffer that plt_run_layers needs.
int64_t plt_layers_work(const Pass* pass) { return shared_floats(*pass) + pass->threads * thread_floats(*pass); }

// Floats of the buffer that plt_product needs.
int64_t plt_product_work(int64_t threads, int64_t rows, int64_t width) {
  return padded(rows) * (width + LANES * threads);
}

// Residual rows `x` (batch * rows, width) through all layers, in place; keys and values are written to the places.
void plt_run_layers(const Pass* pass, const Layer* layers, int64_t is_bfloat16, float* x, float* work) {
  is_bfloat16 ? run_layers<bfloat16>(*pass, layers, x, work) : run_layers<float>(*pass, layers, x, work);
}

// y (rows, outputs) = x (rows, width) W^T, of inputs narrowed to the type of the weights.
void plt_product(int64_t threads, int64_t rows, int64_t width, int64_t outputs, int64_t is_bfloat16,
                 const void* weight, const float* x, float* work, float* y) {
  is_bfloat16 ? run_product(threads, rows, width, outputs, (const bfloat16*)weight, x, work, y)
              : run_product(threads, rows, width, outputs, (const float*)weight, x, work, y);
}

}  // extern "C"
