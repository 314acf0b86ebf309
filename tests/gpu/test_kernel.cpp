// Tests, on the emulator, the guarantees of cuda/kernel.hpp that its callers do not use yet.
#if defined(ABH_EMULATOR)

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "cuda/gpu.hpp"
#include "cuda/kernel.hpp"
#include "tests/harness/emulator_case.hpp"
#include "tests/harness/folder.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

constexpr int threads = 96;

__global__ void two_sums_kernel(double* first_t, double* second_t) {
  const double x = threadIdx.x;
  first_t[threadIdx.x] = block_sum<threads>(x);
  second_t[threadIdx.x] = block_sum<threads>(x * x);
}

TEST_CASE("kernel: two consecutive sums over a block", "[kernel][gpu]") {
  emulator_test::in_all_orders([] {
    Array<double> first_t(threads), second_t(threads);
    launch(two_sums_kernel, 1, threads, 0, nullptr, first_t.data(), second_t.data());
    CHECK(first_t == Array<double>(threads, 95 * 96 / 2));
    CHECK(second_t == Array<double>(threads, 95 * 96 * 191 / 6));
  });
}

struct SomePieces {
  struct Piece {
    unsigned first_block;
  };
  Piece piece[most_pieces];
  int count;
};
__global__ void piece_kernel(int* piece_of_block_b, SomePieces pieces) {
  piece_of_block_b[blockIdx.x] = piece_of_block(pieces.piece, pieces.count);
}

TEST_CASE("kernel: every block finds its piece of the work", "[kernel][gpu]") {
  for (int count = 1; count <= most_pieces; ++count) {
    CAPTURE(count);
    SomePieces pieces{};
    std::vector<int> expected;
    for (; pieces.count < count; ++pieces.count) {
      pieces.piece[pieces.count].first_block = static_cast<unsigned>(expected.size());
      const int blocks = pieces.count + 1 == count ? 2 : pieces.count % 4;  // some pieces have none
      expected.insert(expected.end(), static_cast<std::size_t>(blocks), pieces.count);
    }
    Array<int> found(expected.size(), -1);
    launch(piece_kernel, unsigned(expected.size()), 1, 0, nullptr, found.data(), pieces);
    CHECK(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
  }
}

// `text` from `at` on, up to the comma or the bracket that ends an argument, without spaces.
std::string argument_at(const std::string& text, std::size_t at) {
  std::string argument;
  for (int open = 0; open > 0 || (text[at] != ',' && text[at] != ')'); ++at) {
    open += (text[at] == '(' || text[at] == '<') - (text[at] == ')' || text[at] == '>');
    if (text[at] != ' ' && text[at] != '\n') argument += text[at];
  }
  return argument;
}

// A kernel that does not wait could read data that its predecessor has not written, which the emulator cannot show. A
// kernel without launch bounds could be launched here with any block size.
TEST_CASE("kernel: every kernel waits for its predecessor and declares its launch bounds", "[kernel][gpu]") {
  Index kernels = 0, bounded = 0;
  std::vector<std::filesystem::path> files;
  for (const char* folder : {ABH_SOURCE_DIR "/cuda", ABH_SOURCE_DIR "/extras"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      if (file.path().extension() == ".cu" || file.path().parent_path() == folder) files.push_back(file.path());
    }
  }
  for (const std::filesystem::path& file : files) {
    if (!std::filesystem::is_regular_file(file)) continue;
    const std::string source = read_bytes(file.string());
    for (std::size_t at = source.find("\n__global__"); at != source.npos; at = source.find("\n__global__", at + 1)) {
      const std::size_t body = source.find(") {\n", at), end = source.find('\n', body + 4);
      INFO(file << ": " << source.substr(at + 1, body - at));
      CHECK(source.substr(body + 4, end - body - 4) == "  wait_for_kernel_before();");
      ++kernels;
      const std::string bounds = "__launch_bounds__(", says = "  require_at_most(";
      const std::size_t promised = source.find(bounds, at);
      const bool is_bounded = promised < body;
      REQUIRE((source.compare(end + 1, says.size(), says) == 0) == is_bounded);
      if (!is_bounded) continue;
      CHECK(argument_at(source, end + 1 + says.size()) == argument_at(source, promised + bounds.size()));
      ++bounded;
    }
  }
  CHECK(kernels > 60);
  CHECK(bounded > 20);
}

TEST_CASE("kernel: a grid with too many blocks is refused", "[kernel][gpu]") {
  CHECK(blocks_for(Index{0x7FFFFFFF} * 256, 256) == 0x7FFFFFFF);
  CHECK_THROWS_WITH(blocks_for(Index{0x7FFFFFFF} * 256 + 1, 256), "a kernel would need more blocks than a grid has");
}

}  // namespace
}  // namespace abh

#endif
