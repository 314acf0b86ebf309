#pragma once

// Instructions of Hopper GPUs (PTX for sm_90a), each with an emulated version (cuda/emulator/hopper.hpp): barriers in
// shared memory (mbarrier), loads of tiles by the copy engine (TMA), and products of four warps (wgmma). No layer uses
// them yet. The PTX is compiled for sm_90a and has not yet run on hardware; compiled for any other GPU, a call traps.
//
// A tile with a swizzle of W bytes has rows of W bytes, one after another. Row r stores its 16-byte chunk c at place
// c XOR (r * W / 128 modulo W / 16), so that the same chunk of 8 rows touches all banks. The pattern follows the
// address: a tile begins at a multiple of 8 W bytes.
//
// Four consecutive warps, beginning at a multiple of four, are a warpgroup. It computes d += a b with a (64 x 16) and b
// (16 x N) in shared memory. Both are stored with k contiguous: rows of a, and columns of b. The accumulators of
// thread t of the warpgroup, with warp w = t / 32, g = t % 32 / 4 and q = t % 4:
//
//   d[4 j], d[4 j + 1]      row 16 w + g       columns 8 j + 2 q, 8 j + 2 q + 1
//   d[4 j + 2], d[4 j + 3]  row 16 w + g + 8   the same columns

#include <bit>
#include <cstdint>
#include <string>

#include "base/bf16.hpp"
#include "cuda/platform.hpp"

#if defined(__CUDACC__)
#include <cuda.h>
#else
#include "cuda/emulator/hopper.hpp"
#endif

namespace abh {
inline namespace ABH_BACKEND {

enum class Swizzle : unsigned { none = 0, bytes_32 = 32, bytes_64 = 64, bytes_128 = 128 };

// A barrier in shared memory. Its phases have the numbers 0, 1, ...; the parity of a phase is its number modulo 2.
struct Mbarrier {
  std::uint64_t state;
};

#if defined(__CUDACC__)
using TensorMap = CUtensorMap;
#else
using emulator::TensorMap;
#endif

// Describes a matrix of `rows` x `columns` numbers, whose rows begin `stride` numbers apart, and the box of it that
// load_tile copies. On the host; kernels take it as a `const __grid_constant__ TensorMap` parameter. The rows of a
// swizzled box have the width of the swizzle. Throws Error where TMA cannot do this.
inline TensorMap tensor_map(const bf16* matrix, Index rows, Index columns, Index stride, int box_rows, int box_columns,
                            Swizzle swizzle) {
  const Index row_bytes = stride * Index(sizeof(bf16)), width = Index(swizzle);
  const Index box_bytes = box_columns * Index(sizeof(bf16));
  const auto refuse_if = [](bool wrong, const char* why) {
    if (wrong) throw Error(std::string("tensor map: ") + why);
  };
  refuse_if(reinterpret_cast<std::uintptr_t>(matrix) % 16 != 0, "the matrix is not aligned to 16 bytes");
  refuse_if(rows < 1 || columns < 1 || columns > stride, "a matrix without numbers, or of overlapping rows");
  refuse_if(row_bytes % 16 != 0, "rows are not a multiple of 16 bytes apart");
  refuse_if(box_rows < 1 || box_rows > 256 || box_columns < 1 || box_columns > 256,
            "a box has 1 to 256 rows and columns");
  refuse_if(box_bytes % 16 != 0, "the rows of a box are not a multiple of 16 bytes");
  refuse_if(width > 0 && box_bytes != width, "the rows of a box do not have the width of the swizzle");
#if defined(__CUDACC__)
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result),
            "cuTensorMapEncodeTiled");
    if (!function) throw Error("CUDA: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  const cuuint64_t extents[2] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[1] = {cuuint64_t(row_bytes)};
  const cuuint32_t box[2] = {cuuint32_t(box_columns), cuuint32_t(box_rows)}, steps[2] = {1, 1};
  const CUtensorMapSwizzle mode = swizzle == Swizzle::bytes_128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                  : swizzle == Swizzle::bytes_64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                  : swizzle == Swizzle::bytes_32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                                 : CU_TENSOR_MAP_SWIZZLE_NONE;
  TensorMap map{};
  refuse_if(encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(matrix), extents, strides, box, steps,
                   CU_TENSOR_MAP_INTERLEAVE_NONE, mode, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS,
            "the driver refuses it");
  return map;
#else
  return {matrix, rows, columns, row_bytes, box_rows, box_columns, static_cast<int>(swizzle)};
#endif
}

#if defined(__CUDACC__)

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ABH_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define ABH_SM90A(...) __trap()
#endif

__device__ __forceinline__ std::uint32_t shared_address(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

// Initialises a barrier whose phases complete with this number of arrivals. Called by one thread, before a barrier of
// the block.
__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, unsigned arrivals) {
  ABH_SM90A("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.proxy.async.shared::cta;" ::"r"(shared_address(&barrier)),
            "r"(arrivals)
            : "memory");
}

// Arrives at the barrier; its phase completes with the last arrival, when all expected bytes have arrived.
__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
  ABH_SM90A("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
// The same, and the phase expects `bytes` more bytes of loads.
__device__ __forceinline__ void mbarrier_arrive_expect(Mbarrier& barrier, unsigned bytes) {
  ABH_SM90A("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
            : "memory");
}

// Waits until the current phase, or the one before it, is complete: the one with this parity. Each thread waits at most
// once per phase. Parity 1 at the first wait does not wait.
__device__ __forceinline__ void mbarrier_wait(const Mbarrier& barrier, unsigned parity) {
  unsigned complete = 0;
  do {
    ABH_SM90A("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
              : "=r"(complete)
              : "r"(shared_address(&barrier)), "r"(parity)
              : "memory");
  } while (!complete);
}

// Starts the load of a box, whose first number is at (row, column) of the matrix; numbers outside the matrix are 0. The
// barrier receives the bytes of the whole box. Called by one thread.
__device__ __forceinline__ void load_tile(bf16* tile, const TensorMap& map, int row, int column, Mbarrier& barrier) {
  ABH_SM90A(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
          "r"(shared_address(tile)),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(&barrier))
      : "memory");
}

// Makes ordinary writes to shared memory visible to wgmma. Called by the writing threads, before a barrier.
__device__ __forceinline__ void fence_for_wgmma() { ABH_SM90A("fence.proxy.async.shared::cta;" ::: "memory"); }

// Dynamic shared memory, aligned for swizzled tiles.
__device__ __forceinline__ bf16* dynamic_tiles() {
  extern __shared__ __align__(1024) unsigned char tiles[];
  return reinterpret_cast<bf16*>(tiles);
}

// One thread's part of d (64 x N), in registers: indices must be known to the compiler.
template <int N>
struct Accumulators {
  static constexpr int size = N / 2;
  float value[size];

