// The recorder of docs/kernels. counts.cpp groups the requests. The recorder sorts them into an order that is correct
// for every lane, stores the written numbers, and translates addresses into source lines.

#include "cuda/emulator/record.hpp"

#include <link.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "cuda/emulator/counts.hpp"
#include "cuda/emulator/emulator.hpp"

namespace emulator::record {

namespace {

constexpr std::uintptr_t alignment = 256;

// Global memory with the byte numbers of the trace: arrays one after another, with their alignment.
struct Array {
  std::string name, type;
  std::vector<long> shape;
  std::uintptr_t begin, end, first;  // addresses; the number of the first byte
  std::vector<unsigned char> before, now;
};

struct Event {
  char kind;  // r w: global memory, R W: shared, x: exchange, v: vote, m: product, b: barrier, y: barrier of a warp
  std::uintptr_t where = 0;
  std::uintptr_t bytes = 0;
  std::uint32_t lanes = 0;
  std::array<std::uintptr_t, lanes_of_warp> at{};  // numbers of bytes; lanes that an exchange reads from
  std::array<std::array<unsigned char, widest_access>, lanes_of_warp> values{};
  std::string type{}, name{};
  bool has_values = false, has_result = false;
};

// The events of a warp of a block, or a line of the trace by itself.
struct Row {
  int warp = -1;
  Event event{};
  std::string line = {};
};

struct Values {
  std::array<std::uint64_t, lanes_of_warp> order{};
  std::array<std::array<unsigned char, widest_access>, lanes_of_warp> of_lane{};
};

bool on = false;
int most_blocks = 0, blocks_left = 0;
bool in_block() { return on && blocks_left > 0; }
std::vector<Array> arrays;
std::vector<Row> rows;
std::string shared_type;
std::uintptr_t shared_begin = 0, scratch_count = 0;
std::vector<unsigned char> shared_now;
std::map<std::string, bool> shared_named;
std::unordered_map<std::uint64_t, Values> values_of;
std::uint64_t accesses = 0;
std::map<unsigned, std::size_t> last_exchange;  // by warp: its row

struct Unsettled {
  std::uint64_t number;
  unsigned lane;
  std::uintptr_t address;
  std::size_t bytes;
};
std::vector<Unsettled> unsettled;

void settle(const Unsettled& write) {
  std::memcpy(values_of[write.number].of_lane[write.lane].data(), reinterpret_cast<const void*>(write.address),
              write.bytes);
}

Array& add_array(const std::string& name, const std::string& type, const std::vector<long>& shape, std::uintptr_t begin,
                 std::uintptr_t bytes) {
  const std::uintptr_t last = arrays.empty() ? 0 : arrays.back().first + arrays.back().end - arrays.back().begin;
  const std::uintptr_t first = (last + alignment - 1) / alignment * alignment + begin % alignment;
  const auto* memory = reinterpret_cast<const unsigned char*>(begin);
  const std::vector<unsigned char> now(memory, memory + bytes);
  arrays.push_back({name, type, shape, begin, begin + bytes, first, now, now});
  return arrays.back();
}

Array& array_of(std::uintptr_t address) {
  for (Array& array : arrays) {
    if (address >= array.begin && address < array.end) return array;
  }
  const auto [begin, end] = detail::bounds_of(address);
  const std::string name = "scratch" + (scratch_count++ == 0 ? std::string() : std::to_string(scratch_count));
  return add_array(name, "f4", {}, begin, end - begin);
}

void add(unsigned warp, Event event) {
  Row row;
  row.warp = static_cast<int>(warp);
  row.event = std::move(event);
  rows.push_back(std::move(row));
}

// The order of the requests, correct for every active lane: among the requests that are next for all their lanes, takes
// the earliest. If lanes reached places in different orders, there may be none; then takes the earliest next request.
std::vector<std::size_t> ordered(const std::vector<Requested>& all) {
  std::vector<std::vector<std::size_t>> of_lane(lanes_of_warp);
  for (unsigned lane = 0; lane < lanes_of_warp; ++lane) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].request.lanes >> lane & 1) of_lane[lane].push_back(i);
    }
    std::sort(of_lane[lane].begin(), of_lane[lane].end(), [&](std::size_t a, std::size_t b) {
      return values_of[all[a].parts[0]].order[lane] < values_of[all[b].parts[0]].order[lane];
    });
  }
  std::vector<std::size_t> order, next(lanes_of_warp, 0);
  while (order.size() < all.size()) {
    std::size_t best = all.size(), fallback = all.size();
    for (unsigned lane = 0; lane < lanes_of_warp; ++lane) {
      if (next[lane] == of_lane[lane].size()) continue;
      const std::size_t i = of_lane[lane][next[lane]];
      bool ready = true;
      for (std::uint32_t lanes = all[i].request.lanes; lanes != 0; lanes &= lanes - 1) {
        const auto other = static_cast<unsigned>(std::countr_zero(lanes));
        ready = ready && of_lane[other][next[other]] == i;
      }
      const auto first = [&](std::size_t than) {
        return than == all.size() || all[i].request.number < all[than].request.number;
      };
      if (first(fallback)) fallback = i;
      if (ready && first(best)) best = i;
    }
    if (best == all.size()) {  // before other requests of some of its lanes
      best = fallback;
      for (auto& mine : of_lane) std::erase(mine, best);
    } else {
      for (std::uint32_t lanes = all[best].request.lanes; lanes != 0; lanes &= lanes - 1) {
        ++next[static_cast<unsigned>(std::countr_zero(lanes))];
      }
    }
    order.push_back(best);
  }
  return order;
}

