#pragma once

// The CUDA language for the .cu files: the CUDA Toolkit's under nvcc, the emulator's under any other compiler. Every
// name that may differ between the two lives in a namespace of the backend, so that one program can hold both.
//
//   launch(kernel, grid, block, shared_bytes, stream, args...)   kernel<<<grid, block, shared_bytes, stream>>>(args...)
//   wait_for_kernel_before()                                     first of all in every kernel
//   require_at_most(threads)                                     then, where it has __launch_bounds__(threads)
//   idle_stream()                                                a stream in which a launch does nothing
//   shared_memory<Struct>()                                      __shared__ Struct; the same one for every call
//   dynamic_shared_memory()                                      the shared_bytes of the launch
//   write_whole(at, pack)                                        at = pack, in accesses as wide as there are
//   read_whole<Words>(at)                                        its bytes as Words, likewise
//   ABH_UNROLL(8)                                                #pragma unroll 8, before a loop
//
// Shared memory is aligned for the widest pack that is stored there whatever its type says: a struct of floats to 16
// bytes, as four of them are read at a time, dynamic memory to 32.

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define ABH_BACKEND cuda
#define ABH_PRAGMA(words) _Pragma(#words)
#define ABH_UNROLL(times) ABH_PRAGMA(unroll times)
#else
#include "cuda/emulator/emulator.hpp"
#define ABH_BACKEND emulated
#define ABH_UNROLL(times)
#endif

#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.hpp"
#include "cuda/gpu.hpp"

namespace abh {
inline namespace ABH_BACKEND {

using Gpu = GpuDevice<Backend::ABH_BACKEND>;

#if defined(__CUDACC__)

// Error if a call of the CUDA runtime failed.
inline void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

inline cudaStream_t idle_stream() {
  static char place;
  return reinterpret_cast<cudaStream_t>(&place);
}

// Whether blocks of kernels that were compiled as this one may begin before the kernel before them has ended: where the
// compiler made wait_for_kernel_before of what it is.
inline bool begins_early(const void* kernel) {
  cudaFuncAttributes of{};
  require(cudaFuncGetAttributes(&of, kernel), "a kernel's attributes");
  return of.ptxVersion >= 90;
}

// A grid without blocks is nothing to do, not an error.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  if (stream == idle_stream() || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > 0) {  // a block gets more than 48 KB only on request
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
            "dynamic shared memory");
  }
  if (shared_bytes > (48 << 10)) {  // as many blocks at a time as there can be: the rest is a cache
    require(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "shared memory rather than cache");
  }
  static const bool early = begins_early(reinterpret_cast<const void*>(kernel));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  require(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), "kernel launch");
}

// First of all in every kernel. Blocks may begin while the kernel before them still runs, in the room that it leaves:
// what it wrote, and what it read, is done with after this line. From then on the blocks of the next kernel may begin.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <class Struct>
__device__ __forceinline__ Struct& shared_memory() {
  __shared__ alignas(alignof(Struct) < 16 ? 16 : alignof(Struct)) Struct memory;
  return memory;
}

__device__ __forceinline__ void* dynamic_shared_memory() {
  extern __shared__ __align__(32) unsigned char memory[];
  return memory;
}

// The compiler takes a struct apart, and the CUDA vectors too, and may write each number alone. An integer stays whole.
template <class Pack>
__device__ __forceinline__ void write_whole(Pack& at, const Pack& pack) {
  if constexpr (sizeof(Pack) % 8 == 0) {
    using Whole = std::conditional_t<sizeof(Pack) % 16 == 0, unsigned __int128, unsigned long long>;
    constexpr int words_in_whole = sizeof(Whole) / 4;
    unsigned words[sizeof(Pack) / 4];
    std::memcpy(words, &pack, sizeof pack);
    for (int i = 0; i < int(sizeof(Pack) / sizeof(Whole)); ++i) {
      Whole whole = 0;
      for (int w = 0; w < words_in_whole; ++w) whole |= Whole{words[i * words_in_whole + w]} << (32 * w);
      reinterpret_cast<Whole*>(&at)[i] = whole;
    }
  } else {
    at = pack;
  }
}

template <class Words, class Pack>
__device__ __forceinline__ Words read_whole(const Pack& at) {
  static_assert(sizeof(Words) == sizeof(Pack) && alignof(Words) == alignof(Pack));
  return reinterpret_cast<const Words&>(at);
}

// The GPU sees to that itself.
__device__ __forceinline__ void require_aligned(const void*, std::size_t) {}
__device__ __forceinline__ void require_at_most(unsigned) {}

#else

using emulator::dynamic_shared_memory;
using emulator::idle_stream;
using emulator::launch;
using emulator::require_aligned;
using emulator::require_at_most;
using emulator::require_global;
using emulator::require_shared;
using emulator::shared_memory;

template <class Pack>
void write_whole(Pack& at, const Pack& pack) {
  at = pack;
}
template <class Words, class Pack>
Words read_whole(const Pack& at) {
  static_assert(sizeof(Words) == sizeof(Pack) && alignof(Words) == alignof(Pack));
  Words words;
  std::memcpy(&words, &at, sizeof words);
  return words;
}

// Blocks of the emulator begin when the kernel before them has ended.
inline void wait_for_kernel_before() {}

inline void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("emulator: ") + what + ": " + cudaGetErrorString(status));
}

#endif

}  // namespace ABH_BACKEND
}  // namespace abh
