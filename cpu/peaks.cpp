#include "cpu/peaks.hpp"

#include <time.h>

#include "cpu/lanes.hpp"
#include "cpu/units/gemm_units.hpp"
#include "device/peaks.hpp"

namespace abh {

namespace {

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Independent chains of multiply-adds that hide latency: two units times a latency of four or five cycles.
constexpr int chains = 12;
constexpr Index turns = 100000;
constexpr int tries = 20;

float lane_chains(float factor) {
  Wide<float> sums[chains];
  for (int c = 0; c < chains; ++c) sums[c] = splat<Wide<float>>(static_cast<float>(c));
  for (Index turn = 0; turn < turns; ++turn) {
#pragma GCC unroll 12
    for (int c = 0; c < chains; ++c) sums[c] = fused<Wide<float>>(sums[c], factor, factor);
  }
  float total = 0;
  for (int c = 0; c < chains; ++c) total += sum_lanes<Wide<float>>(sums[c]);
  return total;
}

// Repeats the chains on every thread.
template <class Device>
double rate_of(Device& device, double seconds, const RegisterChains& all) {
  typename Device::Scope scratch(device.workspace);
  const Index threads = device.threads.count();
  float* result = scratch.template take<float>(threads);
  const volatile float factor = 0.5f;
  const double begin = now();
  double flops = 0, spent;
  do {
    parallel_for(device, threads, [&](Index task, Index) { result[task] = all.run(factor); });
    flops += all.flops * static_cast<double>(threads);
    spent = now() - begin;
  } while (spent < seconds);
  return flops / spent;
}

}  // namespace

template <class Device>
RegisterChains multiply_add_chains(const Device&) {
  return {2.0 * chains * lane_width<float> * static_cast<double>(turns), lane_chains};
}

template <class Device>
RegisterChains narrow_product_chains(const Device& device) {
#if ABH_LANE_BYTES == 64
  if (device.unit == Isa::avx512_bf16) return {pair_chain_flops, pair_chains};
  if (device.unit == Isa::amx) return {tile_chain_flops, tile_chains};
#endif
  return multiply_add_chains(device);
}

template <class Device>
double multiply_add_rate(Device& device, double seconds) {
  return rate_of(device, seconds, multiply_add_chains(device));
}

template <class Device>
double narrow_product_rate(Device& device, double seconds) {
  return rate_of(device, seconds, narrow_product_chains(device));
}

template <class Device>
double copy_rate(Device& device, std::size_t bytes) {
  typename Device::Scope scratch(device.workspace);
  const Index piece = 1 << 16;  // floats per task
  const Index pieces = static_cast<Index>(bytes / sizeof(float)) / piece;
  float* from = scratch.template take<float>(pieces * piece);
  float* to = scratch.template take<float>(pieces * piece);
  for (Index i = 0; i < pieces * piece; ++i) from[i] = to[i] = 1;
  double best = 0;
  for (int repeat = 0; repeat < tries; ++repeat) {
    const double begin = now();
    parallel_for(device, pieces, [&](Index task, Index) {
      __builtin_memcpy(to + task * piece, from + task * piece, sizeof(float) * piece);
    });
    const double rate = 2.0 * sizeof(float) * static_cast<double>(pieces * piece) / (now() - begin);
    if (rate > best) best = rate;
  }
  return best;
}

template decltype(multiply_add_chains<Cpu>) multiply_add_chains<Cpu>;
template decltype(narrow_product_chains<Cpu>) narrow_product_chains<Cpu>;
template decltype(multiply_add_rate<Cpu>) multiply_add_rate<Cpu>;
template decltype(narrow_product_rate<Cpu>) narrow_product_rate<Cpu>;
template decltype(copy_rate<Cpu>) copy_rate<Cpu>;

}  // namespace abh
