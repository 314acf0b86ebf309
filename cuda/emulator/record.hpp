#pragma once

// Records what the lanes of kernels do, in a build with EMULATOR_RECORDS (docs/emulator.md): requests of memory, as
// counts.cpp groups them, with the values that are written, and barriers, shuffles, votes and products. The text of a
// recording is a trace, which docs/page/kernels.js replays.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/emulator/requests.hpp"

namespace emulator::record {

// Recording begins, with nothing named and nothing recorded: so many blocks of every launch, the first ones.
void begin(int blocks_of_launch);
// The array, as it is now, under a name with its shape. type: f4, bf (bf16) or i4. Other global memory is scratch.
void name_array(const void* array, const std::string& name, const std::string& type, const std::vector<long>& shape);
// The type of the numbers in shared memory, f4 at first.
void type_of_shared(const std::string& type);
// The words that a launch ended with.
void fault(const std::string& words);
// Ends the recording and returns its text.
std::string end();

// Calls by counts.cpp.

struct Requested {
  Request request;
  std::uintptr_t bytes;
  bool writes, is_shared;
  std::uintptr_t where;
  std::vector<std::uint64_t> parts;  // the numbers of the requests that are one
};
void access(std::uint64_t number, unsigned lane, std::uintptr_t address, std::size_t bytes, bool writes,
            const void* copied_from);
// Takes over what the lane that ran has written: it stands in memory now.
void settle();
void requests(unsigned warp, std::vector<Requested> requested);
void launch(const std::string& kernel, std::uintptr_t shared_begin);
void block(unsigned x, unsigned y, unsigned z, unsigned threads);
void shared_array(const char* type, std::uintptr_t offset, std::size_t bytes);
void product(unsigned warp, unsigned lane, const void* result, std::size_t bytes);
void source(unsigned warp, unsigned lane, unsigned from, bool is_float);

}  // namespace emulator::record

namespace emulator::detail {
struct Waited;
}
namespace emulator::record {
void wait(unsigned warp, const detail::Waited& waited);
}
