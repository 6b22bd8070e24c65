// AMX: registers of 16 rows of 64 bytes, and one instruction that multiplies two of them (x86-64, Linux).
#pragma once

#include <cstdint>

#include "vector.h"

#if defined(__AMX_BF16__) && defined(__linux__) && defined(PLT_PAIRS) && !defined(PLT_NO_TILES)
#define PLT_TILES 1
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

constexpr int TILE_ROWS = 16, TILE_INPUTS = 32;  // of bfloat16

// Whether this process may use the registers: Linux wants to be asked once.
bool may_use_tiles() {
#ifdef PLT_TILES
  constexpr int ask = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool granted = syscall(SYS_arch_prctl, ask, tile_data) == 0;
  return granted;
#else
  return false;
#endif
}

// Many rows are cut into equal tiles. The last one's rows may be fewer than are there, so buffers hold `padded(rows)`.
int64_t tile_count(int64_t rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }
int64_t rows_per_tile(int64_t rows) { return (rows + tile_count(rows) - 1) / tile_count(rows); }
int64_t padded(int64_t rows) { return tile_count(rows) * rows_per_tile(rows); }

#ifdef PLT_TILES
// The compiler does not see all that tile instructions read and write.
void touched_by_tiles(const void* at) { asm volatile("" : : "r"(at) : "memory"); }
#endif

// A thread's registers: 0-5 hold a number of rows that is set, 6 and 7 hold 16. What was set up before is put back in the
// end: other libraries (oneDNN) remember how they left a thread's registers.
class TileRegisters {
 public:
#ifdef PLT_TILES
  explicit TileRegisters(bool used) : used(used) {
    if (!used) return;
    touched_by_tiles(&before);
    _tile_storeconfig(&before);
    touched_by_tiles(&before);
  }
  ~TileRegisters() {
    if (!used) return;
    if (before.palette)
      load(before);
    else
      _tile_release();
  }
  void hold(int64_t rows) {
    if (!used) return;
    Setup setup;
    setup.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      setup.bytes[tile] = 64;
      setup.rows[tile] = tile < 6 ? rows : TILE_ROWS;
    }
    load(setup);
  }

 private:
  struct alignas(64) Setup {
    uint8_t palette = 0, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  };
  static void load(const Setup& setup) {
    touched_by_tiles(&setup);
    _tile_loadconfig(&setup);
  }
  const bool used;
  Setup before;
#else
  explicit TileRegisters(bool) {}
  void hold(int64_t) {}
#endif
};

}  // namespace
