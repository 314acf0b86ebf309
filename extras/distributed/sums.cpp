// sums: measures how fast processes add arrays (device/processes.hpp), as training does with gradients.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/choice.hpp"
#include "device/processes.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "program/run_program.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "extras/distributed/gpu_sums.hpp"
#endif

namespace abh {
namespace {

// Median of some times, in seconds.
template <class Body>
double seconds_of(const Body& body, int times) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const Clock::time_point begin = Clock::now();
    body();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + times / 2, seconds.end());
  return seconds[static_cast<std::size_t>(times / 2)];
}

// Measures sum(count) for arrays of 4 bytes, 16, ... up to `largest`.
template <class Sum>
void measure(Processes& processes, Index largest, const Sum& sum) {
  if (processes.leads()) std::cout << processes.size() << " processes\n     bytes        us     GB/s\n";
  for (Index bytes = 4; bytes <= largest; bytes *= 4) {
    processes.largest(0);
    const double seconds = seconds_of([&] { sum(bytes / 4); }, 21);
    if (!processes.leads()) continue;
    const auto column = [](const std::string& text, std::size_t width) {
      return std::string(width - std::min(width, text.size()), ' ') + text;
    };
    std::cout << column(to_text(bytes), 10) << column(fixed_text(seconds * 1e6, 1), 10)
              << column(fixed_text(static_cast<double>(bytes) / seconds * 1e-9, 3), 9) << std::endl;
  }
}

void measure_on_host(Processes& processes, Index largest) {
  std::vector<float> values(static_cast<std::size_t>(largest / 4));
  measure(processes, largest, [&](Index count) {
    processes.begin_sum(values.data(), count);
    processes.finish_sums();
  });
}

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
template <Backend backend>
void measure_on_gpu(Processes& processes, Index largest) {
  GpuDevice<backend> device(GemmChoice::library, Mode::compute, processes.rank_here());
  const DeviceMemory memory(device.memory(), static_cast<std::size_t>(largest));
  float* values = memory.as<float>();
  device.set_zero(values, largest / 4);
  GpuSums<backend> sums(device, processes);
  measure(processes, largest, [&](Index count) {
    sums.begin_sum(values, count);
    sums.finish_sums();
    device.synchronize();
  });
}
#endif

int body(int argc, char** argv) {
  Index megabytes = 64;
  DeviceChoice choice{.device = "cpu"};
  Flags flags("sums", "Measures the speed of all-reduce over processes: mpirun -np P build/sums.");
  flags.integer("largest", megabytes, "MB", "size of the largest array", 1, 1 << 14);
  flags.choice("device", choice.device, {"cpu", "cuda", "emulated"}, "device whose memory contains the arrays");
  if (const auto status = flags.parse(argc, argv)) return *status;
  const std::unique_ptr<Processes> processes = join_processes("sums");
  try {
    if (!std::has_single_bit(static_cast<std::uint64_t>(processes->size()))) {
      throw UsageError("expected 2, 4, 8, ... processes, found " + to_text(processes->size()));
    }
    require_device(choice);
    const Index largest = megabytes << 20;
#if defined(ABH_CUDA)
    if (choice.device == "cuda") measure_on_gpu<Backend::cuda>(*processes, largest);
#endif
#if defined(ABH_EMULATOR)
    if (choice.device == "emulated") measure_on_gpu<Backend::emulated>(*processes, largest);
#endif
    if (choice.device == "cpu") measure_on_host(*processes, largest);
  } catch (const Error& error) {
    processes->leave(error.what(), error.status());
    throw;
  }
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("sums", argc, argv, abh::body); }
