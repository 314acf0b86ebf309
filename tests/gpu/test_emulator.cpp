#if __has_include(<sys/personality.h>)
#include <sys/personality.h>
#endif

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/harness/emulator_case.hpp"
#include "tests/harness/program.hpp"

using abh::Outcome;

namespace {

using emulator::dynamic_shared_memory;
using namespace emulator_test;

constexpr unsigned whole_warp = 0xFFFFFFFF;

// Every thread writes its indices.
__global__ void where_kernel(unsigned* found, int* visits) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  found[block * threads + thread] = block * 1000 + thread;
  atomicAdd(visits, 1);
}

// out[t] = sum of in up to and with t: a scan of each warp, then of the warps' sums.
__global__ void scan_kernel(int* out, const int* in) {
  struct Sums {
    int of_warp[32];
  };
  auto& shared = shared_memory<Sums>();
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  int sum = in[threadIdx.x];
  for (unsigned delta = 1; delta < 32; delta *= 2) {
    const int before = __shfl_up_sync(whole_warp, sum, delta);
    if (lane >= static_cast<int>(delta)) sum += before;
  }
  if (lane == 31) shared.of_warp[warp] = sum;
  __syncthreads();
  for (int i = 0; i < warp; ++i) sum += shared.of_warp[i];
  out[threadIdx.x] = sum;
}

// All kinds of shuffles, in one row of results a thread.
struct Shuffled {
  float from_3, next, previous, other, from_1_of_8;
  double twice;
  unsigned long long big;
};
__global__ void shuffles_kernel(Shuffled* out) {
  const int lane = static_cast<int>(threadIdx.x);
  const auto mine = static_cast<float>(lane);
  Shuffled& results = out[lane];
  results.from_3 = __shfl_sync(whole_warp, mine, 3);
  results.next = __shfl_down_sync(whole_warp, mine, 1);
  results.previous = __shfl_up_sync(whole_warp, mine, 2);
  results.other = __shfl_xor_sync(whole_warp, mine, 16);
  results.from_1_of_8 = __shfl_sync(whole_warp, mine, 1, 8);
  results.twice = __shfl_sync(whole_warp, 2.0 * lane, 31);
  results.big = __shfl_sync(whole_warp, (1ull << 40) + threadIdx.x, 5);
}

struct Votes {
  unsigned ballot;
  int any, none, all, not_all;
};
__global__ void votes_kernel(Votes* out) {
  const unsigned t = threadIdx.x;
  Votes& votes = out[t];
  votes.ballot = __ballot_sync(whole_warp, t % 3 == 0);
  votes.any = __any_sync(whole_warp, t % 32 == 7);
  votes.none = __any_sync(whole_warp, t > 5000);
  votes.all = __all_sync(whole_warp, t < 5000);
  votes.not_all = __all_sync(whole_warp, t % 32 != 7);
}

// Neighbouring warps have different speeds: values of one operation must not mix with those of another.
__global__ void many_shuffles_kernel(int* wrong) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int i = 0; i < 20 * (warp + 1); ++i) {
    const int got = __shfl_sync(whole_warp, 1000 * warp + 32 * i + lane, lane + 1);
    if (got != 1000 * warp + 32 * i + (lane + 1) % 32) atomicAdd(wrong, 1);
  }
}

struct alignas(8) Forty {
  std::uint32_t x[10];
};
__global__ void gather_kernel(std::uint32_t* out) {
  Forty mine;
  for (unsigned i = 0; i < 10; ++i) mine.x[i] = 100 * threadIdx.x + i;
  const Forty* all = emulator::warp_gather(mine);
  out[threadIdx.x] = 0;
  for (unsigned lane = 0; lane < 32; ++lane) out[threadIdx.x] += all[lane].x[lane % 10];
}

