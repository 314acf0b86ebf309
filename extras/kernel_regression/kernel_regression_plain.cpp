#include "extras/kernel_regression/kernel_regression.hpp"
#include "plain/view.hpp"

namespace abh {

namespace {

// Squared distance of a key minus that of `near`; negative if the key is nearer. The product form keeps its precision
// if both are far away, and its sign is right if their distances round to the same number.
template <class T>
T gap_of(T query, T key, T near) {
  return (near - key) * ((query - key) + (query - near));  // (kernel_regression.2)
}

template <class T>
Accum<T> width_of(const KernelRegressionInputs<T>& in) {
  return in.width ? Accum<T>(*in.width) : Accum<T>(in.fixed_width);
}

}  // namespace

template <class Device, class T>
void kernel_regression_forward(Device&, const KernelRegressionForward<T>& a) {
  using A = Accum<T>;
  const KernelRegressionInputs<T>& in = a.in;
  const A width = width_of(in);
  for (Index c = 0; c < in.C; ++c) {
    const A query = in.query_c[c];
    Index seen = 0;
    A near = A(0);
    for (Index s = 0; s < in.S; ++s) {
      // The first key is always taken: if it is NaN, all gaps and the output are NaN.
      if (in.sees(c, s) && (seen++ == 0 || gap_of(query, A(in.key_s[s]), near) < A(0)))
        near = in.key_s[s];  // (kernel_regression.1)
    }
    Extended<T> sum = 0, mixed = 0;
    for (Index s = 0; s < in.S; ++s) {
      if (!in.sees(c, s)) continue;
      const A power = exp(A(-0.5) * width * width * gap_of(query, A(in.key_s[s]), near));
      sum += power;
      mixed += power * in.value_s[s];
    }
    const A share = seen ? A(1 / sum) : A(0);                  // (kernel_regression.3)
    a.out_c[c] = seen ? A(Extended<T>(share) * mixed) : A(0);  // (kernel_regression.4)
    a.near_c[c] = near;
    a.share_c[c] = share;
  }
}

template <class Device, class T>
void kernel_regression_weights(Device&, T* weight_cs, const Accum<T>* near_c, const Accum<T>* share_c,
                               const KernelRegressionInputs<T>& in) {
  using A = Accum<T>;
  const auto weight = array(weight_cs, in.S);
  const A width = width_of(in);
  for (Index c = 0; c < in.C; ++c) {
    for (Index s = 0; s < in.S; ++s) {
      const A gap = gap_of(A(in.query_c[c]), A(in.key_s[s]), near_c[c]);
      weight(c, s) = in.sees(c, s) ? share_c[c] * exp(A(-0.5) * width * width * gap) : A(0);  // (kernel_regression.5)
    }
  }
}

template <class Device, class T>
void kernel_regression_backward(Device&, const KernelRegressionBackward<T>& a) {
  using A = Accum<T>;
  const KernelRegressionInputs<T>& in = a.in;
  const A width = width_of(in);
  const auto gap = [&](Index c, Index s) { return gap_of(A(in.query_c[c]), A(in.key_s[s]), a.near_c[c]); };
  const auto weight = [&](Index c, Index s) {
    return in.sees(c, s) ? a.share_c[c] * exp(A(-0.5) * width * width * gap(c, s)) : A(0);  // (kernel_regression.5)
  };
  const auto d_score = [&](Index c, Index s) {
    return in.sees(c, s) ? a.d_out_c[c] * weight(c, s) * (in.value_s[s] - a.out_c[c]) : A(0);  // (kernel_regression.6)
  };
  for (Index c = 0; c < in.C; ++c) {
    Extended<T> sum = 0;
    // Uses the nearest key instead of the query: the d_score of a row sum to 0, so any constant is allowed.
    for (Index s = 0; s < in.S; ++s) sum += d_score(c, s) * (a.near_c[c] - in.key_s[s]);
    a.d_query_c[c] = -width * width * A(sum);  // (kernel_regression.7)
  }
  for (Index s = 0; s < in.S; ++s) {
    Extended<T> of_key = 0, of_value = 0;
    for (Index c = 0; c < in.C; ++c) {
      of_key += d_score(c, s) * (in.query_c[c] - in.key_s[s]);
      of_value += weight(c, s) * a.d_out_c[c];
    }
    a.d_key_s[s] = width * width * A(of_key);  // (kernel_regression.8)
    a.d_value_s[s] = A(of_value);              // (kernel_regression.9)
  }
  if (!a.d_width) return;
  Extended<T> sum = 0;
  for (Index c = 0; c < in.C; ++c) {
    for (Index s = 0; s < in.S; ++s) sum += d_score(c, s) * gap(c, s);
  }
  *a.d_width -= width * A(sum);  // (kernel_regression.10)
}

ABH_INSTANTIATE(PlainDevice, kernel_regression_forward, kernel_regression_weights, kernel_regression_backward)

}  // namespace abh
