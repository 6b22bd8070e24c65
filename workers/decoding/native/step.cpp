// One decode step of a looped transformer on the CPU: all layers for the rows of one new slot, in one parallel region.
//
// The matrix products of a few rows are bound by reading the weights, so everything serves one aim: each thread reads
// its own part of every matrix once, in order, and nothing else takes time. Weights lie in blocks of 16 outputs, one
// cache line per step along the input (bfloat16: two inputs a line), so that a line is multiplied with every row while
// it is in a register. What lies between the products is fused and costs one barrier each.
//
// Rows are (sequence, loop) pairs: row i is loop first + i % rows of sequence i / rows. Everything between the stored
// types (weights, keys, values, hidden vectors carried on; inputs of products) is float32. The Python side is
// workers/decoding/native/step.py.

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

extern "C" struct Model {
  int64_t batch, loops, layers, width, inner, heads, kv_heads, head_dim, vocabulary;  // `inner` in whole blocks
  int64_t places, base, ring, window;
  int64_t is_bfloat16, shared, gate_reads_query, parallel, norm_per_loop, reinject;
  float eps, fixed_share, emb_scale, hidden_scale;
  const Layer* layer;
  const void *embedding, *head;  // (V, d) as it is; packed
  const float *norm, *cos, *sin;  // of the final norm; (slots, dh)
  void* carry;                    // (B, R - 1, d): h(1)..h(R-1) of the previous slot
};

// One pass over the layers at one slot: `rows` loops from loop `first` on.
struct Pass : Model {
  Pass(const Model& model, int64_t threads, int64_t slot, int64_t rows, int64_t first)
      : Model(model), threads(threads), slot(slot), rows(rows), first(first) {
    cos += slot * head_dim;
    sin += slot * head_dim;
  }
  const int64_t threads, slot, rows, first;
};

float dot(const float* x, const float* y, int64_t width) {
  Floats products{};
  for (int64_t i = 0; i < width; i += LANES) products += widen(x + i) * widen(y + i);
  return sum(products);
}

float inverse_rms(const float* x, int64_t width, float eps) {
  return 1.0f / std::sqrt(dot(x, x, width) / float(width) + eps);
}

