#pragma once

// How bench takes the time of something, on the CPU and on a GPU.

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

// How long something takes, and how many of the multiply-adds that the machine could have made.
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

// Median time of one call in milliseconds, over about `seconds` and at least `least` calls, after one that is not
// counted.
inline double median_milliseconds(double seconds, const std::function<void()>& call, std::size_t least = 5) {
  call();
  std::vector<double> times;
  for (double spent = 0; spent < seconds || times.size() < least; spent += times.back()) {
    times.push_back(seconds_of(call));
  }
  return 1e3 * median(times);
}

// Multiply-adds a second over a window of so many seconds. Empty for a GPU.
using PeakRate = std::function<double(double seconds)>;

// The same, and with a peak in turn with it: what other programs take from the machine changes from one moment to the
// next, so each call is compared with the peak just before it, over a window about as long, and what counts is the
// median of the shares. `seconds` is the time for both.
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

// Median time of one call. On the CPU there is one set: layers find their arrays in its caches, as the blocks of a
// small model do.
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
// A GPU works behind the host's back, and a launch can take longer than its kernel: what is timed is a recording of
// many calls, up to the moment when the GPU is done with all of them. The calls go from set to set.
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
  batch();  // not recorded yet; the call that median_milliseconds does not count records
  return {median_milliseconds(seconds, batch) / (rounds * static_cast<double>(calls.size()))};
}

// As many sets as no cache of a GPU can hold.
template <Backend backend>
Index sets_wanted(const GpuDevice<backend>&, std::size_t bytes_of_one) {
  if (backend == Backend::emulated) return 1;
  const std::size_t beyond_caches = std::size_t{512} << 20;
  return static_cast<Index>(std::clamp<std::size_t>(beyond_caches / std::max<std::size_t>(bytes_of_one, 1) + 1, 1, 64));
}
#endif

}  // namespace abh
