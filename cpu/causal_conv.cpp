#include "layers/causal_conv.hpp"

#include "cpu/lanes.hpp"
#include "cpu/widened.hpp"
#include "layers/linear.hpp"
#include "layers/parts/products.hpp"

// Letters, in addition to those of docs/conventions.md: u = group, U of them; o and g = output and input channel within
// a group, G each. Hence d = u G + o.

namespace abh {

namespace {

// Positions of one sequence per task; also rows per task for arrays without sequences.
constexpr Index positions_per_task = 64;

// Multiplications per task in inference, enough to make threads worthwhile.
constexpr Index products_per_task = 32768;

// Calls body(b, begin, end) for pieces [begin, end) of the positions of every sequence, in parallel.
template <class Device, class Body>
void for_pieces(Device& device, Index B, Index C, const Body& body) {
  const Index pieces = blocks_of(C, positions_per_task);
  parallel_for(device, B * pieces, [&](Index task, Index) {
    const Index begin = task % pieces * positions_per_task;
    body(task / pieces, begin, min_of(C, begin + positions_per_task));
  });
}

// out[r][y][x] = in[r][x][y], (BC, Y, X) from (BC, X, Y).
template <class Device, class T>
void transpose_rows(Device& device, T* out, const T* in, Index BC, Index X, Index Y) {
  parallel_rows(device, BC, positions_per_task, [&](Index row) {
    for (Index y = 0; y < Y; ++y) {
      for (Index x = 0; x < X; ++x) out[(row * Y + y) * X + x] = in[(row * X + x) * Y + y];
    }
  });
}

// Narrow groups. SIMD lanes run over the groups, so no lane needs data of another lane. This requires activations as
// (B, C, G, U) and taps as (J, O, G, U), groups last. With one channel per group (depthwise), or with one group,
// activations already have this order.
template <class Device, class T>
void direct_weight(Device& device, Accum<T>* weight_jogu, const T* weight_dgj, Index U, Index G, Index J) {
  on_one_thread(device, [=] {
    for (Index j = 0; j < J; ++j) {
      for (Index og = 0; og < G * G; ++og) {
        for (Index u = 0; u < U; ++u) weight_jogu[(j * G * G + og) * U + u] = weight_dgj[(u * G * G + og) * J + j];
      }
    }
  });
}

// Both directions of the convolution. Output channel y of a group at position c sums weight * in over taps j and
// channels x of the group, at position c - (J-1-j), back in time (forward), or c + (J-1-j), ahead (gradient of the
// input).
enum class Look { back, ahead };

// Strides: of positions, of taps in the order of use, and of the channels of a group, in the input and in the weight.
struct Strides {
  Index position, tap, in_x, weight_x;
};

// Adds the products of `taps` consecutive taps of a group of G channels to `rows` consecutive positions. The pointers
// start at the first input position of the first row, and at its tap.
template <int rows, int taps, class L, class T>
void add_taps(L (&sum)[rows], const T* in, const Accum<T>* weight, Index G, const Strides& stride) {
  for (Index x = 0; x < G; ++x) {
    L seen[rows + taps - 1];
    const T* in_x = in + x * stride.in_x;
    for (int i = 0; i < rows + taps - 1; ++i, in_x += stride.position) seen[i] = load<L>(in_x);
    const Accum<T>* weight_x = weight + x * stride.weight_x;
    for (int t = 0; t < taps; ++t, weight_x += stride.tap) {
      const L tap = load<L>(weight_x);
      // Row r reads seen[r + t] for tap t. For the gradient of the input, the strides of positions and taps are
      // negative, which turns c - (J - 1) + j into c + (J - 1) - j.
      for (int r = 0; r < rows; ++r) sum[r] = fused<L>(tap, seen[r + t], sum[r]);  // (causal_conv.1) (causal_conv.2)
    }
  }
}

// `rows` consecutive positions with `taps` taps each. Every tap and every input is loaded once for all rows; the sums
// of the rows are independent, which hides latency.
template <int rows, class L, class T>
void direct_rows(T* out, const T* in, const Accum<T>* weight, Index taps, Index G, const Strides& stride) {
  L sum[rows];
  for (int r = 0; r < rows; ++r) sum[r] = splat<L>(Accum<T>(0));
  for (; taps >= 4; taps -= 4, in += 4 * stride.position, weight += 4 * stride.tap) {
    add_taps<rows, 4>(sum, in, weight, G, stride);
  }
  if (taps == 3) add_taps<rows, 3>(sum, in, weight, G, stride);
  if (taps == 2) add_taps<rows, 2>(sum, in, weight, G, stride);
  if (taps == 1) add_taps<rows, 1>(sum, in, weight, G, stride);
  for (int r = 0; r < rows; ++r) store<L>(out + r * stride.position, sum[r]);
}

// Positions [begin, end) of sequence b: one or a few positions at a time, and within them along the channels, in memory
// order.
template <class T>
void convolve(T* out_bcyu, const T* in_bcxu, const Accum<T>* weight_jogu, Look look, Index b, Index begin, Index end,
              const CausalConvShape& s) {
  constexpr Index rows = 4;
  const Index C = s.C, D = s.D, J = s.kernel, U = s.groups, G = D / U;
  // (y, x) is (o, g) for back and (g, o) for ahead. The oldest input is added first: the first tap for back, the last
  // tap for ahead.
  const bool back = look == Look::back;
  const Strides stride = {.position = D, .tap = back ? G * D : -G * D, .in_x = U, .weight_x = back ? U : D};
  const Index weight_y_stride = back ? D : U;
  const Accum<T>* weight_of_oldest = back ? weight_jogu : weight_jogu + (J - 1) * G * D;
  for (Index c = begin; c < end;) {
    // Position c reads positions [first, last), except those outside the sequence.
    const Index first = back ? c - (J - 1) : c, last = first + J;
    const Index before = first < 0 ? -first : 0, behind = last > C ? last - C : 0;
    const Index together = c + rows <= end && before == 0 && last + rows - 1 <= C ? rows : 1;
    for (Index y = 0; y < G; ++y) {
      for_lanes<T>(U, [=]<class L>(Index u) {
        T* out = out_bcyu + (b * C + c) * D + y * U + u;
        const T* in = in_bcxu + (b * C + first + before) * D + u;
        const Accum<T>* weight = weight_of_oldest + before * stride.tap + y * weight_y_stride + u;
        if (together == rows) {
          direct_rows<rows, L>(out, in, weight, J, G, stride);
        } else {
          direct_rows<1, L>(out, in, weight, J - before - behind, G, stride);
        }
      });
    }
    c += together;
  }
}

// Adds the contribution of `rows` consecutive positions to the gradients of `taps` consecutive taps. The pointers start
// at the first row's gradient, at its first input position, and at its tap.
template <int rows, int taps, class L, class T>
void add_products(Accum<T>* d_weight, const T* d_out, const T* in, Index position_stride, Index tap_stride) {
  L sum[taps], seen[rows + taps - 1];
  for (int t = 0; t < taps; ++t) sum[t] = load<L>(d_weight + t * tap_stride);
  for (int i = 0; i < rows + taps - 1; ++i, in += position_stride) seen[i] = load<L>(in);
  for (int r = 0; r < rows; ++r, d_out += position_stride) {
    const L d = load<L>(d_out);
    for (int t = 0; t < taps; ++t) sum[t] = fused<L>(d, seen[r + t], sum[t]);  // (causal_conv.3)
  }
  for (int t = 0; t < taps; ++t) store<L>(d_weight + t * tap_stride, sum[t]);
}

// The same for any number of taps.
template <int rows, class L, class T>
void direct_products(Accum<T>* d_weight, const T* d_out, const T* in, Index taps, Index position_stride,
                     Index tap_stride) {
  for (; taps >= 4; taps -= 4, in += 4 * position_stride, d_weight += 4 * tap_stride) {
    add_products<rows, 4, L>(d_weight, d_out, in, position_stride, tap_stride);
  }
  if (taps == 3) add_products<rows, 3, L>(d_weight, d_out, in, position_stride, tap_stride);
  if (taps == 2) add_products<rows, 2, L>(d_weight, d_out, in, position_stride, tap_stride);
  if (taps == 1) add_products<rows, 1, L>(d_weight, d_out, in, position_stride, tap_stride);
}

// d_weight_jogu = contribution of positions [begin, end) of sequence b to the weight's gradient.
template <class T>
void correlate(Accum<T>* d_weight_jogu, const T* d_out_bcou, const T* in_bcgu, Index b, Index begin, Index end,
               const CausalConvShape& s) {
  constexpr Index rows = 4;
  const Index C = s.C, D = s.D, J = s.kernel, U = s.groups, G = D / U;
  for (Index i = 0; i < J * G * D; ++i) d_weight_jogu[i] = Accum<T>(0);
  for (Index c = begin; c < end;) {
    const Index first = c - (J - 1), before = first < 0 ? -first : 0;
    const Index together = c + rows <= end && before == 0 ? rows : 1;
    for (Index o = 0; o < G; ++o) {
      for (Index g = 0; g < G; ++g) {
        for_lanes<T>(U, [=]<class L>(Index u) {
          Accum<T>* d_weight = d_weight_jogu + before * G * D + (o * G + g) * U + u;
          const T* d_out = d_out_bcou + (b * C + c) * D + o * U + u;
          const T* in = in_bcgu + (b * C + first + before) * D + g * U + u;
          if (together == rows) {
            direct_products<rows, L>(d_weight, d_out, in, J, D, G * D);
          } else {
            direct_products<1, L>(d_weight, d_out, in, J - before, D, G * D);
          }
        });
      }
    }
    c += together;
  }
}

template <class Device, class T>
void direct_forward(Device& device, T* out_bcou, const T* in_bcgu, const Accum<T>* weight_jogu,
                    const CausalConvShape& s) {
  for_pieces(device, s.B, s.C, [=](Index b, Index begin, Index end) {
    convolve(out_bcou, in_bcgu, weight_jogu, Look::back, b, begin, end, s);
  });
}

// A task computes both gradients of its positions while they are in cache. Afterwards the weight gradients of the tasks
// are added in order.
template <class Device, class T>
void direct_backward(Device& device, T* d_in_bcgu, Accum<T>* d_weight_dgj, const T* d_out_bcou, const T* in_bcgu,
                     const Accum<T>* weight_jogu, const CausalConvShape& s) {
  const Index U = s.groups, G = s.D / U, J = s.kernel;
  const Index pieces = blocks_of(s.C, positions_per_task), tasks = s.B * pieces;
  if (tasks == 0) return;
  typename Device::Scope scratch(device.workspace);
  Accum<T>* d_weight_tjogu = scratch.template take<Accum<T>>(tasks * J * G * s.D);  // t = task
  for_pieces(device, s.B, s.C, [=](Index b, Index begin, Index end) {
    const Index task = b * pieces + begin / positions_per_task;
    convolve(d_in_bcgu, d_out_bcou, weight_jogu, Look::ahead, b, begin, end, s);
    correlate(d_weight_tjogu + task * J * G * s.D, d_out_bcou, in_bcgu, b, begin, end, s);
  });

  // The channels of a tap are not contiguous in the weight: the sum over tasks is scattered once.
  parallel_for(device, J * G * G, [=](Index jog, Index) {
    const Index j = jog / (G * G), og = jog % (G * G);
    Accum<T>* sum_u = d_weight_tjogu + jog * U;  // of the first task
    for (Index task = 1; task < tasks; ++task) {
      const Accum<T>* d_weight_u = d_weight_tjogu + (task * J * G * G + jog) * U;
      for_lanes<Accum<T>>(U,
                          [=]<class L>(Index u) { store<L>(sum_u + u, load<L>(sum_u + u) + load<L>(d_weight_u + u)); });
    }
    for (Index u = 0; u < U; ++u) d_weight_dgj[(u * G * G + og) * J + j] += sum_u[u];
  });
}

// Wide groups. For one group, row (b, c) of window_bcjg holds the J inputs of the outputs at (b, c), oldest first. The
// convolution is then a linear layer on this row, with the weight as (O, (J, G)).
template <class Device, class T>
void gather_windows(Device& device, T* window_bcjg, const T* in_bcg, const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  for_pieces(device, s.B, s.C, [&](Index b, Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      for (Index j = 0; j < J; ++j) {
        const Index from = c - (J - 1) + j;
        const T* in_g = in_bcg + (b * s.C + from) * s.D;
        T* window_g = window_bcjg + ((b * s.C + c) * J + j) * G;
        for_lanes<T>(G,
                     [&]<class L>(Index g) { store<L>(window_g + g, from < 0 ? splat<L>(T(0)) : load<L>(in_g + g)); });
      }
    }
  });
}

template <class Device, class T>
void sum_windows(Device& device, T* d_in_bcg, const T* d_window_bcjg, const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  for_pieces(device, s.B, s.C, [&](Index b, Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      const Index first_tap = c + J > s.C ? c + J - s.C : 0;
      T* d_in_g = d_in_bcg + (b * s.C + c) * s.D;
      for_lanes<T>(G, [&]<class L>(Index g) {
        L sum = splat<L>(T(0));
        for (Index j = first_tap; j < J; ++j) {
          sum += load<L>(d_window_bcjg + ((b * s.C + c + (J - 1) - j) * J + j) * G + g);  // (causal_conv.2)
        }
        store<L>(d_in_g + g, sum);
      });
    }
  });
}

