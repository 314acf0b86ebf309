#include "cpu/math.hpp"
#include "cpu/rows.hpp"
#include "extras/sparse/merge_softmax.hpp"

namespace abh {

namespace {

constexpr double infinity = __builtin_inf();
constexpr Index rows_per_task = 32;

}  // namespace

template <class Device, class T>
void merge_softmax(Device& device, const MergeSoftmax<T>& a) {
  using A = Accum<T>;
  const Index N = a.N, K = a.K, H = N * K;
  parallel_rows(device, a.B * a.C, rows_per_task, [&](Index bc) {
    const Index b = bc / a.C, c = bc % a.C;
    for (Index n = 0; n < N; ++n) {
      const T* out_mk[2];
      A* lse_m[2];
      A share_m[2];
      A max = A(-infinity);
      for (int m = 0; m < a.parts; ++m) {
        const AttentionPart<T>& part = a.part[m];
        const Index row = b * part.rows + (part.row_c ? part.row_c[c] : c);
        out_mk[m] = part.out_rh + row * H + n * K;
        lse_m[m] = part.lse_bnc + (row / part.positions * N + n) * part.positions + row % part.positions;
        const bool sees_none = *lse_m[m] == A(infinity);
        share_m[m] = sees_none ? A(-infinity) : *lse_m[m];
        max = larger(max, share_m[m]);
      }
      // If no part has keys, the maximum is -infinity; the base is then 0, because -inf - (-inf) is NaN.
      const A base = max == A(-infinity) ? A(0) : max;
      A sum = A(0);
      for (int m = 0; m < a.parts; ++m) {
        share_m[m] = exponential<A>(share_m[m] - base);
        sum += share_m[m];  // (merge_softmax.1)
      }
      const A inverse = sum == A(0) ? A(0) : A(1) / sum;
      for (int m = 0; m < a.parts; ++m) share_m[m] *= inverse;
      T* out_k = a.out_bch + bc * H + n * K;
      for_lanes<T>(K, [&]<class L>(Index k) {
        L out = splat<L>(A(0));
        for (int m = 0; m < a.parts; ++m) out = fused<L>(load<L>(out_mk[m] + k), share_m[m], out);
        store<L>(out_k + k, out);  // (merge_softmax.2)
      });
      const A merged = sum == A(0) ? A(infinity) : max + natural_log<A>(sum);  // (merge_softmax.3)
      for (int m = 0; m < a.parts; ++m) *lse_m[m] = merged;                    // (merge_softmax.4)
      a.lse_bnc[(b * N + n) * a.C + c] = merged;
    }
  });
}

ABH_INSTANTIATE(Cpu, merge_softmax)

}  // namespace abh
