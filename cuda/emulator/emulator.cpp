#include "cuda/emulator/emulator.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#if defined(__x86_64__) && defined(__ELF__) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_ASSEMBLY 1
#else
#define EMULATOR_ASSEMBLY 0
#include <ucontext.h>
#endif

// What sanitizers must be told about fibers. Null where the program is built without them. This file itself is not to
// be compiled with -fsanitize=thread: what the scheduler does on behalf of all threads would look like races of theirs.
#if defined(__ELF__)
#define EMULATOR_IF_LINKED __attribute__((weak))
extern "C" {
EMULATOR_IF_LINKED void* __tsan_get_current_fiber(void);
EMULATOR_IF_LINKED void* __tsan_create_fiber(unsigned flags);
EMULATOR_IF_LINKED void __tsan_destroy_fiber(void* fiber);
EMULATOR_IF_LINKED void __tsan_switch_to_fiber(void* fiber, unsigned flags);
EMULATOR_IF_LINKED void __tsan_set_fiber_name(void* fiber, const char* name);
EMULATOR_IF_LINKED void __tsan_acquire(void* address);
EMULATOR_IF_LINKED void __tsan_release(void* address);
EMULATOR_IF_LINKED void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, std::size_t size);
EMULATOR_IF_LINKED void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, std::size_t* size);
EMULATOR_IF_LINKED void __asan_unpoison_memory_region(const volatile void* memory, std::size_t bytes);
}
#define EMULATOR_LINKED(function) (function != nullptr)
#else
#define EMULATOR_LINKED(function) false
#endif

namespace emulator {

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

constexpr unsigned max_threads = 1024, lanes_in_warp = 32, max_warps = max_threads / lanes_in_warp;
constexpr std::size_t max_static_bytes = 48 << 10, max_shared_bytes = 227 << 10;

// Sentinels are NaN, whether read as bf16, float or double, but another one than memory is filled with.
constexpr std::size_t sentinel_bytes = 64, global_sentinel_bytes = 256;
unsigned char sentinel_at(std::size_t i) { return i % 2 == 0 ? 0xD3 : 0xFF; }

// Words that may overlay anything. Volatile, so that loops over them do not become calls of memset or memcpy, which
// sanitizers see.
using Word = std::uint32_t __attribute__((may_alias, aligned(1)));
using LongWord = std::uint64_t __attribute__((vector_size(16), may_alias, aligned(1)));

void copy_unseen(void* to, const void* from, std::size_t bytes) {
  auto* to_bytes = static_cast<unsigned char*>(to);
  const auto* from_bytes = static_cast<const unsigned char*>(from);
  std::size_t i = 0;
  for (; i + 4 <= bytes; i += 4) {
    *reinterpret_cast<volatile Word*>(to_bytes + i) = *reinterpret_cast<const Word*>(from_bytes + i);
  }
  for (; i < bytes; ++i) static_cast<volatile unsigned char&>(to_bytes[i]) = from_bytes[i];
}

// All bits set, then a sentinel behind.
void fill_unseen(unsigned char* memory, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 16 <= bytes; i += 16) *reinterpret_cast<volatile LongWord*>(memory + i) = ~LongWord{};
  for (; i < bytes; ++i) static_cast<volatile unsigned char&>(memory[i]) = 0xFF;
  for (i = 0; i < sentinel_bytes; ++i) static_cast<volatile unsigned char&>(memory[bytes + i]) = sentinel_at(i);
}

void fill_sentinel(unsigned char* memory, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) memory[i] = sentinel_at(i);
}

// The first byte that is not the sentinel's any more; `bytes` if all are.
std::size_t first_broken(const unsigned char* memory, std::size_t bytes) {
  std::size_t i = 0;
  while (i < bytes && memory[i] == sentinel_at(i)) ++i;
  return i;
}

