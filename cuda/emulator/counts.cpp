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

#include "cuda/emulator/record.hpp"
#include "cuda/emulator/requests.hpp"

namespace emulator {

namespace {

constexpr unsigned max_warps = 32;
#if defined(EMULATOR_RECORDS)
constexpr bool records = true;
#else
constexpr bool records = false;
#endif

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

// An instruction, or the part of an instruction that accesses 16 bytes.
struct Place {
  std::uintptr_t bytes;
  bool writes, is_shared;
  std::uintptr_t where;
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
const void* copied_from = nullptr;    // source of the asynchronous copy that makes this access
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
    const unsigned place = number_of(where, part, {at_once, writes, is_shared, where});
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
    if constexpr (records) {
      record::access(requests[time].number, current_lane, address, at_once, writes, copied_from);
    }
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

void count_global(const Request& request, const Place& place) {
  GlobalCounts& to = place.writes ? counts->written : counts->read;
  const Pieces sectors = pieces_of(request, place.bytes, sector_bytes);
  ++to.requests;
  to.bytes += static_cast<unsigned>(std::popcount(request.lanes)) * place.bytes;
  to.sectors += sectors.count;
  for (std::size_t i = 0; i < sectors.count; ++i) to.distinct += is_first(sectors.number[i], place.writes);
}

// A shared-memory request, or several merged ones.
struct SharedRequest {
  const Request* first;
  Place place;
  std::array<const Request*, widest_access> parts;  // those that are one, by address
  unsigned count;
};
SharedRequest alone(const Request& request, const Place& place) { return {&request, place, {&request}, 1}; }

void count_shared(const SharedRequest& request) {
  const SharedCost cost = shared_cost(*request.first, request.place.bytes);
  counts->shared_requests += cost.phases;
  counts->shared_conflicts += cost.conflicts;
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
void unite_static(std::vector<SharedRequest>& requests) {
  std::sort(requests.begin(), requests.end(),
            [](const SharedRequest& a, const SharedRequest& b) { return a.first->number < b.first->number; });
  constexpr std::size_t side_by_side = 4;  // maximum number of interleaved arrays
  static std::vector<SharedRequest> united;
  united.clear();
  for (SharedRequest next : requests) {
    for (std::size_t back = 1; back <= std::min(side_by_side, united.size());) {
      const auto before = united.end() - static_cast<std::ptrdiff_t>(back++);
      if (!are_one(*before, next)) continue;
      SharedRequest both = *before;
      both.place.bytes *= 2;
      for (unsigned i = 0; i < next.count; ++i) both.parts[both.count++] = next.parts[i];
      next = both;
      united.erase(before);
      back = 1;
    }
    united.push_back(next);
  }
  requests.swap(united);
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

namespace {
// The name of a kernel and the file where it stands, looked up once.
Symbol name_of(const void* kernel) {
  static const std::unordered_map<std::uintptr_t, Symbol> functions = functions_of_program();
  const auto found = functions.find(reinterpret_cast<std::uintptr_t>(kernel));
  if (found == functions.end()) return {"a kernel without a name", ""};
  return {readable(found->second.name), found->second.file};
}
}  // namespace

std::vector<Counts> take_counts() {
  std::vector<Counts> all;
  for (auto& [kernel, counted] : of_kernel) {
    const Symbol symbol = name_of(kernel);
    counted.kernel = symbol.name;
    counted.file = symbol.file;
    all.push_back(counted);
  }
  for (auto& [what, counted] : of_work) {
    counted.kernel = what;
    all.push_back(counted);
  }
  of_kernel.clear();
  of_work.clear();
  counts = nullptr;
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
  if (records && counts->kernel.empty()) counts->kernel = name_of(kernel).name;
  shared_begin = reinterpret_cast<std::uintptr_t>(shared);
  static_begin = reinterpret_cast<std::uintptr_t>(static_shared);
  shared_end = shared_begin + shared_bytes;
  if constexpr (records) record::launch(counts->kernel, shared_begin);
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
  if constexpr (records) record::settle();
  ++run;
  announced = {};
}

void count_requests_of(unsigned warp) {
  static std::vector<SharedRequest> in_static, all;
  in_static.clear();
  all.clear();
  if constexpr (records) record::settle();
  for (const unsigned place : pending[warp].touched) {
    for (unsigned time = 0; time < pending[warp].used[place]; ++time) {
      const Request& request = pending[warp].at[place][time];
      const SharedRequest asked = alone(request, places[place]);
      if (!places[place].is_shared) {
        count_global(request, places[place]);
        if constexpr (records) all.push_back(asked);
      } else if (request.address[std::countr_zero(request.lanes)] < static_begin) {
        count_shared(asked);
        if constexpr (records) all.push_back(asked);
      } else {
        in_static.push_back(asked);
      }
    }
    pending[warp].used[place] = 0;
  }
  unite_static(in_static);
  for (const SharedRequest& request : in_static) count_shared(request);
  if constexpr (records) {
    all.insert(all.end(), in_static.begin(), in_static.end());
    std::vector<record::Requested> requested;
    for (const SharedRequest& one : all) {
      requested.push_back({*one.first, one.place.bytes, one.place.writes, one.place.is_shared, one.place.where, {}});
      for (unsigned i = 0; i < one.count; ++i) requested.back().parts.push_back(one.parts[i]->number);
    }
    record::requests(warp, std::move(requested));
  }
  pending[warp].touched.clear();
}

void count_wait(unsigned warp, const Waited& waited) {
  if (!counts) return;
  if (waited.is_block) {
    counts->barriers += warp == 0;
  } else if (waited.is_exchange) {
    ++counts->shuffles;
  }
  if constexpr (records) record::wait(warp, waited);
}

void count_product(const void* result, std::size_t bytes) {
  if (!counts) return;
  counts->products += current_lane == 0;
  if constexpr (records) record::product(current_warp, current_lane, result, bytes);
}

void count_source([[maybe_unused]] unsigned lane, [[maybe_unused]] bool is_float) {
  if constexpr (records) record::source(current_warp, current_lane, lane, is_float);
}

void count_block(unsigned x, unsigned y, unsigned z, unsigned threads) {
  if constexpr (records) record::block(x, y, z, threads);
}

void count_shared_array(const char* name, const void* at, std::size_t bytes) {
  if constexpr (records) record::shared_array(name, reinterpret_cast<std::uintptr_t>(at) - shared_begin, bytes);
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

std::pair<std::uintptr_t, std::uintptr_t> bounds_of(std::uintptr_t address) {
  const auto memory = memory_of(address);
  if (memory == memories.end()) return {0, 0};
  return {memory->first, memory->second.end};
}

void announce_access(const void* address, std::size_t bytes) {
  for (Announced& earlier : announced) {
    if (earlier.begin == reinterpret_cast<std::uintptr_t>(address)) earlier = {};
  }
  announced[announcements++ % announced.size()] = {reinterpret_cast<std::uintptr_t>(address), bytes, {}};
}

#define EMULATOR_WHERE reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

void begin_access(const void* address, std::size_t bytes, bool writes, const void* from) {
  copied_from = from;
  if (lane_runs) note(reinterpret_cast<std::uintptr_t>(address), bytes, writes, EMULATOR_WHERE);
  copied_from = nullptr;
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
