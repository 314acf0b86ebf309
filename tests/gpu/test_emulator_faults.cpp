// Tests of faults that kernels must not commit, and of the emulator's message for each.

#include <cmath>
#include <vector>

#include "tests/harness/emulator_case.hpp"

namespace {

using emulator::dynamic_shared_memory;
using emulator::require_aligned;
using emulator::require_at_most;
using emulator::require_global;
using emulator::require_shared;
using namespace emulator_test;

constexpr unsigned whole_warp = 0xFFFFFFFF;

template <int mistake>
__global__ void barrier_kernel() {
  const unsigned t = threadIdx.x;
  if constexpr (mistake == 0) {  // two barriers
    if (t % 2 == 0) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else if constexpr (mistake == 1) {  // thread 3 leaves: some wait already, others do not
    if (t == 3) return;
    __syncthreads();
  } else if constexpr (mistake == 2) {  // lane 5 of the second warp waits for the block, the others for each other
    if (t == 37) {
      __syncthreads();
    } else if (t >= 32) {
      __syncwarp();
    }
  } else if constexpr (mistake == 3) {  // a loop that is one round longer for one thread
    for (unsigned i = 0; i < (t == 9 ? 3u : 2u); ++i) __syncthreads();
  } else if constexpr (mistake == 4) {  // thread 0 leaves: the first or the last one to run
    if (t == 0) return;
    __syncthreads();
  }
}

template <int mistake>
__global__ void warp_kernel(int* out) {
  const unsigned t = threadIdx.x, lane = t % 32;
  if constexpr (mistake == 0) {  // lane 0 leaves: the first or the last one to run
    if (lane == 0) return;
    out[t] = __shfl_xor_sync(whole_warp, 1, 1);
  } else if constexpr (mistake == 1) {  // different operations
    out[t] = lane < 16 ? __shfl_xor_sync(whole_warp, 1, 1) : __shfl_down_sync(whole_warp, 1, 1);
  } else if constexpr (mistake == 2) {  // the same operation in different places
    if (lane < 16) {
      __syncwarp();
    } else {
      __syncwarp();
    }
  } else if constexpr (mistake == 3) {  // the mask leaves out the caller
    __syncwarp(0xFFFF0000);
  } else if constexpr (mistake == 4) {  // the mask leaves out lanes that have not left
    if (lane < 8) out[t] = __any_sync(0xFF, 1);
    __syncthreads();
  } else if constexpr (mistake == 5) {  // different masks
    __syncwarp(lane < 16 ? 0xFFFF : 0xFFFF0000);
  } else if constexpr (mistake == 6) {  // from a lane outside the mask
    out[t] = __shfl_down_sync(whole_warp, 1, 1);
  } else if constexpr (mistake == 7) {
    out[t] = emulator::warp_gather(1)[0];
  }
}

struct Big {
  char x[40 << 10];
};
struct AlsoBig {
  char x[9 << 10];
};
__global__ void much_static_kernel() {
  shared_memory<Big>().x[0] = 1;
  shared_memory<AlsoBig>().x[0] = 1;
}
__global__ void big_kernel() { shared_memory<Big>().x[threadIdx.x] = 1; }

__global__ void wide_kernel(const float* four) { require_aligned(four + 4 * threadIdx.x, 16); }

// Writes past the ten numbers of shared memory, past the launch's 100 bytes, or past global memory.
struct Ten {
  float x[10];
};
__global__ void shared_kernel(int first) { require_shared(shared_memory<Ten>().x + first, 8); }
__global__ void dynamic_kernel(int first) { require_shared(static_cast<char*>(dynamic_shared_memory()) + first, 8); }
__global__ void not_shared_kernel(const float* numbers) { require_shared(numbers, 8); }
__global__ void global_kernel(const float* numbers) { require_global(numbers ? numbers : shared_memory<Ten>().x, 8); }

__global__ void bounded_kernel() { require_at_most(64); }

__global__ void throwing_kernel() {
  __syncthreads();
  if (threadIdx.x == 2) throw 1;
  __syncthreads();
}
__global__ void launching_kernel() { launch(empty_kernel, 1, 1, 0, nullptr); }

__global__ void beyond_shared_kernel(int i) { shared_memory<Ten>().x[i] = 1; }
__global__ void beyond_dynamic_kernel(int i) { static_cast<char*>(dynamic_shared_memory())[i] = 1; }

// Reads before any write, in blocks that run after writing blocks.
__global__ void uninitialised_kernel(float* out) {
  const float found = shared_memory<Ten>().x[4];
  __syncthreads();
  if (threadIdx.x != 0) return;
  shared_memory<Ten>().x[4] = 1;
  out[blockIdx.x] = found;
}

void require_that_the_emulator_still_works() {
  const std::vector<float> in(128, 1.0f);
  for (const float sum : results_of(sum_kernel, 2, 64, 2, 0.0f, in.data())) CHECK(sum == 64);
}

}  // namespace

TEST_CASE("emulator: barriers that not all threads reach are errors", "[emulator]") {
  in_all_orders([&] {
    require_words(error_of(barrier_kernel<0>, 2, 64, 0),
                  {"block (", "divergent barrier", "test_emulator_faults.cpp:", "thread ("});
    require_words(error_of(barrier_kernel<1>, 1, 64, 0), {"divergent barrier", "has left", "thread (3, 0, 0)"});
    require_words(error_of(barrier_kernel<2>, 1, 64, 0), {"__syncthreads"});
    require_words(error_of(barrier_kernel<3>, 1, 64, 0), {"divergent barrier", "has left", "thread (9, 0, 0) at"});
    require_words(error_of(barrier_kernel<4>, 1, 64, 0), {"divergent barrier", "has left", "thread (0, 0, 0)"});
    require_that_the_emulator_still_works();
  });
}

TEST_CASE("emulator: a block that deadlocks is an error", "[emulator]") {
  in_all_orders([&] {
    std::vector<int> out(64);
    require_words(error_of(warp_kernel<4>, 1, 32, 0, out.data()),
                  {"deadlock", "__any_sync", "__syncthreads", "block (0, 0, 0)"});
    require_that_the_emulator_still_works();
  });
}

TEST_CASE("emulator: warp operations that not all lanes reach are errors", "[emulator]") {
  in_all_orders([&] {
    std::vector<int> out(64);
    const auto error = [&](auto kernel) { return error_of(kernel, 1, 64, 0, out.data()); };
    require_words(error(warp_kernel<0>), {"left the kernel", "__shfl_xor_sync", "thread ("});
    require_words(error(warp_kernel<1>), {"divergent warp operation", "__shfl_xor_sync", "__shfl_down_sync"});
    require_words(error(warp_kernel<2>), {"divergent warp operation", "__syncwarp"});
    require_words(error(warp_kernel<3>), {"mask", "leaves out", "__syncwarp"});
    require_words(error(warp_kernel<5>), {"different masks"});
    require_that_the_emulator_still_works();
    // Only where the warp is a partial one, with lanes 0 to 11.
    require_words(error_of(warp_kernel<6>, 1, 44, 0, out.data()), {"__shfl", "does not have", "thread (43, 0, 0)"});
    require_words(error_of(warp_kernel<7>, 1, 44, 0, out.data()), {"warp_gather"});
    CHECK(error(warp_kernel<6>).empty());
    CHECK(error(warp_kernel<7>).empty());
    require_that_the_emulator_still_works();
  });
}

TEST_CASE("emulator: launches beyond CUDA's limits are refused", "[emulator]") {
  const auto error = [](dim3 grid, dim3 block, std::size_t shared) {
    return error_of(empty_kernel, grid, block, shared);
  };
  CHECK(error(1, 1024, 227 << 10).empty());
  CHECK(error(dim3(1, 65535), 1, 0).empty());
  require_words(error(1, 1025, 0), {"1024"});
  require_words(error(1, dim3(32, 33), 0), {"1024"});
  require_words(error(1, dim3(1u << 31, 2, 1), 0), {"1024"});
  require_words(error(1, dim3(1, 1, 65), 0), {"64 threads in z"});
  require_words(error(1, dim3(0, 32), 0), {"without threads"});
  require_words(error(dim3(1, 65536), 1, 0), {"65535"});
  require_words(error(dim3(1, 1, 65536), 1, 0), {"65535"});
  require_words(error(1, 32, (227 << 10) + 1), {"227 KB"});
  CHECK(error_of(big_kernel, 1, 32, 187 << 10).empty());
  require_words(error_of(big_kernel, 1, 32, (187 << 10) + 1), {"227 KB"});
  require_words(error_of(much_static_kernel, 1, 32, 0), {"48 KB"});
  require_that_the_emulator_still_works();
}

TEST_CASE("emulator: exceptions and nested launches in a kernel are errors", "[emulator]") {
  require_words(error_of(throwing_kernel, 1, 40, 0), {"exception", "thread (2, 0, 0)"});
  require_words(error_of(launching_kernel, 1, 40, 0), {"launches a kernel"});
  require_that_the_emulator_still_works();
}

TEST_CASE("emulator: misaligned wide accesses are errors", "[emulator]") {
  alignas(16) float numbers[4 * 40 + 4] = {};
  CHECK(error_of(wide_kernel, 1, 40, 0, numbers + 0).empty());
  CHECK(error_of(wide_kernel, 1, 40, 0, numbers + 4).empty());
  for (const int begin : {1, 2, 3}) {
    require_words(error_of(wide_kernel, 1, 40, 0, numbers + begin), {"misaligned", "thread (0, 0, 0)"});
  }
  require_that_the_emulator_still_works();
}

TEST_CASE("emulator: addresses in the wrong memory space are errors", "[emulator]") {
  const float numbers[10] = {};
  CHECK(error_of(shared_kernel, 1, 1, 0, 0).empty());
  CHECK(error_of(shared_kernel, 1, 1, 0, 8).empty());
  for (const int first : {-1, 9, 10, 1 << 20}) {
    require_words(error_of(shared_kernel, 1, 1, 0, first), {"outside of shared memory", "thread (0, 0, 0)"});
  }
  CHECK(error_of(dynamic_kernel, 1, 1, 100, 92).empty());
  for (const int first : {-1, 93}) {
    require_words(error_of(dynamic_kernel, 1, 1, 100, first), {"outside of shared memory"});
  }
  require_words(error_of(not_shared_kernel, 1, 1, 0, numbers), {"outside of shared memory"});
  CHECK(error_of(global_kernel, 1, 1, 0, numbers).empty());
  require_words(error_of(global_kernel, 1, 1, 0, static_cast<const float*>(nullptr)),
                {"an address in shared memory", "thread (0, 0, 0)"});
  require_that_the_emulator_still_works();
}

TEST_CASE("emulator: a block with more threads than the launch bounds is an error", "[emulator]") {
  CHECK(error_of(bounded_kernel, 2, 64, 0).empty());
  CHECK(error_of(bounded_kernel, 2, dim3(4, 4, 4), 0).empty());
  require_words(error_of(bounded_kernel, 2, 65, 0), {"__launch_bounds__", "thread (0, 0, 0)"});
  require_words(error_of(bounded_kernel, 2, dim3(5, 13), 0), {"__launch_bounds__"});
  require_that_the_emulator_still_works();
}

TEST_CASE("emulator: writes past shared memory are errors", "[emulator]") {
  CHECK(error_of(beyond_shared_kernel, 1, 1, 0, 9).empty());
  require_words(error_of(beyond_shared_kernel, 3, 1, 0, 10), {"block (0, 0, 0)", "byte 4", "Ten", "40 bytes"});
  CHECK(error_of(beyond_dynamic_kernel, 1, 1, 100, 99).empty());
  require_words(error_of(beyond_dynamic_kernel, 1, 1, 100, 100), {"byte 100 of dynamic shared memory of 100 bytes"});
  require_words(error_of(beyond_dynamic_kernel, 1, 1, 0, 0), {"byte 0 of dynamic shared memory of 0 bytes"});
  require_that_the_emulator_still_works();
}

TEST_CASE("emulator: shared memory is NaN at the start of every block", "[emulator]") {
  in_all_orders([&] {
    for (const float x : results_of(uninitialised_kernel, 3, 33, 3, 0.0f)) CHECK(std::isnan(x));
  });
}