// A stack, and what the processor needs to go on with what runs on it.
struct Fiber {
#if EMULATOR_ASSEMBLY
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  unsigned char* bottom = nullptr;
  std::size_t size = 0;
  void* tsan = nullptr;        // ThreadSanitizer's fiber
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// What a thread waits for. It lies on the waiting thread's stack.
struct Wait {
  detail::Operation operation;
  unsigned mask;
  std::size_t bytes;
  const char* file;
  int line;
};

struct Warp;

struct Thread {
  uint3 index;
  unsigned lane;
  Warp* warp;
  Fiber* fiber;      // null before it begins
  const Wait* wait;  // null unless it waits
  bool left;         // has left the kernel
};

// Lanes are bits. Values are exchanged in two buffers in turn: while some lanes still read those of one operation,
// others may already write for the next, but none can be two operations ahead.
struct Warp {
  unsigned lanes, left, arrived, generation;
  const Wait* wait;  // of the lane that arrived first
  unsigned votes[2];
  alignas(64) unsigned char values[2][lanes_in_warp * detail::largest_exchange];
};

// A thread at a time runs from when the scheduler goes to it until it waits or leaves. Ready threads stand in a queue:
// whole blocks are added at its end, whole warps at its front, so that a warp runs as far as it can while its stacks
// are in the cache.
struct Queue {
  static constexpr unsigned size = 2 * max_threads;
  Thread* threads[size];
  unsigned begin, count;
  void push_back(Thread* thread) { threads[(begin + count++) % size] = thread; }
  void push_front(Thread* thread) {
    begin = (begin + size - 1) % size;
    threads[begin] = thread;
    ++count;
  }
  Thread* pop() {
    if (count == 0) return nullptr;
    Thread* first = threads[begin];
    begin = (begin + 1) % size;
    --count;
    return first;
  }
};

struct StaticMemory {
  const detail::SharedType* type;
  unsigned char* memory;
};

// What a thread did wrong, to be told by the host when it is back on its own stack.
struct Failure {
  const char* problem;
  const Thread* thread;
  const Thread* other;
  Wait wait, other_wait;  // line 0: does not wait
  long number;
};

// Addresses that ThreadSanitizer knows happens-before by. Two for each barrier, in turn: with one, a thread that comes
// late from a barrier would also seem to know what the early ones did until the next one.
struct SyncObjects {
  struct alignas(8) Object {
    char byte;
  };
  Object block[2], warp[max_warps][2];
};
char launch_begins, launch_ends;

// The running launch. All of this is plain data: it is used on the fibers' stacks.
Thread threads[max_threads];
Warp warps[max_warps];
Queue queue;
Thread* current = nullptr;
unsigned thread_count, threads_arrived, threads_left, block_generation;
const Wait* block_wait;
void (*kernel_body)(void*);
void* kernel_arguments;
Failure failure;
Order run_order;
std::uint64_t random_state;

StaticMemory static_memory[64];
unsigned static_count;
std::size_t static_used, static_bytes, dynamic_bytes;

// Shared memory: what ThreadSanitizer synchronises on, dynamic memory, static memory.
constexpr std::size_t dynamic_begin = 4 << 10, static_begin = 256 << 10, arena_bytes = 384 << 10;
static_assert(sizeof(SyncObjects) <= dynamic_begin);
static_assert(dynamic_begin + max_shared_bytes + sentinel_bytes <= static_begin);
unsigned char* arena = nullptr;
SyncObjects* sync_objects() { return reinterpret_cast<SyncObjects*>(arena); }

// Fibers, and which of them run nothing. They stay between launches.
constexpr std::size_t stack_bytes = 128 << 10;
unsigned char* stacks = nullptr;
std::size_t page_bytes, stack_stride;
Fiber fibers[max_threads], host;
Fiber* idle[max_threads];
unsigned fiber_count, idle_count;
Fiber* switched_from = nullptr;

const bool tsan = EMULATOR_LINKED(__tsan_switch_to_fiber);
const bool asan = EMULATOR_LINKED(__sanitizer_start_switch_fiber);

#if defined(__ELF__)
void acquire(void* address) {
  if (tsan) __tsan_acquire(address);
}
void release(void* address) {
  if (tsan) __tsan_release(address);
}
void after_switch(void* fake_stack) {
  if (!asan) return;
  const void* bottom;
  std::size_t size;
  __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
  switched_from->bottom = static_cast<unsigned char*>(const_cast<void*>(bottom));
  switched_from->size = size;
}
#else
void acquire(void*) {}
void release(void*) {}
void after_switch(void*) {}
#endif

// ---- Fibers

#if EMULATOR_ASSEMBLY
// Saves what a called function must leave as it was (six registers, and the control words of both floating-point units)
// on the stack, and restores it from the other one.
extern "C" void emulator_switch_stack(void** save_to, void* stack_pointer);
asm(R"(
  .text
  .hidden emulator_switch_stack
  .globl emulator_switch_stack
  .type emulator_switch_stack, @function
emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulator_switch_stack, .-emulator_switch_stack
)");
#endif

// Comes back when something switches to `from`.
void switch_fiber(Fiber& from, Fiber& to) {
#if defined(__ELF__)
  if (tsan) __tsan_switch_to_fiber(to.tsan, 1);  // 1: switching orders nothing
  if (asan) {
    switched_from = &from;
    __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
  }
#endif
#if EMULATOR_ASSEMBLY
  emulator_switch_stack(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
  after_switch(from.fake_stack);
}

void run_threads();

// Makes the fiber begin anew, whatever was on its stack. Stacks begin at different places within a page, so that their
// first lines do not all compete for the same places in the cache.
void prepare(unsigned number) {
  Fiber& fiber = fibers[number];
  fiber.bottom = stacks + number * stack_stride + page_bytes;
  fiber.size = stack_bytes;
#if defined(__ELF__)
  if (asan) __asan_unpoison_memory_region(fiber.bottom, fiber.size);
#endif
  const std::size_t colour = number * 5 % 64 * 64;
#if EMULATOR_ASSEMBLY
  auto* top = reinterpret_cast<std::uint64_t*>(fiber.bottom + fiber.size - colour);
  *--top = 0;  // run_threads does not return
  *--top = reinterpret_cast<std::uint64_t>(&run_threads);
  for (int i = 0; i < 6; ++i) *--top = 0;
  --top;
  asm volatile("stmxcsr (%0)\n fnstcw 4(%0)" ::"r"(top) : "memory");
  fiber.stack_pointer = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.bottom;
  fiber.context.uc_stack.ss_size = fiber.size - colour;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_threads, 0);
#endif
}

// Fresh zero pages: for ThreadSanitizer they have nothing to do with what was there before.
unsigned char* map_pages(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error("emulator: no memory for stacks");
  return static_cast<unsigned char*>(memory);
}

void map_memory() {
  page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  stack_stride = stack_bytes + page_bytes;
  stacks = map_pages(max_threads * stack_stride);
  arena = map_pages(arena_bytes);
}

// The page below a stack: a kernel that needs too much of it crashes there.
void protect(unsigned number) { mprotect(stacks + number * stack_stride, page_bytes, PROT_NONE); }

void provide_fibers(unsigned count) {
  if (!stacks) map_memory();
  for (; fiber_count < count; ++fiber_count) {
    protect(fiber_count);
    prepare(fiber_count);
    idle[idle_count++] = &fibers[fiber_count];
  }
}

// Forgets what runs on any of them.
void reset_fibers() {
  idle_count = 0;
  for (unsigned i = fiber_count; i-- > 0;) {
    prepare(i);
    idle[idle_count++] = &fibers[i];
  }
}

// ---- Order

std::uint64_t random_word() {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545F4914F6CDD1D;
}

unsigned random_below(unsigned end) { return static_cast<unsigned>((random_word() >> 32) * end >> 32); }

// `count` threads from `first` on become ready.
void make_ready(Thread* first, unsigned count, bool at_front) {
  if (run_order.kind == Order::shuffled) {
    Thread* shuffled[max_threads];
    for (unsigned i = 0; i < count; ++i) {
      const unsigned j = random_below(i + 1);
      shuffled[i] = shuffled[j];
      shuffled[j] = first + i;
    }
    at_front = at_front && random_below(2) == 0;
    for (unsigned i = 0; i < count; ++i) at_front ? queue.push_front(shuffled[i]) : queue.push_back(shuffled[i]);
    return;
  }
  const bool ascending = run_order.kind == Order::forward;
  for (unsigned i = 0; i < count; ++i) {
    if (at_front) {
      queue.push_front(first + (ascending ? count - 1 - i : i));
    } else {
      queue.push_back(first + (ascending ? i : count - 1 - i));
    }
  }
}

// ---- Threads: what follows runs on the fibers' stacks, and throws nothing.

[[noreturn]] void fail(const char* problem, const Thread* thread, const Thread* other = nullptr, long number = 0) {
  failure = {problem, thread, other, {}, {}, number};
  if (thread->wait) failure.wait = *thread->wait;
  if (other && other->wait) failure.other_wait = *other->wait;
  switch_fiber(*std::exchange(current, nullptr)->fiber, host);
  std::abort();
}

const Thread* waiting_thread(const Wait* wait) {
  const Thread* thread = threads;
  while (thread->wait != wait) ++thread;
  return thread;
}

[[noreturn]] void fail_deadlock() {
  const Thread* first = threads;
  while (!first->wait) ++first;
  const Thread* other = first;
  while (other != threads + thread_count && (!other->wait || other->wait->line == first->wait->line)) ++other;
  fail("deadlock: nothing can go on, and waiting are", first, other == threads + thread_count ? nullptr : other);
}

void go_to(Thread* next) {
  current = next;
  threadIdx = next->index;
}

// The thread waits until it is ready again. Another one goes on.
void let_others_run() {
  Thread* self = current;
  Thread* next = queue.pop();
  if (!next) fail_deadlock();
  if (next == self) return;
  if (!next->fiber) next->fiber = idle[--idle_count];
  go_to(next);
  switch_fiber(*self->fiber, *next->fiber);
}

bool same(const Wait& a, const Wait& b) {
  return a.operation == b.operation && a.line == b.line && a.bytes == b.bytes &&
         (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

void open_warp(Warp& warp) {
  Thread* first = threads + (&warp - warps) * lanes_in_warp;
  const unsigned running = warp.arrived;
  warp.arrived = 0;
  warp.votes[(warp.generation + 1) % 2] = 0;
  ++warp.generation;
  if (running == 0xFFFFFFFF) {
    for (unsigned lane = 0; lane < lanes_in_warp; ++lane) first[lane].wait = nullptr;
    make_ready(first, lanes_in_warp, true);
  } else {  // lanes that run are not neighbours if some have left
    for (unsigned i = lanes_in_warp; i-- > 0;) {
      const unsigned lane = run_order.kind == Order::reverse ? lanes_in_warp - 1 - i : i;
      if (!(running >> lane & 1)) continue;
      first[lane].wait = nullptr;
      make_ready(first + lane, 1, true);
    }
  }
}

void wait_at_warp(const Wait& wait) {
  Thread* self = current;
  Warp& warp = *self->warp;
  const unsigned bit = 1u << self->lane;
  self->wait = &wait;
  if (!(wait.mask & bit)) fail("the mask leaves out the calling lane:", self);
  if (const unsigned missing = wait.mask & warp.left) {
    fail("divergent warp operation: the mask names a lane that has left the kernel:", self,
         threads + (&warp - warps) * lanes_in_warp + __builtin_ctz(missing));
  }
  if (warp.arrived == 0) {
    warp.wait = &wait;
  } else if (!same(*warp.wait, wait)) {
    fail("divergent warp operation: lanes of one warp are at different ones:", waiting_thread(warp.wait), self);
  } else if (warp.wait->mask != wait.mask) {
    fail("lanes of one warp pass different masks:", waiting_thread(warp.wait), self);
  }
  void* const sync = &sync_objects()->warp[&warp - warps][warp.generation % 2];
  release(sync);
  warp.arrived |= bit;
  if (warp.arrived == (warp.lanes & ~warp.left)) open_warp(warp);
  let_others_run();
  acquire(sync);
}

// The thread has come to the end of the kernel.
void leave() {
  Thread* self = current;
  Warp& warp = *self->warp;
  self->left = true;
  ++threads_left;
  warp.left |= 1u << self->lane;
  if (threads_arrived > 0) {
    fail("divergent barrier: a thread has left the kernel while another waits:", waiting_thread(block_wait), self);
  }
  if (warp.arrived == 0) return;
  if (warp.wait->mask >> self->lane & 1) {
    fail("divergent warp operation: the mask names a lane that has left the kernel:", waiting_thread(warp.wait), self);
  }
  if (warp.arrived == (warp.lanes & ~warp.left)) open_warp(warp);
}

// The main function of every fiber: a thread after the other. Under ThreadSanitizer each thread has a fiber of its own.
void run_threads() {
  after_switch(nullptr);
  for (;;) {
    acquire(&launch_begins);
    try {
      kernel_body(kernel_arguments);
    } catch (...) {
      fail("an exception left the kernel:", current);
    }
    release(&launch_ends);
    leave();
    Fiber* self = current->fiber;
    Thread* next = queue.pop();
    if (!next && threads_left < thread_count) fail_deadlock();
    current = next;
    if (next) go_to(next);
    if (next && !next->fiber) {
      next->fiber = self;
      continue;
    }
    idle[idle_count++] = self;
    switch_fiber(*self, next ? *next->fiber : host);
  }
}

}  // namespace

namespace detail {

void block_barrier(const char* file, int line) {
  const Wait wait = {Operation::syncthreads, 0, 0, file, line};
  Thread* self = current;
  self->wait = &wait;
  if (threads_left > 0) {
    const Thread* gone = threads;
    while (!gone->left) ++gone;
    fail("divergent barrier: a thread has left the kernel while another waits:", self, gone);
  }
  if (threads_arrived == 0) {
    block_wait = &wait;
  } else if (!same(*block_wait, wait)) {
    fail("divergent barrier: threads wait at different ones:", waiting_thread(block_wait), self);
  }
  void* const sync = &sync_objects()->block[block_generation % 2];
  release(sync);
  if (++threads_arrived == thread_count) {
    threads_arrived = 0;
    ++block_generation;
    for (unsigned i = 0; i < thread_count; ++i) threads[i].wait = nullptr;
    make_ready(threads, thread_count, false);
  }
  let_others_run();
  acquire(sync);
}

void warp_barrier(Operation operation, unsigned mask, const char* file, int line) {
  wait_at_warp({operation, mask, 0, file, line});
}

unsigned warp_votes(Operation operation, unsigned mask, bool vote, const char* file, int line) {
  unsigned& votes = current->warp->votes[current->warp->generation % 2];
  votes |= unsigned{vote} << current->lane;
  wait_at_warp({operation, mask, 0, file, line});
  return votes;
}

Gathered warp_exchange(Operation operation, unsigned mask, const void* mine, std::size_t bytes, const char* file,
                       int line) {
  const unsigned lane = current->lane;
  const Warp& warp = *current->warp;
  unsigned char* values = current->warp->values[warp.generation % 2];
  copy_unseen(values + lane * bytes, mine, bytes);
  wait_at_warp({operation, mask, bytes, file, line});
  if (operation == Operation::gather && warp.lanes != 0xFFFFFFFF) {
    fail("warp_gather needs all 32 lanes of a warp:", current);
  }
  return {values, warp.lanes, lane};
}

void read_missing_lane(unsigned lane, const char* file, int line) {
  const Wait place = {Operation::shfl, 0, 0, file, line};
  current->wait = &place;
  fail("a shuffle reads from a lane that does not exist in this block:", current, nullptr, lane);
}

void* static_shared_memory(const SharedType& type) {
  for (unsigned i = 0; i < static_count; ++i) {
    if (static_memory[i].type == &type) return static_memory[i].memory;
  }
  const auto aligned = [&](std::size_t bytes) { return (bytes + type.alignment - 1) / type.alignment * type.alignment; };
  static_bytes = aligned(static_bytes) + type.bytes;
  if (static_bytes > max_static_bytes) fail("more than 48 KB of static shared memory", current);
  if (static_bytes + dynamic_bytes > max_shared_bytes) fail("more than 227 KB of shared memory", current);
  if (static_count == std::size(static_memory)) fail("too many kinds of static shared memory", current);
  unsigned char* memory = arena + static_begin + aligned(static_used);
  static_used = aligned(static_used) + type.bytes + sentinel_bytes;
  fill_unseen(memory, type.bytes);
  static_memory[static_count++] = {&type, memory};
  return memory;
}

}  // namespace detail

void* dynamic_shared_memory() { return arena + dynamic_begin; }

// ---- The host's side

namespace {

struct Allocation {
  std::size_t bytes;
  unsigned char* with_sentinels;
};
struct Guard {
  std::size_t bytes;
  std::string what;
};
std::map<unsigned char*, Allocation> allocations;
std::map<unsigned char*, Guard> guards;
std::size_t allocated_bytes = 0;
std::size_t memory_limit =
    static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
cudaError_t last_error = cudaSuccess;
std::recursive_mutex host_mutex;  // one launch at a time, whatever thread it comes from

using Lock = std::lock_guard<std::recursive_mutex>;

cudaError_t with(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

std::string text_of(const uint3& index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

std::string text_of(const Thread& thread, const Wait& wait) {
  static constexpr const char* names[] = {"__syncthreads",   "__syncwarp",     "__shfl_sync",   "__shfl_up_sync",
                                          "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync",
                                          "__all_sync",      "warp_gather"};
  std::string text = "thread " + text_of(thread.index);
  if (wait.line != 0) {
    text += std::string(" at ") + names[static_cast<int>(wait.operation)] + " (" + wait.file + ":" +
            std::to_string(wait.line) + ")";
  } else if (thread.left) {
    text += " has left";
  }
  return text;
}

std::string text_of(const Failure& failed) {
  std::string text = "emulator: block " + text_of(blockIdx) + ": " + failed.problem + " " +
                     text_of(*failed.thread, failed.wait);
  if (failed.other) text += ", " + text_of(*failed.other, failed.other_wait);
  return text;
}

// Every thread of a launch is another one of ThreadSanitizer's fibers: in the same one, what a thread did would be
// ordered before what its successor does. The next launch comes after this one anyway and may use them again. Stacks and
// shared memory are fresh for every block for the same reason: they are other memory in the eyes of CUDA.
#if defined(__ELF__)
std::vector<void*> tsan_fibers;
std::size_t tsan_fibers_used = 0;

void destroy_tsan_fibers() {
  for (void* fiber : tsan_fibers) __tsan_destroy_fiber(fiber);
  tsan_fibers.clear();
  tsan_fibers_used = 0;
}

void begin_block_for_tsan(bool first_of_launch) {
  if (!first_of_launch) {
    munmap(arena, arena_bytes);
    munmap(stacks, max_threads * stack_stride);
    map_memory();
    for (unsigned i = 0; i < fiber_count; ++i) protect(i);
  }
  reset_fibers();
  constexpr std::size_t most = 4 * max_threads;  // ThreadSanitizer can have 8,000
  if (tsan_fibers_used + thread_count > most) destroy_tsan_fibers();
  for (unsigned i = 0; i < thread_count; ++i) {
    if (tsan_fibers_used == tsan_fibers.size()) tsan_fibers.push_back(__tsan_create_fiber(0));
    fibers[i].tsan = tsan_fibers[tsan_fibers_used++];
    const std::string name = "CUDA block " + text_of(blockIdx) + " thread " + text_of(threads[i].index);
    __tsan_set_fiber_name(fibers[i].tsan, name.c_str());
    threads[i].fiber = &fibers[i];
  }
}

// The host goes on after what abandoned threads did.
void abandon_tsan_fibers() {
  for (unsigned i = 0; i < thread_count; ++i) {
    __tsan_switch_to_fiber(fibers[i].tsan, 1);
    release(&launch_ends);
  }
  __tsan_switch_to_fiber(host.tsan, 1);
  destroy_tsan_fibers();
}
#else
void begin_block_for_tsan(bool) {}
void abandon_tsan_fibers() {}
#endif

void begin_launch(dim3 grid, dim3 block) {
  gridDim = grid;
  blockDim = block;
  thread_count = block.x * block.y * block.z;
  provide_fibers(thread_count);
  for (unsigned i = 0; i < thread_count; ++i) {
    threads[i].index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    threads[i].lane = i % lanes_in_warp;
    threads[i].warp = &warps[i / lanes_in_warp];
  }
  random_state = (run_order.seed + 1) * 0x9E3779B97F4A7C15 | 1;
#if defined(__ELF__)
  if (tsan) host.tsan = __tsan_get_current_fiber();
  tsan_fibers_used = 0;
#endif
}

void begin_block(bool first_of_launch) {
  for (unsigned i = 0; i < thread_count; ++i) {
    threads[i].fiber = nullptr;
    threads[i].wait = nullptr;
    threads[i].left = false;
  }
  for (unsigned i = 0; i * lanes_in_warp < thread_count; ++i) {
    const unsigned lanes = thread_count - i * lanes_in_warp;
    warps[i].lanes = lanes >= lanes_in_warp ? 0xFFFFFFFF : (1u << lanes) - 1;
    warps[i].left = warps[i].arrived = warps[i].generation = warps[i].votes[0] = warps[i].votes[1] = 0;
  }
  threads_arrived = threads_left = block_generation = 0;
  static_count = 0;
  static_used = static_bytes = 0;
  if (tsan) begin_block_for_tsan(first_of_launch);
  std::memset(arena + dynamic_begin, 0xFF, dynamic_bytes);
  fill_sentinel(arena + dynamic_begin + dynamic_bytes, sentinel_bytes);
  queue.begin = queue.count = 0;
  make_ready(threads, thread_count, false);
}

void run_block() {
  release(&launch_begins);
  failure.problem = nullptr;
  Thread* first = queue.pop();
  if (!first->fiber) first->fiber = idle[--idle_count];
  go_to(first);
  switch_fiber(host, *first->fiber);
  if (!failure.problem) return;
  if (tsan) abandon_tsan_fibers();
  const std::string text = text_of(failure);
  reset_fibers();
  acquire(&launch_ends);
  throw Error(text);
}

void check_shared(const unsigned char* memory, std::size_t bytes, const std::string& what) {
  const std::size_t broken = first_broken(memory + bytes, sentinel_bytes);
  if (broken == sentinel_bytes) return;
  acquire(&launch_ends);
  throw Error("emulator: block " + text_of(blockIdx) + ": out of bounds: byte " + std::to_string(bytes + broken) +
              " of " + what + " of " + std::to_string(bytes) + " bytes was written");
}

void check_shared_memory() {
  check_shared(arena + dynamic_begin, dynamic_bytes, "dynamic shared memory");
  for (unsigned i = 0; i < static_count; ++i) {
    check_shared(static_memory[i].memory, static_memory[i].type->bytes,
                 std::string("shared memory ") + static_memory[i].type->name);
  }
}

// Block number i of `count` in the order of the launch. Shuffled: strides that have no factor in common with the count
// meet every number once.
struct BlockOrder {
  std::uint64_t count, first, stride;
  explicit BlockOrder(std::uint64_t blocks) : count(blocks), first(0), stride(1) {
    if (run_order.kind == Order::reverse) {
      first = count - 1;
      stride = count - 1;
    } else if (run_order.kind == Order::shuffled) {
      first = random_word() % count;
      do {
        stride = 1 + random_word() % count;
      } while (std::gcd(stride, count) != 1);
    }
  }
  std::uint64_t operator[](std::uint64_t i) const { return (first + i * stride) % count; }
};

// Restores the sentinels where they are broken, so that each break is reported once.
std::string broken_sentinels(unsigned char* memory, const Allocation& allocation) {
  unsigned char* before = allocation.with_sentinels;
  unsigned char* behind = memory + allocation.bytes;
  const std::size_t broken_before = first_broken(before, global_sentinel_bytes);
  const std::size_t broken_behind = first_broken(behind, global_sentinel_bytes);
  std::string offset;
  if (broken_before < global_sentinel_bytes) {
    offset = "-" + std::to_string(global_sentinel_bytes - broken_before);
  } else if (broken_behind < global_sentinel_bytes) {
    offset = std::to_string(allocation.bytes + broken_behind);
  } else {
    return {};
  }
  fill_sentinel(before, global_sentinel_bytes);
  fill_sentinel(behind, global_sentinel_bytes);
  return "emulator: out of bounds: byte " + offset + " of global memory of " + std::to_string(allocation.bytes) +
         " bytes was written";
}

}  // namespace

void check_guards() {
  const Lock lock(host_mutex);
  std::string text;
  for (const auto& [memory, allocation] : allocations) {
    const std::string broken = broken_sentinels(memory, allocation);
    if (text.empty()) text = broken;
  }
  for (const auto& [memory, guarded] : guards) {
    const std::size_t broken = first_broken(memory, guarded.bytes);
    if (broken == guarded.bytes) continue;
    fill_sentinel(memory, guarded.bytes);
    if (text.empty()) text = "emulator: out of bounds: byte " + std::to_string(broken) + " " + guarded.what + " was written";
  }
  if (!text.empty()) throw Error(text);
}

void guard(void* memory, std::size_t bytes, const std::string& what) {
  const Lock lock(host_mutex);
  fill_sentinel(static_cast<unsigned char*>(memory), bytes);
  guards[static_cast<unsigned char*>(memory)] = {bytes, what};
}

void unguard(void* memory) {
  const Lock lock(host_mutex);
  guards.erase(static_cast<unsigned char*>(memory));
}

void set_order(Order order) {
  const Lock lock(host_mutex);
  run_order = order;
}

Order order() { return run_order; }

void set_memory_limit(std::size_t bytes) { memory_limit = bytes; }

void detail::launch(void (*body)(void*), void* arguments, dim3 grid, dim3 block, std::size_t shared_bytes) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (current) fail("a kernel launches a kernel:", current);
  const auto refuse = [](const std::string& why) { throw Error("emulator: kernel launch: " + why); };
  const std::string size = text_of({block.x, block.y, block.z});
  if (block.x == 0 || block.y == 0 || block.z == 0) refuse("no threads in a block of " + size);
  if (std::uint64_t{block.x} * block.y > max_threads || block.x * block.y * std::uint64_t{block.z} > max_threads) {
    refuse("more than 1024 threads in a block of " + size);
  }
  if (block.z > 64) refuse("more than 64 threads in z in a block of " + size);
  if (grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) {
    refuse("too many blocks in a grid of " + text_of({grid.x, grid.y, grid.z}) + "; y and z can be 65535");
  }
  if (shared_bytes > max_shared_bytes) {
    refuse(std::to_string(shared_bytes) + " bytes of shared memory; a block has 227 KB");
  }
  const Lock lock(host_mutex);
  kernel_body = body;
  kernel_arguments = arguments;
  dynamic_bytes = shared_bytes;
  begin_launch(grid, block);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  const BlockOrder order(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t number = order[i];
    blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / grid.x / grid.y)};
    begin_block(i == 0);
    run_block();
    check_shared_memory();
  }
  acquire(&launch_ends);
  check_guards();
}

// ---- The runtime

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const Lock lock(host_mutex);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > memory_limit || allocated_bytes > memory_limit - bytes) return with(cudaErrorMemoryAllocation);
  const std::size_t rounded = (bytes + 255) / 256 * 256;
  auto* raw = static_cast<unsigned char*>(std::aligned_alloc(256, rounded + 2 * global_sentinel_bytes));
  if (!raw) return with(cudaErrorMemoryAllocation);
  unsigned char* usable = raw + global_sentinel_bytes;
  fill_sentinel(raw, global_sentinel_bytes);
  std::memset(usable, 0xFF, bytes);
  fill_sentinel(usable + bytes, global_sentinel_bytes);
  allocations[usable] = {bytes, raw};
  allocated_bytes += bytes;
  *memory = usable;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  const Lock lock(host_mutex);
  const auto found = allocations.find(static_cast<unsigned char*>(memory));
  if (found == allocations.end()) return with(cudaErrorInvalidValue);
  const Allocation allocation = found->second;
  const bool broken = !broken_sentinels(found->first, allocation).empty();
  allocations.erase(found);
  allocated_bytes -= allocation.bytes;
  std::free(allocation.with_sentinels);
  return with(broken ? cudaErrorIllegalAddress : cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  if (bytes > 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  if (bytes > 0) std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "memory was written out of bounds";
  }
  return "unknown error";
}

}  // namespace emulator
