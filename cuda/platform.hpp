#pragma once

// The CUDA language for the .cu files: that of the CUDA Toolkit under nvcc, that of the emulator under any other
// compiler. Names that differ between the two are in a namespace of the backend, so that one program can contain both.
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
// Shared memory is aligned for the widest pack stored there, independent of its type: a struct of floats to 16 bytes,
// because four floats are read at a time, and dynamic shared memory to 32 bytes.

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

// Throws Error if a call of the CUDA runtime failed.
inline void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

inline cudaStream_t idle_stream() {
  static char place;
  return reinterpret_cast<cudaStream_t>(&place);
}

// True if blocks of such kernels may begin before the previous kernel has ended (programmatic dependent launch): if
// wait_for_kernel_before was compiled to the instruction.
inline bool begins_early(const void* kernel) {
  cudaFuncAttributes of{};
  require(cudaFuncGetAttributes(&of, kernel), "a kernel's attributes");
  return of.ptxVersion >= 90;
}

// A grid without blocks is allowed and does nothing.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  if (stream == idle_stream() || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > 0) {  // more than 48 KB per block need an attribute
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
            "dynamic shared memory");
  }
  if (shared_bytes > (48 << 10)) {  // shared memory for as many blocks as possible; the rest is L1 cache
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

// The first statement of every kernel (programmatic dependent launch). Blocks may begin while the previous kernel still
// runs. After this line its reads and writes are complete, and blocks of the next kernel may begin.
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

// The compiler splits structs and CUDA vectors and may write each number separately. An integer stays whole.
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

// The GPU itself checks alignment.
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

// In the emulator, blocks begin after the previous kernel has ended.
inline void wait_for_kernel_before() {}

inline void require(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("emulator: ") + what + ": " + cudaGetErrorString(status));
}

#endif

}  // namespace ABH_BACKEND
}  // namespace abh
