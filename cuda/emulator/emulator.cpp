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
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/emulator/async.hpp"
#include "cuda/emulator/counts.hpp"

#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(EMULATOR_UCONTEXT)
#define EMULATOR_ASSEMBLY 1
#else
#define EMULATOR_ASSEMBLY 0
#include <ucontext.h>
#endif

// Functions that inform sanitizers about fibers; defined only in a program linked with a sanitizer. This file must not
// be compiled with -fsanitize=thread: the scheduler's accesses for all threads would be reported as races.
#if defined(__ELF__)
#define EMULATOR_IF_LINKED(result, name, ...) extern "C" __attribute__((weak)) result name(__VA_ARGS__)
#else
#define EMULATOR_IF_LINKED(result, name, ...) static result (*const name)(__VA_ARGS__) = nullptr
#endif
EMULATOR_IF_LINKED(void*, __tsan_get_current_fiber, void);
EMULATOR_IF_LINKED(void*, __tsan_create_fiber, unsigned flags);
EMULATOR_IF_LINKED(void, __tsan_destroy_fiber, void* fiber);
EMULATOR_IF_LINKED(void, __tsan_switch_to_fiber, void* fiber, unsigned flags);
EMULATOR_IF_LINKED(void, __tsan_set_fiber_name, void* fiber, const char* name);
EMULATOR_IF_LINKED(void, __tsan_acquire, void* address);
EMULATOR_IF_LINKED(void, __tsan_release, void* address);
EMULATOR_IF_LINKED(void, __sanitizer_start_switch_fiber, void** fake_stack, const void* bottom, std::size_t size);
EMULATOR_IF_LINKED(void, __sanitizer_finish_switch_fiber, void* fake_stack, const void** bottom, std::size_t* size);
EMULATOR_IF_LINKED(void, __asan_unpoison_memory_region, const volatile void* memory, std::size_t bytes);

namespace emulator {

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

using detail::Operation, detail::Wait;

const bool tsan = __tsan_switch_to_fiber != nullptr, asan = __sanitizer_start_switch_fiber != nullptr;

constexpr unsigned max_threads = 1024, warp_size = 32, max_warps = max_threads / warp_size;
constexpr std::size_t max_static_bytes = 48 << 10, max_shared_bytes = 227 << 10;

// ---- State of a launch: plain data, because all threads' stacks use it.

// A stack, and its saved stack pointer.
struct Fiber {
#if EMULATOR_ASSEMBLY
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  const void* bottom;
  std::size_t size;
  void* tsan;        // ThreadSanitizer's fiber
  void* fake_stack;  // AddressSanitizer's second stack
};

constexpr const char* operation_names[] = {"__syncthreads",    "__syncwarp",      "__shfl_sync",   "__shfl_up_sync",
                                           "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync", "__any_sync",
                                           "__all_sync",       "warp_gather",     "mbarrier_init", "mbarrier_arrive",
                                           "mbarrier_wait",    "load_tile",       "wgmma"};

struct Warp;

struct Thread {
  uint3 index;
  unsigned lane;
  Warp* warp;
  Fiber* fiber;      // null before the thread starts
  const Wait* wait;  // null unless the thread waits
  bool left;         // true: the thread has returned
};

// Sets of lanes are bit masks. Lanes exchange values in two alternating buffers: some lanes may write for the next
// operation while others still read those of the current one, and none can be two operations ahead.
struct Warp {
  unsigned lanes, left, arrived, generation;
  const Wait* wait;  // of the lane that arrived first
  unsigned votes[2];
  alignas(64) unsigned char values[2][warp_size * detail::largest_exchange];
};

// Ready threads in order. When a barrier of a block opens, its threads go to the end; when one of a warp opens, they go
// to the front, so that a warp runs as long as possible while its stacks are in cache.
struct Queue {
  static constexpr unsigned size = 2 * max_threads;
  Thread* threads[size];
  unsigned begin, end;  // modulo size
  void push_front(Thread* thread) { threads[--begin % size] = thread; }
  void push_back(Thread* thread) { threads[end++ % size] = thread; }
  Thread* pop() { return begin == end ? nullptr : threads[begin++ % size]; }
};

// Error of a thread. The host reports it after switching back to its own stack; the thread is abandoned.
struct Failure {
  const char* problem;
  const Thread *thread, *other;
};

struct StaticMemory {
  const detail::SharedType* type;
  unsigned char* memory;
};

// Addresses that tell ThreadSanitizer the order of accesses. Each barrier has two, used alternately: with one, a thread
// that leaves a barrier late would seem ordered after later accesses of threads that left early.
struct SyncObjects {
  std::uint64_t block[2], warp[max_warps][2], object[128];
};
std::uint64_t launch_begins, launch_ends;

Thread threads[max_threads];
Warp warps[max_warps];
unsigned number_of(const Warp& warp) { return static_cast<unsigned>(&warp - warps); }
Queue queue;
Thread* current = nullptr;  // null: host code runs
unsigned thread_count, threads_left, threads_arrived, block_generation;
const Wait* block_wait;  // of the first thread at the barrier
void (*kernel_body)(void*);
void* kernel_arguments;
Failure failure;
Order run_order;
std::uint64_t random_state;

StaticMemory static_memory[64];
unsigned static_count;
std::size_t static_end, static_bytes, dynamic_bytes;

// Sync objects, dynamic shared memory and static shared memory are one allocation.
constexpr std::size_t dynamic_begin = 4 << 10, static_begin = 256 << 10, arena_bytes = 384 << 10;
unsigned char* arena = nullptr;
SyncObjects& sync_objects() { return *reinterpret_cast<SyncObjects*>(arena); }

// Fibers are kept between launches and are then idle.
constexpr std::size_t stack_bytes = 128 << 10;
unsigned char* stacks = nullptr;
std::size_t page_bytes, stack_stride;
Fiber fibers[max_threads], host, *switched_from;
Fiber* idle[max_threads];
unsigned fiber_count, idle_count;

// ---- Sentinels: NaN as bf16, float or double, but different from the NaN that memory is filled with.

constexpr std::size_t sentinel_bytes = 256;
constexpr std::uint64_t sentinel = 0xFFD3FFD3FFD3FFD3;

// Words that may alias any type. Volatile, so that loops over them do not become calls of memset, memcpy or memcmp,
// which sanitizers intercept.
using Word = volatile std::uint32_t __attribute__((may_alias, aligned(1)));
using TwoWords = volatile std::uint64_t __attribute__((may_alias, aligned(1)));
using FourWords = std::uint64_t __attribute__((vector_size(16), may_alias, aligned(1)));
using Byte = volatile unsigned char;

unsigned char sentinel_byte(std::size_t i) { return static_cast<unsigned char>(sentinel >> i % 2 * 8); }

void set_sentinel(unsigned char* memory, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) reinterpret_cast<TwoWords&>(memory[i]) = sentinel;
  for (; i < bytes; ++i) static_cast<Byte&>(memory[i]) = sentinel_byte(i);
}