// The threads of a block write themselves into a list, in the order in which they come.
__global__ void order_kernel(unsigned* list, int* end) {
  list[atomicAdd(end, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
  __syncthreads();
  list[atomicAdd(end, 1)] = blockIdx.x * blockDim.x + threadIdx.x;
}
std::vector<unsigned> list_of(Order order) {
  const InOrder set(order);
  std::vector<unsigned> list(2 * 5 * 40);
  int end = 0;
  launch(order_kernel, 5, 40, 0, nullptr, list.data(), &end);
  return list;
}

__global__ void write_kernel(float* to, int offset) { to[offset] = 1; }

}  // namespace

TEST_CASE("emulator: every thread of every block runs once with its own indices", "[emulator]") {
  struct Shape {
    dim3 grid, block;
  };
  for (const Shape& shape : {Shape{1, 1}, Shape{1, 1024}, Shape{{2, 3, 4}, {5, 2, 3}}, Shape{{1, 7}, {1, 33}},
                             Shape{{2, 1, 5}, {1, 1, 64}}}) {
    const unsigned blocks = shape.grid.x * shape.grid.y * shape.grid.z;
    const unsigned threads = shape.block.x * shape.block.y * shape.block.z;
    in_all_orders([&] {
      std::vector<unsigned> found(blocks * threads);
      int visits = 0;
      launch(where_kernel, shape.grid, shape.block, 0, nullptr, found.data(), &visits);
      CHECK(visits == static_cast<int>(blocks * threads));
      for (unsigned b = 0; b < blocks; ++b) {
        for (unsigned t = 0; t < threads; ++t) REQUIRE(found[b * threads + t] == b * 1000 + t);
      }
    });
  }
}

TEST_CASE("emulator: a grid without blocks does nothing", "[emulator]") {
  CHECK(error_of(write_kernel, dim3(0), 32, 0, static_cast<float*>(nullptr), 0).empty());
  CHECK(error_of(write_kernel, dim3(5, 0), 32, 0, static_cast<float*>(nullptr), 0).empty());
  CHECK(error_of(write_kernel, dim3(5, 1, 0), 2000, 0, static_cast<float*>(nullptr), 0).empty());
}

TEST_CASE("emulator: block sums through shared memory", "[emulator]") {
  for (const unsigned threads : {1u, 32u, 256u}) {
    constexpr unsigned blocks = 3;
    std::vector<float> in(blocks * threads);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 17);
    in_all_orders([&] {
      const auto out = results_of(sum_kernel, blocks, threads, blocks, -1.0f, in.data());
      for (unsigned b = 0; b < blocks; ++b) {
        float sum = 0;
        for (unsigned t = 0; t < threads; ++t) sum += in[b * threads + t];
        CHECK(out[b] == sum);
      }
    });
  }
}

TEST_CASE("emulator: scans with shuffles and barriers", "[emulator]") {
  constexpr int threads = 224;
  std::vector<int> in(threads);
  for (int t = 0; t < threads; ++t) in[static_cast<std::size_t>(t)] = t * t % 101;
  in_all_orders([&] {
    const auto out = results_of(scan_kernel, 1, threads, threads, -1, in.data());
    int sum = 0;
    for (std::size_t t = 0; t < threads; ++t) REQUIRE(out[t] == (sum += in[t]));
  });
}

TEST_CASE("emulator: shuffles of every kind", "[emulator]") {
  in_all_orders([&] {
    const auto out = results_of(shuffles_kernel, 1, 32, 32, Shuffled{});
    for (unsigned lane = 0; lane < 32; ++lane) {
      INFO("lane " << lane);
      const auto number = [](unsigned i) { return static_cast<float>(i); };
      CHECK(out[lane].from_3 == 3);
      CHECK(out[lane].next == number(lane < 31 ? lane + 1 : 31));
      CHECK(out[lane].previous == number(lane < 2 ? lane : lane - 2));
      CHECK(out[lane].other == number(lane ^ 16));
      CHECK(out[lane].from_1_of_8 == number(lane / 8 * 8 + 1));
      CHECK(out[lane].twice == 62);
      CHECK(out[lane].big == (1ull << 40) + 5);
    }
  });
}

