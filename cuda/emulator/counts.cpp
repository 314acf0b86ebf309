// Counters of memory accesses, in a build with EMULATOR_COUNTS. Kernels are compiled with -fsanitize=thread, which
// inserts a call of __tsan_read4 and similar functions before every access to shared data. This file defines these
// functions instead of ThreadSanitizer.

#include "cuda/emulator/counts.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace emulator {

namespace {

constexpr unsigned warp_size = 32, max_warps = 32;
constexpr std::uintptr_t sector_bytes = 32, word_bytes = 4, widest_access = 16;
constexpr unsigned banks = 32;

// ---- Global memory

// Last launch that accessed a sector, per sector, separately for reads and writes.
struct Memory {
  std::uintptr_t end;
  std::array<std::vector<std::uint32_t>, 2> last_launch;
};
std::map<std::uintptr_t, Memory> memories;  // by start address
std::uint32_t launch_number = 0;

// The allocation that contains the address, or the end; usually the same as for the previous access.
std::map<std::uintptr_t, Memory>::iterator last_memory = memories.end();
auto memory_of(std::uintptr_t address) {
  const auto holds = [&](auto memory) { return address >= memory->first && address < memory->second.end; };
  if (last_memory != memories.end() && holds(last_memory)) return last_memory;
  const auto behind = memories.upper_bound(address);
  if (behind == memories.begin() || !holds(std::prev(behind))) return memories.end();
  return last_memory = std::prev(behind);
}

// True for the first access in this launch.
bool is_first(std::uintptr_t sector, bool writes) {
  const auto memory = memory_of(sector * sector_bytes);
  if (memory == memories.end()) return false;
  const std::uintptr_t begin = memory->first;
  auto& last_launch = memory->second.last_launch[writes];
  if (last_launch.empty()) last_launch.resize((memory->second.end - begin + sector_bytes - 1) / sector_bytes);
  return std::exchange(last_launch[(sector * sector_bytes - begin) / sector_bytes], launch_number) != launch_number;
}

// ---- Destination of the counts

std::unordered_map<const void*, Counts> of_kernel;
std::map<std::string, Counts> of_work;
Counts* counts = nullptr;  // of the launch

// ---- Requests

// Accesses of a warp's lanes by one instruction at its n-th execution.
struct Request {
  std::uint64_t number;  // number of earlier requests
  std::uint32_t lanes;
  std::uintptr_t address[warp_size];
};

// An instruction, or the part of an instruction that accesses 16 bytes.
struct Place {
  std::uintptr_t bytes;
  bool writes, is_shared;
};
std::vector<Place> places;
std::unordered_map<std::uint64_t, unsigned> number_of_place;

// Number of executions of an instruction by the current lane: `times` if `run` is current.
struct Visits {
  std::uint64_t run;
  unsigned times;
};
std::vector<Visits> visits;

struct Pending {
  std::vector<std::vector<Request>> at;  // by place; the first used[place] are valid
  std::vector<unsigned> used, touched;
};
Pending pending[max_warps];

// Memory that the current lane is about to access with one instruction. The compiler may split the access; its parts
// are counted once.
struct Announced {
  std::uintptr_t begin, bytes;
  bool seen[2];
};
std::array<Announced, 4> announced;
unsigned announcements = 0;

thread_local bool lane_runs = false;  // false: host code runs
bool in_access = false;               // true: parts of an access are not counted
unsigned current_warp, current_lane;
std::uint64_t run = 0;  // number of runs of lanes between waits
std::uint64_t request_count = 0;
std::uintptr_t shared_begin, static_begin, shared_end;

unsigned number_of(std::uintptr_t where, unsigned part, const Place& place) {
  const std::uint64_t key = std::uint64_t{where} << 16 | (part & 0xFF) << 8 |
                            static_cast<unsigned>(std::countr_zero(place.bytes)) << 2 | unsigned{place.writes} << 1 |
                            unsigned{place.is_shared};
  static std::array<std::pair<std::uint64_t, unsigned>, 4096> recent;
  auto& [recent_key, number] = recent[(key >> 8 ^ key >> 20 ^ key) % recent.size()];
  if (recent_key == key) return number;
  const auto [found, is_new] = number_of_place.try_emplace(key, static_cast<unsigned>(places.size()));
  if (is_new) {
    places.push_back(place);
    visits.push_back({0, 0});
  }
  recent_key = key;
  return number = found->second;
}

void note(std::uintptr_t address, std::uintptr_t bytes, bool writes, std::uintptr_t where,
          std::uintptr_t most_at_once = widest_access) {
  const bool is_shared = address >= shared_begin && address < shared_end;
  if (!is_shared && memory_of(address) == memories.end()) return;  // memory of the host: stacks, constants, parameters
  for (unsigned part = 0; bytes > 0; ++part) {
    const std::uintptr_t at_once = std::min(most_at_once, std::bit_floor(bytes));
    const unsigned place = number_of(where, part, {at_once, writes, is_shared});
    Visits& visited = visits[place];
    if (visited.run != run) visited = {run, 0};
    const unsigned time = visited.times++;
    Pending& warp = pending[current_warp];
    if (warp.at.size() <= place) {
      warp.at.resize(places.size());
      warp.used.resize(places.size());
    }
    if (warp.used[place] == 0) warp.touched.push_back(place);
    std::vector<Request>& requests = warp.at[place];
    if (warp.used[place] <= time) {
      warp.used[place] = time + 1;
      if (requests.size() <= time) requests.resize(time + 1);
      requests[time].number = request_count++;
      requests[time].lanes = 0;
    }
    requests[time].lanes |= 1u << current_lane;
    requests[time].address[current_lane] = address;
    address += at_once;
    bytes -= at_once;
  }
}

void note_access(std::uintptr_t address, std::uintptr_t bytes, bool writes, std::uintptr_t where,
                 std::uintptr_t most_at_once = widest_access) {
  if (!lane_runs || in_access) return;
  for (Announced& pack : announced) {
    if (address < pack.begin || address >= pack.begin + pack.bytes) continue;
    if (!std::exchange(pack.seen[writes], true)) note(pack.begin, pack.bytes, writes, where);
    return;
  }
  note(address, bytes, writes, where, most_at_once);
}

// Sorts and removes duplicates; returns the new count.
std::size_t sort_and_unite(std::uintptr_t* numbers, std::size_t count) {
  if (!std::is_sorted(numbers, numbers + count)) std::sort(numbers, numbers + count);
  return static_cast<std::size_t>(std::unique(numbers, numbers + count) - numbers);
}

void count_global(const Request& request, const Place& place) {
  GlobalCounts& to = place.writes ? counts->written : counts->read;
  std::uintptr_t sectors[2 * warp_size];
  std::size_t found = 0;
  for (unsigned lanes = request.lanes; lanes != 0; lanes &= lanes - 1) {
    const std::uintptr_t address = request.address[std::countr_zero(lanes)];
    for (std::uintptr_t s = address / sector_bytes; s <= (address + place.bytes - 1) / sector_bytes; ++s) {
      sectors[found++] = s;
    }
  }
  found = sort_and_unite(sectors, found);
  ++to.requests;
  to.bytes += static_cast<unsigned>(std::popcount(request.lanes)) * place.bytes;
  to.sectors += found;
  for (std::size_t i = 0; i < found; ++i) to.distinct += is_first(sectors[i], place.writes);
}

// A shared-memory request, or several merged ones.
struct SharedRequest {
  const Request* first;
  Place place;
};

// A bank delivers one word of four bytes at a time, to all lanes that read it.
void count_shared(const SharedRequest& request) {
  const std::uintptr_t bytes = request.place.bytes;
  const unsigned lanes_at_once = bytes <= word_bytes ? warp_size : static_cast<unsigned>(128 / bytes);
  for (unsigned first = 0; first < warp_size; first += lanes_at_once) {
    std::uintptr_t words[2 * warp_size];
    std::size_t found = 0;
    for (unsigned lane = first; lane < first + lanes_at_once; ++lane) {
      if (!(request.first->lanes >> lane & 1)) continue;
      const std::uintptr_t address = request.first->address[lane];
      for (std::uintptr_t w = address / word_bytes; w <= (address + bytes - 1) / word_bytes; ++w) words[found++] = w;
    }
    if (found == 0) continue;
    found = sort_and_unite(words, found);
    unsigned of_bank[banks] = {}, most = 0;
    for (std::size_t i = 0; i < found; ++i) most = std::max(most, ++of_bank[words[i] % banks]);
    ++counts->shared_requests;
    counts->shared_conflicts += most - 1;
  }
}

// True if the second access continues the first, for every lane, and both form one aligned access.
bool are_one(const SharedRequest& first, const SharedRequest& second) {
  const std::uintptr_t bytes = first.place.bytes;
  if (second.place.bytes != bytes || 2 * bytes > widest_access || first.place.writes != second.place.writes ||
      first.first->lanes != second.first->lanes) {
    return false;
  }
  for (unsigned lanes = first.first->lanes; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    const std::uintptr_t address = first.first->address[lane];
    if (address % (2 * bytes) != 0 || second.first->address[lane] != address + bytes) return false;
  }
  return true;
}

// For static shared memory a GPU's compiler knows all alignments and merges adjacent accesses, such as those of a
// struct copy.
void count_static(std::vector<SharedRequest>& requests) {
  std::sort(requests.begin(), requests.end(),
            [](const SharedRequest& a, const SharedRequest& b) { return a.first->number < b.first->number; });
  constexpr std::size_t side_by_side = 4;  // maximum number of interleaved arrays
  static std::vector<SharedRequest> united;
  united.clear();
  for (SharedRequest next : requests) {
    for (std::size_t back = 1; back <= std::min(side_by_side, united.size());) {
      const auto before = united.end() - static_cast<std::ptrdiff_t>(back++);
      if (!are_one(*before, next)) continue;
      next = {before->first, {2 * before->place.bytes, before->place.writes, true}};
      united.erase(before);
      back = 1;
    }
    united.push_back(next);
  }
  for (const SharedRequest& request : united) count_shared(request);
}

// ---- Names of functions, from the symbol table of the program

struct Symbol {
  std::string name, file;
};

std::unordered_map<std::uintptr_t, Symbol> functions_of_program() {
  std::ifstream stream("/proc/self/exe", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto read = [&](std::uintptr_t offset, auto& to) {
    bytes.copy(reinterpret_cast<char*>(&to), sizeof to, offset);
  };
  std::uintptr_t loaded_at = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = program->dlpi_addr;
        return 1;  // the first entry is the program
      },
      &loaded_at);
  std::unordered_map<std::uintptr_t, Symbol> functions;
  ElfW(Ehdr) header{};
  read(0, header);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    ElfW(Shdr) table{}, names{};
    read(header.e_shoff + i * sizeof table, table);
    if (table.sh_type != SHT_SYMTAB) continue;
    read(header.e_shoff + table.sh_link * sizeof names, names);
    std::string file;
    for (std::uintptr_t offset = 0; offset < table.sh_size; offset += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol{};
      read(table.sh_offset + offset, symbol);
      const char* name = bytes.c_str() + names.sh_offset + symbol.st_name;
      const unsigned type = symbol.st_info & 15, binding = symbol.st_info >> 4;
      if (type == STT_FILE) file = name;
      if (type == STT_FUNC) functions[loaded_at + symbol.st_value] = {name, binding == STB_LOCAL ? file : ""};
    }
  }
  return functions;
}

