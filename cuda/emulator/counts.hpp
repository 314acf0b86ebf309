#pragma once

// Memory accesses of kernels, counted from the addresses of their accesses, in a build of the emulator that counts
// (EMULATOR_COUNTS, docs/emulator.md). Lanes run one after another here: what they do at the same place of the program
// for the same time since they last waited is one request of their warp, as on a GPU.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace emulator {

// One direction of global memory.
struct GlobalCounts {
  std::uint64_t requests = 0;  // of a warp, of 16 bytes a lane at most
  std::uint64_t bytes = 0;     // that lanes asked for
  std::uint64_t sectors = 0;   // of 32 bytes, each once a request: what goes through where no cache is near
  std::uint64_t distinct = 0;  // of these, each once a launch: what is moved where one cache holds everything
};

// One kernel's, over all its launches.
struct Counts {
  std::string kernel;  // with its namespaces and the arguments of its template
  std::string file;    // where it stands, of one that no other file can see
  std::uint64_t launches = 0;
  GlobalCounts read, written;
  std::uint64_t shared_requests = 0;   // of a warp, 128 bytes at most: half a warp's of 8 bytes, a quarter's of 16
  std::uint64_t shared_conflicts = 0;  // times that a bank was asked for one more of its words in the same request
  std::uint64_t barriers = 0;          // of a block
  std::uint64_t shuffles = 0;          // of a warp, votes too
  std::uint64_t products = 0;          // of tensor cores, of a warp
};

// The counts since the last call, by kernel. Copies and settings of cudaMemcpyAsync and cudaMemsetAsync and
// products of cuBLASLt are kernels without a file, which ask for every byte once.
std::vector<Counts> take_counts();

// Calls by the emulator, in a build that counts.
namespace detail {
#if defined(EMULATOR_COUNTS)
inline constexpr bool counts_accesses = true;
#else
inline constexpr bool counts_accesses = false;
#endif

// Memory of cudaMalloc, and what is no such memory any more.
void count_in(const void* global, std::size_t bytes);
void count_no_more_in(const void* global);

// Shared memory lies in one piece, the static part behind the dynamic one.
void count_launch(const void* kernel, const void* shared, const void* static_shared, std::size_t shared_bytes);
// The accesses from here on are this lane's.
void count_for(unsigned warp, unsigned lane);
// All lanes of the warp wait or have left: what they do from here on are other requests.
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
// Nothing more belongs to the launch.
void count_no_launch();

// A launch of something that is no kernel of ours.
void count_work(const char* what);
void count_work_on(const void* memory, std::size_t bytes, bool writes);
}  // namespace detail

}  // namespace emulator
