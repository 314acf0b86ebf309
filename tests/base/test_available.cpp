// Memory and threads granted by a simulated system: /proc and /sys in a folder of their own.

#include <filesystem>
#include <string>

#include "device/available.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/folder.hpp"

using namespace abh;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

struct Machine : TestFolder {
  Machine() { file("/proc/meminfo", "MemTotal: 4096000 kB\nMemFree: 1 kB\nMemAvailable: 2048000 kB\nBuffers: 5 kB\n"); }

  void file(const std::string& path, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(*this / path).parent_path());
    write_bytes(*this / path, content);
  }
  // A file with a number of MiB.
  void size(const std::string& path, std::size_t mebibytes) const {
    file(path, std::to_string(mebibytes * mebibyte) + "\n");
  }
  void groups(const std::string& lines) const { file("/proc/self/cgroup", lines); }
  // One line per mount: the mounted part of a hierarchy, the mount point, its type and options.
  void mounts(const std::string& lines) const { file("/proc/self/mountinfo", lines); }

  std::size_t memory() const { return available_memory(path()); }
  Index threads() const { return available_threads(path()); }
};

const std::string first = "20 1 0:20 / / rw,relatime shared:1 - ext4 /dev/root rw\n";
const std::string second_version =
    first + "31 20 0:28 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw\n";

// Expected number of threads: a quota counts only if it is below the machine's processor count.
Index granted(Index processors) { return std::min(processors, available_threads("/nowhere")); }

}  // namespace

TEST_CASE("available: without control groups, the machine's limits", "[available]") {
  const Machine machine;
  CHECK(machine.memory() == std::size_t{2048000} * 1024);
  CHECK(machine.threads() == available_threads("/nowhere"));
  CHECK(available_threads("/nowhere") >= 1);
  CHECK(available_memory("/nowhere") > mebibyte);  // all that is built in
  CHECK(available_memory() > mebibyte);
  // Groups without limits, mounts of other types, incomplete lines.
  machine.groups("0::/a/b\n");
  machine.mounts(second_version);
  machine.file("/sys/fs/cgroup/a/b/memory.max", "max\n");
  machine.file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  CHECK(machine.memory() == std::size_t{2048000} * 1024);
  CHECK(machine.threads() == available_threads("/nowhere"));
  machine.groups("what\nis::\n\n");
  CHECK(machine.memory() == std::size_t{2048000} * 1024);
}

TEST_CASE("available: version 2: limits of the group and its ancestors", "[available]") {
  const Machine machine;
  machine.groups("0::/user.slice/my session:1/run\n");
  machine.mounts(second_version);
  const std::string top = "/sys/fs/cgroup", slice = top + "/user.slice", session = slice + "/my session:1",
                    run = session + "/run";
  // Only the group.
  machine.size(run + "/memory.max", 300);
  machine.size(run + "/memory.current", 100);
  CHECK(machine.memory() == 200 * mebibyte);
  // The page cache, which can be reclaimed.
  machine.file(run + "/memory.stat", "anon 5\nfile 7\ninactive_file " + std::to_string(40 * mebibyte) + "\nslab 1\n");
  CHECK(machine.memory() == 240 * mebibyte);
  // A group around it has less left.
  machine.size(slice + "/memory.max", 500);
  machine.size(slice + "/memory.current", 450);
  CHECK(machine.memory() == 50 * mebibyte);
  machine.size(slice + "/memory.current", 501);
  CHECK(machine.memory() == 0);
  // The limit of a neighbouring group does not count.
  machine.file(slice + "/memory.max", "max\n");
  machine.file(slice + "/other/memory.max", "1\n");
  CHECK(machine.memory() == 240 * mebibyte);
  // A container sees only what is mounted in it.
  machine.size(top + "/memory.max", 7);
  CHECK(machine.memory() == 7 * mebibyte);

  machine.file(session + "/cpu.max", "100000 100000\n");
  CHECK(machine.threads() == 1);
  machine.file(session + "/cpu.max", "200000 100000\n");
  CHECK(machine.threads() == granted(2));
  machine.file(run + "/cpu.max", "20000 100000\n");  // a fifth
  CHECK(machine.threads() == 1);
  machine.file(run + "/cpu.max", "80000000 100000\n");
  machine.file(session + "/cpu.max", "max 100000\n");
  CHECK(machine.threads() == granted(800));
  machine.file(top + "/cpu.max", "120000 100000\n");
  CHECK(machine.threads() == 1);
}

