#include <chrono>
#include <cmath>
#include <vector>

#include "cuda/gemm/gemm.hpp"
#include "cuda/kernel.hpp"
#include "cuda/platform.hpp"
#include "device/memory.hpp"
#include "device/peaks.hpp"

namespace abh {

namespace {

constexpr int tries = 10;
constexpr int calls = 10;  // per try; the host waits once for all

// Maximum rate of `call`, in `amount` per second, after one untimed call.
template <class Call>
double best_rate(Gpu& device, double amount, const Call& call) {
  using Clock = std::chrono::steady_clock;
  call();
  device.synchronize();
  double best = 0;
  for (int attempt = 0; attempt < tries; ++attempt) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    device.synchronize();
    const double rate = calls * amount / std::chrono::duration<double>(Clock::now() - begin).count();
    if (!(rate <= best)) best = rate;
  }
  return best;
}

// `count` normally distributed random numbers: at most a million different ones per `site`, repeated. Random numbers,
// because a GPU may have a higher clock rate on zeros.
template <class T>
void fill(Gpu& device, T* numbers, Index count, std::uint32_t site) {
  const Index period = Index{1} << 20;
  std::vector<T> first;
  for (Index i = 0; i < count && i < period; ++i) {
    first.push_back(T(float(normal_number(1, static_cast<std::uint64_t>(i), 0, site))));
  }
  Index filled = static_cast<Index>(first.size());
  device.copy_from_host(numbers, first.data(), filled);
  for (Index more = 0; filled < count; filled += more) {
    more = filled < count - filled ? filled : count - filled;
    device.copy(numbers + filled, numbers, more);
  }
}

}  // namespace

template <class Device, class T>
double matrix_product_rate(Device& device, Index size) {
  const std::size_t bytes = static_cast<std::size_t>(size * size) * sizeof(T);
  const DeviceMemory a(device.memory(), bytes), b(device.memory(), bytes), out(device.memory(), bytes);
  fill(device, a.as<T>(), size * size, 1);
  fill(device, b.as<T>(), size * size, 2);
  // Both operands are contiguous along the summed dimension: out = a b^T, the product of a linear layer.
  Gemm<T, T> product{};
  product.out_mn = out.as<T>();
  product.a_mk = a.as<T>();
  product.b_kn = b.as<T>();
  product.M = product.N = product.K = size;
  product.out_row = size;
  product.a_row = size;
  product.a_col = 1;
  product.b_row = 1;
  product.b_col = size;
  const double flops = 2 * std::pow(double(size), 3);
  return best_rate(device, flops, [&] { gemm(device, product); });
}

template <class Device>
double copy_rate(Device& device, std::size_t bytes) {
  const Index count = static_cast<Index>(bytes / sizeof(float));
  const DeviceMemory from(device.memory(), bytes), to(device.memory(), bytes);
  fill(device, from.as<float>(), count, 3);
  return best_rate(device, 2 * double(bytes), [&] { device.copy(to.as<float>(), from.as<float>(), count); });
}

ABH_INSTANTIATE(Gpu, matrix_product_rate)
template decltype(copy_rate<Gpu>) copy_rate<Gpu>;

}  // namespace abh
