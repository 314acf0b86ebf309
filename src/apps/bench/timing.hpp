#pragma once

// Time measurement of bench, on the CPU and on a GPU.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "base/types.hpp"
#include "cpu/cpu.hpp"
#include "plain/plain.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "cuda/gpu.hpp"
#endif

namespace abh {

// Time of a call, and share of the peak rate of multiply-adds.
struct Timing {
  double milliseconds;
  double share_of_peak = 0;  // 0: not measured
};

using Clock = std::chrono::steady_clock;

inline double seconds_of(const std::function<void()>& call) {
  const auto begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Median time of one call in milliseconds, over about `seconds` and at least `least` calls, after one warm-up call.
inline double median_milliseconds(double seconds, const std::function<void()>& call, std::size_t least = 5) {
  call();
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < least; spent += times.back()) {
    times.push_back(seconds_of(call));
  }
  return 1e3 * median(times);
}

// Multiply-adds per second, measured over a window of `seconds`. Empty for a GPU.
using PeakRate = std::function<double(double seconds)>;

// The same with the share of the peak. The load of other programs varies. So the peak is measured before each call,
// over a window of about the same length, and the result is the median of the shares. `seconds` is the time for both.
inline Timing median_timing(double seconds, double flops, const PeakRate& peak, const std::function<void()>& call,
                            std::size_t least = 5) {
  if (!peak) return {median_milliseconds(seconds, call, least)};
  const double shortest_window = 1e-3;
  std::vector<double> times, shares;
  double last = seconds_of(call);
  for (double spent = 0; spent < seconds || times.size() < least;) {
    const double window = std::max(last, shortest_window), rate = peak(window);
    times.push_back(last = seconds_of(call));
    shares.push_back(flops / last / rate);
    spent += window + last;
  }
  return {1e3 * median(times), median(shares)};
}

// The same work on several sets of arrays.
using Calls = std::vector<std::function<void()>>;

// Median time of one call. The CPU has one set of arrays: they stay in the caches, as in a small model.
template <Isa isa>
Timing call_timing(CpuDevice<isa>&, double seconds, double flops, const PeakRate& peak, const Calls& calls) {
  return median_timing(seconds, flops, peak, calls.front());
}
template <Isa isa>
Index sets_wanted(const CpuDevice<isa>&, std::size_t) {
  return 1;
}
inline Timing call_timing(PlainDevice&, double seconds, double, const PeakRate&, const Calls& calls) {
  return {median_milliseconds(seconds, calls.front(), 1)};
}
inline Index sets_wanted(const PlainDevice&, std::size_t) { return 1; }

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
// A GPU works asynchronously, and a launch can take longer than its kernel. So the measurement captures many calls in a
// CUDA graph and waits until the GPU has finished all of them. The calls cycle through the sets.
template <Backend backend>
Timing call_timing(GpuDevice<backend>& device, double seconds, double, const PeakRate&, const Calls& calls) {
  if (backend == Backend::emulated) return {median_milliseconds(seconds, calls.front(), 1)};
  const auto round = [&] {
    for (const auto& call : calls) call();
  };
  const double round_milliseconds = median_milliseconds(
      0,
      [&] {
        round();
        device.synchronize();
      },
      1);
  const double batch_milliseconds = 2;
  const double rounds = std::clamp(std::floor(batch_milliseconds / round_milliseconds), 1.0, 100.0);
  typename GpuDevice<backend>::CapturedGraph recording;
  const auto batch = [&] {
    recording.run(device, [&] {
      for (double done = 0; done < rounds; ++done) round();
    });
    device.synchronize();
  };
  batch();  // runs directly; the warm-up call of median_milliseconds captures the graph
  return {median_milliseconds(seconds, batch) / (rounds * static_cast<double>(calls.size()))};
}

// Number of sets that do not fit into the cache of a GPU.
template <Backend backend>
Index sets_wanted(const GpuDevice<backend>&, std::size_t bytes_of_one) {
  if (backend == Backend::emulated) return 1;
  const std::size_t beyond_caches = std::size_t{512} << 20;
  return static_cast<Index>(std::clamp<std::size_t>(beyond_caches / std::max<std::size_t>(bytes_of_one, 1) + 1, 1, 64));
}
#endif

}  // namespace abh