template <class Device, class T>
void wide_forward(Device& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape& s) {
  const Index BC = s.B * s.C, U = s.groups, G = s.D / s.groups, J = s.kernel;
  typename Device::Scope scratch(device.workspace);
  T* weight = scratch.template take<T>(s.D * G * J);
  transpose_rows(device, weight, weight_dgj, s.D, G, J);  // weight_djg
  T* window_bcjg = scratch.template take<T>(BC * J * G);
  for (Index u = 0; u < U; ++u) {
    gather_windows(device, window_bcjg, in_bcd + u * G, s);
    linear_forward<Device, T>(device, {.out_bco = out_bcd + u * G,  // (causal_conv.1)
                                       .in_bci = window_bcjg,
                                       .weight_oi = weight + u * G * J * G,
                                       .shape = {.BC = BC, .I = J * G, .O = G, .out_stride = s.D}});
  }
}

template <class Device, class T>
void narrow_forward(Device& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape& s) {
  const Index BC = s.B * s.C, U = s.groups, G = s.D / s.groups;
  typename Device::Scope scratch(device.workspace);
  Accum<T>* weight = scratch.template take<Accum<T>>(s.D * G * s.kernel);
  direct_weight(device, weight, weight_dgj, U, G, s.kernel);
  if (G == 1 || U == 1) {
    direct_forward(device, out_bcd, in_bcd, weight, s);
    return;
  }
  T* in_bcgu = scratch.template take<T>(BC * s.D);
  T* out_bcou = scratch.template take<T>(BC * s.D);
  transpose_rows(device, in_bcgu, in_bcd, BC, U, G);
  direct_forward(device, out_bcou, in_bcgu, weight, s);
  transpose_rows(device, out_bcd, out_bcou, BC, G, U);
}

