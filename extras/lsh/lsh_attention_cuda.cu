#include "cuda/attention_rows.hpp"
#include "cuda/kernel.hpp"
#include "extras/lsh/lsh_attention.hpp"

namespace abh {

namespace {

constexpr unsigned threads = 256;

// Calls body(k, x_k) for every channel of a row, in order. Reads packs of four if rows are aligned to packs.
template <class T, class Body>
__device__ __forceinline__ void for_each_channel(const T* row_k, int K, bool aligned, const Body& body) {
  for (int k = 0; k < K; k += 4) {
    const Floats<4> x = load_four(row_k, k, K, aligned);
    for (int i = 0; i < 4; ++i) {
      if (k + i < K) body(k + i, x.x[i]);
    }
  }
}

// ---- The order of a round ----

// Grid: one thread per position of every round, (b, n, u, c).
template <class T>
__global__ void bucket_kernel(LshOrdering<T> a, bool aligned) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.B * a.N * a.U * a.C) return;
  const Index c = i % a.C, round = i / a.C, u = round % a.U, head = round / a.U, n = head % a.N, b = head / a.N;
  const int K = int(a.K), R = int(a.R);
  if (a.mask_bc && a.mask_bc[b * a.C + c] == 0) {
    a.out.bucket_bnuc[i] = 2 * R;
    return;
  }
  const T* query_k = a.query_bch + (b * a.C + c) * stride_or(a.query_stride, a.N * a.K) + n * a.K;
  const T* rotations_kr = a.rotations_nukr + (n * a.U + u) * a.K * a.R;
  float largest = -infinity, smallest = infinity;
  int at_largest = 0, at_smallest = 0;
  for (int r = 0; r < R; ++r) {
    float rotated = 0;
    for_each_channel(query_k, K, aligned, [&](int k, float x) {
      rotated = fmaf(x, float(rotations_kr[Index{k} * R + r]), rotated);  // (lsh_attention.3)
    });
    if (rotated > largest) {
      largest = rotated;
      at_largest = r;
    }
    if (rotated < smallest) {
      smallest = rotated;
      at_smallest = r;
    }
  }
  a.out.bucket_bnuc[i] = largest < -smallest ? R + at_smallest : at_largest;  // (lsh_attention.4)
}

// Grid: one block per round, (b, n, u). A thread has a bucket and loops over all positions twice: first it counts the
// positions in its bucket, then it assigns their places in order.
__global__ void copy_rows_kernel(LshOrder<Token> order, int* begin_of_bucket, int C, int buckets) {
  wait_for_kernel_before();
  const Index first = Index{blockIdx.x} * C;
  const Token* bucket_c = order.bucket_bnuc + first;
  int* begin = begin_of_bucket + Index{blockIdx.x} * buckets;
  for (int bucket = int(threadIdx.x); bucket < buckets; bucket += int(blockDim.x)) {
    int count = 0;
    for (int c = 0; c < C; ++c) count += bucket_c[c] == bucket;
    begin[bucket] = count;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int before = 0;
    for (int bucket = 0; bucket < buckets; ++bucket) {
      const int count = begin[bucket];
      begin[bucket] = before;
      before += count;
    }
  }
  __syncthreads();
  for (int bucket = int(threadIdx.x); bucket < buckets; bucket += int(blockDim.x)) {
    int place = begin[bucket];
    for (int c = 0; c < C; ++c) {
      if (bucket_c[c] != bucket) continue;
      order.place_bnuc[first + c] = place;  // (lsh_attention.5)
      order.position_bnuc[first + place] = c;
      ++place;
    }
  }
}

// ---- Rows with one warp each ----
//
// A warp has a query, or for d_key and d_value a key (cuda/attention_rows.hpp). In each round it processes the rows of
// two pieces, 32 at a time: first with one row per lane for the scores, then with one channel per lane.

// Values passed from lanes of pairs to lanes of channels.
struct OfPairs {
  int row[most_warps][side];
  float weight[most_warps][side], d_score[most_warps][side];
};

