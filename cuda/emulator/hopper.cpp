#include "cuda/emulator/hopper.hpp"

#include "cuda/emulator/async.hpp"

// Like emulator.cpp, this file must not be compiled with -fsanitize=thread, and it does not call memcpy or memset.

namespace emulator::detail {
namespace {

constexpr unsigned max_threads = 1024, max_barriers = 64, max_loads = 256, max_products = 64;

struct Barrier {
  const void* memory;
  unsigned arrivals, lacking;  // of a phase; of the current phase
  unsigned phase;              // number of complete phases
  std::int64_t bytes;          // that the current phase expects, less those that have arrived
};
Barrier barriers[max_barriers];
unsigned barrier_count;
volatile unsigned waited[max_barriers]
                        [max_threads];  // per thread: value of `phase` for which it last waited; initially -1
constexpr std::uint64_t barrier_mark = 0xB155E7D0A5CAD000;  // in memory, with the index of the barrier

struct Load {
  TensorMap map;
  unsigned char* tile;
  int row, column;
  unsigned barrier, thread;
  Wait place;
  bool in_flight;
  std::int64_t bytes() const { return std::int64_t{2} * map.box_rows * map.box_columns; }
  bool overlaps(const unsigned char* begin, const unsigned char* end) const {
    return in_flight && begin < tile + bytes() && tile < end;
  }
};
Load loads[max_loads];  // a ring, in the order of their start
unsigned first_load, end_load, loads_in_flight;
template <class Visit>
void for_each_load(const Visit& visit) {
  for (unsigned i = first_load; i != end_load; ++i) visit(loads[i % max_loads]);
}

// Products are computed when the thread waits for them: as late as the rules allow.
struct Product {
  float* d;
  AccumulatorState* state;
  int columns;
  std::uint64_t a, b;
  bool accumulate;
  unsigned group;
};
struct Products {
  Product ring[max_products];
  unsigned begun, done, groups;  // only increase
};
Products products[max_threads];
unsigned thread_count;

// The last products of the four warps of a warpgroup, which must be the same.
struct Warpgroup {
  unsigned begun[4];
  std::uint64_t a[max_products], b[max_products];
};
Warpgroup warpgroups[max_threads / 128];

using Number = volatile std::uint16_t __attribute__((may_alias));

// Sets the place of an error message.
struct At {
  explicit At(const Wait& wait) { set_place(&wait); }
  ~At() { set_place(nullptr); }
};

// ---- Barriers

unsigned index_of(const void* memory) {
  require_aligned(memory, 8);
  require_shared(memory, 8, true);
  const std::uint64_t index = *static_cast<const volatile std::uint64_t*>(memory) - barrier_mark;
  if (index >= barrier_count || barriers[index].memory != memory) {
    fail_here("an mbarrier that is not initialised, or was overwritten");
  }
  return static_cast<unsigned>(index);
}

void complete_if_due(unsigned index) {
  Barrier& barrier = barriers[index];
  if (barrier.lacking > 0 || barrier.bytes != 0) return;
  for_each_load([&](const Load& load) {
    if (load.in_flight && load.barrier == index) {
      fail_at("the mbarrier completes before this load has arrived: it expects too few bytes", load.thread, load.place);
    }
  });
  ++barrier.phase;
  barrier.lacking = barrier.arrivals;
  wake(barrier.memory);
}

std::string state_of(const void* memory) {
  for (unsigned i = 0; i < barrier_count; ++i) {
    const Barrier& barrier = barriers[i];
    if (barrier.memory != memory) continue;
    return "phase " + std::to_string(barrier.phase) + " lacks " + std::to_string(barrier.lacking) + " arrivals and " +
           std::to_string(barrier.bytes) + " bytes";
  }
  return "";
}

// ---- Loads

// Swizzling exchanges the 16-byte chunks of a row by bits 7 to 9 of the address.
std::size_t swizzled(std::size_t address, unsigned width) {
  return width == 0 ? address : address ^ (address >> 7 & (width / 16 - 1)) << 4;
}

void finish(Load& load) {
  load.in_flight = false;
  --loads_in_flight;
  while (first_load != end_load && !loads[first_load % max_loads].in_flight) ++first_load;
  const TensorMap& map = load.map;
  unsigned char* const shared = begin_of_shared();
  for (int r = 0; r < map.box_rows; ++r) {
    for (int c = 0; c < map.box_columns; ++c) {
      const std::int64_t row = std::int64_t{load.row} + r, column = std::int64_t{load.column} + c;
      const bool inside = row >= 0 && row < map.rows && column >= 0 && column < map.columns;
      const auto* from =
          static_cast<const unsigned char*>(map.matrix) + (inside ? row * map.row_bytes + column * 2 : 0);
      const auto to =
          static_cast<std::size_t>(load.tile - shared) + static_cast<std::size_t>(r * map.box_columns + c) * 2;
      reinterpret_cast<Number&>(shared[swizzled(to, static_cast<unsigned>(map.swizzle))]) =
          inside ? reinterpret_cast<const Number&>(*from) : std::uint16_t{0};
    }
  }
  barriers[load.barrier].bytes -= load.bytes();
  complete_if_due(load.barrier);
}

bool deliver() {
  if (loads_in_flight == 0) return false;
  unsigned before = order().kind == Order::shuffled ? draw(loads_in_flight) : 0, i = first_load;
  while (!loads[i % max_loads].in_flight || before-- > 0) ++i;
  finish(loads[i % max_loads]);
  return true;
}

// ---- Products

// A matrix of rows of 16 numbers in shared memory, from its descriptor.
struct Operand {
  unsigned start, leading, stride, width;