// True if every lane writes what it reads, from global memory into shared memory or back.
bool is_copy(const Event& read, const Event& write) {
  const auto is = [](const Event& event, char one, char other) { return event.kind == one || event.kind == other; };
  if (!is(read, 'r', 'R') || !is(write, 'w', 'W') || (read.kind == 'r') == (write.kind == 'w')) return false;
  bool same = read.bytes == write.bytes && read.lanes == write.lanes;
  for (unsigned lane = 0; lane < lanes_of_warp; ++lane) {
    same = same && (!(read.lanes >> lane & 1) ||
                    std::memcmp(read.values[lane].data(), write.values[lane].data(), read.bytes) == 0);
  }
  return same;
}

// ---- The text

std::string number_text(const unsigned char* at, const std::string& type, std::size_t size) {
  char text[32];
  if (type == "i4" && size == 4) {
    std::int32_t value = 0;
    std::memcpy(&value, at, size);
    return std::to_string(value);
  }
  double value = 0;
  if (size == 8) {
    std::memcpy(&value, at, size);
  } else if (size == 4) {
    float single = 0;
    std::memcpy(&single, at, size);
    value = double{single};
  } else {
    std::uint32_t bits = 0;
    std::memcpy(&bits, at, size);
    value = double{std::bit_cast<float>(bits << 16)};
  }
  if (value != value) return "nan";
  if (value == 0) return "0";
  std::snprintf(text, sizeof text, "%.4g", value);
  std::string shorter = text;
  const std::size_t zero = shorter.find("0.");
  if (zero == 0 || (zero == 1 && shorter[0] == '-')) shorter.erase(zero, 1);
  return shorter;
}

std::size_t size_of(const std::string& type) { return type == "bf" ? 2 : type == "f8" ? 8 : 4; }

// "1 1 1 2" as "1*3 2".
std::string in_runs(const std::vector<std::string>& texts) {
  std::string line;
  for (std::size_t i = 0, j = 0; i < texts.size(); i = j) {
    for (j = i + 1; j < texts.size() && texts[j] == texts[i];) ++j;
    line += (line.empty() ? "" : " ") + texts[i] + (j - i > 1 ? "*" + std::to_string(j - i) : "");
  }
  return line;
}

