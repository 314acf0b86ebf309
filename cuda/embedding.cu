#include "cuda/kernel.hpp"
#include "cuda/partial_sums.hpp"
#include "layers/embedding.hpp"

namespace abh {

namespace {

// Forward. Grid: BC / 4 blocks of 4 warps, one output row per warp, lanes along the channels, `width` at a time. Writes
// out once; reads rows of two tables, from cache if they are small.
constexpr int rows_per_block = 4;
template <class T, int width>
__global__ void forward_kernel(T* out_bcd, const Token* tokens_bc, const T* token_vd, const T* position_cd, Index BC,
                               Index C, int D, Index first_position, float scale) {
  wait_for_kernel_before();
  const Index bc = Index{blockIdx.x} * rows_per_block + threadIdx.x / warp_size;
  if (bc >= BC) return;
  const Index token = tokens_bc[bc];
  const T* token_d = token >= 0 ? token_vd + token * D : nullptr;
  const T* position_d = position_cd ? position_cd + (first_position + bc % C) * D : nullptr;
  for (int d = int(threadIdx.x % warp_size) * width; d < D; d += warp_size * width) {
    Floats<width> sum = token_d ? load<width>(token_d + d) : Floats<width>{};
    for (int i = 0; i < width; ++i) sum.x[i] *= scale;
    if (position_d) {
      const Floats<width> position = load<width>(position_d + d);
      for (int i = 0; i < width; ++i) sum.x[i] += position.x[i];  // (embedding.1)
    }
    store<width>(out_bcd + bc * D + d, sum);
  }
}

// Backward, tokens. The gradient of the table is cut into tiles of `tile_tokens` tokens and 32 * width channels, the
// rows of d_out into chunks. A warp owns one tile for one chunk: it scans the chunk for rows with a token in its tile
// and adds them, in order, to sums in shared memory. A lane owns its channels, so equal tokens cause no conflict, and
// neither atomics nor block barriers are needed.
//
//   d_out_bcd       channels 0..31  32..63  ...       d_token_vd     channels 0..31  32..63  ...
//   chunk 0         |  warp  |  warp  |               tokens 0, 2, 4, ...  |  tile  |  tile  |
//   chunk 1         |  warp  |  warp  |               tokens 1, 3, 5, ...  |  tile  |  tile  |
//
// A small vocabulary is one tile high, and each row is read by one warp per slice of channels. A large vocabulary has
// many tiles; each tile reads all tokens, 4 bytes per row, but only its own rows. Tile r has the tokens that are r
// modulo the number of tiles: frequent tokens often have adjacent ids and should be in different warps.
constexpr int tile_tokens = 128;
constexpr int group = 128;  // rows searched before their sums are added
constexpr int ahead = 32;   // rows loaded at the same time

template <int width>
struct alignas(16) Tile {
  float sum[tile_tokens + 1][warp_size * width];  // the last row is a dummy for padded lists
  int found[group + 4];                           // row in the group + group * place in the tile
};

// Division of the work, by shape alone, so that sums are the same on every GPU.
struct Cut {
  int tiles_log2;      // there are 2^tiles_log2 tiles of tokens
  int slices;          // slices of channels
  Index chunks, rows;  // number of chunks; rows per chunk
};
// Each chunk has its own sums, V D numbers, which are added afterwards. The number of chunks is such that these sums
// are not larger than d_out. If V is larger than half of the rows, there is one chunk, which adds to the gradient
// directly. A chunk has at least two groups of rows, so that the sums do not cost more than the rows.
Cut cut_of(Index BC, Index D, Index V, int channels) {
  Cut cut;
  for (cut.tiles_log2 = 0; (Index{tile_tokens} << cut.tiles_log2) < V;) ++cut.tiles_log2;
  cut.slices = int((D + channels - 1) / channels);
  const Index most_chunks = BC / V > 1 ? BC / V : 1;
  const Index groups = (BC + group - 1) / group;
  const Index groups_per_chunk = groups <= 2 * most_chunks ? 2 : (groups + most_chunks - 1) / most_chunks;
  cut.rows = groups_per_chunk * group;
  cut.chunks = groups > 0 ? (groups + groups_per_chunk - 1) / groups_per_chunk : 0;
  return cut;
}

// Lists the rows of [first, end) with tokens of the tile, in order, padded to a multiple of 4; returns the length. At
// most `group` rows are searched.
template <int width>
__device__ int find_rows(Tile<width>& tile, const Token* tokens_bc, Index first, Index end, int tile_number,
                         int tiles_log2, int lane) {
  Token token[group / warp_size];
  for (int i = 0; i < group / warp_size; ++i) {
    const Index bc = first + i * warp_size + lane;
    token[i] = bc < end ? tokens_bc[bc] : -1;
  }
  int found = 0;
  for (int i = 0; i < group / warp_size; ++i) {
    const bool mine = token[i] >= 0 && (token[i] & ((1 << tiles_log2) - 1)) == tile_number;
    const unsigned of_warp = __ballot_sync(whole_warp, mine);
    const int before = __popc(of_warp & ((1u << lane) - 1));
    if (mine) tile.found[found + before] = i * warp_size + lane + group * (token[i] >> tiles_log2);
    found += __popc(of_warp);
  }
  if (lane < 4) tile.found[found + lane] = group * tile_tokens;
  return found;
}

// Adds the first `width` channels of the listed rows to the lane's sums. d_out_gd: the lane's channels of the first row
// of the group, row stride D. Four rows at a time: their sums are loaded together; if two rows have the same token, the
// later row continues with the sum of the earlier row and is stored after it.
template <int width, class T>
__device__ void add_rows(Tile<width>& tile, int found, const T* d_out_gd, int D, int lane) {
  for (int next = 0; next < found; next += ahead) {
    Pack<T, width> d_out[ahead];
    ABH_UNROLL(ahead / 4)
    for (int q = 0; q < ahead; q += 4) {
      if (next + q >= found) continue;
      const Pack<int, 4> four = pack_at<4>(tile.found + next + q);
      for (int i = 0; i < 4; ++i) d_out[q + i] = pack_at<width>(d_out_gd + Index{four.x[i] % group} * D);
    }
    ABH_UNROLL(ahead / 4)
    for (int q = 0; q < ahead; q += 4) {
      if (next + q >= found) continue;
      const Pack<int, 4> four = pack_at<4>(tile.found + next + q);
      Floats<width> sum[4];
      for (int i = 0; i < 4; ++i) sum[i] = load<width>(tile.sum[four.x[i] / group] + lane * width);
      for (int i = 0; i < 4; ++i) {
        for (int earlier = 0; earlier < i; ++earlier) {
          if (four.x[earlier] / group == four.x[i] / group) sum[i] = sum[earlier];
        }
        for (int j = 0; j < width; ++j) sum[i].x[j] += float(d_out[q + i].x[j]);  // (embedding.2)
      }
      for (int i = 0; i < 4; ++i) store<width>(tile.sum[four.x[i] / group] + lane * width, sum[i]);
    }
  }
}

// Grid: chunks x tiles x slices blocks of one warp; slices are adjacent, because they share rows. With one chunk `to`
// is the gradient, which is accumulated; otherwise it is partial_pvd, p = chunk.
template <class T, int width>
__global__ void token_kernel(float* to, const T* d_out_bcd, const Token* tokens_bc, Index BC, int D, int vocabulary,
                             Cut cut, float scale) {
  wait_for_kernel_before();
  auto& tile = shared_memory<Tile<width>>();
  const int lane = int(threadIdx.x);
  const int d = (int(blockIdx.x % unsigned(cut.slices)) * warp_size + lane) * width;
  const bool has_channel = d < D;  // a lane without channels reads channel 0 and discards its sums
  const unsigned tile_and_chunk = blockIdx.x / unsigned(cut.slices);
  const int tile_number = int(tile_and_chunk & ((1u << cut.tiles_log2) - 1));
  const Index chunk = tile_and_chunk >> cut.tiles_log2;
  const int tokens = tile_number < vocabulary ? ((vocabulary - 1 - tile_number) >> cut.tiles_log2) + 1 : 0;
  for (int slot = 0; slot < tokens; ++slot) store<width>(tile.sum[slot] + lane * width, Floats<width>{});

  const Index end = (chunk + 1) * cut.rows < BC ? (chunk + 1) * cut.rows : BC;
  for (Index first = chunk * cut.rows; first < end; first += group) {
    const int found = find_rows(tile, tokens_bc, first, end, tile_number, cut.tiles_log2, lane);
    __syncwarp();  // the list is complete
    add_rows(tile, found, d_out_bcd + first * D + (has_channel ? d : 0), D, lane);
    __syncwarp();  // the list has been read
  }

  if (!has_channel) return;
  for (int slot = 0; slot < tokens; ++slot) {
    const Index v = (Index{slot} << cut.tiles_log2) + tile_number;
    Floats<width> sum = load<width>(tile.sum[slot] + lane * width);
    for (int j = 0; j < width; ++j) sum.x[j] *= scale;
    if (cut.chunks > 1) {
      store<width>(to + (chunk * vocabulary + v) * D + d, sum);
      continue;
    }
    for (int j = 0; j < width; ++j) {
      if (sum.x[j] != 0) to[v * D + d + j] += sum.x[j];  // most tokens of a large vocabulary do not occur
    }
  }
}

// Backward, positions. Grid: one thread per `width` adjacent numbers of the C D numbers of all positions, which are
// also adjacent in d_out. It adds them over b, with 32 loads in flight. Reads d_out once.
constexpr int position_threads = 128;
template <class T, int width>
__global__ void position_kernel(float* d_position_cd, const T* d_out_bcd, Index B, Index CD) {
  wait_for_kernel_before();
  constexpr int sequences = 32;
  const Index cd = (Index{blockIdx.x} * position_threads + threadIdx.x) * width;
  if (cd >= CD) return;
  Floats<width> sum{};
  for (Index first = 0; first < B; first += sequences) {
    Pack<T, width> d_out[sequences];
    ABH_UNROLL(sequences)
    for (int b = 0; b < sequences; ++b) {
      if (first + b < B) d_out[b] = pack_at<width>(d_out_bcd + (first + b) * CD + cd);
    }
    ABH_UNROLL(sequences)
    for (int b = 0; b < sequences; ++b) {
      if (first + b >= B) continue;
      for (int i = 0; i < width; ++i) sum.x[i] += float(d_out[b].x[i]);
    }
  }
  for (int i = 0; i < width; ++i) d_position_cd[cd + i] += sum.x[i];  // (embedding.3)
}

}  // namespace

template <class Device, class T>
void embedding_forward(Device& device, T* out_bcd, const Token* tokens_bc, const T* token_vd, const T* position_cd,
                       Index B, Index C, Index D, Index first_position, double scale) {
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(B * C, rows_per_block), rows_per_block * warp_size, 0, device.stream(), out_bcd,
           tokens_bc, token_vd, position_cd, B * C, C, int(D), first_position, float(scale));
  };
  widest_fits<T>(D, out_bcd, token_vd, position_cd) ? run(forward_kernel<T, widest<T>>) : run(forward_kernel<T, 1>);
}

