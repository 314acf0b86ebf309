#include "cuda/kernel.hpp"
#include "extras/positions/rotary.hpp"

namespace abh {

namespace {

constexpr int rotary_rows = 4;  // warps per block

// Rows in and out, and the rotation angles: forward with direction 1, backward with -1.
template <class T>
struct Turn {
  T* out_bch;
  const T* in_bch;
  Index out_stride, in_stride;
  const float* turn_ck;
  float direction;
  Index BC, C;
  int N, K;
  bool aligned;
};

// Grid: one warp per row. A lane has four channels of a head, two points, at a time. It reads them before it writes
// them, so out may be in. Reads and writes each row once; after the first sequence the angles are in the L2 cache.
template <class T>
__global__ void turn_kernel(Turn<T> a) {
  wait_for_kernel_before();
  const Index bc = Index{blockIdx.x} * rotary_rows + threadIdx.x / warp_size;
  if (bc >= a.BC) return;
  const float* turn_k = a.turn_ck + bc % a.C * a.K;
  const int packs = (a.K + 3) / 4;  // packs per head
  for (int pack = int(threadIdx.x) % warp_size; pack < a.N * packs; pack += warp_size) {
    const int n = pack / packs, k = pack % packs * 4;
    const Floats<4> in = load_four(a.in_bch + bc * a.in_stride + n * a.K, k, a.K, a.aligned),
                    turn = load_four(turn_k, k, a.K, a.aligned);
    Floats<4> out;
    for (int i = 0; i < 4; i += 2) {
      const float cosine = turn.x[i], sine = a.direction * turn.x[i + 1];
      out.x[i] = cosine * in.x[i] - sine * in.x[i + 1];      // (rotary.1) (rotary.4)
      out.x[i + 1] = cosine * in.x[i + 1] + sine * in.x[i];  // (rotary.2) (rotary.5)
      if (k + i == a.K - 1) out.x[i] = in.x[i];              // (rotary.3) (rotary.6)
    }
    store_four(a.out_bch + bc * a.out_stride + n * a.K, k, a.K, a.aligned, out);
  }
}

template <class T>
void turn_rows(Gpu& device, T* out_bch, Index out_stride, const T* in_bch, Index in_stride, const float* turn_ck,
               float direction, Index B, Index C, Index N, Index K) {
  const Index out_row = stride_or(out_stride, N * K), in_row = stride_or(in_stride, N * K);
  launch(turn_kernel<T>, blocks_for(B * C, rotary_rows), rotary_rows * warp_size, 0, device.stream(),
         Turn<T>{.out_bch = out_bch,
                 .in_bch = in_bch,
                 .out_stride = out_row,
                 .in_stride = in_row,
                 .turn_ck = turn_ck,
                 .direction = direction,
                 .BC = B * C,
                 .C = C,
                 .N = int(N),
                 .K = int(K),
                 .aligned = packs_fit(K, out_row, in_row, out_bch, in_bch, turn_ck)});
}

}  // namespace

template <class Device, class T>
void rotary_forward(Device& device, const RotaryForward<T>& a) {
  turn_rows(device, a.out_bch, a.out_stride, a.in_bch, a.in_stride, a.turn_ck, 1, a.B, a.C, a.N, a.K);
}

template <class Device, class T>
void rotary_backward(Device& device, const RotaryBackward<T>& a) {
  turn_rows(device, a.d_in_bch, a.d_in_stride, a.d_out_bch, a.d_out_stride, a.turn_ck, -1, a.B, a.C, a.N, a.K);
}

ABH_INSTANTIATE(Gpu, rotary_forward, rotary_backward)

}  // namespace abh