std::string values_text(const std::vector<unsigned char>& bytes, const std::string& type) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i + size_of(type) <= bytes.size(); i += size_of(type)) {
    texts.push_back(number_text(&bytes[i], type, size_of(type)));
  }
  return in_runs(texts);
}

// Addresses of lanes as the first one and the differences: "64,4*31". For an exchange: "^4" if every lane reads from
// the lane whose number differs in the bits of 4.
std::string addresses_text(const Event& event) {
  const unsigned any_lane = static_cast<unsigned>(std::countr_zero(event.lanes));
  const std::uintptr_t mask = event.at[any_lane] ^ any_lane;
  bool mirrored = event.kind == 'x' && mask > 0;
  for (unsigned lane = 0; lane < lanes_of_warp; ++lane) {
    mirrored = mirrored && (!(event.lanes >> lane & 1) || event.at[lane] == (lane ^ mask));
  }
  if (mirrored) return "^" + std::to_string(mask);
  std::vector<std::string> steps;
  std::uintptr_t first = 0, before = 0;
  bool any = false;
  for (std::uint32_t lanes = event.lanes; lanes != 0; lanes &= lanes - 1) {
    const std::uintptr_t at = event.at[static_cast<unsigned>(std::countr_zero(lanes))];
    if (!any) {
      first = at;
    } else {
      steps.push_back(std::to_string(static_cast<std::intptr_t>(at - before)));
    }
    any = true;
    before = at;
  }
  std::string text = in_runs(steps);
  for (char& c : text) c = c == ' ' ? ',' : c;
  return std::to_string(first) + (text.empty() ? "" : "," + text);
}

// The source lines of an address, the outermost function first, without the emulator and emulated instructions.
std::map<std::uintptr_t, std::string> lines_of(const std::vector<std::uintptr_t>& places, const std::string& sources) {
  std::uintptr_t loaded_at = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = program->dlpi_addr;
        return 1;  // the first is the program
      },
      &loaded_at);
  std::map<std::uintptr_t, std::string> found;
  constexpr std::size_t at_once = 400;
  for (std::size_t begin = 0; begin < places.size(); begin += at_once) {
    std::string command = "addr2line -a -i -e /proc/" + std::to_string(::getpid()) + "/exe";
    for (std::size_t i = begin; i < std::min(begin + at_once, places.size()); ++i) {
      char text[32];
      std::snprintf(text, sizeof text, " 0x%llx", static_cast<unsigned long long>(places[i] - 1 - loaded_at));
      command += text;
    }
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (!pipe) throw Error("emulator: a recording needs addr2line");
    std::size_t at = begin - 1;
    std::string lines, innermost;
    const auto finish = [&] {
      if (at + 1 > begin) found[places[at]] = lines.empty() ? innermost : lines;
    };
    char line[4096];
    while (std::fgets(line, sizeof line, pipe)) {
      std::string text = line;
      text.erase(text.find_last_not_of('\n') + 1);
      if (text.rfind("0x", 0) == 0) {
        finish();
        ++at;
        lines = innermost = "";
        continue;
      }
      if (const std::size_t more = text.find(" (disc"); more != std::string::npos) text.erase(more);
      if (text.rfind(sources + "/", 0) != 0) continue;
      text.erase(0, sources.size() + 1);
      if (innermost.empty()) innermost = text;
      const auto is_in = [&](const char* path) { return text.rfind(path, 0) == 0; };
      if (is_in("cuda/emulator/") || is_in("cuda/platform.hpp") || is_in("cuda/gemm/tensor_core.hpp")) continue;
      lines = text + (lines.empty() ? "" : ">" + lines);
    }
    finish();
    if (::pclose(pipe) != 0) throw Error("emulator: a recording needs addr2line");
  }
  return found;
}

// Lanes often write numbers that they have just read: "=2" for the last read but one.
constexpr std::size_t remembered = 40;

