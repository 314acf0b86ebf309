#pragma once

// Runs CUDA kernels on the CPU, for tests without a GPU: the part of the CUDA language and runtime that plain kernels
// need, for an ordinary C++20 compiler. See docs/emulator.md.
//
// Every CUDA thread of a block is a fiber with its own stack; the scheduler switches threads only where they wait for
// each other. Blocks run one after another. launch() throws an Error for mistakes of a kernel: divergent barriers,
// threads that return while others wait, deadlocks, misaligned wide accesses (require_aligned), writes past the end of
// shared or global memory. Shared memory and new global memory are filled with NaN, and the order of threads and blocks
// can be changed (set_order), so that reads of unwritten data change the results. With -fsanitize=thread, races are
// reported too.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace emulator {

using cudaStream_t = ::CUstream_st*;
using cudaEvent_t = ::CUevent_st*;
using cudaGraph_t = ::CUgraph_st*;
using cudaGraphExec_t = ::CUgraphExec_st*;

// Error of launch(): one line that begins with "emulator: ". The emulator can be used again afterwards.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The language: indices of the current thread. The scheduler sets them at every switch of thread or block.

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

namespace detail {

// Operations at which threads wait for each other. A wait is identified by its place in the source, not by its address
// in the program, because a compiler may duplicate code.
enum class Operation {
  syncthreads,
  syncwarp,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  any,
  all,
  gather,
  mbarrier_init,  // from here on: hopper.hpp
  mbarrier_arrive,
  mbarrier_wait,
  load_tile,
  wgmma
};

// Functions that access the scheduler's state are in emulator.cpp, which is not instrumented by ThreadSanitizer.

void block_barrier(const char* file, int line);
void warp_barrier(unsigned mask, const char* file, int line);
unsigned warp_votes(Operation operation, unsigned mask, bool vote, const char* file, int line);

struct Gathered {
  const void* values;  // values of the lanes, contiguous
  unsigned lanes;      // one bit per existing lane
  unsigned lane;       // lane of the caller
};
inline constexpr std::size_t largest_exchange = 64;  // bytes per lane
Gathered warp_exchange(Operation operation, unsigned mask, const void* mine, std::size_t bytes, const char* file,
                       int line);
[[noreturn]] void read_missing_lane(const char* file, int line);
[[noreturn]] void access_misaligned();
[[noreturn]] void block_too_large();
void require_shared(const void* address, std::size_t bytes, bool is_shared);
#if defined(EMULATOR_COUNTS)
void announce_access(const void* address, std::size_t bytes);
void begin_access(const void* address, std::size_t bytes, bool writes, const void* from);
void end_access();
void count_source(unsigned lane, bool is_float);
void count_product(const void* result, std::size_t bytes);
#endif

// Value of lane `source` of each group of `width` lanes; the lane's own value if `source` is outside of the group.
template <class V, class SourceOf>
__forceinline__ V shuffle(Operation operation, unsigned mask, const V& mine, int width, const char* file, int line,
                          const SourceOf& source_of) {
  static_assert(std::is_arithmetic_v<V> && (sizeof(V) == 4 || sizeof(V) == 8), "shuffles take 4 or 8 byte numbers");
  const Gathered gathered = warp_exchange(operation, mask, &mine, sizeof(V), file, line);
  const int own = static_cast<int>(gathered.lane);
  const int first = own - own % width;
  const int source = first + source_of(own - first);
  const auto from = source < first || source >= first + width ? gathered.lane : static_cast<unsigned>(source);
  if (!(gathered.lanes >> from & 1)) read_missing_lane(file, line);
#if defined(EMULATOR_COUNTS)
  count_source(from, std::is_floating_point_v<V>);
#endif
  return static_cast<const V*>(gathered.values)[from];
}

struct SharedType {
  std::size_t bytes, alignment;
  const char* name;
};
template <class S>
constexpr const char* name_of() {
  return __PRETTY_FUNCTION__;
}
template <class S>
inline constexpr SharedType shared_type{sizeof(S), alignof(S) < 16 ? 16 : alignof(S), name_of<S>()};
void* static_shared_memory(const SharedType& type);

void launch(const void* kernel, void (*body)(void*), void* arguments, dim3 grid, dim3 block, std::size_t shared_bytes);

// True if work of this stream is being captured, with the state of the capture; throws Error if the capture is invalid.
bool records(cudaStream_t stream);
void record(cudaStream_t stream, std::function<void()> work);
// Does work, or captures it.
template <class Work>
void ask(cudaStream_t stream, Work work) {
  if (records(stream)) {
    record(stream, std::move(work));
  } else {
    work();
  }
}
// True if this thread is capturing, which then becomes invalid: for calls that a capture forbids.
bool breaks_recording();
// True if these bytes are memory of one cudaMalloc.
bool is_global(const void* memory, std::size_t bytes);

}  // namespace detail

