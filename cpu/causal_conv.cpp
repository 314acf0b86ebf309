#include "layers/causal_conv.hpp"

#include "cpu/lanes.hpp"
#include "layers/linear.hpp"

// Letters beside those of the design: u counts the groups, U of them; o and g count the output and input channels
// within a group, G each. So d = u G + o.

namespace abh {

namespace {

// From this many channels in a group on, the convolution is done as a matrix product.
constexpr Index gemm_width = 8;

// Positions of one sequence that one task handles; also rows of what is no sequence.
constexpr Index positions_per_task = 64;

// Multiplications that make a task worth waking a thread for, in the step function.
constexpr Index products_per_task = 32768;

Index pieces_of(Index n, Index size) { return (n + size - 1) / size; }
Index end_of_piece(Index piece, Index n, Index size) { return (piece + 1) * size < n ? (piece + 1) * size : n; }

// Calls body(b, begin, end) for pieces [begin, end) of the positions of every sequence, in parallel.
template <class Device, class Body>
void for_pieces(Device& device, Index B, Index C, const Body& body) {
  const Index pieces = pieces_of(C, positions_per_task);
  parallel_for(device, B * pieces, [&](Index task, Index) {
    const Index piece = task % pieces;
    body(task / pieces, piece * positions_per_task, end_of_piece(piece, C, positions_per_task));
  });
}

// out[r][y][x] = in[r][x][y], (BC, Y, X) from (BC, X, Y).
template <class Device, class T>
void transpose_rows(Device& device, T* out, const T* in, Index BC, Index X, Index Y) {
  for_pieces(device, 1, BC, [&](Index, Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      for (Index y = 0; y < Y; ++y) {
        for (Index x = 0; x < X; ++x) out[(row * Y + y) * X + x] = in[(row * X + x) * Y + y];
      }
    }
  });
}

// Narrow groups. Lanes run over the groups: neighbouring lanes do the same with different data, and no lane needs what
// another has. That asks for activations as (B, C, G, U) and taps as (J, O, G, U), groups last. With one channel a
// group (depthwise), or one group, activations have that order as they are.
template <class T>
void direct_weight(T* weight_jogu, const T* weight_dgj, Index U, Index G, Index J) {
  for (Index j = 0; j < J; ++j) {
    for (Index og = 0; og < G * G; ++og) {
      for (Index u = 0; u < U; ++u) weight_jogu[(j * G * G + og) * U + u] = weight_dgj[(u * G * G + og) * J + j];
    }
  }
}

// Both ways of the convolution. Output channel y of a group at position c sums, over taps j and channels x of the
// group, weight * in at position c - (J-1-j), looking back (forward), or c + (J-1-j), looking ahead (the input's
// gradient).
enum class Look { back, ahead };

// `rows` neighbouring positions, for the position and the lanes that the pointers begin at; taps before first_tap are
// left out. A tap is loaded once for all rows, whose sums do not wait for one another.
template <int rows, class L, class T>
void direct_rows(T* out, const T* in, const T* weight, Index first_tap, Index x_stride, Look look,
                 const CausalConvShape& s) {
  const Index U = s.groups, G = s.D / s.groups, J = s.kernel;
  L sum[rows];
  for (int r = 0; r < rows; ++r) sum[r] = splat<L>(T(0));
  for (Index j = first_tap; j < J; ++j) {
    const T* in_r = in + (look == Look::back ? j - (J - 1) : J - 1 - j) * s.D;
    const T* weight_x = weight + j * G * s.D;
    for (Index x = 0; x < G; ++x) {
      const L tap = load<L>(weight_x + x * x_stride);
      const T* in_x = in_r + x * U;
      for (int r = 0; r < rows; ++r) sum[r] += tap * load<L>(in_x + r * s.D);  // (causal_conv.1) (causal_conv.2)
    }
  }
  for (int r = 0; r < rows; ++r) store<L>(out + r * s.D, sum[r]);
}

template <class Device, class T>
void direct_convolution(Device& device, T* out_bcyu, const T* in_bcxu, const T* weight_jogu, Look look,
                        const CausalConvShape& s) {
  const Index U = s.groups, G = s.D / s.groups, J = s.kernel;
  // (y, x) is (o, g) looking back and (g, o) looking ahead.
  const Index y_stride = look == Look::back ? s.D : U;
  const Index x_stride = look == Look::back ? U : s.D;
  for_pieces(device, s.B, s.C, [&](Index b, Index begin, Index end) {
    for (Index y = 0; y < G; ++y) {
      for_lanes<T>(U, [&]<class L>(Index u) {
        T* out = out_bcyu + b * s.C * s.D + y * U + u;
        const T* in = in_bcxu + b * s.C * s.D + u;
        const T* weight = weight_jogu + y * y_stride + u;
        constexpr int rows = 4;
        for (Index c = begin; c < end;) {
          // Position c sees the taps whose input lies within the sequence.
          const Index outside = look == Look::back ? J - 1 - c : c + J - s.C;
          const bool all_inside = look == Look::back ? c >= J - 1 : c + rows - 1 + J <= s.C;
          if (all_inside && c + rows <= end) {
            direct_rows<rows, L>(out + c * s.D, in + c * s.D, weight, 0, x_stride, look, s);
            c += rows;
          } else {
            direct_rows<1, L>(out + c * s.D, in + c * s.D, weight, outside > 0 ? outside : 0, x_stride, look, s);
            c += 1;
          }
        }
      });
    }
  });
}

// The gradient of `taps` neighbouring taps from j on, summed over positions [begin, end), for the lanes that begin at
// the pointers. The taps go through the positions together: each row is fetched once.
template <int taps, class L, class T>
void direct_taps(T* d_weight, const T* d_out, const T* in, Index begin, Index end, Index j, const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  L sum[taps];
  for (int t = 0; t < taps; ++t) sum[t] = splat<L>(T(0));
  // From position J-1-j on, all the taps read inside the sequence; before it, each for itself.
  const Index all_inside = J - 1 - j < begin ? begin : J - 1 - j < end ? J - 1 - j : end;
  for (int t = 1; t < taps; ++t) {
    const Index shift = J - 1 - j - t;
    for (Index c = shift > begin ? shift : begin; c < all_inside; ++c) {
      sum[t] += load<L>(d_out + c * s.D) * load<L>(in + (c - shift) * s.D);
    }
  }
  for (Index c = all_inside; c < end; ++c) {
    const L d = load<L>(d_out + c * s.D);
    const T* in_t = in + (c - (J - 1) + j) * s.D;
    for (int t = 0; t < taps; ++t) sum[t] += d * load<L>(in_t + t * s.D);  // (causal_conv.3)
  }
  for (int t = 0; t < taps; ++t) store<L>(d_weight + (j + t) * G * s.D, sum[t]);
}

// Every task sums over its own positions; then the tasks' sums are added in order.
template <class Device, class T>
void direct_backward_weight(Device& device, Accum<T>* d_weight_dgj, const T* d_out_bcou, const T* in_bcgu,
                            const CausalConvShape& s) {
  const Index U = s.groups, G = s.D / s.groups, J = s.kernel;
  const Index pieces = pieces_of(s.C, positions_per_task);
  typename Device::Scope scratch(device.workspace);
  T* d_weight_tjogu = scratch.template take<T>(s.B * pieces * J * G * s.D);  // t: task

  for_pieces(device, s.B, s.C, [&](Index b, Index begin, Index end) {
    T* d_weight_jogu = d_weight_tjogu + (b * pieces + begin / positions_per_task) * J * G * s.D;
    for (Index og = 0; og < G * G; ++og) {
      for_lanes<T>(U, [&]<class L>(Index u) {
        T* d_weight = d_weight_jogu + og * U + u;
        const T* d_out = d_out_bcou + b * s.C * s.D + og / G * U + u;
        const T* in = in_bcgu + b * s.C * s.D + og % G * U + u;
        Index j = 0;
        for (; j + 4 <= J; j += 4) direct_taps<4, L>(d_weight, d_out, in, begin, end, j, s);
        if (J - j == 3) direct_taps<3, L>(d_weight, d_out, in, begin, end, j, s);
        if (J - j == 2) direct_taps<2, L>(d_weight, d_out, in, begin, end, j, s);
        if (J - j == 1) direct_taps<1, L>(d_weight, d_out, in, begin, end, j, s);
      });
    }
  });

  parallel_for(device, J * G * G, [&](Index jog, Index) {
    const Index j = jog / (G * G), og = jog % (G * G);
    for (Index task = 0; task < s.B * pieces; ++task) {
      const T* d_weight_u = d_weight_tjogu + (task * J * G * G + jog) * U;
      for (Index u = 0; u < U; ++u) d_weight_dgj[(u * G * G + og) * J + j] += d_weight_u[u];
    }
  });
}

// Wide groups. For one group, row (b, c) of window_bcjg is what the outputs at (b, c) see: J inputs, oldest first. Then
// the convolution is a linear map of that row, with the weight as (O, (J, G)).
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

}  // namespace