// Index of the first overwritten byte; `bytes` if there is none.
std::size_t first_broken(const unsigned char* memory, std::size_t bytes) {
  std::size_t i = 0;
  while (i + 8 <= bytes && reinterpret_cast<const TwoWords&>(memory[i]) == sentinel) i += 8;
  while (i < bytes && static_cast<const Byte&>(memory[i]) == sentinel_byte(i)) ++i;
  return i;
}

// Fills with bytes 0xFF, followed by a sentinel.
void fill(unsigned char* memory, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 16 <= bytes; i += 16) reinterpret_cast<volatile FourWords&>(memory[i]) = ~FourWords{};
  for (; i < bytes; ++i) static_cast<Byte&>(memory[i]) = 0xFF;
  set_sentinel(memory + bytes, sentinel_bytes);
}

void copy(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  std::size_t i = 0;
  for (; i + 4 <= bytes; i += 4) reinterpret_cast<Word&>(to[i]) = reinterpret_cast<const Word&>(from[i]);
  for (; i < bytes; ++i) static_cast<Byte&>(to[i]) = from[i];
}

// ---- Fibers

void acquire(void* address) {
  if (tsan) __tsan_acquire(address);
}
void release(void* address) {
  if (tsan) __tsan_release(address);
}

#if EMULATOR_ASSEMBLY
// Saves the registers that a called function must preserve, and the floating-point control words, on this stack, and
// restores those of the other stack. The assembler name is the same on every system.
extern "C" void emulator_switch_stack(void** save_to, void* stack_pointer) asm("emulator_switch_stack");
#if defined(__x86_64__)
asm(R"(
  .text
  .globl emulator_switch_stack
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
)");

