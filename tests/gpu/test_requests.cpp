// The costs of requests of memory, computed by hand: sectors of global memory, phases and conflicts of shared memory.

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "cuda/emulator/requests.hpp"
#include "tests/harness/catch.hpp"

namespace {

using emulator::lanes_of_phase, emulator::pieces_of, emulator::Request, emulator::sector_bytes, emulator::shared_cost;

// The lanes of the mask at first + lane * step.
Request lanes_at(std::uintptr_t first, std::uintptr_t step, std::uint32_t lanes = 0xFFFFFFFF) {
  Request request{0, lanes, {}};
  for (unsigned lane = 0; lane < 32; ++lane) request.address[lane] = first + lane * step;
  return request;
}

struct Global {
  std::string what;
  std::uintptr_t first, step, bytes;
  std::size_t sectors;
  std::uint32_t lanes = 0xFFFFFFFF;
};
const std::vector<Global> global_cases = {
    {"a row that begins with a sector", 256, 4, 4, 4},
    {"a row 4 bytes behind a sector's beginning", 260, 4, 4, 5},
    {"a row 28 bytes behind it", 284, 4, 4, 5},
    {"every other number", 0, 8, 4, 8},
    {"every eighth number", 0, 32, 4, 32},
    {"every 33rd number", 0, 132, 4, 32},
    {"one number for all", 64, 0, 4, 1},
    {"bf16 side by side", 0, 2, 2, 2},
    {"bf16 from the second one on", 2, 2, 2, 3},
    {"bf16 far apart", 0, 64, 2, 32},
    {"8 bytes a lane", 0, 8, 8, 8},
    {"8 bytes a lane, 8 bytes further on", 8, 8, 8, 9},
    {"16 bytes a lane", 0, 16, 16, 16},
    {"16 bytes a lane, 16 bytes further on", 16, 16, 16, 17},
    {"16 bytes of every 32", 0, 32, 16, 32},
    {"the first eight lanes of a row", 0, 4, 4, 1, 0xFF},
    {"every other lane of a row", 0, 4, 4, 4, 0x55555555},
    {"one lane", 12, 4, 4, 1, 1},
};

struct Shared {
  std::string what;
  std::uintptr_t first, step, bytes;
  unsigned phases, conflicts;
  std::uint32_t lanes = 0xFFFFFFFF;
};
const std::vector<Shared> shared_cases = {
    {"one word for all", 4, 0, 4, 1, 0},
    {"bf16 side by side: two lanes a word", 0, 2, 2, 1, 0},
    {"bf16 64 bytes apart: two banks", 0, 64, 2, 1, 15},
    {"8 bytes a lane: two phases of 16 lanes", 0, 8, 8, 2, 0},
    {"8 bytes of every 16", 0, 16, 8, 2, 2},
    {"8 bytes, all in two banks", 0, 128, 8, 2, 2 * 15},
    {"16 bytes a lane: four phases of 8 lanes", 0, 16, 16, 4, 0},
    {"16 bytes of every 32", 0, 32, 16, 4, 4},
    {"16 bytes of every 80: rows with padding", 0, 80, 16, 4, 0},
    {"16 bytes, all in four banks", 0, 128, 16, 4, 4 * 7},
    {"16 bytes, one pack for all", 64, 0, 16, 4, 0},
    {"16 bytes of the first and the last eight lanes", 0, 16, 16, 2, 0, 0xFF0000FF},
    {"two lanes at the same bank", 0, 128, 4, 1, 1, 3},
};

TEST_CASE("requests: sectors of global memory match counts by hand", "[emulator]") {
  for (const Global& one : global_cases) {
    INFO(one.what);
    CHECK(pieces_of(lanes_at(one.first, one.step, one.lanes), one.bytes, sector_bytes).count == one.sectors);
  }
}

TEST_CASE("requests: phases and conflicts of shared memory match counts by hand", "[emulator]") {
  for (const Shared& one : shared_cases) {
    INFO(one.what);
    const auto cost = shared_cost(lanes_at(one.first, one.step, one.lanes), one.bytes);
    CHECK(cost.phases == one.phases);
    CHECK(cost.conflicts == one.conflicts);
  }
  // Words `stride` apart lie in 32 / gcd(stride, 32) banks.
  for (unsigned stride = 1; stride <= 33; ++stride) {
    INFO("stride " << stride);
    const auto cost = shared_cost(lanes_at(0, 4 * stride), 4);
    CHECK(cost.phases == 1);
    CHECK(cost.conflicts == std::gcd(stride, 32u) - 1);
  }
}

TEST_CASE("requests: another order of lanes within phases costs the same", "[emulator]") {
  Request mirrored = lanes_at(0, 16);
  for (unsigned lane = 0; lane < 32; ++lane) mirrored.address[lane] = 16 * (31 - lane);
  CHECK(shared_cost(mirrored, 16).conflicts == 0);
  // Conflicts are within a phase: lanes 8 apart at the same bank are in two phases, lanes 4 apart in one.
  Request apart = lanes_at(0, 0);
  for (unsigned lane = 0; lane < 32; ++lane) apart.address[lane] = lane % 8 * 16 + lane / 8 * 128;
  CHECK(shared_cost(apart, 16).conflicts == 0);
  for (unsigned lane = 0; lane < 32; ++lane) apart.address[lane] = lane % 4 * 16 + lane / 4 * 128;
  CHECK(shared_cost(apart, 16).conflicts == 4);
}

TEST_CASE("requests: one lane more per phase, or one byte more or less per access, is detected", "[emulator]") {
  const auto wrong_shared = [&](const std::function<unsigned(std::uintptr_t)>& phase) {
    std::size_t wrong = 0;
    for (const Shared& one : shared_cases) {
      const auto cost = shared_cost(lanes_at(one.first, one.step, one.lanes), one.bytes, phase(one.bytes));
      wrong += cost.phases != one.phases || cost.conflicts != one.conflicts;
    }
    return wrong;
  };
  CHECK(wrong_shared([](std::uintptr_t bytes) { return lanes_of_phase(bytes); }) == 0);
  CHECK(wrong_shared([](std::uintptr_t bytes) { return lanes_of_phase(bytes) + 1; }) >= 5);
  CHECK(wrong_shared([](std::uintptr_t bytes) { return lanes_of_phase(bytes) - 1; }) >= 5);
  std::size_t wider = 0, later = 0;
  for (const Global& one : global_cases) {
    wider += pieces_of(lanes_at(one.first, one.step, one.lanes), one.bytes + 1, sector_bytes).count != one.sectors;
    later += pieces_of(lanes_at(one.first + 1, one.step, one.lanes), one.bytes, sector_bytes).count != one.sectors;
  }
  CHECK(wider >= 3);
  CHECK(later >= 3);
}

}  // namespace