// True if every lane provides the sum of its two numbers of the previous exchange: "+".
bool is_sum(const Event& event, const Event& before) {
  if (event.type != "f4" || before.type != "f4" || event.lanes != before.lanes) return false;
  bool same = true;
  for (std::uint32_t lanes = event.lanes; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
    float gave = 0, got = 0, gives = 0;
    std::memcpy(&gave, before.values[lane].data(), sizeof gave);
    std::memcpy(&got, before.values[before.at[lane]].data(), sizeof got);
    std::memcpy(&gives, event.values[lane].data(), sizeof gives);
    same = same && gave + got == gives;
  }
  return same;
}

std::string event_text(const Event& event, const std::string& site, std::vector<const Event*>& reads,
                       const Event*& exchange) {
  std::string line = site;
  line.insert(0, 1, event.kind);
  if (event.lanes != 0xFFFFFFFF && event.kind != 'b') {
    char mask[16];
    std::snprintf(mask, sizeof mask, "/%x", event.lanes);
    line += mask;
  }
  if (event.kind == 'b' || event.kind == 'y') return line;
  if (event.kind == 'x' || event.kind == 'v') line += " " + event.name;
  if (event.kind != 'v' && event.kind != 'm') line += " " + addresses_text(event);
  const bool is_access = event.kind == 'r' || event.kind == 'w' || event.kind == 'R' || event.kind == 'W';
  if (is_access) line += " " + std::to_string(event.bytes);
  const bool writes = event.kind == 'w' || event.kind == 'W';
  if (is_access && !writes) {
    reads.push_back(&event);
    if (!event.has_values) return line;
    line += " !";
  }
  if (writes) {
    for (std::size_t back = 1; back <= std::min(remembered, reads.size()); ++back) {
      const Event& read = *reads[reads.size() - back];
      bool same = read.bytes == event.bytes && (event.lanes & ~read.lanes) == 0;
      for (std::uint32_t lanes = event.lanes; lanes != 0 && same; lanes &= lanes - 1) {
        const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
        same = std::memcmp(read.values[lane].data(), event.values[lane].data(), event.bytes) == 0;
      }
      if (same) return line + " =" + std::to_string(back);
    }
  }
  if (event.kind == 'x') {
    const Event* before = std::exchange(exchange, &event);
    if (before && is_sum(event, *before)) return line + " +";
  }
  std::vector<std::string> texts;
  for (std::uint32_t lanes = event.lanes; lanes != 0; lanes &= lanes - 1) {
    const auto& value = event.values[static_cast<unsigned>(std::countr_zero(lanes))];
    const std::size_t size = std::min<std::size_t>(size_of(event.type), event.bytes);
    for (std::size_t i = 0; i < event.bytes; i += size) texts.push_back(number_text(&value[i], event.type, size));
  }
  return line + " " + in_runs(texts);
}

}  // namespace

void begin(int blocks) {
  on = true;
  most_blocks = blocks;
  blocks_left = 0;
  arrays.clear();
  rows.clear();
  shared_type = "f4";
  shared_named.clear();
  values_of.clear();
  unsettled.clear();
  last_exchange.clear();
  scratch_count = 0;
}

void name_array(const void* array, const std::string& name, const std::string& type, const std::vector<long>& shape) {
  if (!on) return;
  long count = 1;
  for (const long extent : shape) count *= extent;
  add_array(name, type, shape, reinterpret_cast<std::uintptr_t>(array),
            static_cast<std::uintptr_t>(count) * size_of(type));
}

void fault(const std::string& words) {
  std::string line = words;
  for (std::size_t at; (at = line.find(ABH_SOURCE_DIR "/")) != std::string::npos;)
    line.erase(at, sizeof ABH_SOURCE_DIR);
  if (on) rows.push_back({-1, {}, "fault " + line});
}

void type_of_shared(const std::string& type) { shared_type = type; }

