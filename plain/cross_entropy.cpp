#include "layers/cross_entropy.hpp"

#include "plain/view.hpp"

namespace abh {

namespace {

// Target distribution of a row.
template <class T>
T share_of_target(Index v, Token target, double label_smoothing, Index V) {
  return T((v == target ? 1 - label_smoothing : 0) + label_smoothing / static_cast<double>(V));
}

}  // namespace

template <class Device, class T>
void cross_entropy_forward(Device&, const CrossEntropyForward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto logits = array(in.logits_bcv, stride_or(in.stride, in.V));
  Index count = 0;
  A total = A(0);
  for (Index bc = 0; bc < in.BC; ++bc) {
    a.loss_bc[bc] = a.lse_bc[bc] = A(0);
    if (a.best_bc) a.best_bc[bc] = ignored_target;
    if (in.targets_bc[bc] == ignored_target) continue;
    A max = A(-infinity), sum = A(0), hit = A(0);
    // Subtracting the maximum prevents overflow. One of the exponentials is then 1, so the logarithm of the sum is
    // finite.
    for (Index v = 0; v < in.V; ++v) max = logits(bc, v) > max ? logits(bc, v) : max;  // (cross_entropy.2)
    for (Index v = in.V - 1; v >= 0 && a.best_bc; --v) {
      if (!(logits(bc, v) < max)) a.best_bc[bc] = static_cast<Token>(v);  // (cross_entropy.6)
    }
    for (Index v = 0; v < in.V; ++v) sum += exp(logits(bc, v) - max);
    a.lse_bc[bc] = max + log(sum);  // (cross_entropy.2)
    for (Index v = 0; v < in.V; ++v) {
      const A q = share_of_target<T>(v, in.targets_bc[bc], in.label_smoothing, in.V);  // (cross_entropy.1)
      if (q != A(0)) hit += q * (logits(bc, v) - max);  // the logit may be -infinity if q is 0, and 0 * infinity is NaN
    }
    // Both terms omit the maximum, which would cost precision. It cancels, because the q of a row sum to 1.
    a.loss_bc[bc] = log(sum) - hit;  // (cross_entropy.3)
    total += a.loss_bc[bc];
    ++count;
  }
  *a.loss = count > 0 ? total / A(count) : A(0);  // (cross_entropy.4)
  *a.count = count;
}

template <class Device, class T>
void cross_entropy_backward(Device&, const CrossEntropyBackward<T>& a) {
  using A = Accum<T>;
  const auto& in = a.in;
  const auto logits = array(in.logits_bcv, stride_or(in.stride, in.V));
  const auto d_logits = array(a.d_logits_bcv, stride_or(in.stride, in.V));
  for (Index bc = 0; bc < in.BC; ++bc) {
    for (Index v = 0; v < in.V; ++v) {
      const Token target = in.targets_bc[bc];
      const A q = share_of_target<T>(v, target, in.label_smoothing, in.V);
      // exp(logits - lse) is the softmax: one exponential per element replaces a stored array p.
      const A d = (exp(logits(bc, v) - a.lse_bc[bc]) - q) / A(*a.count);  // (cross_entropy.5)
      // A selection, not a product with 0: an ignored row may contain NaN, and `count` may be 0.
      d_logits(bc, v) = target == ignored_target ? A(0) : d;
    }
  }
}

ABH_INSTANTIATE(PlainDevice, cross_entropy_forward, cross_entropy_backward)

}  // namespace abh
