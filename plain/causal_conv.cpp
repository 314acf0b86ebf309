#include "layers/causal_conv.hpp"

#include "plain/view.hpp"

namespace abh {

// Letters, in addition to those of the header: s = input or output position, i = input channel.

template <class Device, class T>
void causal_conv_forward(Device&, T* out_bcd, const T* in_bcd, const T* weight_dgj, const CausalConvShape& shape) {
  using A = Accum<T>;
  const Index B = shape.B, C = shape.C, D = shape.D, G = D / shape.groups, J = shape.kernel;
  const auto out = array(out_bcd, C, D);
  const auto in = array(in_bcd, C, D), weight = array(weight_dgj, G, J);
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index d = 0; d < D; ++d) {
        const Index base = d - d % G;  // first channel of the group; output channel d reads all G of them
        A sum = A(0);
        for (Index j = 0; j < J; ++j) {
          const Index s = c - (J - 1) + j;  // the last tap reads the current position; positions before 0 are zero
          for (Index g = 0; g < G && s >= 0; ++g) sum += weight(d, g, j) * in(b, s, base + g);  // (causal_conv.1)
        }
        out(b, c, d) = sum;
      }
    }
  }
}

template <class Device, class T>
void causal_conv_backward(Device&, T* d_in_bcd, Accum<T>* d_weight_dgj, const T* d_out_bcd, const T* in_bcd,
                          const T* weight_dgj, const CausalConvShape& shape) {
  using A = Accum<T>;
  const Index B = shape.B, C = shape.C, D = shape.D, G = D / shape.groups, J = shape.kernel;
  const auto d_in = array(d_in_bcd, C, D);
  const auto d_weight = array(d_weight_dgj, G, J);
  const auto d_out = array(d_out_bcd, C, D), in = array(in_bcd, C, D), weight = array(weight_dgj, G, J);
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index i = 0; i < D; ++i) {
        const Index g = i % G, base = i - g;
        A sum = A(0);
        for (Index j = 0; j < J; ++j) {
          const Index s = c + (J - 1) - j;  // the output that reads position c through tap j, if it exists
          for (Index d = base; d < base + G && s < C; ++d) sum += weight(d, g, j) * d_out(b, s, d);  // (causal_conv.2)
        }
        d_in(b, c, i) = sum;
      }
    }
  }
  for (Index d = 0; d < D; ++d) {
    for (Index g = 0; g < G; ++g) {
      for (Index j = 0; j < J; ++j) {
        A sum = A(0);  // sum over all positions of all sequences, because each of them uses this weight
        for (Index b = 0; b < B; ++b) {
          for (Index c = 0; c < C; ++c) {
            const Index s = c - (J - 1) + j;
            if (s >= 0) sum += d_out(b, c, d) * in(b, s, d - d % G + g);
          }
        }
        d_weight(d, g, j) += sum;  // (causal_conv.3)
      }
    }
  }
}

template <class Device, class T>
void causal_conv_step(Device& device, T* out_d, T* state_jd, const T* in_d, const T* weight_dgj, Index position,
                      const CausalConvShape& shape) {
  using A = Accum<T>;
  const Index D = shape.D, G = D / shape.groups, J = shape.kernel;
  const auto state = array(state_jd, D);
  const auto weight = array(weight_dgj, G, J);
  typename Device::Scope scratch(device.workspace);
  A* sum_d = scratch.template take<A>(D);  // separate: other channels of the group still read in_d, which may be out_d
  for (Index d = 0; d < D; ++d) {
    sum_d[d] = A(0);
    for (Index j = 0; j < J; ++j) {
      const Index s = position - (J - 1) + j;
      for (Index g = 0; g < G && s >= 0; ++g) {
        const Index i = d - d % G + g;
        // Position s is stored in row s % (J - 1) of a ring buffer with the last J - 1 positions.
        sum_d[d] += weight(d, g, j) * (s == position ? in_d[i] : state(s % (J - 1), i));
      }
    }
  }
  // Row of the oldest input, which no later position reads.
  for (Index d = 0; d < D && J > 1; ++d) state(position % (J - 1), d) = in_d[d];
  for (Index d = 0; d < D; ++d) out_d[d] = sum_d[d];
}

ABH_INSTANTIATE(PlainDevice, causal_conv_forward, causal_conv_backward, causal_conv_step)

}  // namespace abh