template <class Device, class T>
void wide_backward(Device& device, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                   const T* weight_dgj, const CausalConvShape& s) {
  const Index BC = s.B * s.C, U = s.groups, G = s.D / s.groups, J = s.kernel;
  typename Device::Scope scratch(device.workspace);
  T* weight = scratch.template take<T>(s.D * G * J);
  transpose_rows(device, weight, weight_dgj, s.D, G, J);  // weight_djg
  T* window_bcjg = scratch.template take<T>(BC * J * G);
  Accum<T>* d_weight_djg = scratch.template take<Accum<T>>(s.D * J * G);
  device.set_zero(d_weight_djg, s.D * J * G);
  for (Index u = 0; u < U; ++u) {
    gather_windows(device, window_bcjg, in_bcd + u * G, s);
    linear_backward_weight<Device, T>(device, {.d_weight_oi = d_weight_djg + u * G * J * G,  // (causal_conv.3)
                                               .d_out_bco = d_out_bcd + u * G,
                                               .in_bci = window_bcjg,
                                               .shape = {.BC = BC, .I = J * G, .O = G, .out_stride = s.D}});
    linear_backward_input<Device, T>(device, {.d_in_bci = window_bcjg,
                                              .d_out_bco = d_out_bcd + u * G,
                                              .weight_oi = weight + u * G * J * G,
                                              .shape = {.BC = BC, .I = J * G, .O = G, .out_stride = s.D}});
    sum_windows(device, d_in_bcd + u * G, window_bcjg, s);
  }
  parallel_rows(device, s.D, positions_per_task, [&](Index d) {
    for (Index g = 0; g < G; ++g) {
      for (Index j = 0; j < J; ++j) d_weight_dgj[(d * G + g) * J + j] += d_weight_djg[(d * J + j) * G + g];
    }
  });
}