  explicit Operand(std::uint64_t descriptor)
      : start(static_cast<unsigned>(descriptor & 0xFFFF) << 4),
        leading(static_cast<unsigned>(descriptor >> 16 & 0x3FFF) << 4),
        stride(static_cast<unsigned>(descriptor >> 32 & 0x3FFF) << 4),
        width(descriptor >> 62 == 0 ? 0 : 256u >> (descriptor >> 62)) {}

  const unsigned char* at(unsigned row, unsigned k) const {
    const unsigned first = start + row / 8 * stride;
    if (width == 0) return begin_of_shared() + first + row % 8 * 16 + k / 8 * leading + k % 8 * 2;
    return begin_of_shared() + swizzled(first + row % 8 * width + k * 2, width);
  }
  void read(float (&numbers)[16], unsigned row) const {
    for (unsigned k = 0; k < 16; ++k) {
      const std::uint32_t word = std::uint32_t{reinterpret_cast<const Number&>(*at(row, k))} << 16;
      numbers[k] = __builtin_bit_cast(float, word);
    }
  }
  template <class Visit>
  void for_each_chunk(unsigned rows, const Visit& visit) const {
    for (unsigned row = 0; row < rows; ++row) {
      for (unsigned k = 0; k < 16; k += 8) visit(at(row, k), at(row, k) + 16);
    }
  }
  // Checks a new product.
  void require(unsigned rows) const {
    if (width > 0 && (start % (8 * width) >= width || start % width + 32 > width)) {
      fail_here("wgmma: a swizzled tile that does not begin at a multiple of its 8 rows");
    }
    for_each_chunk(rows, [](const unsigned char* begin, const unsigned char* end) {
      require_shared(begin, 16, true);
      for_each_load([&](const Load& load) {
        if (load.overlaps(begin, end)) fail_here("wgmma reads a tile before its load has arrived");
      });
      bool is_new = true;
      for (; begin != end; begin += 2) is_new = is_new && reinterpret_cast<const Number&>(*begin) == 0xFFFF;
      if (is_new) fail_here("wgmma reads shared memory that nothing has written");
    });
  }
  void require_not_in(const Load& load, unsigned rows) const {
    for_each_chunk(rows, [&](const unsigned char* begin, const unsigned char* end) {
      if (load.overlaps(begin, end)) fail_here("a load to a tile that a wgmma still reads");
    });
  }
};

// The float sum in the order of k, like mma of cuda/gemm/tensor_core.hpp.
void compute(const Product& product, unsigned thread) {
  const Operand a(product.a), b(product.b);
  const unsigned lane = thread % 32, row = thread % 128 / 32 * 16 + lane / 4;
  float upper[16], lower[16], column[16];
  a.read(upper, row);
  a.read(lower, row + 8);
  for (unsigned i = 0; i < static_cast<unsigned>(product.columns) / 2; i += 4) {
    for (unsigned n = 0; n < 2; ++n) {
      b.read(column, i * 2 + lane % 4 * 2 + n);
      float &d_upper = product.d[i + n], &d_lower = product.d[i + 2 + n];
      if (!product.accumulate) d_upper = d_lower = 0;
      for (unsigned k = 0; k < 16; ++k) {
        d_upper += upper[k] * column[k];
        d_lower += lower[k] * column[k];
      }
    }
  }
}

// All lanes of the warp execute the instruction together, with the same operands.
struct Operands {
  std::uint64_t a, b;
  unsigned columns, accumulate;
  bool operator==(const Operands&) const = default;
};
void converge(const Wait& wait, const Operands& mine = {}) {
  const Gathered gathered = warp_exchange(wait.operation, 0xFFFFFFFF, &mine, sizeof mine, wait.file, wait.line);
  const At at(wait);
  if (thread_number() / 128 * 128 + 128 > thread_count) fail_here("a warpgroup of less than 128 threads");
  if (!(static_cast<const Operands*>(gathered.values)[0] == mine)) {
    fail_here("wgmma: lanes of one warp pass different operands");
  }
}

// ---- The block

const char* fault_of_leaving(unsigned thread) {
  return products[thread].begun == products[thread].done ? nullptr : "a thread leaves before it waits for its wgmma";
}

std::string fault_of_block() {
  if (loads_in_flight > 0) return "the block ends with " + std::to_string(loads_in_flight) + " loads in flight";
  for (unsigned i = 0; i < barrier_count; ++i) {
    if (barriers[i].bytes != 0) return "the block ends with an mbarrier whose " + state_of(barriers[i].memory);
  }
  for (const Warpgroup& group : warpgroups) {
    for (const unsigned begun : group.begun) {
      if (begun != group.begun[0]) return "wgmma: the four warps of a warpgroup began different numbers of products";
    }
  }
  return "";
}

constexpr Asynchronous functions = {deliver, fault_of_leaving, fault_of_block, state_of};

// The first operation of a block resets the state.
void enter() {
  if (asynchronous) return;
  asynchronous = &functions;
  barrier_count = first_load = end_load = loads_in_flight = 0;
  thread_count = blockDim.x * blockDim.y * blockDim.z;
  for (unsigned t = 0; t < thread_count; ++t) products[t].begun = products[t].done = products[t].groups = 0;
  for (Warpgroup& group : warpgroups) {
    for (unsigned& begun : group.begun) begun = 0;
  }
}

Wait place_of(Operation operation, const char* file, int line, const void* object = nullptr) {
  enter();
  return {operation, 0, 0, file, line, 0, object};
}

}  // namespace

void mbarrier_init(void* memory, unsigned arrivals, const char* file, int line) {
  const Wait place = place_of(Operation::mbarrier_init, file, line);
  const At at(place);
  require_aligned(memory, 8);
  require_shared(memory, 8, true);
  if (arrivals == 0 || arrivals >= 1 << 20) fail_here("an mbarrier of no arrivals, or of 2^20 or more");
  if (barrier_count == max_barriers) fail_here("more than 64 mbarriers in a block");
  for (unsigned i = 0; i < barrier_count; ++i) {
    if (barriers[i].memory == memory) fail_here("an mbarrier is initialised twice");
  }
  barriers[barrier_count] = {memory, arrivals, arrivals, 0, 0};
  for (volatile unsigned& phase : waited[barrier_count]) phase = ~0u;
  *static_cast<volatile std::uint64_t*>(memory) = barrier_mark + barrier_count++;
}

void mbarrier_arrive(void* memory, unsigned expected_bytes, const char* file, int line) {
  const Wait place = place_of(Operation::mbarrier_arrive, file, line);
  const At at(place);
  const unsigned index = index_of(memory);
  Barrier& barrier = barriers[index];
  if (barrier.lacking == 0) fail_here("more arrivals at an mbarrier than it was initialised for");
  barrier.bytes += expected_bytes;
  if (barrier.bytes >= 1 << 20) fail_here("an mbarrier expects 2^20 bytes or more");
  --barrier.lacking;
  release_object(2 * index + barrier.phase % 2);
  complete_if_due(index);
}

void mbarrier_wait(const void* memory, unsigned parity, const char* file, int line) {
  const Wait place = place_of(Operation::mbarrier_wait, file, line, memory);
  const At at(place);
  const unsigned index = index_of(memory);
  const Barrier& barrier = barriers[index];
  if (parity > 1) fail_here("the parity of a phase is 0 or 1");
  const unsigned target = barrier.phase + (barrier.phase % 2 == parity);
  volatile unsigned& last = waited[index][thread_number()];
  if (last == target) fail_here("this thread has already waited for this phase of the mbarrier: wrong parity");
  last = target;
  if (barrier.phase < target) wait_for(place);
  if (target > 0) acquire_object(2 * index + (target - 1) % 2);
}

void load_tile(void* tile, const TensorMap& map, int row, int column, const void* memory, const char* file, int line) {
  const Wait place = place_of(Operation::load_tile, file, line);
  const At at(place);
  const unsigned barrier = index_of(memory);
  if (end_load - first_load == max_loads) fail_here("more than 256 loads in flight");
  // Member by member, because compilers copy larger structs by memcpy.
  Load& load = loads[end_load % max_loads];
  load.map = map;
  load.tile = static_cast<unsigned char*>(tile);
  load.row = row;
  load.column = column;
  load.barrier = barrier;
  load.thread = thread_number();
  load.place = place;
  load.in_flight = true;
  require_shared(tile, static_cast<std::size_t>(load.bytes()), true);
  const std::size_t alignment = map.swizzle == 0 ? 128 : 8 * static_cast<std::size_t>(map.swizzle);
  if (static_cast<std::size_t>(load.tile - begin_of_shared()) % alignment != 0) {
    fail_here("a tile that is not aligned to 128 bytes, or to 8 swizzled rows");
  }
  for_each_load([&](const Load& other) {
    if (other.overlaps(load.tile, load.tile + load.bytes())) fail_here("two loads in flight to one tile");
  });
  for (unsigned t = 0; t < thread_count; ++t) {
    for (unsigned i = products[t].done; i != products[t].begun; ++i) {
      const Product& product = products[t].ring[i % max_products];
      Operand(product.a).require_not_in(load, 64);
      Operand(product.b).require_not_in(load, static_cast<unsigned>(product.columns));
    }
  }
  ++end_load;
  ++loads_in_flight;
  // Its content is undefined until the load has arrived.
  for (std::int64_t i = 0; i < load.bytes(); i += 2) reinterpret_cast<Number&>(load.tile[i]) = std::uint16_t{0xFFFF};
  if (order().kind == Order::reverse) finish(load);
}

std::uint32_t shared_address(const void* memory) {
  require_shared(memory, 1, true);
  return static_cast<std::uint32_t>(static_cast<const unsigned char*>(memory) - begin_of_shared());
}

void wgmma(float* d, int columns, AccumulatorState& state, std::uint64_t a, std::uint64_t b, bool accumulate,
           const char* file, int line) {
  const Wait place = place_of(Operation::wgmma, file, line);
  converge(place, {a, b, static_cast<unsigned>(columns), accumulate});
  const At at(place);
  const unsigned thread = thread_number();
  if (state.pending == 0 && !state.fenced) fail_here("wgmma: no wgmma_fence since the last access to its accumulators");
  if (thread % 32 == 0) {
    Warpgroup& group = warpgroups[thread / 128];
    unsigned& begun = group.begun[thread % 128 / 32];
    unsigned most = begun;
    for (const unsigned other : group.begun) most = other > most ? other : most;
    std::uint64_t &group_a = group.a[begun % max_products], &group_b = group.b[begun % max_products];
    if (most == begun) {
      group_a = a;
      group_b = b;
    } else if (most - begun <= max_products && (group_a != a || group_b != b)) {
      fail_here("wgmma: warps of one warpgroup pass different descriptors");
    }
    ++begun;
    Operand(a).require(64);
    Operand(b).require(static_cast<unsigned>(columns));
  }
  Products& mine = products[thread];
  if (mine.begun - mine.done == max_products) fail_here("more than 64 products that were not waited for");
  mine.ring[mine.begun++ % max_products] = {d, &state, columns, a, b, accumulate, mine.groups};
  ++state.pending;
}

void wgmma_fence(const char* file, int line) { converge(place_of(Operation::wgmma, file, line)); }

void wgmma_commit(const char* file, int line) {
  converge(place_of(Operation::wgmma, file, line));
  ++products[thread_number()].groups;
}

void wgmma_wait(unsigned groups_left, const char* file, int line) {
  const Wait place = place_of(Operation::wgmma, file, line);
  const unsigned thread = thread_number();
  Products& mine = products[thread];
  for (; mine.done != mine.begun; ++mine.done) {
    const Product& product = mine.ring[mine.done % max_products];
    if (mine.groups - product.group <= groups_left) break;
    compute(product, thread);
    --product.state->pending;
  }
  converge(place);  // when one lane continues, all lanes have read the tiles
}

void refuse_accumulator() { fail_here("an accumulator is accessed before wgmma_wait"); }

}  // namespace emulator::detail