template <class Device, class T>
void embedding_backward(Device& device, Accum<T>* d_token_vd, Accum<T>* d_position_cd, const T* d_out_bcd,
                        const Token* tokens_bc, Index B, Index C, Index D, Index V, double scale) {
  typename Device::Scope scratch(device.workspace);
  const auto add_tokens = [&](auto kernel, int channels) {
    const Cut cut = cut_of(B * C, D, V, channels);
    float* partial_pvd = cut.chunks > 1 ? take_parts(device, scratch, cut.chunks * V * D) : nullptr;
    launch(kernel, blocks_for((cut.chunks << cut.tiles_log2) * cut.slices, 1), warp_size, 0, device.stream(),
           partial_pvd ? partial_pvd : d_token_vd, d_out_bcd, tokens_bc, B * C, int(D), int(V), cut, float(scale));
    if (!partial_pvd) return;
    add_partial_sums(device,
                     {.to_d = d_token_vd, .part_pd = partial_pvd, .parts = cut.chunks, .D = V * D, .stride = V * D});
  };
  // 4 bytes per lane give coalesced accesses: one float, or two bf16 if rows of pairs are aligned.
  constexpr int pair = 4 / int(sizeof(T));
  const bool pairs_fit = D % pair == 0 && reinterpret_cast<std::uintptr_t>(d_out_bcd) % 4 == 0;
  if (V > 0) {
    pairs_fit ? add_tokens(token_kernel<T, pair>, pair * warp_size) : add_tokens(token_kernel<T, 1>, warp_size);
  }

  if (!d_position_cd) return;
  const auto add_positions = [&](auto kernel, int width) {
    launch(kernel, blocks_for(C * D, position_threads * width), position_threads, 0, device.stream(), d_position_cd,
           d_out_bcd, B, C * D);
  };
  pairs_fit ? add_positions(position_kernel<T, pair>, pair) : add_positions(position_kernel<T, 1>, 1);
}

ABH_INSTANTIATE(Gpu, embedding_forward, embedding_backward)

}  // namespace abh