template <class Device, class T>
void causal_conv_forward(Device& device, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape& s) {
  const Index BC = s.B * s.C, U = s.groups, G = s.D / s.groups, J = s.kernel;
  typename Device::Scope scratch(device.workspace);
  T* weight = scratch.template take<T>(s.D * G * J);
  if (G >= gemm_width) {
    transpose_rows(device, weight, weight_dgj, s.D, G, J);  // weight_djg
    T* window_bcjg = scratch.template take<T>(BC * J * G);
    for (Index u = 0; u < U; ++u) {
      gather_windows(device, window_bcjg, in_bcd + u * G, s);
      linear_forward<Device, T>(device, {.out_bco = out_bcd + u * G,  // (causal_conv.1)
                                         .in_bci = window_bcjg,
                                         .weight_oi = weight + u * G * J * G,
                                         .BC = BC,
                                         .I = J * G,
                                         .O = G,
                                         .out_stride = s.D});
    }
    return;
  }

  direct_weight(weight, weight_dgj, U, G, J);
  if (G == 1 || U == 1) {
    direct_convolution(device, out_bcd, in_bcd, weight, Look::back, s);
    return;
  }
  T* in_bcgu = scratch.template take<T>(BC * s.D);
  T* out_bcou = scratch.template take<T>(BC * s.D);
  transpose_rows(device, in_bcgu, in_bcd, BC, U, G);
  direct_convolution(device, out_bcou, in_bcgu, weight, Look::back, s);
  transpose_rows(device, out_bcd, out_bcou, BC, G, U);
}

