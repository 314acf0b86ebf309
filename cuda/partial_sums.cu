#include <vector>

#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Maximum number of sums per kernel, limited by the size of its arguments.
constexpr int most_at_once = 48;
static_assert(most_at_once <= most_pieces);
struct Piece {
  PartialSums sums;
  unsigned first_block;
};
struct Batch {
  Piece piece[most_at_once];
  int count;
};

// Number of blocks per row of parts.
unsigned blocks_of(const PartialSums& s) { return blocks_for(s.D, warp_size) * (s.second_d ? 2 : 1); }

// Grid: the blocks of one sum after another, one per 32 numbers of to_d and then of second_d.
__global__ void __launch_bounds__(warp_size* most_part_rows) add_partial_sums_kernel(Batch batch) {
  wait_for_kernel_before();
  require_at_most(warp_size * most_part_rows);
  const Piece& own = batch.piece[piece_of_block(batch.piece, batch.count)];
  const PartialSums& s = own.sums;
  const unsigned block = blockIdx.x - own.first_block, blocks = unsigned((s.D + warp_size - 1) / warp_size);
  const bool second = block >= blocks;
  const Index d = Index{block - (second ? blocks : 0)} * warp_size + threadIdx.x;
  const bool exists = d < s.D;
  const float* part_p = s.part_pd + (second ? s.D : 0) + d;
  const int rows = min_of(int(s.parts), int(blockDim.y));
  const float sum = sum_of_parts(part_p, int(s.parts), s.stride, rows < 1 ? 1 : rows, exists);
  if (threadIdx.y == 0 && exists) (second ? s.second_d : s.to_d)[d] += sum;
}

}  // namespace

float* take_parts(Gpu& device, Gpu::Scope& scratch, Index count) {
  Gpu::DeferredReductions* late = device.deferred();
  return late ? late->parts.take<float>(count) : scratch.take<float>(count);
}

void add_partial_sums(Gpu& device, const PartialSums& sums) {
  if (Gpu::DeferredReductions* late = device.deferred()) return late->add(sums);
  do_partial_sums(device, {sums});
}

void do_partial_sums(Gpu& device, const std::vector<PartialSums>& all) {
  for (std::size_t first = 0; first < all.size(); first += most_at_once) {
    Batch batch{};
    Index blocks = 0, rows = 1;
    for (; batch.count < most_at_once && first + unsigned(batch.count) < all.size(); ++batch.count) {
      const PartialSums& s = all[first + unsigned(batch.count)];
      batch.piece[batch.count] = {s, blocks_for(blocks, 1)};
      blocks += blocks_of(s);
      rows = rows < part_rows(s.parts) ? part_rows(s.parts) : rows;
    }
    launch(add_partial_sums_kernel, blocks_for(blocks, 1), dim3(warp_size, unsigned(rows)), 0, device.stream(), batch);
  }
}

}  // namespace ABH_BACKEND
}  // namespace abh
