// The emulator's versions of the instructions in cuda/gemm/tensor_core.hpp. The matrix products on a real GPU show that
// the instructions agree with them.
#if defined(ABH_EMULATOR)

#include "cuda/gemm/tensor_core.hpp"
#include "cuda/gpu.hpp"
#include "tests/harness/emulator_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

constexpr int M = 16, N = 8, K = 16;

// d_mn += a_mk b_kn, only from the layout in the header's drawing: every lane reads its numbers one by one.
__global__ void mma_kernel(float* d_mn, const bf16* a_mk, const bf16* b_kn) {
  const int g = int(threadIdx.x) / 4, t = int(threadIdx.x) % 4;
  const auto a_pair = [&](int m, int k) { return pack_bf16(a_mk[m * K + k], a_mk[m * K + k + 1]); };
  const auto b_pair = [&](int k, int n) { return pack_bf16(b_kn[k * N + n], b_kn[(k + 1) * N + n]); };
  float* d[4] = {&d_mn[g * N + 2 * t], &d_mn[g * N + 2 * t + 1], &d_mn[(g + 8) * N + 2 * t],
                 &d_mn[(g + 8) * N + 2 * t + 1]};
  float sum[4] = {*d[0], *d[1], *d[2], *d[3]};
  mma(sum, {a_pair(g, 2 * t), a_pair(g + 8, 2 * t), a_pair(g, 2 * t + 8), a_pair(g + 8, 2 * t + 8)},
      {b_pair(2 * t, g), b_pair(2 * t + 8, g)});
  for (int i = 0; i < 4; ++i) *d[i] = sum[i];
}

Array<bf16> random_bf16(Index count, std::uint32_t seed) {
  return converted<bf16>(Values<double>{random_values(activation("x", {count}), seed, 0)})[0];
}

TEST_CASE("tensor core: a product of fragments", "[tensor_core][gpu]") {
  const Array<bf16> a_mk = random_bf16(M * K, 1), b_kn = random_bf16(K * N, 2);
  Array<float> d_mn(M * N, 0.5f);
  GpuDevice<Backend::emulated> device;
  const bf16 *a = a_mk.data(), *b = b_kn.data();
  launch(mma_kernel, 1, 32, 0, device.stream(), d_mn.data(), a, b);
  for (std::size_t m = 0; m < M; ++m) {
    for (std::size_t n = 0; n < N; ++n) {
      double sum = 0.5;
      for (std::size_t k = 0; k < K; ++k) sum += double(a_mk[m * K + k]) * double(b_kn[k * N + n]);
      CHECK_FALSE(!(std::abs(double(d_mn[m * N + n]) - sum) <= 1e-5));
    }
  }
}

struct Matrices {
  bf16 row[32][8];  // four matrices, one below the other
};
// lane_register: content of register r of lane l, two numbers each.
__global__ void load_kernel(bf16* lane_register, const bf16* matrices, bool transposed) {
  auto& shared = shared_memory<Matrices>();
  const int lane = int(threadIdx.x);
  for (int i = 0; i < 8; ++i) shared.row[lane][i] = matrices[lane * 8 + i];
  __syncwarp();
  std::uint32_t r[4];
  transposed ? load_matrices_transposed(r, shared.row[lane]) : load_matrices(r, shared.row[lane]);
  for (int i = 0; i < 4; ++i) {
    lane_register[(lane * 4 + i) * 2].bits = static_cast<std::uint16_t>(r[i]);
    lane_register[(lane * 4 + i) * 2 + 1].bits = static_cast<std::uint16_t>(r[i] >> 16);
  }
}

TEST_CASE("tensor core: fragments are loaded plain and transposed", "[tensor_core][gpu]") {
  const Array<bf16> matrices = random_bf16(4 * 64, 3);
  GpuDevice<Backend::emulated> device;
  for (const bool transposed : {false, true}) {
    Array<bf16> registers(32 * 4 * 2);
    bf16* to = registers.data();
    const bf16* from = matrices.data();
    launch(load_kernel, 1, 32, 0, device.stream(), to, from, transposed);
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t j = 0; j < 2; ++j) {
          const std::size_t row = lane / 4, column = lane % 4 * 2 + j;
          const std::size_t place = i * 64 + (transposed ? column * 8 + row : row * 8 + column);
          CHECK(registers[(lane * 4 + i) * 2 + j].bits == matrices[place].bits);
        }
      }
    }
  }
}

