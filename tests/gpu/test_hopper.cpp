// The emulated instructions of cuda/gemm/hopper.hpp: their results, and the faults that they report.
#if defined(ABH_EMULATOR)

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "cuda/gemm/tensor_core.hpp"
#include "tests/gpu/hopper_kernels.hpp"
#include "tests/harness/emulator_case.hpp"

namespace abh {
namespace {

using emulator_test::error_of, emulator_test::in_all_orders, emulator_test::InOrder, emulator_test::require_words;

template <int N, int stages>
void require_product(int M, int columns, int K) {
  CAPTURE(N, stages, M, columns, K);
  const RingProduct<N, stages> product{M, columns, K};
  const std::vector<float> out_mn = product.computed();
  CHECK_FALSE(!(product.error(out_mn) <= 1e-3));
  int equal = 0;  // to the float sum in the order of k
  for (int m = 0; m < M; ++m) {
    for (int n = 0; n < columns; ++n) {
      equal += out_mn[std::size_t(m * columns + n)] == product.template expected<float>(m, n);
    }
  }
  CHECK(equal == M * columns);
}

TEST_CASE("hopper: a ring of tiles gives the product for odd and even numbers of tiles", "[hopper][emulator]") {
  in_all_orders([] {
    for (const int tiles : {1, 2, 3, 4, 5, 8}) {
      require_product<64, 2>(64, 64, tiles * tile_k);
      require_product<64, 3>(64, 64, tiles * tile_k);
    }
    require_product<64, 4>(64, 64, 9 * tile_k);
    require_product<64, 2>(100, 72, 200);  // partial tiles of all three extents
    require_product<128, 3>(64, 136, 136);
    require_product<256, 4>(72, 264, 72);
  });
}

template <Fault fault>
std::string message(int k_tiles = 5) {
  const RingProduct<64, 2, fault> product{64, 64, k_tiles * tile_k};
  try {
    return product.error(product.computed()) <= 1e-3 ? "" : "wrong result";
  } catch (const emulator::Error& error) {
    return error.what();
  }
}

// The first words describe the fault in forward order, in which loads arrive late. In reverse order they arrive at
// once, shuffled at any time. In every order the fault is an error or changes the result.
template <Fault fault>
void require_fault(std::initializer_list<const char*> words) {
  CAPTURE(int(fault));
  require_words(message<fault>(), words);
  in_all_orders([] { CHECK_FALSE(message<fault>().empty()); });
  CHECK(message<Fault::none>().empty());
}

TEST_CASE("hopper: waiting for the wrong phase of a barrier is an error", "[hopper][emulator]") {
  require_fault<Fault::parity_kept>(
      {"already waited for this phase", "wrong parity", "hopper_kernels.hpp:", "thread ("});
  require_fault<Fault::parity_inverted>({"wgmma reads shared memory that nothing has written"});
}

TEST_CASE("hopper: a tile that is read before it arrives is an error", "[hopper][emulator]") {
  require_fault<Fault::no_wait>({"wgmma reads shared memory that nothing has written", "hopper_kernels.hpp:"});
  require_fault<Fault::half_of_waits>({"wgmma reads a tile before its load has arrived", "hopper_kernels.hpp:"});
}

TEST_CASE("hopper: a descriptor with another swizzle or distance gives another result", "[hopper][emulator]") {
  in_all_orders([] {
    CHECK(message<Fault::no_swizzle>() == "wrong result");
    CHECK(message<Fault::other_group>() == "wrong result");
    require_words(message<Fault::other_swizzle>(), {"swizzled tile that does not begin at a multiple of its 8 rows"});
  });
}

TEST_CASE("hopper: bytes that differ from the expected bytes are errors, not a hang", "[hopper][emulator]") {
  require_fault<Fault::many_bytes>({"deadlock", "mbarrier_wait", "phase 0 lacks 0 arrivals and 128 bytes"});
  require_fault<Fault::few_bytes>({"before this load has arrived", "expects too few bytes", "load_tile"});
}

TEST_CASE("hopper: stages that are released too late, too early or too often are errors", "[hopper][emulator]") {
  require_fault<Fault::no_release>({"deadlock", "mbarrier_wait", "phase 0 lacks 4 arrivals and 0 bytes"});
  require_fault<Fault::second_arrival>({"a load to a tile that a wgmma still reads"});
  require_fault<Fault::early_release>({"a load to a tile that a wgmma still reads"});
  require_fault<Fault::no_empty_wait>({"emulator: "});
}

TEST_CASE("hopper: misuse of wgmma and of tiles is an error", "[hopper][emulator]") {
  require_fault<Fault::early_access>({"an accumulator is accessed before wgmma_wait", "thread ("});
  require_fault<Fault::no_fence>({"no wgmma_fence since the last access", "hopper_kernels.hpp:"});
  require_fault<Fault::no_last_wait>({"leaves before it waits for its wgmma"});
  require_fault<Fault::divergent_warp>({"warps of one warpgroup pass different descriptors"});
  require_fault<Fault::divergent_lane>({"lanes of one warp pass different operands"});
  require_fault<Fault::lazy_warp>({"began different numbers of products"});
  require_fault<Fault::shifted_tile>({"not aligned to 128 bytes, or to 8 swizzled rows", "load_tile"});
  require_fault<Fault::no_initialisation>({"not initialised"});
}

// A tile of 64 rows and `width` bytes as TMA stores it, and its product with a tile of the same layout. Without a
// swizzle, two boxes of 8 numbers k make a tile. out: accumulators by thread.
__global__ void layout_kernel(bf16* stored, float* out, const __grid_constant__ TensorMap a_mk,
                              const __grid_constant__ TensorMap b_nk, Swizzle swizzle) {
  struct Barrier {
    Mbarrier full;
  };
  auto& barrier = shared_memory<Barrier>();
  bf16* const tiles = dynamic_tiles();
  const int thread = int(threadIdx.x), box = a_mk.box_columns, depth = swizzle == Swizzle::none ? 16 : box;
  if (thread == 0) mbarrier_init(barrier.full, 1);
  __syncthreads();
  if (thread == 0) {
    mbarrier_arrive_expect(barrier.full, unsigned(64 * depth * 2 * 2));
    for (int k = 0; k < depth; k += box) {
      load_tile(tiles + 64 * k, a_mk, 0, k, barrier.full);
      load_tile(tiles + 64 * (k + depth), b_nk, 0, k, barrier.full);
    }
  }
  mbarrier_wait(barrier.full, 0);
  Accumulators<64> d;
  wgmma_fence(d);
  for (int k = 0; k < depth; k += 16) {
    const unsigned group_bytes = unsigned(box) * 16, k_bytes = 64 * 16;
    wgmma(d, tile_descriptor(tiles + k, swizzle, group_bytes, k_bytes),
          tile_descriptor(tiles + 64 * depth + k, swizzle, group_bytes, k_bytes), k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(d);
  for (int i = 0; i < d.size; ++i) out[thread * d.size + i] = d[i];
  for (int i = thread; i < 64 * depth; i += 128) stored[i] = tiles[i];
}

TEST_CASE("hopper: tiles and accumulators have the documented layouts", "[hopper][emulator]") {
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes_32, Swizzle::bytes_64, Swizzle::bytes_128}) {
    const int width = int(swizzle), box = width == 0 ? 8 : width / 2, depth = width == 0 ? 16 : box;
    CAPTURE(width);
    // a_mk b_nk transposed = 256 m + n, from the last two k. The other numbers are different and add 0.
    std::vector<bf16> a_mk(64 * 64), b_nk(64 * 64), stored(std::size_t(64 * depth));
    for (int m = 0; m < 64; ++m) {
      for (int k = 0; k < 64; ++k) a_mk[std::size_t(m * 64 + k)].bits = std::uint16_t(m * 64 + k);
      a_mk[std::size_t(m * 64 + depth - 2)] = float(m);
      a_mk[std::size_t(m * 64 + depth - 1)] = 1.0f;
      for (int k = 0; k < 64; ++k) b_nk[std::size_t(m * 64 + k)] = 0.0f;
      b_nk[std::size_t(m * 64 + depth - 2)] = 256.0f;
      b_nk[std::size_t(m * 64 + depth - 1)] = float(m);
    }
    std::vector<float> out(128 * 32);
    launch(layout_kernel, 1, 128, std::size_t(64 * depth * 4), nullptr, stored.data(), out.data(),
           tensor_map(a_mk.data(), 64, 64, 64, 64, box, swizzle), tensor_map(b_nk.data(), 64, 64, 64, 64, box, swizzle),
           swizzle);
    int right = 0;
    for (int m = 0; m < 64; ++m) {
      for (int k = 0; k < depth; ++k) {
        const int chunk = k / 8;
        // CUDA's tables of swizzles: the chunks of 16 bytes trade places within a row, by its number among 2, 4 or 8.
        const int in_row = width == 128 ? chunk ^ m % 8 : width == 64 ? chunk ^ m / 2 % 4 : chunk ^ m / 4 % 2;
        const int place = width == 0 ? chunk * 64 * 8 + m * 8 + k % 8 : m * depth + in_row * 8 + k % 8;
        right += stored[std::size_t(place)].bits == a_mk[std::size_t(m * 64 + k)].bits;
      }
    }
    CHECK(right == 64 * depth);
    right = 0;
    for (int thread = 0; thread < 128; ++thread) {  // PTX ISA, "Matrix Fragments for wgmma.mma_async.m64nNk16"
      const int warp = thread / 32, group = thread % 32 >> 2, in_group = thread % 4;
      for (int i = 0; i < 32; ++i) {
        const int row = 16 * warp + group + ((i & 2) == 0 ? 0 : 8), column = 8 * (i / 4) + 2 * in_group + (i & 1);
        right += out[std::size_t(thread * 32 + i)] == float(256 * row + column);
      }
    }
    CHECK(right == 128 * 32);
  }
}

// Loads one box, which may leave the matrix on all sides. before: the tile before the wait.
__global__ void box_kernel(bf16* out, bf16* before, const __grid_constant__ TensorMap map, int row, int column) {
  struct Memory {
    alignas(128) bf16 tile[8 * 8];
    Mbarrier full;
  };
  auto& memory = shared_memory<Memory>();
  mbarrier_init(memory.full, 1);
  mbarrier_arrive_expect(memory.full, sizeof memory.tile);
  load_tile(memory.tile, map, row, column, memory.full);
  for (int i = 0; i < 64; ++i) before[i] = memory.tile[i];
  mbarrier_wait(memory.full, 0);
  for (int i = 0; i < 64; ++i) out[i] = memory.tile[i];
}

TEST_CASE("hopper: a box is NaN until it arrives, and zero outside the matrix", "[hopper][emulator]") {
  std::vector<bf16> matrix(16 * 24), out(64), before(64);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = float(i % 251 + 1);
  const TensorMap map = tensor_map(matrix.data(), 16, 20, 24, 8, 8, Swizzle::none);
  for (const int row : {-9, -3, 0, 5, 12, 16}) {
    for (const int column : {-8, -3, 0, 7, 15, 20}) {
      launch(box_kernel, 1, 1, 0, nullptr, out.data(), before.data(), map, row, column);
      int right = 0;
      for (int i = 0; i < 64; ++i) {
        const int r = row + i / 8, c = column + i % 8;
        const bool inside = r >= 0 && r < 16 && c >= 0 && c < 20;
        right += std::isnan(float(before[std::size_t(i)])) &&
                 float(out[std::size_t(i)]) == (inside ? float((r * 24 + c) % 251 + 1) : 0);
      }
      CAPTURE(row, column);
      CHECK(right == 64);
    }
  }
}

// One product of 16 numbers k, by wgmma and by mma from the same numbers: the difference of their bits.
__global__ void both_products_kernel(std::uint32_t* bits, const bf16* a_mk, const bf16* b_nk) {
  struct Memory {
    alignas(128) bf16 a[2][64][8], b[2][64][8];
  };
  auto& memory = shared_memory<Memory>();
  const unsigned thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  for (unsigned i = thread; i < 1024; i += 128) {
    memory.a[i % 16 / 8][i / 16][i % 8] = a_mk[i];
    memory.b[i % 16 / 8][i / 16][i % 8] = b_nk[i];
  }
  fence_for_wgmma();
  __syncthreads();
  Accumulators<64> d;
  for (int i = 0; i < d.size; ++i) d[i] = 0.3f;
  wgmma_fence(d);
  wgmma(d, tile_descriptor(memory.a[0][0], Swizzle::none, 128, 1024),
        tile_descriptor(memory.b[0][0], Swizzle::none, 128, 1024));
  wgmma_commit();
  wgmma_wait<0>(d);
  const auto pair = [](const bf16* x) { return x[0].bits | std::uint32_t{x[1].bits} << 16; };
  for (unsigned n = 0; n < 64; n += 8) {
    const unsigned m = 16 * warp + g;
    float sum[4] = {0.3f, 0.3f, 0.3f, 0.3f};
    const bf16 *a = a_mk + m * 16 + 2 * t, *b = b_nk + (n + g) * 16 + 2 * t;
    mma(sum, {pair(a), pair(a + 128), pair(a + 8), pair(a + 136)}, {pair(b), pair(b + 8)});
    for (unsigned i = 0; i < 4; ++i) {
      bits[thread * 32 + n / 2 + i] =
          std::bit_cast<std::uint32_t>(sum[i]) ^ std::bit_cast<std::uint32_t>(d[int(n / 2 + i)]);
    }
  }
}

TEST_CASE("hopper: wgmma rounds like mma", "[hopper][emulator]") {
  const RingProduct<64, 2> numbers{64, 64, 16};
  std::vector<std::uint32_t> bits(128 * 32, 1);
  launch(both_products_kernel, 1, 128, 0, nullptr, bits.data(), numbers.a_mk.data(), numbers.b_nk.data());
  CHECK(bits == std::vector<std::uint32_t>(128 * 32, 0));
}

enum class Misuse {
  no_arrivals,
  twice,
  parity,
  overwritten,
  third_arrival,
  in_flight,
  two_loads,
  few_threads,
  unread_bytes
};
__global__ void misuse_kernel(Misuse misuse, const __grid_constant__ TensorMap map) {
  struct Memory {
    alignas(128) bf16 tile[8 * 8];
    Mbarrier full;
  };
  auto& memory = shared_memory<Memory>();
  mbarrier_init(memory.full, misuse == Misuse::no_arrivals ? 0 : 2);
  if (misuse == Misuse::twice) mbarrier_init(memory.full, 1);
  if (misuse == Misuse::parity) mbarrier_wait(memory.full, 2);
  if (misuse == Misuse::overwritten) {
    memory.full.state = 0;
    mbarrier_arrive(memory.full);
  }
  if (misuse == Misuse::third_arrival) {
    mbarrier_arrive_expect(memory.full, 16);
    mbarrier_arrive(memory.full);
    mbarrier_arrive(memory.full);
  }
  if (misuse == Misuse::in_flight || misuse == Misuse::two_loads) load_tile(memory.tile, map, 0, 0, memory.full);
  if (misuse == Misuse::two_loads) load_tile(memory.tile, map, 0, 0, memory.full);
  if (misuse == Misuse::few_threads) wgmma_commit();
  if (misuse == Misuse::unread_bytes) mbarrier_arrive_expect(memory.full, 16);
}

TEST_CASE("hopper: misuse of barriers and loads is an error", "[hopper][emulator]") {
  alignas(16) static const bf16 matrix[64] = {};
  const TensorMap map = tensor_map(matrix, 8, 8, 8, 8, 8, Swizzle::none);
  const std::map<Misuse, const char*> messages = {
      {Misuse::no_arrivals, "an mbarrier of no arrivals"},
      {Misuse::twice, "initialised twice"},
      {Misuse::parity, "parity of a phase is 0 or 1"},
      {Misuse::overwritten, "not initialised, or was overwritten"},
      {Misuse::third_arrival, "more arrivals at an mbarrier than it was initialised for"},
      {Misuse::in_flight, "the block ends with 1 loads in flight"},
      {Misuse::two_loads, "two loads in flight to one tile"},
      {Misuse::few_threads, "a warpgroup of less than 128 threads"},
      {Misuse::unread_bytes, "the block ends with an mbarrier whose phase 0 lacks 1 arrivals and 16 bytes"}};
  for (const auto& [misuse, words] : messages) {
    require_words(error_of(misuse_kernel, 1, 1, 0, misuse, map), {words});
  }
  const auto refused = [&](auto... arguments) {
    try {
      (void)tensor_map(arguments...);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK(contains(refused(matrix + 1, 8, 8, 8, 8, 8, Swizzle::none), "not aligned to 16 bytes"));
  CHECK(contains(refused(matrix, 8, 9, 8, 8, 8, Swizzle::none), "overlapping rows"));
  CHECK(contains(refused(matrix, 4, 8, 12, 8, 8, Swizzle::none), "16 bytes apart"));
  CHECK(contains(refused(matrix, 8, 8, 8, 257, 8, Swizzle::none), "1 to 256"));
  CHECK(contains(refused(matrix, 8, 8, 8, 8, 4, Swizzle::none), "multiple of 16 bytes"));
  CHECK(contains(refused(matrix, 8, 8, 8, 8, 8, Swizzle::bytes_32), "width of the swizzle"));
}

}  // namespace
}  // namespace abh

#endif