TEST_CASE("available: version 1: one hierarchy per controller", "[available]") {
  const Machine machine;
  machine.groups("9:name=systemd:/\n8:pids:/other\n4:memory:/jobs/mine\n3:cpuset:/wrong\n2:cpu,cpuacct:/batch\n0::/\n");
  machine.mounts(first + "31 20 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
                 "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:7 - cgroup cgroup rw,cpu,cpuacct\n" +
                 "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n" +
                 "35 31 0:32 / /sys/fs/cgroup/mem\\040ory rw,relatime - cgroup cgroup rw,memory\n" +
                 "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  const std::string memory = "/sys/fs/cgroup/mem ory", jobs = memory + "/jobs", mine = jobs + "/mine";
  const std::string unlimited = "9223372036854771712\n";
  for (const std::string& folder : {memory, jobs, mine}) {
    machine.file(folder + "/memory.limit_in_bytes", unlimited);
    machine.size(folder + "/memory.usage_in_bytes", 100);
  }
  CHECK(machine.memory() == std::size_t{2048000} * 1024);
  machine.size(mine + "/memory.limit_in_bytes", 120);
  CHECK(machine.memory() == 20 * mebibyte);
  // inactive_file is the group's own; total_inactive_file includes its descendants, like the usage.
  machine.file(mine + "/memory.stat", "inactive_file 0\nhierarchical_memory_limit 1\ntotal_inactive_file " +
                                          std::to_string(30 * mebibyte) + "\n");
  CHECK(machine.memory() == 50 * mebibyte);
  machine.size(jobs + "/memory.limit_in_bytes", 101);
  CHECK(machine.memory() == mebibyte);

  const std::string cpu = "/sys/fs/cgroup/cpu,cpuacct";
  machine.file(cpu + "/batch/cpu.cfs_quota_us", "-1\n");
  machine.file(cpu + "/batch/cpu.cfs_period_us", "100000\n");
  CHECK(machine.threads() == available_threads("/nowhere"));
  machine.file(cpu + "/batch/cpu.cfs_quota_us", "150000\n");
  CHECK(machine.threads() == granted(2));
  machine.file(cpu + "/cpu.cfs_quota_us", "50000\n");
  machine.file(cpu + "/cpu.cfs_period_us", "50000\n");
  CHECK(machine.threads() == 1);
}

TEST_CASE("available: in a container the path of a group may be the machine's", "[available]") {
  const Machine machine;
  machine.groups("0::/docker/abc/inner\n");
  // The mount is a part of the hierarchy: the path begins with it ...
  machine.mounts("31 20 0:28 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  machine.file("/sys/fs/cgroup/inner/memory.max", std::to_string(64 * mebibyte));
  CHECK(machine.memory() == 64 * mebibyte);
  machine.size("/sys/fs/cgroup/memory.max", 32);
  CHECK(machine.memory() == 32 * mebibyte);
  // ... or the path is from elsewhere: then the mount is the group.
  machine.groups("0::/docker/abcdef\n");
  CHECK(machine.memory() == 32 * mebibyte);
  machine.groups("0::/../../elsewhere\n");
  machine.mounts(second_version);
  machine.file("/sys/elsewhere/memory.max", "1");
  CHECK(machine.memory() == 32 * mebibyte);
  machine.groups("0::/my pod/inner\n");
  machine.mounts("31 20 0:28 /my\\040pod /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  machine.size("/sys/fs/cgroup/inner/memory.max", 16);
  CHECK(machine.memory() == 16 * mebibyte);
  machine.groups("4:memory:/docker/abc\n0::/\n");
  machine.mounts("35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(64 * mebibyte));
  machine.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(mebibyte));
  CHECK(machine.memory() == 63 * mebibyte);
}