template <class T>
struct Head {
  const LshInputs<T>& in;
  const AttentionPlace& at;
  float scale;
  const float* inverse_c;
  bool aligned;  // of all rows, for packs of four channels
  int K = int(in.K), C = int(in.C), piece_size = int(in.piece_size < in.C ? in.piece_size : in.C);
  Rows<const T> query_ck = query_rows(in.query_bch, in.query_stride, in, at);
  Rows<const T> value_ck = query_rows(in.value_bch, in.value_stride, in, at);

  __device__ Head(const LshInputs<T>& inputs, const AttentionPlace& place, float factor, const float* inverse_bnc,
                  bool rows_aligned)
      : in(inputs),
        at(place),
        scale(factor),
        inverse_c(inverse_bnc + Index{place.head} * inputs.C),
        aligned(rows_aligned) {}

  __device__ float dot_product(const float* x_k, const T* y_k) const {
    float sum = 0;
    for_each_channel(y_k, K, aligned, [&](int k, float y) { sum = fmaf(x_k[k], y, sum); });
    return sum;
  }

  // True if both are in one piece or in adjacent pieces in a round, without regard to causality or mask.
  __device__ bool share_a_piece(int u, int c, int s) const {
    const int apart = piece_of(u, c) - piece_of(u, s);
    const Token* bucket_c = in.order.bucket_bnuc + first_of(u);
    return (apart == 0 || apart == 1) && (!in.within_bucket || bucket_c[c] == bucket_c[s]);
  }
  // Factor of a pair in a round; 0 if they do not meet.
  __device__ float share(int u, int c, int s) const {
    if ((in.causal ? s >= c : s == c) || (in.mask_bc && in.mask_bc[at.b * in.C + s] == 0)) return 0;
    if (!share_a_piece(u, c, s)) return 0;
    if (in.counted) return 1;
    int meets = 0;
    for (int other = 0; other < int(in.U); ++other) meets += share_a_piece(other, c, s);
    return 1 / float(meets);
  }
  __device__ Index first_of(int u) const { return (Index{at.head} * in.U + u) * in.C; }
  __device__ const Token* position_c(int u) const { return in.order.position_bnuc + first_of(u); }
  __device__ int piece_of(int u, int c) const {
    return in.order.place_bnuc[first_of(u) + c] / piece_size;  // (lsh_attention.6)
  }
};

template <class T>
__device__ __forceinline__ void fetch_row(float* to_k, const T* from_k, int K) {
  for (int k = int(threadIdx.x) % warp_size; k < K; k += warp_size) to_k[k] = float(from_k[k]);
}

// sum_j number_j row(row_j)_k over the pairs of a warp. Missing rows have the number 0. The addresses of all rows at
// once would not fit in registers.
template <class T>
__device__ __forceinline__ float sum_over_pairs(const float* number_j, const int* row_j, const Rows<const T>& rows,
                                                int k) {
  float sum = 0;
  ABH_UNROLL(8)
  for (int j = 0; j < side; ++j) sum = fmaf(number_j[j], float(rows[row_j[j]][k]), sum);
  return sum;
}

// Grid: one thread per row of every head.
template <class T>
__global__ void inverse_kernel(float* inverse_bnc, LshInputs<T> in, bool aligned) {
  wait_for_kernel_before();
  const Index i = Index{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= in.B * in.N * in.C) return;
  const Index c = i % in.C, head = i / in.C;
  const T* query_k =
      in.query_bch + (head / in.N * in.C + c) * stride_or(in.query_stride, in.N * in.K) + head % in.N * in.K;
  float square = 0;
  for_each_channel(query_k, int(in.K), aligned, [&](int, float x) { square = fmaf(x, x, square); });
  inverse_bnc[i] = 1 / sqrtf(square / float(in.K) + float(lsh_epsilon));  // (lsh_attention.1)
}