TEST_CASE("emulator: votes", "[emulator]") {
  constexpr unsigned threads = 64 + 20;  // the last warp is a partial one
  in_all_orders([&] {
    const auto out = results_of(votes_kernel, 1, threads, threads, Votes{});
    for (unsigned t = 0; t < threads; ++t) {
      unsigned ballot = 0;
      for (unsigned other = t / 32 * 32; other < t / 32 * 32 + 32 && other < threads; ++other) {
        if (other % 3 == 0) ballot |= 1u << other % 32;
      }
      INFO("thread " << t);
      CHECK(out[t].ballot == ballot);
      CHECK(out[t].any == 1);
      CHECK(out[t].none == 0);
      CHECK(out[t].all == 1);
      CHECK(out[t].not_all == 0);
    }
  });
}

TEST_CASE("emulator: diverged warps do not mix their values", "[emulator]") {
  in_all_orders([&] { CHECK(results_of(many_shuffles_kernel, 2, 256, 1, 0)[0] == 0); });
}

TEST_CASE("emulator: a warp gathers values of up to 64 bytes", "[emulator]") {
  in_all_orders([&] {
    const auto out = results_of(gather_kernel, 1, 64, 64, std::uint32_t{0});
    for (unsigned t = 0; t < 64; ++t) {
      std::uint32_t sum = 0;
      for (unsigned lane = 0; lane < 32; ++lane) sum += 100 * (t / 32 * 32 + lane) + lane % 10;
      CHECK(out[t] == sum);
    }
  });
}

namespace {

// Lanes that the block does not have may be named by the mask, and are never read here.
__global__ void partial_warp_kernel(float* out) {
  float sum = 1;
  for (int other = 4; other > 0; other /= 2) sum += __shfl_xor_sync(whole_warp, sum, other);
  out[threadIdx.x] = sum;
}

// Whole warps exit; the others continue with their own operations. The last warp works in halves: the mask has lanes 0
// to 15, the only remaining lanes.
__global__ void leaving_kernel(float* out) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 1) return;
  float sum = 1;
  if (warp < 3) {
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(whole_warp, sum, other);
  } else {
    if (lane >= 16) return;
    for (int other = 8; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFF, sum, other);
  }
  out[threadIdx.x] = sum;
}

__global__ void dynamic_kernel(float* out, int* not_nan, int count) {
  auto* numbers = static_cast<float*>(dynamic_shared_memory());
  auto& shared = shared_memory<Floats>();  // next to it
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = t; i < count; i += threads) {
    if (!std::isnan(numbers[i])) atomicAdd(not_nan, 1);
    numbers[i] = static_cast<float>(i);
  }
  shared.x[t] = -1;
  __syncthreads();
  for (int i = t; i < count; i += threads) out[static_cast<int>(blockIdx.x) * count + i] = numbers[count - 1 - i];
}

__global__ void atomics_kernel(int* sum, unsigned* most, unsigned long long* big, int* seen) {
  const auto t = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicMax(most, static_cast<unsigned>(t));
  atomicAdd(big, 1ull << 33);
  seen[atomicAdd(sum, 1)] = 1;
}

}  // namespace

TEST_CASE("emulator: partial warps", "[emulator]") {
  in_all_orders([&] {
    for (const float x : results_of(partial_warp_kernel, 1, 40, 40, -1.0f)) CHECK(x == 8);
  });
}

TEST_CASE("emulator: lanes and warps that exit do not block the others", "[emulator]") {
  in_all_orders([&] {
    const auto out = results_of(leaving_kernel, 1, 128, 128, -1.0f);
    for (std::size_t t = 0; t < out.size(); ++t) {
      CHECK(out[t] == (t / 32 == 1 || t >= 112 ? -1.0f : t < 96 ? 32.0f : 16.0f));
    }
  });
}

