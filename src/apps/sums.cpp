// sums: how fast processes add up arrays (device/processes.hpp), as training does with gradients.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "device/processes.hpp"
#include "program/flags.hpp"

namespace abh {
namespace {

// The median of some times, in seconds.
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

int body(int argc, char** argv) {
  Index megabytes = 64;
  Flags flags("sums", "Measures how fast processes add up arrays: mpirun -np P build/sums.");
  flags.integer("largest", megabytes, "MB", "the largest array", 1, 1 << 14);
  if (const auto status = flags.parse(argc, argv)) return *status;
  const std::unique_ptr<Processes> processes = join_processes("sums");
  if (!std::has_single_bit(static_cast<std::uint64_t>(processes->size()))) {
    const std::string message = "expected 2, 4, 8, ... processes, found " + to_text(processes->size());
    processes->leave(message, 2);
  }
  if (processes->leads()) std::cout << processes->size() << " processes\n     bytes        us     GB/s\n";
  for (Index bytes = 4; bytes <= megabytes << 20; bytes *= 4) {
    std::vector<float> values(static_cast<std::size_t>(bytes / 4));
    processes->largest(0);
    const double seconds = seconds_of(
        [&] {
          processes->begin_sum(values.data(), bytes / 4);
          processes->finish_sums();
        },
        21);
    if (!processes->leads()) continue;
    const auto column = [](const std::string& text, std::size_t width) {
      return std::string(width - std::min(width, text.size()), ' ') + text;
    };
    std::cout << column(to_text(bytes), 10) << column(fixed_text(seconds * 1e6, 1), 10)
              << column(fixed_text(static_cast<double>(bytes) / seconds * 1e-9, 3), 9) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("sums", argc, argv, abh::body); }
