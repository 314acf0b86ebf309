#include "cuda/kernel.hpp"
#include "layers/cross_entropy.hpp"

namespace abh {

namespace {

// One warp per row, in both passes: a small vocabulary gives each lane few elements, and no warp waits for another.
constexpr int rows_at_a_time = 4;  // warps per block
constexpr int threads_per_block = rows_at_a_time * warp_size;
constexpr int numbers_ahead = 16;  // logits per lane in registers

// The target distribution has two levels: on_each for every token, plus on_target for the target.
struct TargetShare {
  float on_target, on_each;
};
TargetShare target_share(double label_smoothing, Index V) {
  return {float(1 - label_smoothing), float(label_smoothing / static_cast<double>(V))};  // (cross_entropy.1)
}

// Sums over some logits, relative to a maximum: sum exp(x - max), sum (x - max).
struct ShiftedSums {
  float max, sum_exp, sum_shifted, count;
};

// Rescales the sums to another maximum, at least as large. Without logits nothing is rescaled, because 0 times an
// infinite distance would be NaN.
__device__ ShiftedSums moved_to(ShiftedSums sums, float max) {
  const float distance = sums.count > 0 ? sums.max - max : 0.0f;
  return {max, sums.sum_exp * expf(distance), sums.sum_shifted + sums.count * distance, sums.count};
}

// Sums of one row, the same in every lane. Each logit is read once. A lane loads up to 16 logits into registers, finds
// their maximum, rescales its sums to it, and adds their exponentials; for V of a few hundred one round suffices. At
// the end the sums of the lanes are rescaled to the maximum of the row.
//
//   logits_v   | lane 0 | lane 1 | ... | lane 31 | lane 0 | ...     `width` neighbouring logits a lane
//
// The maximum is finite or +infinity: relative to -infinity, a logit of -infinity would give NaN instead of an
// exponential of 0. fmaxf ignores NaN, but the exponential does not.
template <int width, class T>
__device__ ShiftedSums sums_of_row(const T* logits_v, int V, int lane) {
  constexpr int accesses = numbers_ahead / width;
  constexpr int stride = warp_size * width;
  constexpr float lowest = -3.402823466e38f;
  ShiftedSums sums{lowest, 0, 0, 0};
  for (int first = lane * width; first < V; first += accesses * stride) {
    Floats<width> logits[accesses];
    float max = sums.max;
    for (int a = 0; a < accesses; ++a) {
      if (first + a * stride >= V) continue;
      logits[a] = load<width>(logits_v + first + a * stride);
      for (int i = 0; i < width; ++i) max = fmaxf(max, logits[a].x[i]);
    }
    sums = moved_to(sums, max);
    for (int a = 0; a < accesses; ++a) {
      if (first + a * stride >= V) continue;
      for (int i = 0; i < width; ++i) {
        const float shifted = logits[a].x[i] - max;
        sums.sum_exp += expf(shifted);
        sums.sum_shifted += shifted;
      }
      sums.count += float(width);
    }
  }
  sums = moved_to(sums, warp_max(sums.max));
  return {sums.max, warp_sum(sums.sum_exp), warp_sum(sums.sum_shifted), float(V)};
}

// First v with the largest logit of the row, the same in every lane; each lane reads every 32nd logit.
template <class T>
__device__ Token best_of_row(const T* logits_v, int V, int lane, float max) {
  int best = V;
  for (int v = lane; v < V && best == V; v += warp_size) {
    if (!(float(logits_v[v]) < max)) best = v;
  }
  return Token(-warp_max(float(-best)));  // exact as a float: a vocabulary has at most 2^21 tokens
}

// Rows per block: four, or more to keep the number of blocks below 4,096; one block then adds their partial sums.
Index rows_per_block(Index BC) {
  const Index rows = (BC + 4095) / 4096;
  return (rows + rows_at_a_time - 1) / rows_at_a_time * rows_at_a_time;
}

// Grid: one block of 4 warps per `rows` consecutive rows; warp w takes rows w, w + 4, ... of them. Reads the logits
// once and writes two numbers per row; loss_p and count_p are the sums over the rows of block p.
template <class T, int width>
__global__ void forward_kernel(CrossEntropyForward<T> a, TargetShare q, float* loss_p, int* count_p, Index rows) {
  wait_for_kernel_before();
  const int lane = int(threadIdx.x % warp_size);
  const Index first = Index{blockIdx.x} * rows, end = first + rows < a.in.BC ? first + rows : a.in.BC;
  float loss_of_warp = 0;
  int count_of_warp = 0;
  for (Index bc = first + threadIdx.x / warp_size; bc < end; bc += rows_at_a_time) {
    const Token target = a.in.targets_bc[bc];
    float loss = 0, lse = 0;
    Token best = ignored_target;
    if (target != ignored_target) {
      const T* logits_v = a.in.logits_bcv + bc * a.in.stride;
      const ShiftedSums sums = sums_of_row<width>(logits_v, int(a.in.V), lane);
      const float log_sum = logf(sums.sum_exp);
      lse = sums.max + log_sum;                                             // (cross_entropy.2)
      loss = log_sum - q.on_target * (float(logits_v[target]) - sums.max);  // (cross_entropy.3)
      // Only with smoothing: a logit of -infinity means an impossible token, and 0 * infinity is NaN.
      if (q.on_each > 0) loss -= q.on_each * sums.sum_shifted;                   // (cross_entropy.3), all tokens
      if (a.best_bc) best = best_of_row(logits_v, int(a.in.V), lane, sums.max);  // (cross_entropy.6)
      ++count_of_warp;
    }
    if (lane == 0) {
      if (a.best_bc) a.best_bc[bc] = best;
      a.loss_bc[bc] = loss;
      a.lse_bc[bc] = lse;
    }
    loss_of_warp += loss;
  }
  const float loss = block_sum<threads_per_block>(lane == 0 ? loss_of_warp : 0.0f);
  const int count = block_sum<threads_per_block>(lane == 0 ? count_of_warp : 0);
  if (threadIdx.x > 0) return;
  loss_p[blockIdx.x] = loss;
  count_p[blockIdx.x] = count;
}

// One block adds the partial sums: thread i adds parts i, i + 256, ..., then the threads' sums are added.
constexpr int mean_threads = 256;
__global__ void mean_kernel(float* loss, Index* count, const float* loss_p, const int* count_p, int parts) {
  wait_for_kernel_before();
  float loss_of_thread = 0;
  Index count_of_thread = 0;
  for (int p = int(threadIdx.x); p < parts; p += mean_threads) {
    loss_of_thread += loss_p[p];
    count_of_thread += count_p[p];
  }
  const float sum = block_sum<mean_threads>(loss_of_thread);
  const Index rows = block_sum<mean_threads>(count_of_thread);
  if (threadIdx.x > 0) return;
  *loss = rows > 0 ? sum / float(rows) : 0.0f;  // (cross_entropy.4)
  *count = rows;
}

// Grid: BC / 4 blocks of 4 warps, lanes along the vocabulary as above. Reads and writes every logit once. A lane writes
// only elements that it has read, so the gradient may overwrite the logits.
template <class T, int width>
__global__ void backward_kernel(CrossEntropyBackward<T> a, TargetShare q) {
  wait_for_kernel_before();
  const Index bc = Index{blockIdx.x} * rows_at_a_time + threadIdx.x / warp_size;
  if (bc >= a.in.BC) return;
  const int V = int(a.in.V), first = int(threadIdx.x % warp_size) * width;
  const T* logits_v = a.in.logits_bcv + bc * a.in.stride;
  T* d_logits_v = a.d_logits_bcv + bc * a.in.stride;
  const Token target = a.in.targets_bc[bc];
  const bool counts = target != ignored_target;
  const float row_weight = counts ? 1 / float(*a.count) : 0.0f;
  const float lse = a.lse_bc[bc];
  for (int v = first; v < V; v += warp_size * width) {
    Floats<width> d = load<width>(logits_v + v);
    for (int i = 0; i < width; ++i) {
      const float share = v + i == target ? q.on_target + q.on_each : q.on_each;
      // A selection, not a product with 0: an ignored row may contain NaN.
      d.x[i] = counts ? (expf(d.x[i] - lse) - share) * row_weight : 0.0f;  // (cross_entropy.5)
    }
    store<width>(d_logits_v + v, d);
  }
}

// V must be a multiple of a wide access, too: with a small odd V, wide accesses would leave most lanes without logits.
template <class T>
bool rows_are_wide(const CrossEntropyInputs<T>& in, const T* d_logits_bcv) {
  return in.V % widest<T> == 0 && widest_fits<T>(in.stride, in.logits_bcv, d_logits_bcv);
}

}  // namespace

template <class Device, class T>
void cross_entropy_forward(Device& device, const CrossEntropyForward<T>& given) {
  CrossEntropyForward<T> a = given;
  a.in.stride = stride_or(a.in.stride, a.in.V);
  const Index rows = rows_per_block(a.in.BC);
  const unsigned parts = a.in.BC > 0 ? blocks_for(a.in.BC, rows) : 0;
  typename Device::Scope scratch(device.workspace);
  float* loss_p = scratch.template take<float>(parts);
  int* count_p = scratch.template take<int>(parts);
  const auto run = [&](auto kernel) {
    launch(kernel, parts, threads_per_block, 0, device.stream(), a, target_share(a.in.label_smoothing, a.in.V), loss_p,
           count_p, rows);
  };
  rows_are_wide<T>(a.in, nullptr) ? run(forward_kernel<T, widest<T>>) : run(forward_kernel<T, 1>);
  launch(mean_kernel, 1, mean_threads, 0, device.stream(), a.loss, a.count, loss_p, count_p, int(parts));
}

template <class Device, class T>
void cross_entropy_backward(Device& device, const CrossEntropyBackward<T>& given) {
  CrossEntropyBackward<T> a = given;
  a.in.stride = stride_or(a.in.stride, a.in.V);
  const auto run = [&](auto kernel) {
    launch(kernel, blocks_for(a.in.BC, rows_at_a_time), threads_per_block, 0, device.stream(), a,
           target_share(a.in.label_smoothing, a.in.V));
  };
  rows_are_wide<T>(a.in, a.d_logits_bcv) ? run(backward_kernel<T, widest<T>>) : run(backward_kernel<T, 1>);
}

ABH_INSTANTIATE(Gpu, cross_entropy_forward, cross_entropy_backward)

}  // namespace abh
