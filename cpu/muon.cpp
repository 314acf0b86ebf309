#include "layers/muon.hpp"

#include "cpu/lanes.hpp"
#include "cpu/math.hpp"
#include "layers/global_norm.hpp"
#include "layers/linear.hpp"

namespace abh {

namespace {

// Calls body.operator()<L>(i) for pieces of [0, count), in parallel.
template <class T, class Device, class Body>
void for_each_weight(Device& device, Index count, const Body& body) {
  constexpr Index weights_per_task = 8192;
  parallel_pieces(device, count, weights_per_task, [&](Index begin, Index end) {
    for_lanes<T>(end - begin, [=]<class L>(Index i) { body.template operator()<L>(begin + i); });
  });
}

// Copies the elements above the diagonal of matrix_ss to their places below it.
template <class Device, class T>
void mirror(Device& device, T* matrix_ss, Index S) {
  parallel_pieces(device, S, 16, [=](Index begin, Index end) {
    for (Index i = 0; i < end; ++i) {
      for (Index s = max_of(begin, i + 1); s < end; ++s) matrix_ss[s * S + i] = matrix_ss[i * S + s];
    }
  });
}

// Maps the singular values of x_oi, which are at most 1, to values near 1, by the products of `linear`: forward is x
// w^T, backward to the input d w, to the weight d^T x. These give x x^T and x^T x without a transposed copy. Both are
// symmetric, so gram^T gram is gram gram. `other_oi` has the size of x_oi; the result is in one of the two. gram and
// polynomial are (S, S).
//
// If S is a multiple of 16, the largest number of lanes, gram and polynomial are computed as upper halves and mirrored.
// This changes no bit, because all elements are then summed in the same order. For other S, linear_forward may sum the
// last S % lanes columns in another order.
template <class Device, class T>
T* orthogonalize(Device& device, T* x_oi, T* other_oi, T* gram, T* polynomial, Index O, Index I, Index rounds) {
  const bool wide = O <= I;
  const Index S = wide ? O : I;
  const bool upper = S % 16 == 0;
  for (Index round = 0; round < rounds; ++round) {
    if (wide) {
      linear_forward<Device, T>(  // (muon.5)
          device,
          {.out_bco = gram, .in_bci = x_oi, .weight_oi = x_oi, .shape = {.BC = O, .I = I, .O = O, .upper = upper}});
    } else {
      device.set_zero(gram, S * S);       // the gradient of a weight is accumulated
      linear_backward_weight<Device, T>(  // (muon.5)
          device,
          {.d_weight_oi = gram, .d_out_bco = x_oi, .in_bci = x_oi, .shape = {.BC = O, .I = I, .O = I, .upper = upper}});
    }
    if (upper) mirror(device, gram, S);
    parallel_for(device, S, [=](Index s, Index) {  // (muon.6), the linear and the cubic term
      T* polynomial_s = polynomial + s * S;
      const T* gram_s = gram + s * S;
      for_lanes<T>(S, [=]<class L>(Index i) { store<L>(polynomial_s + i, T(muon_cubic) * load<L>(gram_s + i)); });
      polynomial_s[s] += T(muon_linear);
    });
    linear_backward_input<Device, T>(device, {.d_in_bci = polynomial,  // (muon.6), the product, added to these terms
                                              .d_out_bco = gram,
                                              .weight_oi = gram,
                                              .shape = {.BC = S, .I = S, .O = S, .upper = upper},
                                              .scale = muon_quintic,
                                              .accumulate = true});
    if (upper) mirror(device, polynomial, S);
    linear_backward_input<Device, T>(device, {.d_in_bci = other_oi,  // (muon.7)
                                              .d_out_bco = wide ? polynomial : x_oi,
                                              .weight_oi = wide ? x_oi : polynomial,
                                              .shape = {.BC = O, .I = I, .O = S}});
    T* const result_oi = other_oi;
    other_oi = x_oi;
    x_oi = result_oi;
  }
  return x_oi;
}

}  // namespace

template <class Device, class T>
void muon_update(Device& device, const MuonUpdate<T>& u) {
  if (__builtin_isnan(u.state->clip_scale)) return;  // a gradient is not finite: no update
  using A = Accum<T>;
  const Index O = u.O, I = u.I, count = O * I, S = min_of(O, I), longer = max_of(O, I);
  // Complements and products are computed in double, because 1 - 0.95f has a relative error of some 1e-7.
  const A beta = A(u.settings.beta), complement = A(1 - u.settings.beta);
  const A clip_scale = A(u.state->clip_scale);
  const A decay = A(u.state->learning_rate * u.settings.weight_decay);
  const A step = A(u.state->learning_rate * muon_step * square_root<double>(static_cast<double>(longer)));

  typename Device::Scope scratch(device.workspace);
  A* ahead_oi = scratch.template take<A>(count);
  A* other_oi = scratch.template take<A>(count);
  A* gram = scratch.template take<A>(S * S);
  A* polynomial = scratch.template take<A>(S * S);
  for (Index m = 0; m < u.matrices; ++m) {
    T* weight = u.weight + u.offset_m[m];
    A* exact = exact_weights(u.weight, u.master) + u.offset_m[m];
    A* first_moment = u.first_moment + u.offset_m[m];
    const A* d_weight = u.d_weight + u.offset_m[m];
    for_each_weight<A>(device, count, [=]<class L>(Index i) {
      const L gradient = clip_scale * load<L>(d_weight + i);                             // (muon.1)
      const L first = fused<L>(beta, load<L>(first_moment + i), complement * gradient);  // (muon.2)
      store<L>(first_moment + i, first);
      store<L>(ahead_oi + i, fused<L>(beta, first, complement * gradient));  // (muon.3)
    });
    StepState length;  // only its norm is used; clip 0
    global_norm<Device, A>(device, &length, ahead_oi, 0, count);
    const A scale = A(1 / (length.gradient_norm + u.settings.epsilon));
    for_each_weight<A>(device, count, [=]<class L>(Index i) {
      store<L>(ahead_oi + i, scale * load<L>(ahead_oi + i));  // (muon.4)
    });
    const A* x_oi = orthogonalize(device, ahead_oi, other_oi, gram, polynomial, O, I, u.settings.rounds);
    for_each_weight<A>(device, count, [=]<class L>(Index i) {
      const L old = load<L>(exact + i);
      const L updated = old - fused<L>(step, load<L>(x_oi + i), decay * old);  // (muon.8)
      store<L>(exact + i, updated);
      if constexpr (is_narrow<T>) store<L>(weight + i, updated);
    });
  }
}

ABH_INSTANTIATE(Cpu, muon_update)

}  // namespace abh