  Accumulators() = default;
  Accumulators(const Accumulators&) = delete;
  __device__ __forceinline__ float& operator[](int i) { return value[i]; }
};

// The compiler moves no access to the accumulators across this.
template <int N>
__device__ __forceinline__ void pin(Accumulators<N>& d) {
#pragma unroll
  for (int i = 0; i < N / 2; ++i) asm volatile("" : "+f"(d.value[i])::"memory");
}

// All threads of the warpgroup call the following functions together, for one or two sets of accumulators. wgmma_fence
// stands between the last access to accumulators and the first product that adds to them. wgmma starts a product with
// 16 numbers k; without `accumulate` it overwrites d. The products since the last commit form a group. wgmma_wait
// returns when all groups except the last `groups_left` are complete. Until then the accumulators must not be accessed,
// and the tiles must not be overwritten.
template <int... N>
__device__ __forceinline__ void wgmma_fence(Accumulators<N>&... d) {
  (pin(d), ...);
  ABH_SM90A("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() { ABH_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int groups_left, int... N>
__device__ __forceinline__ void wgmma_wait(Accumulators<N>&... d) {
  ABH_SM90A("wgmma.wait_group.sync.aligned %0;" ::"n"(groups_left) : "memory");
  (pin(d), ...);
}

// The operands of an instruction by number: f(t0), f(t1), ...
#define ABH_2(f, t) f(t##0), f(t##1)
#define ABH_4(f, t) ABH_2(f, t), f(t##2), f(t##3)
#define ABH_8(f, t) ABH_4(f, t), f(t##4), f(t##5), f(t##6), f(t##7)
#define ABH_10(f, t) ABH_8(f, t), f(t##8), f(t##9)
#define ABH_32(f) ABH_10(f, ), ABH_10(f, 1), ABH_10(f, 2), ABH_2(f, 3)
#define ABH_60(f) ABH_10(f, ), ABH_10(f, 1), ABH_10(f, 2), ABH_10(f, 3), ABH_10(f, 4), ABH_10(f, 5)
#define ABH_64(f) ABH_60(f), ABH_4(f, 6)
#define ABH_128(f) \
  ABH_60(f), ABH_10(f, 6), ABH_10(f, 7), ABH_10(f, 8), ABH_10(f, 9), ABH_10(f, 10), ABH_10(f, 11), ABH_8(f, 12)
#define ABH_TEXT(...) #__VA_ARGS__
#define ABH_NAMES(...) ABH_TEXT(__VA_ARGS__)
// clang-format off
#define ABH_NAME(i) %i
// clang-format on
#define ABH_VALUE(i) "+f"(d.value[i])
#define ABH_WGMMA(n, all, a_name, b_name, accumulate_name)                                                  \
  ABH_SM90A("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_name ", 0;\nwgmma.mma_async.sync.aligned.m64n" n \
            "k16.f32.bf16.bf16 {" ABH_NAMES(all(ABH_NAME)) "}, " a_name ", " b_name ", p, 1, 1, 0, 0;\n}"   \
            : all(ABH_VALUE)                                                                                \
            : "l"(a), "l"(b), "r"(unsigned(accumulate))                                                     \
            : "memory")

template <int N>
__device__ __forceinline__ void wgmma(Accumulators<N>& d, std::uint64_t a, std::uint64_t b, bool accumulate = true) {
  static_assert(N == 64 || N == 128 || N == 256);
  if constexpr (N == 64) ABH_WGMMA("64", ABH_32, "%32", "%33", "%34");
  if constexpr (N == 128) ABH_WGMMA("128", ABH_64, "%64", "%65", "%66");
  if constexpr (N == 256) ABH_WGMMA("256", ABH_128, "%128", "%129", "%130");
}

#undef ABH_WGMMA
#undef ABH_VALUE
#undef ABH_NAME
#undef ABH_NAMES
#undef ABH_TEXT
#undef ABH_128
#undef ABH_64
#undef ABH_60
#undef ABH_32
#undef ABH_10
#undef ABH_8
#undef ABH_4
#undef ABH_2
#undef ABH_SM90A

#else

#define ABH_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

using emulator::detail::shared_address;

inline void mbarrier_init(Mbarrier& barrier, unsigned arrivals, ABH_HERE) {
  emulator::detail::mbarrier_init(&barrier, arrivals, file, line);
}
inline void mbarrier_arrive(Mbarrier& barrier, ABH_HERE) { emulator::detail::mbarrier_arrive(&barrier, 0, file, line); }
inline void mbarrier_arrive_expect(Mbarrier& barrier, unsigned bytes, ABH_HERE) {
  emulator::detail::mbarrier_arrive(&barrier, bytes, file, line);
}
inline void mbarrier_wait(const Mbarrier& barrier, unsigned parity, ABH_HERE) {
  emulator::detail::mbarrier_wait(&barrier, parity, file, line);
}
inline void load_tile(bf16* tile, const TensorMap& map, int row, int column, Mbarrier& barrier, ABH_HERE) {
  emulator::detail::load_tile(tile, map, row, column, &barrier, file, line);
}
inline void fence_for_wgmma() {}
inline bf16* dynamic_tiles() { return static_cast<bf16*>(dynamic_shared_memory()); }

template <int N>
struct Accumulators {
  static constexpr int size = N / 2;
  float value[size];
  emulator::AccumulatorState state;

  Accumulators() {
    for (float& x : value) x = std::bit_cast<float>(0xFFFFFFFF);
  }
  Accumulators(const Accumulators&) = delete;
  float& operator[](int i) {
    if (state.pending > 0) emulator::detail::refuse_accumulator();
    state.fenced = false;
    return value[i];
  }
};

// Overloads for one and two sets of accumulators: default arguments cannot follow a parameter pack.
template <int N>
void wgmma_fence(Accumulators<N>& d, ABH_HERE) {
  d.state.fenced = true;
  emulator::detail::wgmma_fence(file, line);
}
template <int N, int M>
void wgmma_fence(Accumulators<N>& d, Accumulators<M>& e, ABH_HERE) {
  d.state.fenced = e.state.fenced = true;
  emulator::detail::wgmma_fence(file, line);
}
inline void wgmma_commit(ABH_HERE) { emulator::detail::wgmma_commit(file, line); }
template <int groups_left, int N>
void wgmma_wait(Accumulators<N>&, ABH_HERE) {
  emulator::detail::wgmma_wait(groups_left, file, line);
}
template <int groups_left, int N, int M>
void wgmma_wait(Accumulators<N>&, Accumulators<M>&, ABH_HERE) {
  emulator::detail::wgmma_wait(groups_left, file, line);
}

template <int N>
void wgmma(Accumulators<N>& d, std::uint64_t a, std::uint64_t b, bool accumulate = true, ABH_HERE) {
  static_assert(N == 64 || N == 128 || N == 256);
  emulator::detail::wgmma(d.value, N, d.state, a, b, accumulate, file, line);
}

#undef ABH_HERE

#endif

// Descriptor of the operand whose first number is at `rows`, in a tile with this swizzle. Its rows come in groups of 8,
// `group_bytes` apart. To go on by 16 numbers k within a swizzled row, take the address of the first of them. Without a
// swizzle, 8 numbers k of 8 rows are contiguous (128 bytes), and the next 8 numbers k are `k_bytes` behind them.
__device__ __forceinline__ std::uint64_t tile_descriptor(const bf16* rows, Swizzle swizzle, unsigned group_bytes,
                                                         unsigned k_bytes = 16) {
  const std::uint64_t mode = swizzle == Swizzle::bytes_128  ? 1
                             : swizzle == Swizzle::bytes_64 ? 2
                             : swizzle == Swizzle::bytes_32 ? 3
                                                            : 0;
  return shared_address(rows) >> 4 | std::uint64_t{k_bytes >> 4} << 16 | std::uint64_t{group_bytes >> 4} << 32 |
         mode << 62;
}

}  // namespace ABH_BACKEND
}  // namespace abh
