// Kernels with known accesses, and the emulator's counts of them, in a build with EMULATOR_COUNTS. Exit status: 0 if
// every count is right; else 1, with one line per wrong count.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "cuda/emulator/counts.hpp"
#include "cuda/gemm/tensor_core.hpp"

using abh::bf16;
using emulator::launch, emulator::shared_memory, emulator::dynamic_shared_memory;

namespace {

int wrong = 0;

void expect(const std::string& what, std::uint64_t found, std::uint64_t expected) {
  if (found == expected) return;
  std::printf("%s: %llu, expected %llu\n", what.c_str(), static_cast<unsigned long long>(found),
              static_cast<unsigned long long>(expected));
  ++wrong;
}

// requests, bytes, sectors, distinct sectors of one direction.
struct Expected {
  std::uint64_t requests, bytes, sectors, distinct;
};
void expect(const std::string& what, const emulator::GlobalCounts& found, const Expected& expected) {
  expect(what + ", requests", found.requests, expected.requests);
  expect(what + ", bytes", found.bytes, expected.bytes);
  expect(what + ", sectors", found.sectors, expected.sectors);
  expect(what + ", distinct sectors", found.distinct, expected.distinct);
}

// Launches the kernel and returns its counts.
template <class... Parameters, class... Arguments>
emulator::Counts counts_of(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  emulator::take_counts();
  launch(kernel, grid, block, 16 << 10, nullptr, arguments...);
  const auto counts = emulator::take_counts();
  expect("kernels in a launch", counts.size(), 1);
  return counts.front();
}

// Lane t copies number `stride` t.
__global__ void copy_kernel(float* out, const float* in, int stride, int count) {
  const int t = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (t < count) out[t * stride] = in[t * stride];
}

// All lanes read one number.
__global__ void broadcast_kernel(float* out, const float* in) { out[threadIdx.x] = in[0]; }

// Lane t copies numbers 4 t ... 4 t + 3, in one access; the compiler takes it apart.
struct alignas(16) Pack {
  float x[4];
};
__global__ void pack_kernel(float* out, const float* in, float factor) {
  emulator::require_aligned(in + 4 * threadIdx.x, sizeof(Pack));
  const Pack pack = reinterpret_cast<const Pack&>(in[4 * threadIdx.x]);
  const Pack product = {{factor * pack.x[0], factor * pack.x[1], factor * pack.x[2], factor * pack.x[3]}};
  emulator::require_aligned(out + 4 * threadIdx.x, sizeof(Pack));
  reinterpret_cast<Pack&>(out[4 * threadIdx.x]) = product;
}

// Rows of a loop: lane t reads number t of each row. Half of the lanes run one more iteration.
__global__ void loop_kernel(float* out, const float* in, int rows) {
  const int t = int(threadIdx.x);
  float sum = 0;
  for (int row = 0; row < rows + t % 2; ++row) sum += in[32 * row + t];
  out[t] = sum;
}

// The same place before and after a barrier.
template <bool of_block>
__global__ void barrier_kernel(float* out, const float* in, int rows) {
  const unsigned t = threadIdx.x;
  float sum = 0;
  for (int row = 0; row < rows; ++row) {
    sum += in[32 * row + int(t)];
    if constexpr (of_block) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
  out[t] = sum;
}

// Lane t writes and reads the shared number `stride` t.
__global__ void banks_kernel(float* out, int stride) {
  auto* shared = static_cast<float*>(dynamic_shared_memory());
  shared[int(threadIdx.x) * stride] = 1;
  __syncwarp();
  out[threadIdx.x] = shared[int(threadIdx.x) * stride];
}

// The same of 16 bytes a lane.
__global__ void wide_banks_kernel(float* out, int stride) {
  auto* shared = static_cast<float*>(dynamic_shared_memory()) + int(threadIdx.x) * stride;
  emulator::require_aligned(shared, sizeof(Pack));
  reinterpret_cast<Pack&>(*shared) = Pack{};
  __syncwarp();
  out[threadIdx.x] = *shared;
}

// Each lane has 16 bytes copied to shared memory, the upper half zeros.
__global__ void copy_async_kernel(float* out, const float* in) {
  auto* shared = static_cast<float*>(dynamic_shared_memory());
  const bool there = threadIdx.x < 16;
  abh::copy_async(shared + 4 * threadIdx.x, in + 4 * threadIdx.x, there);
  abh::copy_async_commit();
  abh::copy_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x];
}

// Four matrices of 8 x 8, rows `stride` bf16 apart.
template <bool transposed>
__global__ void matrices_kernel(std::uint32_t* out, int stride) {
  auto* shared = static_cast<bf16*>(dynamic_shared_memory());
  std::uint32_t r[4];
  if constexpr (transposed) {
    abh::load_matrices_transposed(r, shared + int(threadIdx.x) * stride);
  } else {
    abh::load_matrices(r, shared + int(threadIdx.x) * stride);
  }
  out[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}

// Numbers in shared memory by the struct: one warp writes, the other one reads each number's mirror.
struct Numbers {
  float x[64];
};
__global__ void mirror_kernel(float* out, const float* in) {
  auto& shared = shared_memory<Numbers>();
  shared.x[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared.x[63 - threadIdx.x];
}

// Rows of eight numbers, `padding` more between them, written by the struct and read number by number.
template <int padding>
struct Rows {
  struct Eight {
    float x[8];
  };
  struct Row {
    Eight numbers;
    float more[padding];
  } row[32];
};
template <int padding>
__global__ void rows_kernel(float* out, const float* in) {
  auto& shared = shared_memory<Rows<padding>>();
  typename Rows<padding>::Eight eight;
  for (int i = 0; i < 8; ++i) eight.x[i] = in[i];
  shared.row[threadIdx.x].numbers = eight;
  __syncwarp();
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += shared.row[31 - threadIdx.x].numbers.x[i];
  out[threadIdx.x] = sum;
}

}  // namespace

int main() try {
  float *in, *out;
  constexpr std::size_t bytes = 1 << 16;
  if (cudaMalloc(&in, bytes) != cudaSuccess || cudaMalloc(&out, bytes) != cudaSuccess) return 1;
  std::memset(in, 0, bytes);

  auto counts = counts_of(copy_kernel, 4, 64, out, in, 1, 256);
  expect("a copy: launches", counts.launches, 1);
  expect("a copy, read", counts.read, {8, 1024, 32, 32});
  expect("a copy, written", counts.written, {8, 1024, 32, 32});
  expect("a copy, shared", counts.shared_requests, 0);
  if (counts.file != "counted_kernels.cpp" || counts.kernel != "(anonymous namespace)::copy_kernel") {
    expect("a copy is " + counts.kernel + " of " + counts.file, 0, 1);
  }

  counts = counts_of(copy_kernel, 1, 64, out, in, 8, 64);
  expect("a number of each sector, read", counts.read, {2, 256, 64, 64});
  expect("a number of each sector, written", counts.written, {2, 256, 64, 64});
  counts = counts_of(copy_kernel, 1, 64, out + 1, in + 1, 1, 64);
  expect("a copy beside sectors, read", counts.read, {2, 256, 10, 9});
  counts = counts_of(copy_kernel, 2, 40, out, in, 1, 45);
  expect("parts of warps, read", counts.read, {3, 180, 6, 6});
  counts = counts_of(broadcast_kernel, 3, 64, out, in);
  expect("one number for all, read", counts.read, {6, 768, 6, 1});
  expect("one number for all, written", counts.written, {6, 768, 24, 8});

  counts = counts_of(pack_kernel, 1, 32, out, in, 2.0f);
  expect("packs, read", counts.read, {1, 512, 16, 16});
  expect("packs, written", counts.written, {1, 512, 16, 16});
  counts = counts_of(loop_kernel, 1, 32, out, in, 5);
  expect("a loop, read", counts.read, {6, 5 * 128 + 64, 24, 24});
  expect("a loop, written", counts.written, {1, 128, 4, 4});

  for (const auto kernel : {barrier_kernel<false>, barrier_kernel<true>}) {
    counts = counts_of(kernel, 1, 32, out, in, 5);
    expect("a loop with a barrier, read", counts.read, {5, 5 * 128, 20, 20});
  }

  for (const int stride : {0, 1, 2, 32}) {
    const std::string name = "shared numbers " + std::to_string(stride) + " apart: ";
    counts = counts_of(banks_kernel, 1, 32, out, stride);
    expect(name + "requests", counts.shared_requests, 2);
    expect(name + "conflicts", counts.shared_conflicts, stride == 32 ? 62 : stride == 2 ? 2 : 0);
  }
  counts = counts_of(wide_banks_kernel, 1, 32, out, 4);
  expect("shared packs: requests", counts.shared_requests, 4 + 1);
  expect("shared packs: conflicts", counts.shared_conflicts, 0 + 3);
  counts = counts_of(wide_banks_kernel, 1, 32, out, 32);
  expect("shared packs in one bank: conflicts", counts.shared_conflicts, 4 * 7 + 31);

  counts = counts_of(copy_async_kernel, 1, 32, out, in);
  expect("copies in the background, read", counts.read, {1, 256, 8, 8});
  expect("copies in the background: requests of shared memory", counts.shared_requests, 4 + 1);
  expect("copies in the background: conflicts", counts.shared_conflicts, 0);

  const auto matrices = {matrices_kernel<false>, matrices_kernel<true>};
  for (const auto kernel : matrices) {
    counts = counts_of(kernel, 1, 32, reinterpret_cast<std::uint32_t*>(out), 8);
    expect("matrices: requests", counts.shared_requests, 4);
    expect("matrices: conflicts", counts.shared_conflicts, 0);
    counts = counts_of(kernel, 1, 32, reinterpret_cast<std::uint32_t*>(out), 64);
    expect("matrices with rows of 128 bytes: conflicts", counts.shared_conflicts, 4 * 7);
  }

  counts = counts_of(mirror_kernel, 1, 64, out, in);
  expect("numbers of a struct: requests", counts.shared_requests, 4);
  expect("numbers of a struct: conflicts", counts.shared_conflicts, 0);

  counts = counts_of(rows_kernel<8>, 1, 32, out, in);
  expect("rows of 64 bytes: requests", counts.shared_requests, 2 * 2 * 4);
  expect("rows of 64 bytes: conflicts", counts.shared_conflicts, 2 * 2 * 4 * 3);
  counts = counts_of(rows_kernel<12>, 1, 32, out, in);
  expect("rows of 80 bytes: requests", counts.shared_requests, 2 * 2 * 4);
  expect("rows of 80 bytes: conflicts", counts.shared_conflicts, 0);
  counts = counts_of(rows_kernel<1>, 1, 32, out, in);
  expect("rows of 36 bytes: requests", counts.shared_requests, 2 * 8);
  expect("rows of 36 bytes: conflicts", counts.shared_conflicts, 0);

  // In any order of the threads.
  emulator::set_order({emulator::Order::shuffled, 1});
  counts = counts_of(mirror_kernel, 3, 64, out, in);
  expect("in another order, read", counts.read, {6, 768, 24, 8});
  expect("in another order: requests", counts.shared_requests, 12);

  emulator::take_counts();
  if (cudaMemsetAsync(out, 0, 64) != cudaSuccess) return 1;
  if (cudaMemcpyAsync(out, in, 1024, emulator::cudaMemcpyDeviceToDevice) != cudaSuccess) return 1;
  const auto works = emulator::take_counts();
  expect("a copy and a setting", works.size(), 2);
  expect("copied, read", works[0].read, {0, 1024, 32, 32});
  expect("copied, written", works[0].written, {0, 1024, 32, 32});
  expect("set, written", works[1].written, {0, 64, 2, 2});
  if (wrong == 0) std::printf("counted right\n");
  return wrong == 0 ? 0 : 1;
} catch (const emulator::Error& error) {
  std::printf("%s\n", error.what());
  return 1;
}
