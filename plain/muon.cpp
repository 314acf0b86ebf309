#include "layers/muon.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

// View of a matrix with O rows, transposed if it has more rows than columns, so that O <= I. The step of the transposed
// matrix is the transposed step.
template <class T>
View<T, 2> wide_matrix(T* first, Index O, Index I) {
  return O <= I ? View<T, 2>{first, {I, 1}} : View<T, 2>{first, {1, I}};
}

}  // namespace

template <class Device, class T>
void muon_update(Device& device, const MuonUpdate<T>& u) {
  using A = Accum<T>;
  const StepState& state = *u.state;
  if (std::isnan(state.clip_scale)) return;  // a gradient is not finite: neither weights nor moments change
  const Index O = u.O < u.I ? u.O : u.I, I = u.O < u.I ? u.I : u.O;
  // Complements and products are computed in double, because 1 - 0.95f has a relative error of some 1e-7.
  const A beta = A(u.settings.beta), complement = A(1 - u.settings.beta);
  const A decay = A(state.learning_rate * u.settings.weight_decay);
  const A step = A(state.learning_rate * muon_step * std::sqrt(static_cast<double>(I)));
  // x and next: (O, I); gram and polynomial: (O, O), the smaller of the two possible Gram matrices.
  typename Device::Scope scratch(device.workspace);
  const auto x = array(scratch.template take<A>(O * I), I), next = array(scratch.template take<A>(O * I), I);
  const auto gram = array(scratch.template take<A>(O * O), O), polynomial = array(scratch.template take<A>(O * O), O);

  for (Index m = 0; m < u.matrices; ++m) {
    const auto weight = wide_matrix(u.weight + u.offset_m[m], u.O, u.I);
    const auto master = wide_matrix(u.master ? u.master + u.offset_m[m] : nullptr, u.O, u.I);
    const auto first_moment = wide_matrix(u.first_moment + u.offset_m[m], u.O, u.I);
    const auto d_weight = wide_matrix(u.d_weight + u.offset_m[m], u.O, u.I);
    double squares = 0;  // double: the square of a float neither overflows nor underflows
    for (Index o = 0; o < O; ++o) {
      for (Index i = 0; i < I; ++i) {
        // The same formula twice (Nesterov): x is the moment after the next step if the gradient does not change.
        const A gradient = A(state.clip_scale) * d_weight(o, i);                 // (muon.1)
        first_moment(o, i) = beta * first_moment(o, i) + complement * gradient;  // (muon.2)
        x(o, i) = beta * first_moment(o, i) + complement * gradient;             // (muon.3)
        squares += static_cast<double>(x(o, i)) * static_cast<double>(x(o, i));
      }
    }
    // The squared singular values sum to the squared elements, so every singular value is now at most 1.
    const A scale = A(1 / (std::sqrt(squares) + u.settings.epsilon));
    for (Index o = 0; o < O; ++o) {
      for (Index i = 0; i < I; ++i) x(o, i) = scale * x(o, i);  // (muon.4)
    }

    // p and q are o' and o''. An iteration maps each singular value s to 3.4445 s - 4.7750 s^3 + 2.0315 s^5.
    for (Index round = 0; round < u.settings.rounds; ++round) {
      for (Index o = 0; o < O; ++o) {
        for (Index p = 0; p < O; ++p) {
          gram(o, p) = A(0);
          for (Index i = 0; i < I; ++i) gram(o, p) += x(o, i) * x(p, i);  // (muon.5)
        }
      }
      for (Index o = 0; o < O; ++o) {
        for (Index p = 0; p < O; ++p) {
          A square = A(0);
          for (Index q = 0; q < O; ++q) square += gram(o, q) * gram(q, p);
          const A linear = A(o == p ? muon_linear : 0);
          polynomial(o, p) = linear + A(muon_cubic) * gram(o, p) + A(muon_quintic) * square;  // (muon.6)
        }
      }
      for (Index o = 0; o < O; ++o) {
        for (Index i = 0; i < I; ++i) {
          next(o, i) = A(0);
          for (Index p = 0; p < O; ++p) next(o, i) += polynomial(o, p) * x(p, i);  // (muon.7)
        }
      }
      device.copy(x.first, next.first, O * I);  // after the loops: every element of next needs a column of x
    }
    for (Index o = 0; o < O; ++o) {
      for (Index i = 0; i < I; ++i) {
        const A exact = master.first ? master(o, i) : A(weight(o, i));
        const A updated = exact - (step * x(o, i) + decay * exact);  // (muon.8)
        if (master.first) master(o, i) = updated;
        weight(o, i) = updated;
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, muon_update)

}  // namespace abh
