// Kernels with one mistake each, and what they should have been: broken_kernels NAME [corrected]. Tests run this
// program, built with ThreadSanitizer, to see that the emulator notices every mistake and nothing else. Exit status: 0
// for a result as it should be, 1 for an Error of the emulator or another result (one line says which), 2 for a name
// that is not known, and ThreadSanitizer's own 66 for a race.

#include "tests/gpu/broken_kernels.hpp"

#include <cstdio>
#include <cstring>

#include "cuda/emulator/emulator.hpp"
#include "cuda/gemm/hopper.hpp"

namespace {

using namespace broken_kernels;
using emulator::shared_memory;

// Lanes exchange numbers within their warp, for which the warp's barrier is enough, or both warps read the first one's.
template <bool broken>
constexpr int source_of(int t) {
  return broken ? t % 32 : t ^ 1;
}
template <bool broken>
__global__ void barrier_of_warp(float* out, const float* in) {
  auto& row = shared_memory<Row>();
  const unsigned t = threadIdx.x;
  row.x[t] = in[t];
  __syncwarp();
  out[t] = row.x[source_of<broken>(static_cast<int>(t))];
}

// Twice out[t] = in[t + 1] through one buffer: the second round must not write before all have read in the first one.
template <bool broken>
__global__ void reused_buffer(float* out, const float* in) {
  auto& row = shared_memory<Row>();
  const unsigned t = threadIdx.x;
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    row.x[t] = in[t];
    __syncthreads();
    sum += row.x[(t + 1) % threads];
    if constexpr (!broken) __syncthreads();
  }
  out[t] = sum / 2;
}

// out[t] = in[t + 1] again, after all threads have arrived at a barrier in shared memory, or after they have waited
// there.
struct RowAndBarrier {
  Row row;
  abh::Mbarrier written;
};
template <bool broken>
__global__ void phase_of_mbarrier(float* out, const float* in) {
  auto& shared = shared_memory<RowAndBarrier>();
  const unsigned t = threadIdx.x;
  if (t == 0) abh::mbarrier_init(shared.written, threads);
  __syncthreads();
  shared.row.x[t] = in[t];
  abh::mbarrier_arrive(shared.written);
  if constexpr (!broken) abh::mbarrier_wait(shared.written, 0);
  out[t] = shared.row.x[(t + 1) % threads];
}

// All threads add to one counter. A barrier orders the threads of its block, not the threads of two blocks. On the
// emulator the racing sum is right, in every order; on a GPU it is not.
template <bool broken>
__global__ void racing_threads(int* count) {
  if constexpr (broken) {
    *count += 1;
  } else {
    atomicAdd(count, 1);
  }
}
template <bool broken>
__global__ void racing_blocks(int* count) {
  auto& row = shared_memory<Row>();
  row.x[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (const float x : row.x) sum += x;
  if constexpr (broken) {
    *count += static_cast<int>(sum);
  } else {
    atomicAdd(count, static_cast<int>(sum));
  }
}

// The last thread writes one place too far.
template <bool broken>
__global__ void beyond_global_memory(float* out, const float* in) {
  const unsigned t = threadIdx.x;
  out[broken ? t + 1 : t] = in[(t + 1) % threads];
}
template <bool broken>
__global__ void beyond_shared_memory(float* out, const float* in) {
  auto& row = shared_memory<Row>();
  const unsigned t = threadIdx.x;
  float* place = row.x + (broken ? t + 1 : t);
  *place = in[t];
  __syncthreads();
  out[t] = row.x[(t + 1) % threads];
}

// The places of the upper half are read and never written.
template <bool broken>
__global__ void uninitialised_shared_memory(float* out, const float* in) {
  auto& row = shared_memory<Row>();
  const unsigned t = threadIdx.x;
  if (!broken || t < threads / 2) row.x[t] = in[t];
  __syncthreads();
  out[t] = row.x[(t + 1) % threads];
}

// True if out[t] becomes in[source(t)].
template <class Source>
bool moves(void (*kernel)(float*, const float*), const Source& source) {
  float *out = nullptr, *in = nullptr;
  if (cudaMalloc(&out, sizeof(Row)) != cudaSuccess || cudaMalloc(&in, sizeof(Row)) != cudaSuccess) return false;
  for (int t = 0; t < threads; ++t) in[t] = static_cast<float>(t);
  emulator::launch(kernel, 1, threads, 0, nullptr, out, in);
  bool right = true;
  for (int t = 0; t < threads; ++t) right = right && out[t] == in[source(t)];
  return cudaFree(out) == cudaSuccess && cudaFree(in) == cudaSuccess && right;
}

bool rotates(void (*kernel)(float*, const float*)) {
  return moves(kernel, [](int t) { return (t + 1) % threads; });
}

bool counts(void (*kernel)(int*), int blocks) {
  int count = 0;
  emulator::launch(kernel, static_cast<unsigned>(blocks), threads, 0, nullptr, &count);
  return count == blocks * threads;
}

template <bool broken>
int run(const char* name) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  bool right = false;
  if (is("missing_barrier")) {
    right = rotates(missing_barrier<broken>);
  } else if (is("barrier_of_warp")) {
    right = moves(barrier_of_warp<broken>, source_of<broken>);
  } else if (is("reused_buffer")) {
    right = rotates(reused_buffer<broken>);
  } else if (is("phase_of_mbarrier")) {
    right = rotates(phase_of_mbarrier<broken>);
  } else if (is("racing_threads")) {
    right = counts(racing_threads<broken>, 1);
  } else if (is("racing_blocks")) {
    right = counts(racing_blocks<broken>, 3);
  } else if (is("divergent_barrier")) {
    right = rotates(divergent_barrier<broken>);
  } else if (is("beyond_global_memory")) {
    right = rotates(beyond_global_memory<broken>);
  } else if (is("beyond_shared_memory")) {
    right = rotates(beyond_shared_memory<broken>);
  } else if (is("uninitialised_shared_memory")) {
    right = rotates(uninitialised_shared_memory<broken>);
  } else {
    std::fprintf(stderr, "broken_kernels: no kernel has the name %s\n", name);
    return 2;
  }
  if (!right) std::fprintf(stderr, "broken_kernels: wrong result\n");
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2 || count > 3 || (count == 3 && std::strcmp(words[2], "corrected") != 0)) {
    std::fprintf(stderr, "broken_kernels: usage: broken_kernels NAME [corrected]\n");
    return 2;
  }
  try {
    return count == 2 ? run<true>(words[1]) : run<false>(words[1]);
  } catch (const emulator::Error& error) {
    std::fprintf(stderr, "broken_kernels: %s\n", error.what());
    return 1;
  }
}