void access(std::uint64_t number, unsigned lane, std::uintptr_t address, std::size_t bytes, bool writes,
            const void* copied_from) {
  if (!in_block()) return;
  if (writes) {
    std::erase_if(unsettled, [&](const Unsettled& write) {
      const bool overlaps = address < write.address + write.bytes && write.address < address + bytes;
      if (overlaps) settle(write);
      return overlaps;
    });
  }
  Values& values = values_of[number];
  values.order[lane] = accesses++;
  if (writes && !copied_from) {
    unsettled.push_back({number, lane, address, bytes});
  } else {
    std::memcpy(values.of_lane[lane].data(), writes ? copied_from : reinterpret_cast<const void*>(address), bytes);
  }
}

void settle() {
  for (const Unsettled& write : unsettled) settle(write);
  unsettled.clear();
}

void requests(unsigned warp, std::vector<Requested> requested) {
  if (!in_block()) return;
  const std::size_t first = rows.size();
  for (const std::size_t i : ordered(requested)) {
    const Requested& one = requested[i];
    Event event{one.is_shared ? (one.writes ? 'W' : 'R') : (one.writes ? 'w' : 'r')};
    event.where = one.where;
    event.bytes = one.bytes;
    event.lanes = one.request.lanes;
    event.type = shared_type;
    for (std::uint32_t lanes = event.lanes; lanes != 0; lanes &= lanes - 1) {
      const auto lane = static_cast<unsigned>(std::countr_zero(lanes));
      const std::uintptr_t address = one.request.address[lane], part = one.bytes / one.parts.size();
      for (std::size_t p = 0; p < one.parts.size(); ++p) {
        std::memcpy(&event.values[lane][p * part], values_of[one.parts[p]].of_lane[lane].data(), part);
      }
      unsigned char* now = nullptr;
      if (one.is_shared) {
        event.at[lane] = address - shared_begin;
        if (shared_now.size() < event.at[lane] + one.bytes) shared_now.resize(event.at[lane] + one.bytes, 0xFF);
        now = &shared_now[event.at[lane]];
      } else {
        Array& array = array_of(address);
        event.at[lane] = address - array.begin + array.first;
        event.type = array.type;
        now = &array.now[address - array.begin];
      }
      if (one.writes) {
        std::memcpy(now, event.values[lane].data(), one.bytes);
      } else if (std::memcmp(now, event.values[lane].data(), one.bytes) != 0) {
        event.has_values = true;  // a replay would read other numbers: a race
      }
    }
    add(warp, std::move(event));
  }
  // A compiler may report the write of a copy before the read.
  for (std::size_t i = first; i + 1 < rows.size(); ++i) {
    if (is_copy(rows[i + 1].event, rows[i].event)) std::swap(rows[i], rows[i + 1]);
  }
  for (const Requested& one : requested) {
    for (const std::uint64_t number : one.parts) values_of.erase(number);
  }
}

void wait(unsigned warp, const detail::Waited& waited) {
  if (!in_block()) return;
  Event event{waited.is_block ? 'b' : waited.is_vote ? 'v' : waited.is_exchange ? 'x' : waited.bytes > 0 ? 'm' : 'y'};
  event.where = waited.where;
  event.lanes = waited.lanes;
  event.name = waited.name;
  event.type = "f4";
  event.bytes = event.kind == 'm' ? widest_access : std::min<std::size_t>(waited.bytes, widest_access);
  for (unsigned lane = 0; lane < lanes_of_warp; ++lane) {
    if (event.kind == 'x') {
      std::memcpy(event.values[lane].data(), static_cast<const unsigned char*>(waited.values) + lane * waited.bytes,
                  event.bytes);
    } else if (event.kind == 'v') {
      event.type = "i4";
      event.bytes = 4;
      const std::uint32_t vote = waited.votes >> lane & 1;
      std::memcpy(event.values[lane].data(), &vote, sizeof vote);
    }
  }
  if (event.kind != 'b') last_exchange[warp] = rows.size();
  add(warp, std::move(event));
}

