#pragma once

// Instructions that CUDA C++ does not expose: tensor-core products, loads of shared-memory matrices into fragments,
// asynchronous copies to shared memory, and the hardware's power of two (sm_80 and later; cuda/gemm/hopper.hpp has
// those of sm_90a). The emulator has an equivalent of each instruction, with the same layout and the same rules.
//
// A fragment is a matrix distributed over the 32 lanes of a warp, with two adjacent bf16 numbers per register, the
// first in the lower half. Lane l holds, with g = l / 4 and t = l % 4 (letters: register; numbers below: lane):
//
//   a (16 x 16)                                  b (16 x 8)           d (16 x 8), floats
//              k 2t 2t+1     k 2t+8 2t+9                 n g                    n 2t    n 2t+1
//   row g      a[0]          a[2]                k 2t    b[0] low     row g     d[0]    d[1]
//   row g + 8  a[1]          a[3]                k 2t+1  b[0] high    row g+8   d[2]    d[3]
//                                                k 2t+8  b[1] low
//                                                k 2t+9  b[1] high
//
// A fragment of 8 x 8 numbers, as load_matrices loads four: register r of lane l holds row g, columns 2t and 2t + 1.
// Hence a is four of them (upper and lower rows, then the right half). b is two of them if the rows in shared memory
// are the columns of b; if they are its rows, load_matrices_transposed loads b.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/bf16.hpp"
#include "cuda/platform.hpp"

namespace abh {
inline namespace ABH_BACKEND {

#if defined(__CUDACC__)

// d += a b, rounded in float in an order chosen by the hardware. Called by all lanes of the warp.
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads four 8 x 8 matrices from shared memory; r[i] is a fragment of matrix i. Lane l passes the address of row l % 8
// of matrix l / 8, aligned to 16 bytes. Called by all lanes of the warp.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const bf16* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, with each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const bf16* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Starts an asynchronous copy of 16 or 4 bytes to shared memory, with both addresses aligned to that size; for a null
// source it writes zeros. The copies of a thread since its last commit form a group. wait returns when all groups of
// this thread except the last `groups_left` are complete, for this thread; other threads need a barrier. A kernel must
// wait for all its copies before it ends.
template <int bytes = 16>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool there = true) {
  static_assert(bytes == 16 || bytes == 4);
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(__cvta_generic_to_global(global)),
                 "r"(there ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(__cvta_generic_to_global(global)),
                 "r"(there ? 4 : 0)
                 : "memory");
  }
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups_left>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups_left) : "memory");
}

// Two numbers rounded to bf16 in one register, in the layout of fragments.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// 2^x, with an error of at most 2 ulp; 2^0 = 1 and 2^-infinity = 0 exactly, NaN stays NaN. Results below 2^-126 are 0:
// exp2f keeps those, with a comparison and two more multiplications.
__device__ __forceinline__ float power_of_2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

#else

inline std::uint32_t pack_bf16(float low, float high) { return bf16(low).bits | std::uint32_t{bf16(high).bits} << 16; }

inline float power_of_2(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126f ? 0 : power;
}

