#include "apps/bench/counts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <map>
#include <string_view>

namespace abh {
namespace {

constexpr double sector_bytes = 32;

// Returns for example "gelu: backward_kernel<bf16, 8>".
std::string short_name(const emulator::Counts& counts) {
  std::string name = counts.kernel;
  for (const std::string_view space : {"(anonymous namespace)::", "emulated::", "abh::"}) {
    for (std::size_t at; (at = name.find(space)) != std::string::npos;) name.erase(at, space.size());
  }
  const std::string file = counts.file.substr(0, counts.file.find('.'));
  return file.empty() ? name : file + ": " + name;
}

// Members that grow with the number of sequences.
constexpr double KernelTraffic::*numbers[] = {
    &KernelTraffic::asked,           &KernelTraffic::in_sectors,       &KernelTraffic::distinct,
    &KernelTraffic::shared_requests, &KernelTraffic::shared_conflicts,
};

void print_row(const KernelTraffic& row, std::size_t width, double of_bytes, double copy_bytes_per_s) {
  std::printf("%-*s %8lld %10.1f %7.1f %6.1f%% %10.1f %10.1f %9.1f%%\n", static_cast<int>(width), row.kernel.c_str(),
              static_cast<long long>(row.launches), row.distinct / 1e6, row.distinct / copy_bytes_per_s * 1e6,
              100 * row.distinct / of_bytes, row.in_sectors / 1e6, row.asked / 1e6,
              row.shared_requests > 0 ? 100 * row.shared_conflicts / row.shared_requests : 0.0);
}

}  // namespace

std::vector<KernelTraffic> traffic_of(const std::vector<emulator::Counts>& counts) {
  std::vector<KernelTraffic> kernels;
  for (const emulator::Counts& c : counts) {
    kernels.push_back({short_name(c), static_cast<Index>(c.launches),
                       static_cast<double>(c.read.bytes + c.written.bytes),
                       sector_bytes * static_cast<double>(c.read.sectors + c.written.sectors),
                       sector_bytes * static_cast<double>(c.read.distinct + c.written.distinct),
                       static_cast<double>(c.shared_requests), static_cast<double>(c.shared_conflicts)});
  }
  return kernels;
}

std::vector<KernelTraffic> traffic_at(Index wanted, const CountedStep& one, const CountedStep& other) {
  const double share =
      static_cast<double>(wanted - one.sequences) / static_cast<double>(other.sequences - one.sequences);
  std::map<std::string, KernelTraffic> kernels;
  const auto add = [&](const std::vector<KernelTraffic>& step, double weight) {
    for (const KernelTraffic& kernel : step) {
      KernelTraffic& sum = kernels[kernel.kernel];
      sum.kernel = kernel.kernel;
      for (const auto number : numbers) sum.*number += weight * kernel.*number;
    }
  };
  add(one.kernels, 1 - share);
  add(other.kernels, share);
  for (const KernelTraffic& kernel : other.kernels) kernels[kernel.kernel].launches = kernel.launches;
  std::vector<KernelTraffic> all;
  for (const auto& [name, kernel] : kernels) all.push_back(kernel);
  return all;
}

void print_traffic(std::vector<KernelTraffic> kernels, double copy_bytes_per_s) {
  KernelTraffic sum{.kernel = "all"};
  std::size_t width = 0;
  for (const KernelTraffic& kernel : kernels) {
    width = std::max(width, kernel.kernel.size());
    sum.launches += kernel.launches;
    for (const auto number : numbers) sum.*number += kernel.*number;
  }
  std::sort(kernels.begin(), kernels.end(),
            [](const KernelTraffic& a, const KernelTraffic& b) { return a.distinct > b.distinct; });
  std::printf("%-*s %8s %10s %7s %7s %10s %10s %10s\n", static_cast<int>(width), "kernel", "launches", "MB", "us",
              "of all", "in sectors", "asked for", "conflicts");
  for (const KernelTraffic& kernel : kernels) print_row(kernel, width, sum.distinct, copy_bytes_per_s);
  print_row(sum, width, sum.distinct, copy_bytes_per_s);
}

}  // namespace abh