// Grid: blocks of up to 8 warps, one query per warp.
template <class T>
__global__ void forward_kernel(LshForward<T> a, const float* inverse_bnc, float scale, int blocks_of_head,
                               bool aligned) {
  wait_for_kernel_before();
  auto& pairs = shared_memory<OfPairs>();
  const Place my(a.in.C, a.in.N, blocks_of_head);
  const Head<T> head(a.in, my.at, scale, inverse_bnc, aligned);
  const int K = head.K, lane = my.lane, c = my.row;
  const OwnRows<0, 2> own(K, my.warp);
  float *query_k = own[0], *total_k = own[1], *power_s = pairs.weight[my.warp];
  int* row_s = pairs.row[my.warp];
  if (!my.is_there) return;
  fetch_row(query_k, head.query_ck[c], K);
  clear_row(total_k, own.K4);
  __syncwarp();

  float max = -infinity, sum = 0;
  for (int u = 0; u < int(a.in.U); ++u) {
    const int piece = head.piece_of(u, c), end = min_of((piece + 1) * head.piece_size, head.C);
    for (int begin = (piece > 0 ? piece - 1 : 0) * head.piece_size; begin < end; begin += side) {
      const bool is_there = begin + lane < end;
      const int s = is_there ? head.position_c(u)[begin + lane] : 0;
      const float share = is_there ? head.share(u, c, s) : 0;
      const float score =
          share > 0 ? head.dot_product(query_k, head.query_ck[s]) * (scale * head.inverse_c[s])  // (lsh_attention.7)
                    : -infinity;
      const float new_max = fmaxf(max, warp_max(score)), base = new_max == -infinity ? 0 : new_max;
      const float shrink = expf(max - base), power = share * expf(score - base);
      max = new_max;
      sum = sum * shrink + warp_sum(power);  // (lsh_attention.8)
      __syncwarp();
      power_s[lane] = power;
      row_s[lane] = s;
      __syncwarp();
      for (int k = lane; k < K; k += warp_size) {
        total_k[k] = total_k[k] * shrink + sum_over_pairs(power_s, row_s, head.value_ck, k);
      }
    }
  }
  const bool meets_nobody = sum == 0;
  T* out_k = query_rows(a.out_bch, 0, a.in, my.at)[c];
  for (int k = lane; k < K; k += warp_size) {
    out_k[k] = meets_nobody ? head.value_ck[c][k] : T(total_k[k] / sum);  // (lsh_attention.9)
  }
  if (lane > 0) return;
  a.lse_bnc[Index{my.at.head} * a.in.C + c] = meets_nobody ? infinity : max + logf(sum);  // (lsh_attention.10)
}

// Terms of a pair in the gradients of a round.
struct Pair {
  float weight, d_score;
};
__device__ __forceinline__ Pair pair_of(float share, float score, float lse, float d_weight, float delta) {
  const float weight = share * expf(score - lse);  // (lsh_attention.11)
  return {weight, weight * (d_weight - delta)};    // (lsh_attention.13)
}

// Grid: blocks of up to 8 warps, one query per warp. Computes delta and d_asked for the kernel below.
template <class T>
__global__ void backward_query_kernel(LshBackward<T> a, const float* inverse_bnc, float scale, float* delta_bnc,
                                      float* d_asked_bnck, int blocks_of_head, bool aligned) {
  wait_for_kernel_before();
  auto& pairs = shared_memory<OfPairs>();
  const Place my(a.in.C, a.in.N, blocks_of_head);
  const Head<T> head(a.in, my.at, scale, inverse_bnc, aligned);
  const int K = head.K, lane = my.lane, c = my.row;
  const OwnRows<0, 3> own(K, my.warp);
  float *query_k = own[0], *d_out_k = own[1], *d_asked_k = own[2], *d_score_s = pairs.d_score[my.warp];
  int* row_s = pairs.row[my.warp];
  if (!my.is_there) return;
  fetch_row(query_k, head.query_ck[c], K);
  fetch_row(d_out_k, query_rows(a.d_out_bch, 0, a.in, my.at)[c], K);
  clear_row(d_asked_k, own.K4);
  __syncwarp();
  const Index bnc = Index{my.at.head} * a.in.C + c;
  const float delta = head.dot_product(d_out_k, query_rows(a.out_bch, 0, a.in, my.at)[c]);  // (lsh_attention.12)
  const float lse = a.lse_bnc[bnc];
  if (lane == 0) delta_bnc[bnc] = delta;

  for (int u = 0; u < int(a.in.U); ++u) {
    const int piece = head.piece_of(u, c), end = min_of((piece + 1) * head.piece_size, head.C);
    for (int begin = (piece > 0 ? piece - 1 : 0) * head.piece_size; begin < end; begin += side) {
      const bool is_there = begin + lane < end;
      const int s = is_there ? head.position_c(u)[begin + lane] : 0;
      const float share = is_there ? head.share(u, c, s) : 0, factor = scale * head.inverse_c[s];
      float d_score = 0;
      if (share > 0) {
        const float score = head.dot_product(query_k, head.query_ck[s]) * factor;
        d_score = pair_of(share, score, lse, head.dot_product(d_out_k, head.value_ck[s]), delta).d_score;
      }
      __syncwarp();
      d_score_s[lane] = d_score * factor;
      row_s[lane] = s;
      __syncwarp();
      for (int k = lane; k < K; k += warp_size) {
        d_asked_k[k] += sum_over_pairs(d_score_s, row_s, head.query_ck, k);  // (lsh_attention.14)
      }
    }
  }
  for (int k = lane; k < K; k += warp_size) d_asked_bnck[bnc * K + k] = d_asked_k[k];
}