TEST_CASE("emulator: dynamic shared memory", "[emulator]") {
  constexpr int count = 30000;
  in_all_orders([&] {
    std::vector<float> out(2 * count, -1);
    int not_nan = 0;
    launch(dynamic_kernel, 2, 100, count * sizeof(float), nullptr, out.data(), &not_nan, count);
    CHECK(not_nan == 0);
    for (int i = 0; i < 2 * count; ++i) {
      REQUIRE(out[static_cast<std::size_t>(i)] == static_cast<float>(count - 1 - i % count));
    }
  });
}

TEST_CASE("emulator: atomics return the old value", "[emulator]") {
  in_all_orders([&] {
    std::vector<int> seen(300);
    int sum = 0;
    unsigned most = 7;
    unsigned long long big = 0;
    launch(atomics_kernel, 3, 100, 0, nullptr, &sum, &most, &big, seen.data());
    CHECK(sum == 300);
    CHECK(most == 299);
    CHECK(big == 300ull << 33);
    for (const int one : seen) REQUIRE(one == 1);
  });
}

TEST_CASE("emulator: orders differ, and repeat with the same seed", "[emulator]") {
  const auto forward = list_of({}), reverse = list_of({Order::reverse, 0});
  const auto one = list_of({Order::shuffled, 1}), two = list_of({Order::shuffled, 2});
  for (unsigned i = 0; i < 40; ++i) {  // first block, before and after the barrier
    CHECK(forward[i] == i);
    CHECK(forward[40 + i] == i);
    CHECK(reverse[i] == 199 - i);
    CHECK(reverse[40 + i] == 199 - i);
  }
  CHECK(one != forward);
  CHECK(one != reverse);
  CHECK(one != two);
  CHECK(one == list_of({Order::shuffled, 1}));
  CHECK(std::vector<unsigned>(one.begin(), one.begin() + 40) !=
        std::vector<unsigned>(one.begin() + 40, one.begin() + 80));
  CHECK(forward == list_of({}));
}

TEST_CASE("emulator: mathematical functions", "[emulator]") {
  CHECK(rsqrtf(4.0f) == 0.5f);
  CHECK(__popc(0xF0F1u) == 9);
  CHECK(__clz(1) == 31);
  CHECK(__clz(-1) == 0);
  CHECK(__clz(0) == 32);
}

// ---- Global memory

TEST_CASE("emulator: fresh global memory is NaN and aligned", "[emulator]") {
  float* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 1000 * sizeof(float)) == cudaSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 256 == 0);
  for (int i = 0; i < 1000; ++i) REQUIRE(std::isnan(memory[i]));
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 0) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("emulator: writes outside global memory are launch errors", "[emulator]") {
  float *first = nullptr, *second = nullptr;
  REQUIRE(cudaMalloc(&first, 101 * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaMalloc(&second, 8 * sizeof(float)) == cudaSuccess);
  CHECK(error_of(write_kernel, 1, 1, 0, first, 100).empty());
  require_words(error_of(write_kernel, 1, 1, 0, first, 101), {"byte 404 of global memory of 404 bytes"});
  CHECK(error_of(write_kernel, 1, 1, 0, first, 0).empty());  // reported once
  require_words(error_of(write_kernel, 1, 1, 0, first, -1), {"byte -4 of global memory of 404 bytes"});
  require_words(error_of(write_kernel, 1, 1, 0, second, 10), {"byte 40 of global memory of 32 bytes"});
  CHECK(error_of(write_kernel, 1, 1, 0, second, 7).empty());

  second[8] = 0;  // as a copy might do, with no launch afterwards
  CHECK(cudaFree(second) == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaFree(first) == cudaSuccess);
  CHECK(cudaFree(first) == cudaErrorInvalidValue);
  CHECK(std::string(cudaGetErrorString(cudaGetLastError())) == "invalid argument");
}

TEST_CASE("emulator: other memory can be guarded", "[emulator]") {
  std::vector<float> memory(200);
  emulator::guard(memory.data() + 100, 100 * sizeof(float), "what lies behind x");
  CHECK(error_of(write_kernel, 1, 1, 0, memory.data(), 99).empty());
  require_words(error_of(write_kernel, 1, 1, 0, memory.data(), 102), {"byte 8 of what lies behind x"});
  memory[150] = 1;
  CHECK_THROWS_AS(emulator::check_guards(), emulator::Error);
  CHECK_NOTHROW(emulator::check_guards());
  emulator::unguard(memory.data() + 100);
  CHECK(error_of(write_kernel, 1, 1, 0, memory.data(), 102).empty());
}

TEST_CASE("emulator: allocations beyond the memory fail", "[emulator]") {
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::numeric_limits<std::size_t>::max() - 3) == cudaErrorMemoryAllocation);
  CHECK(memory == nullptr);
  CHECK(std::string(cudaGetErrorString(cudaGetLastError())) == "out of memory");

  emulator::set_memory_limit(1000);
  void* more = nullptr;
  CHECK(cudaMalloc(&memory, 600) == cudaSuccess);
  CHECK(cudaMalloc(&more, 401) == cudaErrorMemoryAllocation);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaMalloc(&more, 401) == cudaSuccess);
  CHECK(cudaFree(more) == cudaSuccess);
  emulator::set_memory_limit(std::numeric_limits<std::size_t>::max());
}

