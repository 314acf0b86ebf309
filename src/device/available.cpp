#include "device/available.hpp"

#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace abh {

namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

// First number in a file; nullopt if the file is missing or contains "max".
template <class Number>
std::optional<Number> number_in(const std::string& path) {
  Number number{};
  if (std::ifstream file(path); file >> number) return number;
  return std::nullopt;
}

// True if `word` is an element of a comma-separated list.
bool lists(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != list.npos;
}

// Path of the control group of this process: version 1 with this controller, or version 2.
std::optional<std::string> path_of_group(const std::string& root, const std::string& controller, int version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string number, controllers, path;
       std::getline(file, number, ':') && std::getline(file, controllers, ':') && std::getline(file, path);) {
    if (version == 2 ? number == "0" && controllers.empty() : lists(controllers, controller)) return path;
  }
  return std::nullopt;
}

// Replaces the octal escapes of /proc/self/mountinfo, such as \040 for a space.
std::string unescaped(const std::string& text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string digits = text[i] == '\\' ? text.substr(i + 1, 3) : "";
    if (digits.size() == 3 && digits.find_first_not_of("01234567") == digits.npos) {
      path += static_cast<char>(std::stoi(digits, nullptr, 8));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

// Folders of the control group of this process and of its mounted parent groups.
std::vector<std::string> folders_of_groups(const std::string& root, const std::string& controller, int version) {
  const std::optional<std::string> path = path_of_group(root, controller, version);
  if (!path) return {};
  // number, parent, device, mounted part of the hierarchy, mount point, options, more options, "-", type, source,
  // options
  std::ifstream mounts(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string number, parent, device, mounted, where, word, type, source, options;
    words >> number >> parent >> device >> mounted >> where;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    if (version == 2 ? type != "cgroup2" : type != "cgroup" || !lists(options, controller)) continue;
    mounted = unescaped(mounted);
    if (mounted == "/") mounted.clear();
    const std::string top = root + unescaped(where);
    // In a container, the path may refer to the host and not exist here. Then the mounted folder is the group.
    std::string below;
    if (path->starts_with(mounted + "/") && path->find("/..") == path->npos) below = path->substr(mounted.size());
    std::vector<std::string> folders;
    for (; !below.empty() && below != "/"; below.erase(below.rfind('/'))) folders.push_back(top + below);
    folders.push_back(top);
    return folders;
  }
  return {};
}

// Number of processors that the control groups allow; infinite without a quota.
double processors_of_groups(const std::string& root) {
  double least = std::numeric_limits<double>::infinity();
  const auto grant = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  };
  for (const std::string& folder : folders_of_groups(root, "cpu", 1)) {
    grant(number_in<double>(folder + "/cpu.cfs_quota_us").value_or(0),  // -1: no quota
          number_in<double>(folder + "/cpu.cfs_period_us").value_or(0));
  }
  for (const std::string& folder : folders_of_groups(root, "cpu", 2)) {
    double quota = 0, period = 0;
    if (std::ifstream file(folder + "/cpu.max"); file >> quota >> period) grant(quota, period);  // "max": no quota
  }
  return least;
}

// Remaining bytes of a limit. A group counts the page cache as used, but frees its inactive part before an allocation
// fails.
std::size_t left_of(std::optional<std::size_t> limit, std::size_t used, const std::string& statistics_file,
                    const std::string& inactive) {
  if (!limit) return no_limit;
  std::ifstream statistics(statistics_file);
  std::size_t bytes = 0;
  for (std::string key; statistics >> key >> bytes;) {
    if (key == inactive) used -= std::min(bytes, used);
  }
  return *limit > used ? *limit - used : 0;
}

// Remaining bytes of the control groups; no_limit without a limit.
std::size_t memory_of_groups(const std::string& root) {
  std::size_t least = no_limit;
  for (const std::string& folder : folders_of_groups(root, "memory", 1)) {
    least = std::min(least, left_of(number_in<std::size_t>(folder + "/memory.limit_in_bytes"),
                                    number_in<std::size_t>(folder + "/memory.usage_in_bytes").value_or(0),
                                    folder + "/memory.stat", "total_inactive_file"));
  }
  for (const std::string& folder : folders_of_groups(root, "memory", 2)) {
    least = std::min(least, left_of(number_in<std::size_t>(folder + "/memory.max"),
                                    number_in<std::size_t>(folder + "/memory.current").value_or(0),
                                    folder + "/memory.stat", "inactive_file"));
  }
  return least;
}

Index processors() {
#if defined(__linux__)
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

std::size_t memory_of_machine(const std::string& root) {
  std::ifstream meminfo(root + "/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    std::size_t kilobytes = 0;
    if (meminfo >> kilobytes; key == "MemAvailable:") return kilobytes * 1024;
    std::getline(meminfo, unit);
  }
  // Without /proc: the physical memory, or no limit.
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page_bytes > 0 ? static_cast<std::size_t>(pages) * static_cast<std::size_t>(page_bytes)
                                     : no_limit;
}

}  // namespace

Index available_threads(const std::string& root) {
  const Index all = processors();
  const double granted = processors_of_groups(root);
  return granted < static_cast<double>(all) ? std::max<Index>(1, static_cast<Index>(std::lround(granted))) : all;
}

std::size_t available_memory(const std::string& root) {
  return std::min(memory_of_machine(root), memory_of_groups(root));
}

void require_memory(std::size_t wanted, std::size_t taken, bool in_chunks) {
  const std::size_t free = available_memory(), most = std::numeric_limits<std::size_t>::max();
  const std::size_t available = free > most - taken ? most : free + taken;
  if (wanted <= available) return;
  const auto megabytes = [](std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  throw Error("out of memory: this needs " + megabytes(wanted) + ", available: " + megabytes(available) +
              "; reduce --batch, --context or --channels, or use " +
              (in_chunks ? "--recompute 1 and a short --chunk" : "--recompute 1"));
}

}  // namespace abh