template <class Device, class T>
void causal_conv_backward(Device& device, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const T* weight_dgj, const CausalConvShape& s) {
  const Index BC = s.B * s.C, U = s.groups, G = s.D / s.groups, J = s.kernel;
  typename Device::Scope scratch(device.workspace);
  T* weight = scratch.template take<T>(s.D * G * J);
  if (G >= gemm_width) {
    transpose_rows(device, weight, weight_dgj, s.D, G, J);  // weight_djg
    T* window_bcjg = scratch.template take<T>(BC * J * G);
    Accum<T>* d_weight_djg = scratch.template take<Accum<T>>(s.D * J * G);
    for_pieces(device, 1, s.D, [&](Index, Index begin, Index end) {
      for (Index i = begin * J * G; i < end * J * G; ++i) d_weight_djg[i] = T(0);
    });
    for (Index u = 0; u < U; ++u) {
      gather_windows(device, window_bcjg, in_bcd + u * G, s);
      linear_backward_weight<Device, T>(device, {.d_weight_oi = d_weight_djg + u * G * J * G,  // (causal_conv.3)
                                                 .d_out_bco = d_out_bcd + u * G,
                                                 .in_bci = window_bcjg,
                                                 .BC = BC,
                                                 .I = J * G,
                                                 .O = G,
                                                 .out_stride = s.D});
      linear_backward_input<Device, T>(device, {.d_in_bci = window_bcjg,
                                                .d_out_bco = d_out_bcd + u * G,
                                                .weight_oi = weight + u * G * J * G,
                                                .BC = BC,
                                                .I = J * G,
                                                .O = G,
                                                .out_stride = s.D});
      sum_windows(device, d_in_bcd + u * G, window_bcjg, s);
    }
    for_pieces(device, 1, s.D, [&](Index, Index begin, Index end) {
      for (Index d = begin; d < end; ++d) {
        for (Index g = 0; g < G; ++g) {
          for (Index j = 0; j < J; ++j) d_weight_dgj[(d * G + g) * J + j] += d_weight_djg[(d * J + j) * G + g];
        }
      }
    });
    return;
  }

  direct_weight(weight, weight_dgj, U, G, J);
  if (G == 1 || U == 1) {
    direct_backward_weight(device, d_weight_dgj, d_out_bcd, in_bcd, s);
    direct_convolution(device, d_in_bcd, d_out_bcd, weight, Look::ahead, s);
    return;
  }
  T* in_bcgu = scratch.template take<T>(BC * s.D);
  T* d_out_bcou = scratch.template take<T>(BC * s.D);
  transpose_rows(device, in_bcgu, in_bcd, BC, U, G);
  transpose_rows(device, d_out_bcou, d_out_bcd, BC, U, G);
  direct_backward_weight(device, d_weight_dgj, d_out_bcou, in_bcgu, s);
  T* d_in_bcgu = in_bcgu;  // its last reader is done
  direct_convolution(device, d_in_bcgu, d_out_bcou, weight, Look::ahead, s);
  transpose_rows(device, d_in_bcd, d_in_bcgu, BC, G, U);
}