template <class Device, class T>
void narrow_backward(Device& device, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                     const T* weight_dgj, const CausalConvShape& s) {
  const Index BC = s.B * s.C, U = s.groups, G = s.D / s.groups;
  typename Device::Scope scratch(device.workspace);
  Accum<T>* weight = scratch.template take<Accum<T>>(s.D * G * s.kernel);
  direct_weight(device, weight, weight_dgj, U, G, s.kernel);
  if (G == 1 || U == 1) {
    direct_backward(device, d_in_bcd, d_weight_dgj, d_out_bcd, in_bcd, weight, s);
    return;
  }
  T* in_bcgu = scratch.template take<T>(BC * s.D);
  T* d_out_bcou = scratch.template take<T>(BC * s.D);
  T* d_in_bcgu = scratch.template take<T>(BC * s.D);
  transpose_rows(device, in_bcgu, in_bcd, BC, U, G);
  transpose_rows(device, d_out_bcou, d_out_bcd, BC, U, G);
  direct_backward(device, d_in_bcgu, d_weight_dgj, d_out_bcou, in_bcgu, weight, s);
  transpose_rows(device, d_in_bcd, d_in_bcgu, BC, G, U);
}

}  // namespace

template <class Device, class T>
void causal_conv_forward(Device& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape& s) {
  if (s.D / s.groups < causal_conv_gemm_width) {
    narrow_forward(device, out_bcd, in_bcd, weight_dgj, s);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      causal_conv_forward<Device, float>(device, wide.out(out_bcd, s.B * s.C, s.D), wide.in(in_bcd, s.B * s.C, s.D),
                                         wide.in(weight_dgj, s.D, s.D / s.groups * s.kernel), s);
    });
  } else {
    wide_forward(device, out_bcd, in_bcd, weight_dgj, s);
  }
}