// Without return type and parameters.
std::string readable(const std::string& mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : mangled;
  std::free(demangled);
  if (name.ends_with(')')) {
    std::size_t at = name.size();
    for (int open = 0; at-- > 0;) {
      open += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
      if (open == 0) break;
    }
    name.resize(at);
  }
  constexpr std::string_view returns = "void ";
  if (name.starts_with(returns)) name.erase(0, returns.size());
  return name;
}

}  // namespace

std::vector<Counts> take_counts() {
  const std::unordered_map<std::uintptr_t, Symbol> functions = functions_of_program();
  std::vector<Counts> all;
  for (auto& [kernel, counted] : of_kernel) {
    const auto found = functions.find(reinterpret_cast<std::uintptr_t>(kernel));
    counted.kernel = found == functions.end() ? "a kernel without a name" : readable(found->second.name);
    counted.file = found == functions.end() ? "" : found->second.file;
    all.push_back(counted);
  }
  for (auto& [what, counted] : of_work) {
    counted.kernel = what;
    all.push_back(counted);
  }
  of_kernel.clear();
  of_work.clear();
  return all;
}

namespace detail {

void count_in(const void* global, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(global);
  memories[begin] = {begin + bytes, {}};
}

void count_no_more_in(const void* global) {
  memories.erase(reinterpret_cast<std::uintptr_t>(global));
  last_memory = memories.end();
}

void count_launch(const void* kernel, const void* shared, const void* static_shared, std::size_t shared_bytes) {
  ++launch_number;
  counts = &of_kernel[kernel];
  ++counts->launches;
  shared_begin = reinterpret_cast<std::uintptr_t>(shared);
  static_begin = reinterpret_cast<std::uintptr_t>(static_shared);
  shared_end = shared_begin + shared_bytes;
  for (Pending& warp : pending) {  // left over from a launch that ended in an Error
    for (const unsigned place : warp.touched) warp.used[place] = 0;
    warp.touched.clear();
  }
}

void count_for(unsigned warp, unsigned lane) {
  lane_runs = true;
  in_access = false;
  current_warp = warp;
  current_lane = lane;
  ++run;
  announced = {};
}

void count_requests_of(unsigned warp) {
  static std::vector<SharedRequest> in_static;
  in_static.clear();
  for (const unsigned place : pending[warp].touched) {
    for (unsigned time = 0; time < pending[warp].used[place]; ++time) {
      const Request& request = pending[warp].at[place][time];
      if (!places[place].is_shared) {
        count_global(request, places[place]);
      } else if (request.address[std::countr_zero(request.lanes)] < static_begin) {
        count_shared({&request, places[place]});
      } else {
        in_static.push_back({&request, places[place]});
      }
    }
    pending[warp].used[place] = 0;
  }
  count_static(in_static);
  pending[warp].touched.clear();
}

void count_no_launch() { lane_runs = false; }

void count_work(const char* what) {
  ++launch_number;
  counts = &of_work[what];
  ++counts->launches;
}

void count_work_on(const void* memory, std::size_t bytes, bool writes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (bytes == 0 || memory_of(address) == memories.end()) return;
  GlobalCounts& to = writes ? counts->written : counts->read;
  to.bytes += bytes;
  for (std::uintptr_t s = address / sector_bytes; s <= (address + bytes - 1) / sector_bytes; ++s) {
    const bool first = is_first(s, writes);
    to.distinct += first;
    to.sectors += first;
  }
}

void announce_access(const void* address, std::size_t bytes) {
  announced[announcements++ % announced.size()] = {reinterpret_cast<std::uintptr_t>(address), bytes, {}};
}

#define EMULATOR_WHERE reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

void begin_access(const void* address, std::size_t bytes, bool writes) {
  if (lane_runs) note(reinterpret_cast<std::uintptr_t>(address), bytes, writes, EMULATOR_WHERE);
  in_access = true;
}
void end_access() { in_access = false; }

}  // namespace detail

}  // namespace emulator