template <class Device, class T>
void causal_conv_step(Device& device, T* out_d, T* state_jd, const T* in_d, const T* weight_dgj, Index position,
                      const CausalConvShape& s) {
  const Index G = s.D / s.groups, J = s.kernel;
  typename Device::Scope scratch(device.workspace);
  T* window_dj = scratch.template take<T>(s.D * J);  // groups of (G, J), in the order of the weight
  for (Index j = 0; j < J; ++j) {
    // Position - (J-1) + j lies in row (position + j) % (J-1).
    const T* from_d = j < J - 1 ? state_jd + (position + j) % (J - 1) * s.D : in_d;
    for (Index d = 0; d < s.D; ++d) window_dj[d * J + j] = from_d[d];
  }
  if (J > 1) {
    T* newest_d = state_jd + position % (J - 1) * s.D;
    for (Index d = 0; d < s.D; ++d) newest_d[d] = in_d[d];
  }

  const Index channels_per_task = G * J < products_per_task ? products_per_task / (G * J) : 1;
  parallel_for(device, pieces_of(s.D, channels_per_task), [&](Index task, Index) {
    for (Index d = task * channels_per_task; d < end_of_piece(task, s.D, channels_per_task); ++d) {
      const T* window_gj = window_dj + (d - d % G) * J;
      const T* weight_gj = weight_dgj + d * G * J;
      RowSum<T> sum;
      for_lanes<T>(G * J, [&]<class L>(Index i) {
        sum += load<L>(weight_gj + i) * load<L>(window_gj + i);  // (causal_conv.1)
      });
      out_d[d] = sum.total();
    }
  });
}

#define INSTANTIATE(T)                                                          \
  template decltype(causal_conv_forward<Cpu, T>) causal_conv_forward<Cpu, T>;   \
  template decltype(causal_conv_backward<Cpu, T>) causal_conv_backward<Cpu, T>; \
  template decltype(causal_conv_step<Cpu, T>) causal_conv_step<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