// A wide access of `bytes` bytes: a GPU requires an address that is a multiple of `bytes`.
inline void require_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) detail::access_misaligned();
#if defined(EMULATOR_COUNTS)
  detail::announce_access(address, bytes);
#endif
}

// Marks an instruction that accesses only shared memory, or only global memory.
inline void require_shared(const void* address, std::size_t bytes) { detail::require_shared(address, bytes, true); }
inline void require_global(const void* address, std::size_t bytes) { detail::require_shared(address, bytes, false); }

// One access by an instruction of the calling lane, in a build that counts accesses (counts.hpp). Accesses of its C++
// emulation are not counted during the lifetime of this object. An asynchronous copy writes the data of `from` later.
struct Access {
#if defined(EMULATOR_COUNTS)
  Access(const void* address, std::size_t bytes, bool writes, const void* from = nullptr) {
    detail::begin_access(address, bytes, writes, from);
  }
  ~Access() { detail::end_access(); }
#else
  Access(const void*, std::size_t, bool, const void* = nullptr) {}
#endif
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

// The result of the calling lane's part of a product of the whole warp, for counts.
inline void note_product([[maybe_unused]] const float (&result)[4]) {
#if defined(EMULATOR_COUNTS)
  detail::count_product(result, sizeof result);
#endif
}

// Checks __launch_bounds__(threads) for every launch of the kernel that calls it.
inline void require_at_most(unsigned threads) {
  if (blockDim.x * blockDim.y * blockDim.z > threads) detail::block_too_large();
}

// Source position of a call, as default arguments.
#define EMULATOR_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

__forceinline__ void __syncthreads(EMULATOR_HERE) { detail::block_barrier(file, line); }
__forceinline__ void __syncwarp(unsigned mask = 0xFFFFFFFF, EMULATOR_HERE) { detail::warp_barrier(mask, file, line); }

template <class V>
__forceinline__ V __shfl_sync(unsigned mask, V mine, int source, int width = 32, EMULATOR_HERE) {
  return detail::shuffle(detail::Operation::shfl, mask, mine, width, file, line,
                         [&](int) { return (source % width + width) % width; });
}
template <class V>
__forceinline__ V __shfl_up_sync(unsigned mask, V mine, unsigned delta, int width = 32, EMULATOR_HERE) {
  return detail::shuffle(detail::Operation::shfl_up, mask, mine, width, file, line,
                         [&](int lane) { return lane - static_cast<int>(delta); });
}
template <class V>
__forceinline__ V __shfl_down_sync(unsigned mask, V mine, unsigned delta, int width = 32, EMULATOR_HERE) {
  return detail::shuffle(detail::Operation::shfl_down, mask, mine, width, file, line,
                         [&](int lane) { return lane + static_cast<int>(delta); });
}
template <class V>
__forceinline__ V __shfl_xor_sync(unsigned mask, V mine, int lane_mask, int width = 32, EMULATOR_HERE) {
  return detail::shuffle(detail::Operation::shfl_xor, mask, mine, width, file, line,
                         [&](int lane) { return lane ^ lane_mask; });
}

__forceinline__ unsigned __ballot_sync(unsigned mask, int predicate, EMULATOR_HERE) {
  return detail::warp_votes(detail::Operation::ballot, mask, predicate != 0, file, line);
}
__forceinline__ int __any_sync(unsigned mask, int predicate, EMULATOR_HERE) {
  return detail::warp_votes(detail::Operation::any, mask, predicate != 0, file, line) != 0;
}
__forceinline__ int __all_sync(unsigned mask, int predicate, EMULATOR_HERE) {
  return detail::warp_votes(detail::Operation::all, mask, predicate == 0, file, line) == 0;
}

// Values of all 32 lanes of a complete warp, by lane, until the calling lane's next warp operation. Used to emulate
// instructions of a whole warp, such as mma.
template <class V>
__forceinline__ const V* warp_gather(const V& mine, EMULATOR_HERE) {
  static_assert(std::is_trivially_copyable_v<V> && sizeof(V) <= detail::largest_exchange && alignof(V) <= 64);
  const detail::Gathered gathered =
      detail::warp_exchange(detail::Operation::gather, 0xFFFFFFFF, &mine, sizeof(V), file, line);
  return static_cast<const V*>(gathered.values);
}

#undef EMULATOR_HERE

// Atomic operations return the previous value. Relaxed memory order, as in CUDA.
template <class I>
concept AtomicInteger = std::is_same_v<I, int> || std::is_same_v<I, unsigned> || std::is_same_v<I, unsigned long long>;
template <AtomicInteger I>
I atomicAdd(I* to, std::type_identity_t<I> value) {
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <AtomicInteger I>
I atomicMax(I* to, std::type_identity_t<I> value) {
  I old = __atomic_load_n(to, __ATOMIC_RELAXED);
  while (old < value && !__atomic_compare_exchange_n(to, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

// Adds floats in an undefined order; no layer uses it (docs/kernels/embedding_gradient.md).
namespace detail {
float add_atomically(float* to, float value);
}
inline float atomicAdd(float* to, float value) {
  const Access access(to, sizeof(float), true);
  return detail::add_atomically(to, value);
}

// Mathematical functions of CUDA that <cmath> lacks.
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }

// Static shared memory: one S per block, the same for every call, aligned to at least 16 bytes. All bytes are 0xFF at
// the start of a block.
template <class S>
S& shared_memory() {
  static_assert(std::is_trivially_default_constructible_v<S>, "shared memory is not initialised: no constructors");
  static_assert(sizeof(S) <= 48 << 10, "a block has at most 48 KB of static shared memory");
  return *static_cast<S*>(detail::static_shared_memory(detail::shared_type<S>));
}

// Dynamic shared memory of the launch, aligned to 32 bytes. All bytes are 0xFF at the start of a block.
void* dynamic_shared_memory();

// The runtime. Without capture, all work is complete when a call returns, for any stream. In addition to CUDA's streams
// there is an idle stream, in which launches do nothing.

inline cudaStream_t idle_stream() {
  static char place;
  return reinterpret_cast<cudaStream_t>(&place);
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorIllegalState = 401,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};

// Allocates global memory, all bytes 0xFF, between sentinels. They are checked after every launch and by cudaFree,
// which returns cudaErrorIllegalAddress if they were overwritten (and frees the memory), and cudaErrorInvalidValue for
// other pointers. Null may be freed.
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  void* raw = nullptr;
  const cudaError_t status = cudaMalloc(&raw, bytes);
  *memory = static_cast<T*>(raw);
  return status;
}
cudaError_t cudaFree(void* memory);

// During capture a copy must be between addresses of global memory: host memory may change or be freed before the copy
// runs.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaGetLastError();  // returns and clears the error
const char* cudaGetErrorString(cudaError_t status);

// Streams, events and graphs (streams.cpp). Between cudaStreamBeginCapture and cudaStreamEndCapture, by the same
// thread, work of the stream is captured in a graph, not executed. Each launch of the graph executes it with the
// captured arguments. Another stream joins the capture when it waits for an event of a capturing stream, and must be
// waited for before the end. A graph keeps only this order; nodes may otherwise run early or late (set_order). During
// capture the thread must not allocate, free or wait: the call returns cudaErrorStreamCaptureUnsupported, and there is
// no graph. Flags and modes are ignored.
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

// kernel<<<grid, block, shared_bytes, stream>>>(arguments...), synchronous, or captured. A grid without blocks does
// nothing. Throws Error if the launch breaks CUDA's limits or the kernel made a mistake; running threads are then
// abandoned, and objects on their stacks are not destroyed.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            Arguments&&... arguments) {
  if (stream == idle_stream() || grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  static_assert((... && std::is_trivially_copyable_v<Parameters>), "kernel parameters are copied byte by byte");
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> parameters;
  } call{kernel, {static_cast<Parameters>(arguments)...}};
  const auto body = [](void* pointer) {
    const Call& the = *static_cast<const Call*>(pointer);
    [&]<std::size_t... i>(std::index_sequence<i...>) { the.kernel(std::get<i>(the.parameters)...); }
    (std::index_sequence_for<Parameters...>());
  };
  detail::ask(stream, [=]() mutable {
    detail::launch(reinterpret_cast<const void*>(kernel), body, &call, grid, block, shared_bytes);
  });
}

// Functions for tests.

// Execution order of ready threads within a block, of blocks in a grid, and of the nodes of a graph.
struct Order {
  enum Kind { forward, reverse, shuffled } kind = forward;
  std::uint64_t seed = 0;  // shuffled: equal seeds give equal orders
};
void set_order(Order order);
Order order();

// Fills `bytes` at `memory` with sentinels, which every launch must preserve until unguard. The Error otherwise names
// `what`, for example "behind x".
void guard(void* memory, std::size_t bytes, const std::string& what);
void unguard(void* memory);
// Called after every launch: throws Error if a sentinel of global memory was overwritten.
void check_guards();

// Number of nodes (launches, copies) in the last captured graph.
std::size_t size_of_last_graph();
// Length of the longest chain of dependent nodes in it.
std::size_t length_of_last_graph();

// cudaMalloc fails above this number of bytes in total; initially the machine's memory.
void set_memory_limit(std::size_t bytes);

}  // namespace emulator

// CUDA has these names in the global namespace. Here they are in a namespace, so that a program can also use CUDA.
using emulator::__all_sync, emulator::__any_sync, emulator::__ballot_sync, emulator::__clz, emulator::__popc,
    emulator::__shfl_down_sync, emulator::__shfl_sync, emulator::__shfl_up_sync, emulator::__shfl_xor_sync,
    emulator::__syncthreads, emulator::__syncwarp;
using emulator::atomicAdd, emulator::atomicMax, emulator::rsqrtf;
using emulator::cudaError_t, emulator::cudaErrorIllegalAddress, emulator::cudaErrorInvalidValue,
    emulator::cudaErrorMemoryAllocation, emulator::cudaEvent_t, emulator::cudaEventCreateWithFlags,
    emulator::cudaEventDestroy, emulator::cudaEventDisableTiming, emulator::cudaEventRecord, emulator::cudaFree,
    emulator::cudaGetErrorString, emulator::cudaGetLastError, emulator::cudaGraph_t, emulator::cudaGraphDestroy,
    emulator::cudaGraphExec_t, emulator::cudaGraphExecDestroy, emulator::cudaGraphInstantiate,
    emulator::cudaGraphLaunch, emulator::cudaMalloc, emulator::cudaMemcpyAsync, emulator::cudaMemcpyDefault,
    emulator::cudaMemcpyDeviceToDevice, emulator::cudaMemcpyDeviceToHost, emulator::cudaMemcpyHostToDevice,
    emulator::cudaMemcpyHostToHost, emulator::cudaMemcpyKind, emulator::cudaMemsetAsync, emulator::cudaStream_t,
    emulator::cudaStreamBeginCapture, emulator::cudaStreamCaptureModeThreadLocal, emulator::cudaStreamCreateWithFlags,
    emulator::cudaStreamDestroy, emulator::cudaStreamEndCapture, emulator::cudaStreamNonBlocking,
    emulator::cudaStreamSynchronize, emulator::cudaStreamWaitEvent, emulator::cudaSuccess;
using emulator::threadIdx, emulator::blockIdx, emulator::blockDim, emulator::gridDim, emulator::dim3, emulator::uint3;
