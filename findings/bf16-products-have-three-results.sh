#!/bin/sh
# Package: none; needs a C compiler for x86-64 and a processor with AVX512_BF16. AMX is tested if the processor has it
#   and the system permits it.
# Expectation: products of two bf16 numbers are exact in float, so every instruction computes the same sum of products.
# Behaviour: float multiply-adds, VDPBF16PS and TDPBF16PS have three different results, because their orders of
#   summation differ: one by one; the odd element of each pair first; the even and the odd elements in separate sums.
# Consequence: each instruction set has its own bits, so a test with one does not cover another (docs/bf16.md).
set -u
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cat >"$folder/products.c" <<'PROGRAM'
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { K = 32 };
typedef struct {
  uint16_t a[K], b[K];
} Rows;

static float wide(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static uint16_t narrow(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float by_floats(const Rows* r) {
  float sum = 0;
  for (int k = 0; k < K; ++k) sum = fmaf(wide(r->a[k]), wide(r->b[k]), sum);
  return sum;
}
__attribute__((target("avx512f,avx512bf16"))) static float by_pairs(const Rows* r) {
  __m512 sum = _mm512_setzero_ps();
  for (int k = 0; k < K; k += 2) {
    int a, b;
    memcpy(&a, r->a + k, 4);
    memcpy(&b, r->b + k, 4);
    sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(a), (__m512bh)_mm512_set1_epi32(b));
  }
  return _mm512_cvtss_f32(sum);
}
__attribute__((target("amx-tile,amx-bf16"))) static float by_tiles(const Rows* r) {
  struct __attribute__((aligned(64))) {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } shape = {1, 0, {0}, {64, 64, 64}, {16, 16, 16}};
  static uint16_t a[16][32], b[16][32];
  static float sum[16][16];
  memset(sum, 0, sizeof sum);
  memcpy(a[0], r->a, sizeof r->a);
  for (int k = 0; k < K; ++k) b[k / 2][k % 2] = r->b[k];
  _tile_loadconfig(&shape);
  _tile_loadd(0, sum, 64);
  _tile_loadd(1, a, 64);
  _tile_loadd(2, b, 64);
  _tile_dpbf16ps(0, 1, 2);
  _tile_stored(0, sum, 64);
  _tile_release();
  return sum[0][0];
}

static int processor_has(int leaf, int subleaf, int which, int bit) {
  unsigned r[4];
  __asm__("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(subleaf));
  return r[which] >> bit & 1;
}

int main(void) {
  const int pairs = processor_has(7, 1, 0, 5);
  const int tiles = processor_has(7, 0, 3, 24) && processor_has(7, 0, 3, 22) && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  if (!pairs) {
    printf("AVX512_BF16 is missing in this processor\n");
    return 2;
  }
  if (!tiles) printf("AMX not tested: the processor lacks it, or the system does not permit it\n");
  Rows example = {{0}, {0}};
  const float t = 0x1p-24f, a[4] = {1, t, -1, t};
  for (int k = 0; k < 4; ++k) {
    example.a[k] = narrow(a[k]);
    example.b[k] = narrow(1);
  }
  printf("(1, t, -1, t) with t = 2^-24: floats %g t, pairs %g t", by_floats(&example) / t, by_pairs(&example) / t);
  if (tiles) printf(", tiles %g t", by_tiles(&example) / t);
  printf("\n");
  int differ_pairs = 0, differ_tiles = 0, differ_both = 0;
  uint64_t state = 1;
  for (int trial = 0; trial < 10000; ++trial) {
    Rows r;
    for (int k = 0; k < 2 * K; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float x = (float)((double)(int64_t)state * 0x1p-63);
      (k < K ? r.a : r.b)[k % K] = narrow(x);
    }
    const float f = by_floats(&r), p = by_pairs(&r), s = tiles ? by_tiles(&r) : 0;
    differ_pairs += f != p;
    differ_tiles += tiles && f != s;
    differ_both += tiles && p != s;
  }
  printf("of 10000 random sums of %d products, pairs and floats differ in %d\n", K, differ_pairs);
  if (tiles) printf("tiles and floats in %d, tiles and pairs in %d\n", differ_tiles, differ_both);
  return !(differ_pairs && by_floats(&example) == t && by_pairs(&example) == 0 &&
           (!tiles || (differ_tiles && differ_both && by_tiles(&example) == 2 * t)));
}
PROGRAM
"${CC:-cc}" -O1 -ffp-contract=off -o "$folder/products" "$folder/products.c" -lm || exit 2
"$folder/products"
status=$?
[ "$status" = 0 ] && echo "as described"
[ "$status" = 1 ] && echo "CHANGED"
exit "$status"