// Saves the initial registers on a new stack: a switch to it calls `function`. Returns the top.
void* saved_before(void (*function)(), unsigned char* end) {
  auto* top = reinterpret_cast<std::uint64_t*>(end);
  *--top = 0;  // it does not return
  *--top = reinterpret_cast<std::uint64_t>(function);
  for (int saved_register = 0; saved_register < 6; ++saved_register) *--top = 0;
  asm volatile("stmxcsr (%0)\n fnstcw 4(%0)" ::"r"(--top) : "memory");
  return top;
}
#else
asm(R"(
  .text
  .p2align 2
  .globl emulator_switch_stack
emulator_switch_stack:
  sub sp, sp, #176
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mrs x9, fpcr
  str x9, [sp, #160]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldr x9, [sp, #160]
  msr fpcr, x9
  ldp d14, d15, [sp, #144]
  ldp d12, d13, [sp, #128]
  ldp d10, d11, [sp, #112]
  ldp d8, d9, [sp, #96]
  ldp x29, x30, [sp, #80]
  ldp x27, x28, [sp, #64]
  ldp x25, x26, [sp, #48]
  ldp x23, x24, [sp, #32]
  ldp x21, x22, [sp, #16]
  ldp x19, x20, [sp]
  add sp, sp, #176
  ret
)");

// Saves the initial registers on a new stack: a switch to it calls `function`. Returns the top.
void* saved_before(void (*function)(), unsigned char* end) {
  constexpr int saved = 22, return_address = 11, control_word = 20;
  auto* top = reinterpret_cast<std::uint64_t*>(end) - saved;
  for (int i = 0; i < saved; ++i) top[i] = 0;
  top[return_address] = reinterpret_cast<std::uint64_t>(function);
  asm volatile("mrs %0, fpcr" : "=r"(top[control_word]));
  return top;
}
#endif
#endif

// AddressSanitizer returns the bounds of the previous stack: the only way to get those of the host's stack.
void after_switch(void* fake_stack) {
  if (asan) __sanitizer_finish_switch_fiber(fake_stack, &switched_from->bottom, &switched_from->size);
}

// Returns at the next switch back.
void switch_fiber(Fiber& from, Fiber& to) {
  constexpr unsigned no_sync = 1;  // a switch between threads does not order their accesses
  if (tsan) __tsan_switch_to_fiber(to.tsan, no_sync);
  switched_from = &from;
  if (asan) __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.size);
#if EMULATOR_ASSEMBLY
  emulator_switch_stack(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.context, &to.context);
#endif
  after_switch(from.fake_stack);
}

void run_threads();

// Restarts the fiber and discards its stack. Stacks begin at different offsets within a page; otherwise their first
// cache lines would map to the same sets.
void prepare(unsigned number) {
  Fiber& fiber = fibers[number];
  unsigned char* bottom = stacks + number * stack_stride + page_bytes;
  mprotect(bottom - page_bytes, page_bytes, PROT_NONE);  // a stack overflow causes a crash
  fiber.bottom = bottom;
  fiber.size = stack_bytes;
  if (asan) __asan_unpoison_memory_region(bottom, stack_bytes);
  const std::size_t used_bytes = stack_bytes - number * 5 % 64 * 64;
#if EMULATOR_ASSEMBLY
  fiber.stack_pointer = saved_before(&run_threads, bottom + used_bytes);
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = bottom;
  fiber.context.uc_stack.ss_size = used_bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, run_threads, 0);
#endif
}

// Makes all fibers idle.
void reset_fibers() {
  for (idle_count = 0; idle_count < fiber_count; ++idle_count) {
    prepare(idle_count);
    idle[idle_count] = &fibers[idle_count];
  }
}

unsigned char* map_pages(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error("emulator: no memory for stacks");
  return static_cast<unsigned char*>(memory);
}

// Allocates shared memory and stacks.
void map_memory() {
  page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  stack_stride = stack_bytes + page_bytes;
  arena = map_pages(arena_bytes);
  stacks = map_pages(max_threads * stack_stride);
}

void unmap_memory() {
  munmap(arena, arena_bytes);
  munmap(stacks, max_threads * stack_stride);
}

// ---- Scheduler. The following functions run on the threads' stacks and do not throw.

[[noreturn]] void fail(const char* problem, const Thread* thread, const Thread* other = nullptr) {
  failure = {problem, thread, other};
  switch_fiber(*std::exchange(current, nullptr)->fiber, host);
  std::abort();
}

[[noreturn]] void fail_deadlock() {
  const Thread *first = threads, *end = threads + thread_count;
  while (!first->wait) ++first;
  const Thread* other = first;
  while (other != end && (!other->wait || other->wait->line == first->wait->line)) ++other;
  fail("deadlock: none of these can go on", first, other == end ? nullptr : other);
}

const Thread* first_that_left() {
  const Thread* thread = threads;
  while (!thread->left) ++thread;
  return thread;
}

const Thread* owner(const Wait* wait) {
  const Thread* thread = threads;
  while (thread->wait != wait) ++thread;
  return thread;
}

std::uint64_t random_word() {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545F4914F6CDD1D;
}

unsigned random_below(unsigned end) { return static_cast<unsigned>((random_word() >> 32) * end >> 32); }

// Makes the threads of `lanes` ready, among `count` threads from `first` on; the mask repeats for each warp.
void make_ready(Thread* first, unsigned count, unsigned lanes, bool at_front) {
  static Thread* ready[max_threads];
  unsigned end = 0;
  for (unsigned i = 0; i < count; ++i) {
    Thread* thread = first + (run_order.kind == Order::reverse ? count - 1 - i : i);
    if (!(lanes >> thread->lane & 1)) continue;
    thread->wait = nullptr;
    ready[end++] = thread;
  }
  if (run_order.kind == Order::shuffled) {
    for (unsigned i = 1; i < end; ++i) std::swap(ready[i], ready[random_below(i + 1)]);
    at_front = at_front && random_below(2) == 0;
  }
  if (at_front) {
    while (end > 0) queue.push_front(ready[--end]);
  } else {
    for (unsigned i = 0; i < end; ++i) queue.push_back(ready[i]);
  }
}

void go_to(Thread* thread) {
  current = thread;
  threadIdx = thread->index;
  if constexpr (detail::counts_accesses) detail::count_for(number_of(*thread->warp), thread->lane);
}

// Transfers complete when no thread is ready, or at any time if the order is shuffled.
Thread* next_ready() {
  const auto* transfers = detail::asynchronous;
  if (transfers && run_order.kind == Order::shuffled && random_below(4) == 0) transfers->deliver();
  Thread* next = queue.pop();
  while (!next && transfers && transfers->deliver()) next = queue.pop();
  return next;
}

// Suspends the thread until it is ready again; other threads run.
void let_others_run() {
  Fiber* self = current->fiber;
  Thread* next = next_ready();
  if (!next) fail_deadlock();
  if (!next->fiber) next->fiber = idle[--idle_count];
  go_to(next);
  if (next->fiber != self) switch_fiber(*self, *next->fiber);
}

bool same(const Wait& a, const Wait& b) {
  return a.operation == b.operation && a.line == b.line && a.bytes == b.bytes &&
         (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

// All threads have reached a barrier or returned.
void count_requests() {
  if constexpr (detail::counts_accesses) {
    for (unsigned i = 0; i * warp_size < thread_count; ++i) detail::count_requests_of(i);
  }
}

// A barrier or an exchange has all its lanes: for the counts.
void count_wait(const Warp& warp, const Wait& wait) {
  if constexpr (detail::counts_accesses) {
    const bool is_block = wait.operation == Operation::syncthreads;
    const bool is_vote =
        wait.operation == Operation::ballot || wait.operation == Operation::any || wait.operation == Operation::all;
    const bool is_exchange = !is_block && wait.operation != Operation::syncwarp && wait.operation < Operation::gather;
    detail::count_wait(number_of(warp),
                       {operation_names[static_cast<int>(wait.operation)], is_block, is_exchange, is_vote,
                        is_block ? warp.lanes : warp.arrived, warp.values[warp.generation % 2], wait.bytes,
                        warp.votes[warp.generation % 2], wait.where});
  }
}

// The barrier of a warp opens when all lanes that have not returned have reached it.
void open_if_complete(Warp& warp) {
  if (warp.arrived != (warp.lanes & ~warp.left)) return;
  if constexpr (detail::counts_accesses) detail::count_requests_of(number_of(warp));
  count_wait(warp, *warp.wait);
  ++warp.generation;
  warp.votes[warp.generation % 2] = 0;
  make_ready(threads + number_of(warp) * warp_size, warp_size, std::exchange(warp.arrived, 0), true);
}

void wait_at_warp(const Wait& wait) {
  Thread* self = current;
  Warp& warp = *self->warp;
  self->wait = &wait;
  if (!(wait.mask >> self->lane & 1)) fail("the mask of a warp operation leaves out the lane that calls it", self);
  if (const unsigned gone = wait.mask & warp.left) {
    fail("divergent warp operation: its mask names a lane that has left the kernel", self,
         threads + number_of(warp) * warp_size + __builtin_ctz(gone));
  }
  if (warp.arrived == 0) warp.wait = &wait;
  if (!same(*warp.wait, wait))
    fail("divergent warp operation: lanes of one warp are at different ones", owner(warp.wait), self);
  if (warp.wait->mask != wait.mask) fail("lanes of one warp pass different masks", owner(warp.wait), self);
  std::uint64_t* const sync = &sync_objects().warp[number_of(warp)][warp.generation % 2];
  release(sync);
  warp.arrived |= 1u << self->lane;
  open_if_complete(warp);
  let_others_run();
  acquire(sync);
}

// The thread returns from the kernel.
void leave(Thread* self) {
  Warp& warp = *self->warp;
  if (detail::asynchronous) {
    if (const char* fault = detail::asynchronous->fault_of_leaving(detail::thread_number())) fail(fault, self);
  }
  self->left = true;
  ++threads_left;
  warp.left |= 1u << self->lane;
  if (threads_arrived > 0) fail("divergent barrier: one thread waits, another has left", owner(block_wait), self);
  if (warp.arrived == 0) return;
  if (warp.wait->mask >> self->lane & 1) {
    fail("divergent warp operation: its mask names a lane that has left the kernel", owner(warp.wait), self);
  }
  open_if_complete(warp);
}

// Main function of every fiber: runs threads one after another. A waiting thread makes the next ones start on other
// fibers; under ThreadSanitizer each thread has its own fiber from the start.
void run_threads() {
  after_switch(nullptr);
  for (;;) {
    acquire(&launch_begins);
    try {
      kernel_body(kernel_arguments);
    } catch (...) {
      fail("an exception left the kernel", current);
    }
    release(&launch_ends);
    leave(current);
    Fiber* self = current->fiber;
    Thread* next = threads_left < thread_count ? next_ready() : nullptr;
    if (!next && threads_left < thread_count) fail_deadlock();
    if (next && !next->fiber) {
      next->fiber = self;
      go_to(next);
      continue;
    }
    if (!tsan) idle[idle_count++] = self;
    if (next) {
      go_to(next);
      switch_fiber(*self, *next->fiber);
    } else {
      current = nullptr;
      switch_fiber(*self, host);
    }
  }
}

}  // namespace

namespace detail {

// The address in the kernel that a function of this namespace is called from.
#define EMULATOR_WHERE reinterpret_cast<std::uintptr_t>(__builtin_return_address(0))

void block_barrier(const char* file, int line) {
  const Wait wait = {Operation::syncthreads, 0, 0, file, line, EMULATOR_WHERE};
  current->wait = &wait;
  if (threads_left > 0) fail("divergent barrier: one thread waits, another has left", current, first_that_left());
  if (threads_arrived == 0) block_wait = &wait;
  if (!same(*block_wait, wait)) fail("divergent barrier: threads are at different ones", owner(block_wait), current);
  std::uint64_t* const sync = &sync_objects().block[block_generation % 2];
  release(sync);
  if (++threads_arrived == thread_count) {
    count_requests();
    for (unsigned i = 0; i * warp_size < thread_count; ++i) count_wait(warps[i], wait);
    threads_arrived = 0;
    ++block_generation;
    make_ready(threads, thread_count, 0xFFFFFFFF, false);
  }
  let_others_run();
  acquire(sync);
}

void warp_barrier(unsigned mask, const char* file, int line) {
  wait_at_warp({Operation::syncwarp, mask, 0, file, line, EMULATOR_WHERE});
}

unsigned warp_votes(Operation operation, unsigned mask, bool vote, const char* file, int line) {
  unsigned& votes = current->warp->votes[current->warp->generation % 2];
  votes |= unsigned{vote} << current->lane;
  wait_at_warp({operation, mask, 0, file, line, EMULATOR_WHERE});
  return votes;
}

Gathered warp_exchange(Operation operation, unsigned mask, const void* mine, std::size_t bytes, const char* file,
                       int line) {
  Warp& warp = *current->warp;
  const unsigned lane = current->lane;
  unsigned char* values = warp.values[warp.generation % 2];
  copy(values + lane * bytes, static_cast<const unsigned char*>(mine), bytes);
  wait_at_warp({operation, mask, bytes, file, line, EMULATOR_WHERE});
  if (operation == Operation::gather && warp.lanes != 0xFFFFFFFF)
    fail("warp_gather in a warp of less than 32 lanes", current);
  return {values, warp.lanes, lane};
}

void read_missing_lane(const char* file, int line) {
  const Wait place = {Operation::shfl, 0, 0, file, line, 0};
  current->wait = &place;
  fail("a shuffle reads from a lane that the block does not have", current);
}

float add_atomically(float* to, float value) {
  float before = 0, after = 0;
  __atomic_load(to, &before, __ATOMIC_RELAXED);
  do after = before + value;
  while (!__atomic_compare_exchange(to, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

// For hopper.cpp (async.hpp).
const Asynchronous* asynchronous = nullptr;
unsigned thread_number() { return static_cast<unsigned>(current - threads); }
void set_place(const Wait* wait) { current->wait = wait; }
void fail_here(const char* problem) { fail(problem, current); }
void fail_at(const char* problem, unsigned thread, const Wait& place) {
  threads[thread].wait = &place;
  fail(problem, &threads[thread]);
}
void wait_for(const Wait& wait) {
  current->wait = &wait;
  let_others_run();
}
void wake(const void* object) {
  for (unsigned i = 0; i < thread_count; ++i) {
    Thread* thread = threads + (run_order.kind == Order::reverse ? thread_count - 1 - i : i);
    if (thread->wait && thread->wait->object == object) make_ready(thread, 1, 0xFFFFFFFF, false);
  }
}
unsigned draw(unsigned end) { return random_below(end); }
unsigned char* begin_of_shared() { return arena; }
void release_object(unsigned object) { release(&sync_objects().object[object]); }
void acquire_object(unsigned object) { acquire(&sync_objects().object[object]); }

void access_misaligned() { fail("a misaligned wide access", current); }
void block_too_large() { fail("a block of more threads than __launch_bounds__ says", current); }

// Requires all bytes in the block's shared memory, or (is_shared false) none of them in shared memory.
void require_shared(const void* address, std::size_t bytes, bool is_shared) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const auto lies_in = [&](const unsigned char* memory, std::size_t size) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory);
    return begin >= first && begin + bytes <= first + size;
  };
  if (!is_shared) {
    if (lies_in(arena, arena_bytes))
      fail("an address in shared memory, where one in global memory is expected", current);
    return;
  }
  if (lies_in(arena + dynamic_begin, dynamic_bytes)) return;
  for (unsigned i = 0; i < static_count; ++i) {
    if (lies_in(static_memory[i].memory, static_memory[i].type->bytes)) return;
  }
  fail("an address outside of shared memory, where one in it is expected", current);
}

void* static_shared_memory(const SharedType& type) {
  for (unsigned i = 0; i < static_count; ++i) {
    if (static_memory[i].type == &type) return static_memory[i].memory;
  }
  const auto aligned = [&](std::size_t end) { return (end + type.alignment - 1) / type.alignment * type.alignment; };
  static_bytes = aligned(static_bytes) + type.bytes;
  if (static_bytes > max_static_bytes) fail("more than 48 KB of static shared memory", current);
  if (static_bytes + dynamic_bytes > max_shared_bytes) fail("more than 227 KB of shared memory", current);
  if (static_count == std::size(static_memory)) fail("too many pieces of static shared memory", current);
  unsigned char* memory = arena + aligned(static_end);
  static_end = aligned(static_end) + type.bytes + sentinel_bytes;
  fill(memory, type.bytes);
  static_memory[static_count++] = {&type, memory};
  if constexpr (counts_accesses) count_shared_array(type.name, memory, type.bytes);
  return memory;
}

}  // namespace detail

void* dynamic_shared_memory() { return arena + dynamic_begin; }

// ---- Launches, on the host

namespace {

std::recursive_mutex mutex;  // one launch at a time, from any thread
using Lock = std::lock_guard<std::recursive_mutex>;
struct Launching {
  static inline thread_local bool on = false;
  const Lock lock{mutex};
  Launching() { on = true; }
  ~Launching() { on = false; }
};

template <class Coordinates>
std::string text_of(const Coordinates& index) {
  return std::string("(") + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) +
         ")";
}

std::string description(const Thread& thread) {
  std::string text = "thread " + text_of(thread.index);
  if (const Wait* wait = thread.wait) {
    text += " at " + std::string(operation_names[static_cast<int>(wait->operation)]) + " (" + wait->file + ":" +
            std::to_string(wait->line) + ")";
    const bool has_state = detail::asynchronous && wait->object;
    if (has_state) text += ", whose " + detail::asynchronous->state_of(wait->object);
  }
  return text;
}

[[noreturn]] void throw_in_block(const std::string& problem) {
  acquire(&launch_ends);
  throw Error("emulator: block " + text_of(blockIdx) + ": " + problem);
}

// Each thread of a launch has its own ThreadSanitizer fiber: in a shared fiber the accesses of one thread would be
// ordered before those of the next. For the same reason stacks and shared memory are new for every block. Launches are
// ordered, so the next launch may reuse everything.
std::vector<void*> tsan_fibers;
std::size_t tsan_fibers_used = 0;

void destroy_tsan_fibers() {
  for (void* fiber : tsan_fibers) __tsan_destroy_fiber(fiber);
  tsan_fibers.clear();
  tsan_fibers_used = 0;
}

void begin_block_for_tsan(bool first_of_launch) {
  if (!first_of_launch) {
    unmap_memory();
    map_memory();
  }
  if (tsan_fibers_used + thread_count > max_threads) destroy_tsan_fibers();
  for (unsigned i = 0; i < thread_count; ++i) {
    prepare(i);
    if (tsan_fibers_used == tsan_fibers.size()) tsan_fibers.push_back(__tsan_create_fiber(0));
    fibers[i].tsan = tsan_fibers[tsan_fibers_used++];
    const std::string name = "CUDA block " + text_of(blockIdx) + " thread " + text_of(threads[i].index);
    __tsan_set_fiber_name(fibers[i].tsan, name.c_str());
    threads[i].fiber = &fibers[i];
  }
}

// Orders the accesses of abandoned threads before later accesses of the host.
void abandon_tsan_fibers() {
  for (unsigned i = 0; i < thread_count; ++i) {
    __tsan_switch_to_fiber(fibers[i].tsan, 1);
    release(&launch_ends);
  }
  __tsan_switch_to_fiber(host.tsan, 1);
  destroy_tsan_fibers();
}

void begin_launch(dim3 grid, dim3 block, std::size_t shared_bytes) {
  gridDim = grid;
  blockDim = block;
  dynamic_bytes = shared_bytes;
  thread_count = block.x * block.y * block.z;
  random_state = (run_order.seed + 1) * 0x9E3779B97F4A7C15 | 1;
  for (unsigned i = 0; i < thread_count; ++i) {
    threads[i].index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    threads[i].lane = i % warp_size;
    threads[i].warp = &warps[i / warp_size];
  }
  for (unsigned i = 0; i < max_warps; ++i) {
    const unsigned before = i * warp_size, lanes = thread_count > before ? thread_count - before : 0;
    warps[i].lanes = lanes >= warp_size ? 0xFFFFFFFF : (1u << lanes) - 1;
  }
  if (!stacks) map_memory();
  for (; fiber_count < thread_count; ++fiber_count) {
    prepare(fiber_count);
    idle[idle_count++] = &fibers[fiber_count];
  }
  if (tsan) host.tsan = __tsan_get_current_fiber();
  tsan_fibers_used = 0;
}

void run_block(bool first_of_launch) {
  for (unsigned i = 0; i < thread_count; ++i) {
    threads[i].fiber = nullptr;
    threads[i].left = false;
  }
  for (unsigned i = 0; i * warp_size < thread_count; ++i) {
    warps[i].left = warps[i].arrived = warps[i].generation = warps[i].votes[0] = 0;
  }
  threads_left = threads_arrived = block_generation = static_count = 0;
  static_bytes = 0;
  static_end = static_begin;
  queue.begin = queue.end = 0;
  failure.problem = nullptr;
  detail::asynchronous = nullptr;
  make_ready(threads, thread_count, 0xFFFFFFFF, false);
  if constexpr (detail::counts_accesses) detail::count_block(blockIdx.x, blockIdx.y, blockIdx.z, thread_count);
  if (tsan) begin_block_for_tsan(first_of_launch);
  fill(arena + dynamic_begin, dynamic_bytes);
  release(&launch_begins);

  Thread* first = queue.pop();
  if (!first->fiber) first->fiber = idle[--idle_count];
  go_to(first);
  switch_fiber(host, *first->fiber);
  if constexpr (detail::counts_accesses) detail::count_no_launch();

  if (failure.problem) {
    count_requests();
    std::string problem = std::string(failure.problem) + ": " + description(*failure.thread);
    if (failure.other) problem += ", " + description(*failure.other);
    if (tsan) abandon_tsan_fibers();
    reset_fibers();
    throw_in_block(problem);
  }
  count_requests();
  if (detail::asynchronous) {
    if (const std::string fault = detail::asynchronous->fault_of_block(); !fault.empty()) throw_in_block(fault);
  }
  const auto check = [](const unsigned char* memory, std::size_t bytes, std::string_view what) {
    const std::size_t broken = first_broken(memory + bytes, sentinel_bytes);
    if (broken == sentinel_bytes) return;
    throw_in_block("out of bounds: byte " + std::to_string(bytes + broken) + " of " + std::string(what) + " of " +
                   std::to_string(bytes) + " bytes was written");
  };
  check(arena + dynamic_begin, dynamic_bytes, "dynamic shared memory");
  for (unsigned i = 0; i < static_count; ++i) {
    std::string_view name = static_memory[i].type->name;  // "... [with S = Struct]"
    name.remove_prefix(name.find("S = ") + 4);
    name.remove_suffix(1);
    check(static_memory[i].memory, static_memory[i].type->bytes, name);
  }
}

// Index of block i of `count` in the order of the launch. Shuffled: multiplies by a stride coprime to the count, which
// gives every index once.
struct BlockOrder {
  std::uint64_t count, first = 0, stride = 1;
  explicit BlockOrder(std::uint64_t blocks) : count(blocks) {
    if (run_order.kind == Order::reverse) first = stride = count - 1;
    if (run_order.kind == Order::shuffled) {
      first = random_word() % count;
      do stride = 1 + random_word() % count;
      while (std::gcd(stride, count) != 1);
    }
  }
  std::uint64_t operator[](std::uint64_t i) const { return (first + i * stride) % count; }
};

}  // namespace

void detail::launch([[maybe_unused]] const void* kernel, void (*body)(void*), void* arguments, dim3 grid, dim3 block,
                    std::size_t shared_bytes) {
  if (Launching::on) fail("a kernel launches a kernel", current);
  const auto refuse = [&](const char* why) {
    throw Error("emulator: kernel launch: " + std::string(why) + ": grid " + text_of(grid) + ", block " +
                text_of(block) + ", " + std::to_string(shared_bytes) + " bytes of shared memory");
  };
  if (block.x == 0 || block.y == 0 || block.z == 0) refuse("a block without threads");
  if (block.x > max_threads || block.y > max_threads || block.x * block.y * std::uint64_t{block.z} > max_threads) {
    refuse("a block has at most 1024 threads");
  }
  if (block.z > 64) refuse("a block has at most 64 threads in z");
  if (grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) refuse("a grid has at most 65535 blocks in y and in z");
  if (shared_bytes > max_shared_bytes) refuse("a block has at most 227 KB of shared memory");

  const Launching launching;
  kernel_body = body;
  kernel_arguments = arguments;
  begin_launch(grid, block, shared_bytes);
  if constexpr (counts_accesses) count_launch(kernel, arena, arena + static_begin, arena_bytes);
  const BlockOrder order(std::uint64_t{grid.x} * grid.y * grid.z);
  for (std::uint64_t i = 0; i < order.count; ++i) {
    const std::uint64_t number = order[i];
    blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
                static_cast<unsigned>(number / grid.x / grid.y)};
    run_block(i == 0);
  }
  acquire(&launch_ends);
  check_guards();
}

void set_order(Order order) {
  const Lock lock(mutex);
  run_order = order;
}

Order order() { return run_order; }

// ---- Global memory and the rest of the runtime

namespace {

struct Guard {
  std::size_t bytes;
  std::string what;
  std::int64_t offset;  // of its first byte from the start of `what`
};
std::map<unsigned char*, Guard> guards;

std::map<void*, std::size_t> allocations;  // sizes in bytes; each allocation has guards on both sides
std::size_t allocated_bytes = 0, memory_limit = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                                                static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
cudaError_t last_error = cudaSuccess;

void add_guard(void* memory, const Guard& guarded) {
  const Lock lock(mutex);
  set_sentinel(static_cast<unsigned char*>(memory), guarded.bytes);
  guards[static_cast<unsigned char*>(memory)] = guarded;
}

cudaError_t remember(cudaError_t status) {
  if (status != cudaSuccess) last_error = status;
  return status;
}

}  // namespace

bool detail::is_global(const void* memory, std::size_t bytes) {
  const Lock lock(mutex);
  auto behind = allocations.upper_bound(const_cast<void*>(memory));
  if (behind == allocations.begin()) return false;
  const auto& [begin, size] = *std::prev(behind);
  return static_cast<const char*>(memory) + bytes <= static_cast<const char*>(begin) + size;
}

void guard(void* memory, std::size_t bytes, const std::string& what) { add_guard(memory, {bytes, what, 0}); }

void unguard(void* memory) {
  const Lock lock(mutex);
  guards.erase(static_cast<unsigned char*>(memory));
}

void check_guards() {
  const Lock lock(mutex);
  std::string problem;
  for (const auto& [memory, guarded] : guards) {
    const std::size_t broken = first_broken(memory, guarded.bytes);
    if (broken == guarded.bytes) continue;
    set_sentinel(memory, guarded.bytes);  // so that it is reported once
    const std::int64_t offset = guarded.offset + static_cast<std::int64_t>(broken);
    if (problem.empty()) problem = "byte " + std::to_string(offset) + " of " + guarded.what + " was written";
  }
  if (!problem.empty()) throw Error("emulator: out of bounds: " + problem);
}

void set_memory_limit(std::size_t bytes) { memory_limit = bytes; }

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const Lock lock(mutex);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (detail::breaks_recording()) return remember(cudaErrorStreamCaptureUnsupported);
  if (bytes > memory_limit || allocated_bytes > memory_limit - bytes) return remember(cudaErrorMemoryAllocation);
  constexpr std::size_t alignment = 256;
  static_assert(sentinel_bytes % alignment == 0);
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  auto* before = static_cast<unsigned char*>(std::aligned_alloc(alignment, rounded + 2 * sentinel_bytes));
  if (!before) return remember(cudaErrorMemoryAllocation);
  *memory = before + sentinel_bytes;
  std::memset(*memory, 0xFF, bytes);
  const std::string what = "global memory of " + std::to_string(bytes) + " bytes";
  add_guard(before, {sentinel_bytes, what, -static_cast<std::int64_t>(sentinel_bytes)});
  add_guard(before + sentinel_bytes + bytes, {sentinel_bytes, what, static_cast<std::int64_t>(bytes)});
  allocations[*memory] = bytes;
  allocated_bytes += bytes;
  if constexpr (detail::counts_accesses) detail::count_in(*memory, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (!memory) return cudaSuccess;
  if (detail::breaks_recording()) return remember(cudaErrorStreamCaptureUnsupported);
  const Lock lock(mutex);
  const auto found = allocations.find(memory);
  if (found == allocations.end()) return remember(cudaErrorInvalidValue);
  const std::size_t bytes = found->second;
  unsigned char *before = static_cast<unsigned char*>(memory) - sentinel_bytes,
                *behind = before + sentinel_bytes + bytes;
  const bool whole =
      first_broken(before, sentinel_bytes) == sentinel_bytes && first_broken(behind, sentinel_bytes) == sentinel_bytes;
  guards.erase(before);
  guards.erase(behind);
  allocations.erase(found);
  allocated_bytes -= bytes;
  if constexpr (detail::counts_accesses) detail::count_no_more_in(memory);
  std::free(before);
  return remember(whole ? cudaSuccess : cudaErrorIllegalAddress);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (detail::records(stream) && !(detail::is_global(to, bytes) && detail::is_global(from, bytes)) &&
      detail::breaks_recording()) {
    return remember(cudaErrorStreamCaptureUnsupported);
  }
  detail::ask(stream, [=] {
    std::memmove(to, from, bytes);
    if constexpr (detail::counts_accesses) {
      detail::count_work("copy");
      detail::count_work_on(from, bytes, false);
      detail::count_work_on(to, bytes, true);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  detail::ask(stream, [=] {
    std::memset(to, value, bytes);
    if constexpr (detail::counts_accesses) {
      detail::count_work("set to zero");
      detail::count_work_on(to, bytes, true);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const bool waits_for_itself = detail::records(stream) && detail::breaks_recording();
  return remember(waits_for_itself ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalState:
      return "the stream does not record, or does so already";
    case cudaErrorIllegalAddress:
      return "memory was written out of bounds";
    case cudaErrorStreamCaptureUnsupported:
      return "must not be done while a stream is recorded";
    case cudaErrorStreamCaptureInvalidated:
      return "the recording is broken by what was done before";
    case cudaErrorStreamCaptureMerge:
      return "two recordings cannot wait for each other";
    case cudaErrorStreamCaptureUnmatched:
      return "the recording began in another stream";
    case cudaErrorStreamCaptureUnjoined:
      return "a recording ends with work that nothing waits for";
    case cudaErrorStreamCaptureIsolation:
      return "what is recorded cannot wait for what is not";
  }
  return "unknown error";
}

}  // namespace emulator