namespace twin {

inline constexpr std::uint32_t zeros[4] = {};  // that a copy of nothing writes

inline float low_of(std::uint32_t packed) { return std::bit_cast<float>(packed << 16); }
inline float high_of(std::uint32_t packed) { return std::bit_cast<float>(packed & 0xFFFF0000); }

inline unsigned lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

struct Operands {
  std::uint32_t a[4], b[2];
};

// Checks a row of an 8 x 8 matrix.
inline void require_row(const bf16* row) {
  require_aligned(row, 8 * sizeof(bf16));
  require_shared(row, 8 * sizeof(bf16));
}

// Copies that a thread started and has not waited for, in a ring. They are executed as late as the rules allow, so that
// an early read gets wrong data. ThreadSanitizer must not instrument this record, and it forbids allocation in fibers;
// it must see the copies.
struct Copy {
  void* to;
  const void* from;  // null: zeros
  unsigned bytes, group;
};
struct Copies {
  static constexpr unsigned most = 128;
  Copy ring[most];
  unsigned begun, done, groups;  // only increase
};
inline Copies copies_of_thread[1024];

#define EMULATOR_UNSEEN inline __attribute__((noinline, no_sanitize("thread")))
EMULATOR_UNSEEN Copies& copies() {
  return copies_of_thread[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
}
EMULATOR_UNSEEN void begin_copy(void* to, const void* from, unsigned bytes) {
  Copies& all = copies();
  all.ring[all.begun++ % Copies::most] = {to, from, bytes, all.groups};
}
EMULATOR_UNSEEN void end_group() { ++copies().groups; }
// Returns the oldest copy, if its group must be complete or the ring is full.
EMULATOR_UNSEEN bool take_copy(Copy& copy, unsigned groups_left) {
  Copies& all = copies();
  if (all.begun == all.done) return false;
  copy = all.ring[all.done % Copies::most];
  const bool due = all.groups - copy.group > groups_left || all.begun - all.done == Copies::most;
  if (due) ++all.done;
  return due;
}
#undef EMULATOR_UNSEEN

inline void finish_copies(unsigned groups_left) {
  for (Copy copy; take_copy(copy, groups_left);) {
    if (copy.from) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
}

}  // namespace twin

__forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  const twin::Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const twin::Operands* of_lane = emulator::warp_gather(mine);
  const unsigned g = twin::lane() / 4, t = twin::lane() % 4;
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned from = 0; from < 4; ++from) {  // k = 8 half + 2 from, and the next k
      const std::uint32_t upper = of_lane[4 * g + from].a[2 * half], lower = of_lane[4 * g + from].a[2 * half + 1];
      for (unsigned i = 0; i < 2; ++i) {
        const std::uint32_t column = of_lane[4 * (2 * t + i) + from].b[half];
        d[i] += twin::low_of(upper) * twin::low_of(column);
        d[i] += twin::high_of(upper) * twin::high_of(column);
        d[2 + i] += twin::low_of(lower) * twin::low_of(column);
        d[2 + i] += twin::high_of(lower) * twin::high_of(column);
      }
    }
  }
  emulator::note_product(d);
}

__forceinline__ void load_matrices(std::uint32_t (&r)[4], const bf16* row) {
  twin::require_row(row);
  const bf16* const* of_lane = emulator::warp_gather(row);
  const emulator::Access access(row, 8 * sizeof(bf16), false);
  const unsigned g = twin::lane() / 4, t = twin::lane() % 4;
  for (unsigned i = 0; i < 4; ++i) std::memcpy(&r[i], of_lane[8 * i + g] + 2 * t, sizeof r[i]);
}

__forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const bf16* row) {
  twin::require_row(row);
  const bf16* const* of_lane = emulator::warp_gather(row);
  const emulator::Access access(row, 8 * sizeof(bf16), false);
  const unsigned g = twin::lane() / 4, t = twin::lane() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    r[i] = of_lane[8 * i + 2 * t][g].bits | std::uint32_t{of_lane[8 * i + 2 * t + 1][g].bits} << 16;
  }
}

template <int bytes = 16>
__forceinline__ void copy_async(void* shared, const void* global, bool there = true) {
  static_assert(bytes == 16 || bytes == 4);
  require_aligned(shared, bytes);
  require_shared(shared, bytes);
  require_aligned(global, bytes);
  if (there) require_global(global, bytes);
  twin::finish_copies(~0u);  // makes room for one more copy
  if (there) emulator::Access(global, bytes, false);
  emulator::Access(shared, bytes, true, there ? global : twin::zeros);
  twin::begin_copy(shared, there ? global : nullptr, bytes);
}
inline void copy_async_commit() { twin::end_group(); }
template <int groups_left>
void copy_async_wait() {
  twin::finish_copies(groups_left);
}

#endif

}  // namespace ABH_BACKEND
}  // namespace abh
