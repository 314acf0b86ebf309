#pragma once

// The cost of one memory request of a warp, from the addresses of its lanes: sectors of global memory, and the passes
// that the banks of shared memory need. Counting (counts.cpp) and the viewer of docs/kernels follow the same rules.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace emulator {

inline constexpr unsigned lanes_of_warp = 32, banks = 32;
inline constexpr std::uintptr_t sector_bytes = 32, word_bytes = 4, widest_access = 16;

// Accesses of the lanes of a warp by one instruction at its n-th execution.
struct Request {
  std::uint64_t number;  // number of earlier requests
  std::uint32_t lanes;
  std::uintptr_t address[lanes_of_warp];
};

// Sorts and removes duplicates; returns the new count.
inline std::size_t sort_and_unite(std::uintptr_t* numbers, std::size_t count) {
  if (!std::is_sorted(numbers, numbers + count)) std::sort(numbers, numbers + count);
  return static_cast<std::size_t>(std::unique(numbers, numbers + count) - numbers);
}

// Pieces of `piece` bytes that the lanes first ... first + count - 1 access, with `bytes` per lane: sorted, each once.
struct Pieces {
  std::uintptr_t number[2 * lanes_of_warp * widest_access / word_bytes];
  std::size_t count = 0;
};
inline Pieces pieces_of(const Request& request, std::uintptr_t bytes, std::uintptr_t piece, unsigned first = 0,
                        unsigned count = lanes_of_warp) {
  Pieces pieces;
  for (unsigned lane = first; lane < first + count && lane < lanes_of_warp; ++lane) {
    if (!(request.lanes >> lane & 1)) continue;
    const std::uintptr_t address = request.address[lane], last = (address + bytes - 1) / piece;
    for (std::uintptr_t p = address / piece; p <= last; ++p) pieces.number[pieces.count++] = p;
  }
  pieces.count = sort_and_unite(pieces.number, pieces.count);
  return pieces;
}

// Number of lanes per phase of a request of shared memory: 32 for 4 bytes per lane, 16 for 8, 8 for 16.
constexpr unsigned lanes_of_phase(std::uintptr_t bytes) {
  return bytes <= word_bytes ? lanes_of_warp : static_cast<unsigned>(128 / bytes);
}

struct SharedCost {
  unsigned phases = 0;     // phases with an active lane
  unsigned conflicts = 0;  // passes beyond one per phase
};

// A bank delivers one word of four bytes per pass, to all lanes that access it.
inline SharedCost shared_cost(const Request& request, std::uintptr_t bytes, unsigned phase_lanes) {
  SharedCost cost;
  for (unsigned first = 0; first < lanes_of_warp; first += phase_lanes) {
    const Pieces words = pieces_of(request, bytes, word_bytes, first, phase_lanes);
    if (words.count == 0) continue;
    unsigned of_bank[banks] = {}, most = 0;
    for (std::size_t i = 0; i < words.count; ++i) most = std::max(most, ++of_bank[words.number[i] % banks]);
    ++cost.phases;
    cost.conflicts += most - 1;
  }
  return cost;
}
inline SharedCost shared_cost(const Request& request, std::uintptr_t bytes) {
  return shared_cost(request, bytes, lanes_of_phase(bytes));
}

}  // namespace emulator
