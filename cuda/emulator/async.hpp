#pragma once

// Between the scheduler (emulator.cpp) and operations that complete while threads run (hopper.cpp).

#include <cstdint>
#include <string>

#include "cuda/emulator/emulator.hpp"

namespace emulator::detail {

// An operation at which a thread waits, and its place in the source; stored on the stack of the waiting thread.
struct Wait {
  Operation operation;
  unsigned mask;
  std::size_t bytes;
  const char* file;
  int line;
  std::uintptr_t where = 0;      // of the call, in a build that counts
  const void* object = nullptr;  // until wake(object)
};

// Functions of hopper.cpp, from the first such operation of a block to its end; null otherwise. So emulator.cpp can be
// linked alone.
struct Asynchronous {
  bool (*deliver)();                                 // completes one transfer; false if none is in flight
  const char* (*fault_of_leaving)(unsigned thread);  // null if the thread may leave the kernel
  std::string (*fault_of_block)();                   // at its end; empty if there is none
  std::string (*state_of)(const void* object);       // for messages
};
extern const Asynchronous* asynchronous;

unsigned thread_number();          // of the calling thread in its block
void set_place(const Wait* wait);  // place in the calling thread's message; null: none
[[noreturn]] void fail_here(const char* problem);
[[noreturn]] void fail_at(const char* problem, unsigned thread, const Wait& place);
void wait_for(const Wait& wait);
void wake(const void* object);
unsigned draw(unsigned end);           // a random number below `end`
unsigned char* begin_of_shared();      // address 0 of shared memory
void release_object(unsigned object);  // for ThreadSanitizer; below 128
void acquire_object(unsigned object);

}  // namespace emulator::detail