TEST_CASE("emulator: copies are complete when the call returns", "[emulator]") {
  std::vector<int> from = {1, 2, 3}, to(3);
  CHECK(cudaMemcpyAsync(to.data(), from.data(), 12, cudaMemcpyDefault, nullptr) == cudaSuccess);
  CHECK(to == from);
  CHECK(cudaMemsetAsync(to.data(), 0, 8, nullptr) == cudaSuccess);
  CHECK(to == std::vector<int>{0, 0, 3});
  CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
}

// ---- Races, with ThreadSanitizer, where the compiler has its runtime

#if defined(ABH_BROKEN_KERNELS)
namespace {

Outcome broken_kernel(const std::string& name, bool corrected) {
  abh::RunOptions options;
  options.environment = {{"TSAN_OPTIONS", "atexit_sleep_ms=0"}};
#if __has_include(<sys/personality.h>)
  // With highly random addresses ThreadSanitizer cannot map its shadow memory.
  const int before = ::personality(0xFFFFFFFF);
  ::personality(static_cast<unsigned>(before) | ADDR_NO_RANDOMIZE);
#endif
  const Outcome outcome = abh::run_program_of_build(
      "broken_kernels", corrected ? abh::Arguments{name, "corrected"} : abh::Arguments{name}, options);
#if __has_include(<sys/personality.h>)
  ::personality(static_cast<unsigned>(before));
#endif
  return outcome;
}

}  // namespace

TEST_CASE("emulator: ThreadSanitizer reports races only", "[emulator][slow]") {
  for (const char* name : {"missing_barrier", "barrier_of_warp", "reused_buffer", "phase_of_mbarrier", "racing_threads",
                           "racing_blocks"}) {
    INFO(name);
    const Outcome broken = broken_kernel(name, false);
    INFO(broken.err);
    CHECK(broken.status == 66);
    CHECK(abh::contains(broken.err, "data race"));
    CHECK(abh::contains(broken.err, "broken_kernels.cpp:"));
    CHECK(abh::contains(broken.err, "CUDA block (0, 0, 0) thread ("));
    abh::require_success(broken_kernel(name, true));
  }
}

TEST_CASE("emulator: other faults are reported with ThreadSanitizer, too", "[emulator][slow]") {
  struct Mistake {
    const char *name, *message;
  };
  for (const Mistake& mistake :
       {Mistake{"divergent_barrier", "divergent barrier"}, Mistake{"beyond_global_memory", "byte 256 of global memory"},
        Mistake{"beyond_shared_memory", "Row of 256 bytes"}, Mistake{"uninitialised_shared_memory", "wrong result"}}) {
    INFO(mistake.name);
    abh::require_refusal(broken_kernel(mistake.name, false), 1, {mistake.message});
    abh::require_success(broken_kernel(mistake.name, true));
  }
}
#endif