// Grid: blocks of up to 8 warps, one key per warp.
template <class T>
__global__ void backward_key_kernel(LshBackward<T> a, const float* inverse_bnc, float scale, const float* delta_bnc,
                                    const float* d_asked_bnck, int blocks_of_head, bool aligned) {
  wait_for_kernel_before();
  auto& pairs = shared_memory<OfPairs>();
  const Place my(a.in.C, a.in.N, blocks_of_head);
  const Head<T> head(a.in, my.at, scale, inverse_bnc, aligned);
  const int K = head.K, lane = my.lane, s = my.row;
  const OwnRows<0, 4> own(K, my.warp);
  float *query_k = own[0], *value_k = own[1], *d_key_k = own[2], *d_value_k = own[3];
  float *weight_c = pairs.weight[my.warp], *d_score_c = pairs.d_score[my.warp];
  int* row_c = pairs.row[my.warp];
  if (!my.is_there) return;
  const Rows<const T> d_out_ck = query_rows(a.d_out_bch, 0, a.in, my.at);
  fetch_row(query_k, head.query_ck[s], K);
  fetch_row(value_k, head.value_ck[s], K);
  clear_row(d_key_k, own.K4);
  clear_row(d_value_k, own.K4);
  __syncwarp();
  const Index first_row = Index{my.at.head} * a.in.C;
  const float inverse = head.inverse_c[s];

  for (int u = 0; u < int(a.in.U); ++u) {
    const int piece = head.piece_of(u, s), end = min_of((piece + 2) * head.piece_size, head.C);
    for (int begin = piece * head.piece_size; begin < end; begin += side) {
      const bool is_there = begin + lane < end;
      const int c = is_there ? head.position_c(u)[begin + lane] : 0;
      const float share = is_there ? head.share(u, c, s) : 0;
      Pair pair{0, 0};
      if (share > 0) {
        const float score = head.dot_product(query_k, head.query_ck[c]) * (scale * inverse);
        const float d_weight = head.dot_product(value_k, d_out_ck[c]);
        pair = pair_of(share, score, a.lse_bnc[first_row + c], d_weight, delta_bnc[first_row + c]);
      }
      __syncwarp();
      weight_c[lane] = pair.weight;
      d_score_c[lane] = pair.d_score * scale * inverse;
      row_c[lane] = c;
      __syncwarp();
      for (int k = lane; k < K; k += warp_size) {
        d_key_k[k] += sum_over_pairs(d_score_c, row_c, head.query_ck, k);  // (lsh_attention.15), divided by its length
        d_value_k[k] += sum_over_pairs(weight_c, row_c, d_out_ck, k);      // (lsh_attention.17)
      }
    }
  }
  float product = 0;
  for (int k = lane; k < K; k += warp_size) product = fmaf(query_k[k], d_key_k[k], product);
  const float along = warp_sum(product) * inverse * inverse / float(K);
  const bool meets_nobody = a.lse_bnc[first_row + s] == infinity;
  T* d_query_k = query_rows(a.d_query_bch, a.d_query_stride, a.in, my.at)[s];
  T* to_value_k = query_rows(a.d_value_bch, a.d_value_stride, a.in, my.at)[s];
  for (int k = lane; k < K; k += warp_size) {
    const float d_asked = d_asked_bnck[(first_row + s) * K + k];
    d_query_k[k] = T(d_asked + (d_key_k[k] - query_k[k] * along));  // (lsh_attention.16)
    to_value_k[k] = T(d_value_k[k] + (meets_nobody ? float(d_out_ck[s][k]) : 0));
  }
}

