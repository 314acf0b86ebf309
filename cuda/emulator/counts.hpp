#pragma once

// Counts memory accesses of kernels by address, in a build of the emulator with EMULATOR_COUNTS (docs/emulator.md). The
// emulator runs lanes one after another. Accesses of the lanes of a warp by the same instruction, at its same execution
// since the last wait, form one request, as on a GPU.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace emulator {

// Counts for reads or writes of global memory.
struct GlobalCounts {
  std::uint64_t requests = 0;  // warp requests, at most 16 bytes per lane
  std::uint64_t bytes = 0;     // bytes accessed by lanes
  std::uint64_t sectors = 0;   // sectors of 32 bytes, each once per request: traffic without a cache
  std::uint64_t distinct = 0;  // of these, each once per launch: traffic with a perfect cache
};

// Counts of one kernel over all launches.
struct Counts {
  std::string kernel;  // with namespaces and template arguments
  std::string file;    // source file, for a kernel that is local to a file
  std::uint64_t launches = 0;
  GlobalCounts read, written;
  std::uint64_t shared_requests = 0;   // of a warp, 128 bytes at most: half a warp's of 8 bytes, a quarter's of 16
  std::uint64_t shared_conflicts = 0;  // bank conflicts: additional words of one bank in the same request
  std::uint64_t barriers = 0;          // of a block
  std::uint64_t shuffles = 0;          // of a warp, votes too
  std::uint64_t products = 0;          // of tensor cores, of a warp
};

// Counts since the last call, by kernel. cudaMemcpyAsync, cudaMemsetAsync and products of cuBLASLt appear as kernels
// without a file; they access every byte once.
std::vector<Counts> take_counts();

// Called by the emulator, in a build that counts.
namespace detail {
#if defined(EMULATOR_COUNTS)
inline constexpr bool counts_accesses = true;
#else
inline constexpr bool counts_accesses = false;
#endif

// Registers and removes memory of cudaMalloc.
void count_in(const void* global, std::size_t bytes);
void count_no_more_in(const void* global);

// Shared memory is contiguous: the dynamic part, then the static part.
void count_launch(const void* kernel, const void* shared, const void* static_shared, std::size_t shared_bytes);
// The following accesses belong to this lane.
void count_for(unsigned warp, unsigned lane);
// All lanes of the warp wait or have returned: later accesses belong to new requests.
void count_requests_of(unsigned warp);
// A barrier or an exchange of a warp, once all of its lanes have come to it.
struct Waited {
  const char* name;  // __shfl_xor_sync, ...
  bool is_block, is_exchange, is_vote;
  unsigned lanes;
  const void* values;  // that lanes exchange, `bytes` each
  std::size_t bytes;
  unsigned votes;
  std::uintptr_t where;
};
void count_wait(unsigned warp, const Waited& waited);
// A block begins; an array of static shared memory is used for the first time.
void count_block(unsigned x, unsigned y, unsigned z, unsigned threads);
void count_shared_array(const char* name, const void* at, std::size_t bytes);
// Where the piece of global memory that holds the address begins and ends; nothing: 0, 0.
std::pair<std::uintptr_t, std::uintptr_t> bounds_of(std::uintptr_t address);
// Ends the launch.
void count_no_launch();

// Work of a launch that is not a kernel of this project.
void count_work(const char* what);
void count_work_on(const void* memory, std::size_t bytes, bool writes);
}  // namespace detail

}  // namespace emulator