float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

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

  // `out` takes the mixed attention of every row, from row `first_row` on.
  void run(Attend<T> attend, float* work, int64_t first_row, const Inputs<T>& out) {
    const int64_t dh = pass.head_dim, queries = pass.rows * group;
    float* query = work;
    float* full = query + queries * dh;
    float* local = full + queries * dh;
    View* views = (View*)(local + queries * dh);
    float* scratch = (float*)(views + 2 * queries);
    write(query);
    const int64_t together = pass.shared ? pass.rows : 1;  // rows that see the same places
    for (int64_t row = 0; row < pass.rows; row += together) {
      int64_t count = 0;
      const auto see = [&](int64_t one, int64_t begin, int64_t end, float* to) {
        for (int64_t at = one * group * dh; at < (one + 1) * group * dh; at += dh)
          views[count++] = {query + at, begin, end, to + at};
      };
      for (int64_t one = row; one < row + together; ++one) see(one, pass.base, pass.base + pass.slot + 1, full);
      for (int64_t one = row; one < row + together; ++one)
        if (windowed(one)) see(one, window_begin(one), window_end(one), local);
      attend(views, count, head(pass.first + row, kv_head), head(pass.first + row, pass.kv_heads + kv_head), head_size,
             scratch);
    }
    for (int64_t row = 0; row < pass.rows; ++row) mix(row, query, full, local, first_row, out);
  }

  static int64_t floats(const Pass& pass) {
    const int64_t queries = pass.rows * pass.heads / pass.kv_heads;
    return up_to(LANES, 3 * queries * pass.head_dim + 2 * queries * int64_t(sizeof(View) / sizeof(float))) +
           attention_floats(pass.head_dim, pass.base + pass.slot + 1);
  }

 private:
  T* head(int64_t loop, int64_t number) const {
    return places + ((pass.shared ? 0 : loop * 2 * pass.kv_heads) + number) * head_size;
  }

  bool windowed(int64_t row) const { return pass.first + row > 0 && pass.window > 0; }
  int64_t window_begin(int64_t row) const {
    return pass.shared ? (pass.first + row - 1) * pass.ring : std::max<int64_t>(0, pass.slot + 1 - pass.window);
  }
  int64_t window_end(int64_t row) const {
    return pass.shared ? window_begin(row) + std::min(pass.slot + 1, pass.ring) : pass.slot + 1;
  }

  // Turned and scaled queries (row, head of the group); keys and values go where later slots read them.
  void write(float* query) {
    const int64_t dh = pass.head_dim, stride = (pass.heads + 2 * pass.kv_heads) * dh;
    const float scale = 1.0f / std::sqrt(float(dh));
    float turned[MOST_HEAD_DIM];
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

  void mix(int64_t row, const float* query, const float* full, const float* local, int64_t first_row,
           const Inputs<T>& out) const {
    const int64_t dh = pass.head_dim;
    const bool gated = windowed(row) && layer.gate_weight;
    const float* x = residual + row * pass.width;
    const float inverse = gated && !pass.gate_reads_query ? inverse_rms(x, pass.width, pass.eps) : 0.0f;
    for (int64_t number = 0; number < group; ++number) {
      const int64_t head = kv_head * group + number, at = (row * group + number) * dh;
      float share = windowed(row) ? pass.fixed_share : 1.0f;
      if (gated && pass.gate_reads_query)  // the query is scaled
        share = logistic(dot(query + at, layer.gate_weight + head * dh, dh) * std::sqrt(float(dh)) + layer.gate_bias[head]);
      else if (gated)
        share = logistic(dot(x, layer.gate_weight + head * pass.width, pass.width) * inverse + layer.gate_bias[head]);
      for (int64_t i = 0; i < dh; i += LANES) {
        Floats value = widen(full + at + i);
        if (windowed(row)) value = widen(local + at + i) * (1.0f - share) + value * share;
        out.put(head * dh + i, first_row + row, value);
      }
    }
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
  return HeadTask<float>::floats(p) + padded(p.batch * p.rows) * (p.width + 2 * LANES);
}

int64_t shared_floats(const Pass& p) {
  return padded(p.batch * p.rows) * ((2 * p.heads + 2 * p.kv_heads) * p.head_dim + p.inner);
}

template <typename T>
void run_layers(const Pass& p, float* x, float* work) {
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
      const Layer& layer = p.layer[number];
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

// y (rows, outputs) = x (rows, width) W^T, of inputs narrowed to the type of the weights.
template <typename T>
void run_product(int64_t threads, int64_t outputs, const void* weight, const Inputs<T>& x, Floats* out, float* y) {
  const int64_t room = padded(x.rows);
#pragma omp parallel num_threads(threads)
  {
    const int64_t thread = omp_get_thread_num();
    TileRegisters registers(x.tiled);
    registers.hold(rows_per_tile(x.rows));
    const Share mine((outputs + LANES - 1) / LANES, thread, omp_get_num_threads());
    Floats* sums = out + thread * room;
    for (int64_t block = mine.begin; block < mine.end; ++block) {
      const int64_t column = block * LANES, some = std::min<int64_t>(LANES, outputs - column);
      multiply_blocks((const T*)weight + block * x.width * LANES, 1, 0, x, sums, room);
      for (int64_t row = 0; row < x.rows; ++row)
        std::memcpy(y + row * outputs + column, &sums[row], some * sizeof(float));
    }
  }
}

int64_t product_floats(int64_t threads, int64_t rows, int64_t width) { return padded(rows) * (width + threads * LANES); }

// h(r) of a row: its residual stream, normalised where every loop ends with a norm.
void hand_on(const Model& m, float* x) {
  if (!m.norm_per_loop) return;
  const float scale = inverse_rms(x, m.width, m.eps);
  for (int64_t i = 0; i < m.width; i += LANES) put(x + i, widen(x + i) * scale * widen(m.norm + i));
}

// X(r) = hidden_scale * `carried` + emb_scale * E, the second term only with `reinject`.
template <typename T, typename C>
void combine(const Model& m, const T* embedded, const C* carried, float* x) {
  for (int64_t i = 0; i < m.width; i += LANES) {
    Floats value = widen(carried + i) * m.hidden_scale;
    if (m.reinject) value += widen(embedded + i) * m.emb_scale;
    put(x + i, value);
  }
}

template <typename T>
void take_step(const Model& m, int64_t threads, int64_t slot, const int64_t* ids, float* work, float* logits) {
  const int64_t rows = m.parallel ? m.loops : 1;
  float* x = work;  // (B, rows, d)
  float* rest = x + m.batch * rows * m.width;
  const auto embedded = [&](int64_t sequence) { return (const T*)m.embedding + ids[sequence] * m.width; };
  const auto row_of = [&](int64_t sequence, int64_t row) { return x + (sequence * rows + row) * m.width; };
  const auto carry_of = [&](int64_t sequence, int64_t row) {
    return (T*)m.carry + (sequence * (m.loops - 1) + row) * m.width;
  };
  for (int64_t sequence = 0; sequence < m.batch; ++sequence) {
    for (int64_t i = 0; i < m.width; i += LANES) put(row_of(sequence, 0) + i, widen(embedded(sequence) + i));
    for (int64_t row = 1; row < rows; ++row)
      combine(m, embedded(sequence), carry_of(sequence, row - 1), row_of(sequence, row));
  }
  for (int64_t first = 0; first < m.loops; first += rows) {
    if (first > 0)
      for (int64_t sequence = 0; sequence < m.batch; ++sequence)
        combine(m, embedded(sequence), row_of(sequence, 0), row_of(sequence, 0));
    run_layers<T>(Pass(m, threads, slot, rows, first), x, rest);
    for (int64_t row = 0; row < m.batch * rows; ++row) hand_on(m, x + row * m.width);
  }
  Floats* out = (Floats*)rest;
  const Inputs<T> last(out + threads * padded(m.batch), m.batch, m.width);
  for (int64_t sequence = 0; sequence < m.batch; ++sequence) {
    for (int64_t row = 0; row + 1 < rows; ++row)
      for (int64_t i = 0; i < m.width; i += LANES)
        put(carry_of(sequence, row) + i, widen(row_of(sequence, row) + i));
    const float* h = row_of(sequence, rows - 1);
    const float scale = m.norm_per_loop ? 1.0f : inverse_rms(h, m.width, m.eps);
    for (int64_t i = 0; i < m.width; i += LANES)
      last.put(i, sequence, m.norm_per_loop ? widen(h + i) : widen(h + i) * scale * widen(m.norm + i));
  }
  run_product(threads, m.vocabulary, m.head, last, out, logits);
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

// Floats of the buffer that plt_step needs up to slot number `slot`; it begins at a multiple of 64 bytes.
int64_t plt_step_floats(const Model* model, int64_t threads, int64_t slot) {
  const Pass pass(*model, threads, slot, model->parallel ? model->loops : 1, 0);
  return pass.batch * pass.rows * pass.width +
         std::max(shared_floats(pass) + threads * thread_floats(pass), product_floats(threads, pass.batch, pass.width));
}

// Append one token per sequence at `slot`: logits (B, V), keys and values to their places, hidden vectors to the carry.
// Nothing is done, and 0 returned, when an id is none of the vocabulary's.
int64_t plt_step(const Model* model, int64_t threads, int64_t slot, const int64_t* ids, float* work, float* logits) {
  for (int64_t sequence = 0; sequence < model->batch; ++sequence)
    if (ids[sequence] < 0 || ids[sequence] >= model->vocabulary) return 0;
  (model->is_bfloat16 ? take_step<bfloat16> : take_step<float>)(*model, threads, slot, ids, work, logits);
  return 1;
}

// Reads memory as products read weights; what it returns keeps the compiler from leaving that out.
int64_t plt_read(int64_t threads, const void* from, int64_t bytes) {
  int64_t all = 0;
#pragma omp parallel num_threads(threads) reduction(^ : all)
  {
    constexpr int line = 64, at_once = 4;
    const Share mine(bytes / (line * at_once), omp_get_thread_num(), omp_get_num_threads());
    Words seen[at_once] = {};
    for (int64_t group = mine.begin; group < mine.end; ++group) {
      const char* here = (const char*)from + group * line * at_once;
      for (int i = 0; i < at_once; ++i) {
        fetch(here + (AHEAD_OF_TILES + i) * line);
        seen[i] ^= load<Words>(here + i * line);
      }
    }
    const Words folded = seen[0] ^ seen[1] ^ seen[2] ^ seen[3];
    for (int i = 0; i < LANES; ++i) all ^= folded[i];
  }
  return all;
}

int64_t plt_product_floats(int64_t threads, int64_t rows, int64_t width) { return product_floats(threads, rows, width); }

// y (rows, outputs) = x (rows, width) W^T for a packed W, for tests.
void plt_product(int64_t threads, int64_t rows, int64_t width, int64_t outputs, int64_t is_bfloat16,
                 const void* weight, const float* x, float* work, float* y) {
  const auto multiply = [&](auto type) {
    const Inputs<decltype(type)> inputs((Floats*)work + threads * padded(rows), rows, width);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; i += LANES) inputs.put(i, row, widen(x + row * width + i));
    run_product(threads, outputs, weight, inputs, (Floats*)work, y);
  };
  is_bfloat16 ? multiply(bfloat16()) : multiply(float());
}

}  // extern "C"