template <class Device, class T>
void causal_conv_backward(Device& device, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const T* weight_dgj, const CausalConvShape& s) {
  if (s.D / s.groups < causal_conv_gemm_width) {
    narrow_backward(device, d_in_bcd, d_weight_dgj, d_out_bcd, in_bcd, weight_dgj, s);
  } else if constexpr (is_narrow<T>) {
    in_float(device, [&](auto& wide) {
      const Index BC = s.B * s.C, D = s.D;
      causal_conv_backward<Device, float>(device, wide.out(d_in_bcd, BC, D), d_weight_dgj, wide.in(d_out_bcd, BC, D),
                                          wide.in(in_bcd, BC, D), wide.in(weight_dgj, D, D / s.groups * s.kernel), s);
    });
  } else {
    wide_backward(device, d_in_bcd, d_weight_dgj, d_out_bcd, in_bcd, weight_dgj, s);
  }
}

template <class Device, class T>
void causal_conv_step(Device& device, T* out_d, T* state_jd, const T* in_d, const T* weight_dgj, Index position,
                      const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  typename Device::Scope scratch(device.workspace);
  T* window_dj = scratch.template take<T>(s.D * J);  // groups of (G, J), in the order of the weight
  for (Index j = 0; j < J; ++j) {
    // Position - (J-1) + j is in row (position + j) % (J-1).
    const T* from_d = j < J - 1 ? state_jd + (position + j) % (J - 1) * s.D : in_d;
    for (Index d = 0; d < s.D; ++d) window_dj[d * J + j] = from_d[d];
  }
  if (J > 1) {
    T* newest_d = state_jd + position % (J - 1) * s.D;
    for (Index d = 0; d < s.D; ++d) newest_d[d] = in_d[d];
  }

  const Index channels_per_task = G * J < products_per_task ? products_per_task / (G * J) : 1;
  parallel_rows(device, s.D, channels_per_task, [&](Index d) {
    const T* window_gj = window_dj + (d - d % G) * J;
    const T* weight_gj = weight_dgj + d * G * J;
    RowSum<T> sum;
    for_terms<T>(G * J, [&]<class L>(Index i) {
      sum.add_product(load<L>(weight_gj + i), load<L>(window_gj + i));  // (causal_conv.1)
    });
    out_d[d] = sum.total();
  });
}

ABH_INSTANTIATE(Cpu, causal_conv_forward, causal_conv_backward, causal_conv_step)

}  // namespace abh