// ---- Functions called by code compiled with g++ -fsanitize=thread

extern "C" {

// Called by host code in the files with kernels.
void __tsan_init() {}
void __tsan_vptr_update(void*, void*) {}
unsigned char __tsan_atomic8_load(const volatile unsigned char* from, int) {
  return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}

#define EMULATOR_SEEN(name, bytes, writes)                                                           \
  void name(void* address) {                                                                         \
    emulator::note_access(reinterpret_cast<std::uintptr_t>(address), bytes, writes, EMULATOR_WHERE); \
  }
EMULATOR_SEEN(__tsan_read1, 1, false)
EMULATOR_SEEN(__tsan_read2, 2, false)
EMULATOR_SEEN(__tsan_read4, 4, false)
EMULATOR_SEEN(__tsan_read8, 8, false)
EMULATOR_SEEN(__tsan_read16, 16, false)
EMULATOR_SEEN(__tsan_write1, 1, true)
EMULATOR_SEEN(__tsan_write2, 2, true)
EMULATOR_SEEN(__tsan_write4, 4, true)
EMULATOR_SEEN(__tsan_write8, 8, true)
EMULATOR_SEEN(__tsan_write16, 16, true)

// Structs with the alignment of a single number.
void __tsan_read_range(void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  emulator::note_access(begin, bytes, false, EMULATOR_WHERE, begin % 4 == 0 ? 4 : 2);
}
void __tsan_write_range(void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  emulator::note_access(begin, bytes, true, EMULATOR_WHERE, begin % 4 == 0 ? 4 : 2);
}

}  // extern "C"