template <class T>
float scale_of(const LshInputs<T>& in) {
  return float(1 / __builtin_sqrt(double(in.K)));
}

// True if rows of queries, and other rows with the stride of the values, allow packs of four channels.
template <class T, class... Pointers>
bool rows_fit(const LshInputs<T>& in, const Pointers*... others) {
  const Index H = in.N * in.K;
  return packs_fit(in.K, stride_or(in.query_stride, H), stride_or(in.value_stride, H), in.query_bch, others...);
}

// 1 / length of every row, in scratch memory of the caller.
template <class T>
float* inverses_of(Gpu& device, Gpu::Scope& scratch, const LshInputs<T>& in) {
  const Index rows = in.B * in.N * in.C;
  float* inverse_bnc = scratch.template take<float>(rows);
  launch(inverse_kernel<T>, blocks_for(rows, threads), threads, 0, device.stream(), inverse_bnc, in, rows_fit(in));
  return inverse_bnc;
}

}  // namespace

template <class Device, class T>
void lsh_order(Device& device, const LshOrdering<T>& a) {
  typename Device::Scope scratch(device.workspace);
  const Index rounds = a.B * a.N * a.U, buckets = 2 * a.R + 1;
  int* begin_of_bucket = scratch.template take<int>(rounds * buckets);
  if (!a.buckets_stand) {
    const Index stride = stride_or(a.query_stride, a.N * a.K);
    launch(bucket_kernel<T>, blocks_for(rounds * a.C, threads), threads, 0, device.stream(), a,
           packs_fit(a.K, stride, stride, a.query_bch));
  }
  launch(copy_rows_kernel, blocks_for(rounds, 1), threads, 0, device.stream(), a.out, begin_of_bucket, int(a.C),
         int(buckets));
}

template <class Device, class T>
void lsh_attention_forward(Device& device, const LshForward<T>& a) {
  const auto& in = a.in;
  typename Device::Scope scratch(device.workspace);
  const float* inverse_bnc = inverses_of(device, scratch, in);
  const int warps = warps_for(in.K, OwnRows<0, 2>::bytes), blocks_of_head = int(blocks_for(in.C, warps));
  launch(forward_kernel<T>, blocks_for(in.B * in.N * blocks_of_head, 1), unsigned(warps * warp_size),
         OwnRows<0, 2>::bytes(in.K, warps), device.stream(), a, inverse_bnc, scale_of(in), blocks_of_head,
         rows_fit(in, in.value_bch));
}

template <class Device, class T>
void lsh_attention_backward(Device& device, const LshBackward<T>& a) {
  const auto& in = a.in;
  const Index rows = in.B * in.N * in.C;
  typename Device::Scope scratch(device.workspace);
  const float* inverse_bnc = inverses_of(device, scratch, in);
  float* delta_bnc = scratch.template take<float>(rows);
  float* d_asked_bnck = scratch.template take<float>(rows * in.K);
  const int warps = warps_for(in.K, OwnRows<0, 4>::bytes), blocks_of_head = int(blocks_for(in.C, warps));
  const unsigned blocks = blocks_for(in.B * in.N * blocks_of_head, 1), threads_of_block = unsigned(warps * warp_size);
  const float scale = scale_of(in);
  const bool aligned = rows_fit(in, in.value_bch, a.out_bch, a.d_out_bch);
  launch(backward_query_kernel<T>, blocks, threads_of_block, OwnRows<0, 3>::bytes(in.K, warps), device.stream(), a,
         inverse_bnc, scale, delta_bnc, d_asked_bnck, blocks_of_head, aligned);
  launch(backward_key_kernel<T>, blocks, threads_of_block, OwnRows<0, 4>::bytes(in.K, warps), device.stream(), a,
         inverse_bnc, scale, static_cast<const float*>(delta_bnc), static_cast<const float*>(d_asked_bnck),
         blocks_of_head, aligned);
}

ABH_INSTANTIATE(Gpu, lsh_order, lsh_attention_forward, lsh_attention_backward)

}  // namespace abh
