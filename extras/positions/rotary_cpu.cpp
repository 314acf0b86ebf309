#include <bit>

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "extras/positions/rotary.hpp"

namespace abh {

namespace {

constexpr Index rows_per_task = 32;

// Pairs of lanes as 64-bit integers, which every instruction set can shift. The first lane is the low half, on a
// big-endian machine the high half.
template <class L>
using PairsOf = typename LanesOf<std::uint64_t, width_of<L> / 2>::type;
constexpr bool first_is_low = std::endian::native == std::endian::little;

// Swaps the lanes of every pair; duplicates the first lane; duplicates the second lane.
template <class L>
inline L exchanged(const L& x) {
  const auto pairs = bits_as<PairsOf<L>>(x);
  return bits_as<L>(pairs << 32 | pairs >> 32);
}
template <bool low, class L>
inline L half_twice(const L& x) {
  const auto pairs = bits_as<PairsOf<L>>(x);
  if constexpr (low) return bits_as<L>(pairs << 32 | (pairs & 0xFFFFFFFF));
  return bits_as<L>((pairs & ~std::uint64_t{0xFFFFFFFF}) | pairs >> 32);
}
template <class L>
inline L firsts(const L& x) {
  return half_twice<first_is_low>(x);
}
template <class L>
inline L seconds(const L& x) {
  return half_twice<!first_is_low>(x);
}

// Rotates every row: forward with direction 1, backward with -1. Channels are read before they are written, because out
// may be in. The angles are the same in every head and are read once per row.
template <class T, class Device>
void turn_rows(Device& device, T* out_bch, Index out_stride, const T* in_bch, Index in_stride, const Accum<T>* turn_ck,
               Accum<T> direction, Index B, Index C, Index N, Index K) {
  using A = Accum<T>;
  parallel_rows(device, B * C, rows_per_task, [=](Index bc) {
    T* out_h = out_bch + bc * out_stride;
    const T* in_h = in_bch + bc * in_stride;
    const A* turn_k = turn_ck + bc % C * K;
    Index k = 0;
    if constexpr (lane_width < T >> 1) {
      using L = Wide<T>;
      L sign;
      for (int i = 0; i < width_of<L>; ++i) sign[i] = i % 2 ? direction : -direction;
      for (; k + width_of<L> <= K; k += width_of<L>) {
        const L turn = load<L>(turn_k + k), cosines = firsts<L>(turn), sines = seconds<L>(turn) * sign;
        for (Index h = k; h < N * K; h += K) {
          const L in = load<L>(in_h + h), other = exchanged<L>(in);
          const L out = fused<L>(cosines, in, sines * other);  // (rotary.1) (rotary.2) (rotary.4) (rotary.5)
          store<L>(out_h + h, out);
        }
      }
    }
    for (; k + 1 < K; k += 2) {
      const A cosine = turn_k[k], sine = direction * turn_k[k + 1];
      for (Index h = k; h < N * K; h += K) {
        const A first = in_h[h], second = in_h[h + 1];
        out_h[h] = fused<A>(cosine, first, -(sine * second));   // (rotary.1) (rotary.4)
        out_h[h + 1] = fused<A>(cosine, second, sine * first);  // (rotary.2) (rotary.5)
      }
    }
    if (k == K) return;
    for (Index h = k; h < N * K; h += K) out_h[h] = in_h[h];  // (rotary.3) (rotary.6)
  });
}

}  // namespace

template <class Device, class T>
void rotary_forward(Device& device, const RotaryForward<T>& a) {
  using A = Accum<T>;
  const Index H = a.N * a.K;
  turn_rows<T>(device, a.out_bch, stride_or(a.out_stride, H), a.in_bch, stride_or(a.in_stride, H), a.turn_ck, A(1), a.B,
               a.C, a.N, a.K);
}

template <class Device, class T>
void rotary_backward(Device& device, const RotaryBackward<T>& a) {
  using A = Accum<T>;
  const Index H = a.N * a.K;
  turn_rows<T>(device, a.d_in_bch, stride_or(a.d_in_stride, H), a.d_out_bch, stride_or(a.d_out_stride, H), a.turn_ck,
               A(-1), a.B, a.C, a.N, a.K);
}

ABH_INSTANTIATE(Cpu, rotary_forward, rotary_backward)

}  // namespace abh