// Each of the two loads of matrices, and a copy of 4 or 16 bytes, of operands that the instructions do not take.
enum class Load { matrices, transposed, copy_16, copy_4 };
__global__ void wrong_operand_kernel(Load load, const bf16* global, int shift, bool in_shared, bool from_shared) {
  auto& shared = shared_memory<Matrices>();
  bf16* row = in_shared ? shared.row[threadIdx.x % 31] + shift : const_cast<bf16*>(global) + shift;
  const bf16* from = from_shared ? shared.row[31] : global + (in_shared ? 0 : 8);
  std::uint32_t r[4];
  if (load == Load::matrices) load_matrices(r, row);
  if (load == Load::transposed) load_matrices_transposed(r, row);
  if (load == Load::copy_16) copy_async(row, from);
  if (load == Load::copy_4) copy_async<4>(row, from);
  copy_async_commit();
  copy_async_wait<0>();
}

TEST_CASE("tensor core: misaligned operands, or operands in another memory, are refused", "[tensor_core][gpu]") {
  alignas(16) bf16 global[32] = {};
  const auto error = [&](Load load, int shift, bool in_shared, bool from_shared) {
    return emulator_test::error_of(wrong_operand_kernel, 1, 32, 0, load, global, shift, in_shared, from_shared);
  };
  for (const Load load : {Load::matrices, Load::transposed, Load::copy_16, Load::copy_4}) {
    CAPTURE(int(load));
    const bool copies = load == Load::copy_16 || load == Load::copy_4;
    CHECK(error(load, 0, true, false).empty());
    CHECK(error(load, 8, true, false).empty());
    for (const int shift : {1, 2, 4}) {
      CAPTURE(shift);
      const bool fits = load == Load::copy_4 && shift > 1;
      CHECK(error(load, shift, true, false).empty() == fits);
      if (!fits) CHECK(contains(error(load, shift, true, false), "a misaligned wide access"));
    }
    CHECK(contains(error(load, 0, false, false), "an address outside of shared memory"));
    CHECK(error(load, 0, true, true).empty() == !copies);
    if (copies) CHECK(contains(error(load, 0, true, true), "an address in shared memory"));
  }
}

struct alignas(16) Buffers {
  float first[32][4], second[32][4];
};
// Copies 16 bytes per thread in two groups. Stores the values that the thread reads before the wait, after the wait for
// the first group and for both groups, and after the barrier the values of its neighbour.
__global__ void copy_kernel(float* seen, const float* from) {
  auto& shared = shared_memory<Buffers>();
  const int i = int(threadIdx.x);
  float* mine = seen + i * 6;
  shared.first[i][0] = shared.second[i][0] = -1;
  copy_async(shared.first[i], from + i * 4);
  copy_async_commit();
  copy_async(shared.second[i], from + i * 4, i % 2 == 0);
  copy_async_commit();
  mine[0] = shared.first[i][0];
  copy_async_wait<1>();
  mine[1] = shared.first[i][0];
  mine[2] = shared.second[i][0];
  copy_async_wait<0>();
  mine[3] = shared.second[i][0];
  mine[4] = shared.second[i][3];
  __syncthreads();
  mine[5] = shared.first[(i + 1) % 32][3];
}

// On a GPU a copy may arrive before the wait; on the emulator it does not, so that a missing wait is noticed.
TEST_CASE("tensor core: asynchronous copies arrive at their wait", "[tensor_core][gpu]") {
  const Array<float> from = converted<float>(Values<double>{random_values(activation("x", {128}), 4, 0)})[0];
  Array<float> seen(32 * 6);
  GpuDevice<Backend::emulated> device;
  launch(copy_kernel, 1, 32, 0, device.stream(), seen.data(), from.data());
  for (std::size_t i = 0; i < 32; ++i) {
    const float* mine = &seen[i * 6];
    CHECK(mine[0] == -1);
    CHECK(mine[1] == from[i * 4]);
    CHECK(mine[2] == -1);
    CHECK(mine[3] == (i % 2 == 0 ? from[i * 4] : 0));
    CHECK(mine[4] == (i % 2 == 0 ? from[i * 4 + 3] : 0));
    CHECK(mine[5] == from[(i + 1) % 32 * 4 + 3]);
  }
}

__global__ void power_kernel(float* power, const float* x) { power[threadIdx.x] = power_of_2(x[threadIdx.x]); }

TEST_CASE("tensor core: powers of two", "[tensor_core][gpu]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<float> x = {0.0f, -0.0f, -infinity, -126.0f, -127.0f, -140.0f, -1e30f, 1.0f, std::nanf("")};
  const Array<float> expected = {1, 1, 0, 0x1p-126f, 0, 0, 0, 2};
  Array<float> power(x.size());
  GpuDevice<Backend::emulated> device;
  launch(power_kernel, 1, unsigned(x.size()), 0, device.stream(), power.data(), x.data());
  CHECK(std::equal(expected.begin(), expected.end(), power.begin()));
  CHECK(std::isnan(power.back()));
}

}  // namespace
}  // namespace abh

#endif