void source(unsigned warp, unsigned lane, unsigned from, bool is_float) {
  if (!in_block()) return;
  Event& event = rows[last_exchange[warp]].event;
  event.at[lane] = from;
  if (!is_float) event.type = "i4";
  if (is_float && event.bytes == 8) event.type = "f8";
}

void product(unsigned warp, unsigned lane, const void* result, std::size_t bytes) {
  if (!in_block()) return;
  Event& event = rows[last_exchange[warp]].event;
  event.has_result = true;
  std::memcpy(event.values[lane].data(), result, bytes);
}

void launch(const std::string& kernel, std::uintptr_t begin) {
  shared_begin = begin;
  if (!on) return;
  std::string name = kernel.substr(0, kernel.find('<'));
  if (const std::size_t outer = name.rfind("::"); outer != std::string::npos) name.erase(0, outer + 2);
  rows.push_back({-1, {}, "launch " + name});
  blocks_left = most_blocks + 1;
  shared_named.clear();
}

void block(unsigned x, unsigned y, unsigned z, unsigned threads) {
  if (!on) return;
  shared_now.clear();
  last_exchange.clear();
  if (--blocks_left <= 0) return;
  char line[80];
  std::snprintf(line, sizeof line, "block %u %u %u of %u %u %u, %u threads", x, y, z, gridDim.x, gridDim.y, gridDim.z,
                threads);
  rows.push_back({-1, {}, line});
}

void shared_array(const char* type, std::uintptr_t offset, std::size_t bytes) {
  if (!in_block()) return;
  std::string name = type;
  name.erase(0, name.find("S = ") + 4);
  name = name.substr(0, name.find_first_of("<;]"));
  name.erase(0, name.rfind(':') + 1);
  const std::string line = "shared " + name + " " + std::to_string(offset) + " " + std::to_string(bytes);
  if (!std::exchange(shared_named[line], true)) rows.push_back({-1, {}, line});
}

std::string end() {
  const std::string sources = ABH_SOURCE_DIR;
  on = false;
  std::erase_if(rows, [](const Row& row) { return row.event.kind == 'm' && !row.event.has_result; });
  std::vector<std::uintptr_t> places;
  for (const Row& row : rows) {
    if (row.warp >= 0) places.push_back(row.event.where);
  }
  places.resize(sort_and_unite(places.data(), places.size()));
  const std::map<std::uintptr_t, std::string> lines = lines_of(places, sources);

  std::string text = "trace 1\nshared-type " + shared_type + "\n", sites, events;
  for (const Array& array : arrays) {
    text += "array " + array.name + " " + array.type + " " + std::to_string(array.first);
    for (const long extent : array.shape) text += " " + std::to_string(extent);
    text += (array.shape.empty() ? "" : " : " + values_text(array.before, array.type)) + "\n";
  }
  std::map<std::string, std::size_t> numbers;
  std::map<int, std::vector<const Event*>> reads;
  std::map<int, const Event*> exchanges;  // the last one of each warp
  int warp = -1;
  for (const Row& row : rows) {
    if (row.warp < 0) {
      events += row.line + "\n";
      warp = row.line.rfind("shared", 0) == 0 ? warp : -1;
      if (row.line.rfind("block", 0) == 0) {
        reads.clear();
        exchanges.clear();
      }
      continue;
    }
    if (row.warp != warp) events += "warp " + std::to_string(row.warp) + "\n";
    warp = row.warp;
    const auto found = lines.find(row.event.where);
    const std::string line = found == lines.end() ? "" : found->second;
    const auto [number, is_new] = numbers.try_emplace(line, numbers.size());
    if (is_new) sites += "site " + line + "\n";
    events += event_text(row.event, std::to_string(number->second), reads[warp], exchanges[warp]) + "\n";
  }
  rows.clear();
  return text + sites + events;
}

}  // namespace emulator::record
