#include "extras/sparse/merge_softmax.hpp"
#include "plain/view.hpp"

namespace abh {

template <class Device, class T>
void merge_softmax(Device&, const MergeSoftmax<T>& a) {
  using A = Accum<T>;
  const Index B = a.B, C = a.C, N = a.N, K = a.K;
  const auto out = array(a.out_bch, C, N, K);
  const auto lse = array(a.lse_bnc, N, C);
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      for (Index n = 0; n < N; ++n) {
        const T* out_mk[2] = {};
        A* lse_m[2] = {};
        for (int m = 0; m < a.parts; ++m) {
          const auto& part = a.part[m];
          const Index row = b * part.rows + (part.row_c ? part.row_c[c] : c), of_part = row / part.positions;
          out_mk[m] = &array(part.out_rh, N, K)(row, n, Index{0});
          lse_m[m] = &array(part.lse_bnc, N, part.positions)(of_part, n, row % part.positions);
        }
        const auto sees_none = [&](int m) { return *lse_m[m] == A(infinity); };
        A max = A(-infinity);
        for (int m = 0; m < a.parts; ++m) {
          if (!sees_none(m) && *lse_m[m] > max) max = *lse_m[m];  // (merge_softmax.1)
        }
        A sum = A(0);
        for (int m = 0; m < a.parts; ++m) {
          if (!sees_none(m)) sum += exp(*lse_m[m] - max);  // (merge_softmax.1)
        }
        for (Index k = 0; k < K; ++k) {
          A mixed = A(0);
          for (int m = 0; m < a.parts; ++m) {
            if (!sees_none(m)) mixed += exp(*lse_m[m] - max) * out_mk[m][k];
          }
          out(b, c, n, k) = sum == A(0) ? A(0) : mixed / sum;  // (merge_softmax.2)
        }
        const A merged = sum == A(0) ? A(infinity) : max + log(sum);  // (merge_softmax.3)
        for (int m = 0; m < a.parts; ++m) *lse_m[m] = merged;         // (merge_softmax.4)
        lse(b, n, c) = merged;
      }
    }
  }
}

ABH_INSTANTIATE(PlainDevice, merge_softmax)

}  // namespace abh
