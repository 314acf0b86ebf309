#pragma once

// Records the kernels of a build with EMULATOR_RECORDS: memory requests, grouped as in counts.cpp, with the written
// values; barriers, shuffles, votes and products. The text of a recording is a trace. docs/page/kernels/viewer.js
// replays it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/emulator/requests.hpp"

namespace emulator::record {

// Starts a new recording of the first blocks of every launch.
void begin(int blocks_of_launch);
// Names an array and records its present values. type: f4, bf (bf16) or i4. Other global memory is scratch memory.
void name_array(const void* array, const std::string& name, const std::string& type, const std::vector<long>& shape);
// Sets the type of the numbers in shared memory. Default: f4.
void type_of_shared(const std::string& type);
// Records the error message that ended a launch.
void fault(const std::string& words);
// Ends the recording and returns its text.
std::string end();

// Calls by counts.cpp.

struct Requested {
  Request request;
  std::uintptr_t bytes;
  bool writes, is_shared;
  std::uintptr_t where;
  std::vector<std::uint64_t> parts;  // numbers of the requests that were merged into this one
};
void access(std::uint64_t number, unsigned lane, std::uintptr_t address, std::size_t bytes, bool writes,
            const void* copied_from);
// Records the values that the last lane wrote, after they are in memory.
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
