#include "layers/attention.hpp"

#include "cpu/attention_tiles.hpp"

namespace abh {

namespace {

// ---- Row by row: the equations as they stand, for double and Dual ----

template <class T>
T dot_product(const T* x_k, const T* y_k, Index K) {
  T sum = T(0);
  for (Index k = 0; k < K; ++k) sum += x_k[k] * y_k[k];
  return sum;
}

// One head of one sequence. The running maximum only ever grows; when it does, what was summed so far shrinks with it.
template <class T>
void forward_by_rows(Rows<T> out_ck, Accum<T>* lse_c, Rows<const T> query_ck, Rows<const T> key_ck,
                     Rows<const T> value_ck, const Token* mask_c, bool causal, Index C, Index K) {
  const T scale = score_scale<T>(K);
  for (Index query = 0; query < C; ++query) {
    T* out_k = out_ck[query];
    for (Index k = 0; k < K; ++k) out_k[k] = T(0);
    T max = T(-infinity);
    T sum = T(0);
    const Index keys = causal ? query + 1 : C;
    for (Index key = 0; key < keys; ++key) {
      if (mask_c && mask_c[key] == 0) continue;
      const T score = scale * dot_product(query_ck[query], key_ck[key], K);  // (attention.1)
      const T new_max = larger(max, score);
      const T shrink = exponential(max - new_max);
      const T power = exponential(score - new_max);
      max = new_max;
      sum = sum * shrink + power;  // (attention.2)
      for (Index k = 0; k < K; ++k) out_k[k] = out_k[k] * shrink + power * value_ck[key][k];
    }
    const bool sees_none = sum == T(0);
    for (Index k = 0; k < K; ++k) out_k[k] = sees_none ? T(0) : out_k[k] / sum;  // (attention.3)
    lse_c[query] = sees_none ? T(infinity) : max + natural_log(sum);             // (attention.4)
  }
}

template <class T>
void backward_by_rows(const AttentionBackward<T>& a, Index b, Index n) {
  const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, a.K); };
  const Rows<const T> query_ck = rows(a.query_bch, a.query_stride);
  const Rows<const T> key_ck = rows(a.key_bch, a.key_stride);
  const Rows<const T> value_ck = rows(a.value_bch, a.value_stride);
  const Rows<const T> out_ck = rows(a.out_bch, 0);
  const Rows<const T> d_out_ck = rows(a.d_out_bch, 0);
  const Rows<T> d_query_ck = rows(a.d_query_bch, a.d_query_stride);
  const Rows<T> d_key_ck = rows(a.d_key_bch, a.d_key_stride);
  const Rows<T> d_value_ck = rows(a.d_value_bch, a.d_value_stride);
  const Accum<T>* lse_c = a.lse_bnc + (b * a.N + n) * a.C;
  const Token* mask_c = a.mask_bc ? a.mask_bc + b * a.C : nullptr;
  const T scale = score_scale<T>(a.K);

  for (Index c = 0; c < a.C; ++c) {
    for (Index k = 0; k < a.K; ++k) d_query_ck[c][k] = d_key_ck[c][k] = d_value_ck[c][k] = T(0);
  }
  for (Index query = 0; query < a.C; ++query) {
    const T delta = dot_product(d_out_ck[query], out_ck[query], a.K);  // (attention.6)
    const Index keys = a.causal ? query + 1 : a.C;
    for (Index key = 0; key < keys; ++key) {
      if (mask_c && mask_c[key] == 0) continue;
      const T score = scale * dot_product(query_ck[query], key_ck[key], a.K);
      const T weight = exponential(score - lse_c[query]);                                     // (attention.5)
      const T d_score = weight * (dot_product(d_out_ck[query], value_ck[key], a.K) - delta);  // (attention.7)
      for (Index k = 0; k < a.K; ++k) {
        d_query_ck[query][k] += scale * d_score * key_ck[key][k];  // (attention.8)
        d_key_ck[key][k] += scale * d_score * query_ck[query][k];  // (attention.9)
        d_value_ck[key][k] += weight * d_out_ck[query][k];         // (attention.10)
      }
    }
  }
}

}  // namespace

template <class Device, class T>
void attention_forward(Device& device, const AttentionForward<T>& a) {
  if constexpr (is_float<T>) {
    const Index block = block_rows(a.B * a.N, a.C, a.K);
    const Index blocks = blocks_of(a.C, block);
    typename Device::Scope scratch(device.workspace);
    T* per_worker = scratch.template take<T>(device.threads.count() * forward_scratch<T>(a.K, block));
    parallel_for(device, a.B * a.N * blocks, [&](Index task, Index worker) {
      const Index head = task / blocks;
      // First, last, second, last but one, ...: a causal block costs more the later it is, and workers get neighbours.
      const Index i = task % blocks;
      const Index t = i % 2 == 0 ? i / 2 : blocks - 1 - i / 2;
      forward_block<T>(a, head / a.N, head % a.N, t * block, block,
                       per_worker + worker * forward_scratch<T>(a.K, block));
    });
  } else {
    parallel_for(device, a.B * a.N, [&](Index task, Index) {
      const Index b = task / a.N;
      const Index n = task % a.N;
      const auto rows = [&](auto* first, Index stride) { return head_rows(first, stride, b, n, a.C, a.N, a.K); };
      forward_by_rows<T>(rows(a.out_bch, 0), a.lse_bnc + task * a.C, rows(a.query_bch, a.query_stride),
                         rows(a.key_bch, a.key_stride), rows(a.value_bch, a.value_stride),
                         a.mask_bc ? a.mask_bc + b * a.C : nullptr, a.causal, a.C, a.K);
    });
  }
}

template <class Device, class T>
void attention_backward(Device& device, const AttentionBackward<T>& a) {
  if constexpr (is_float<T>) {
    backward_in_tiles(device, a);
  } else {
    parallel_for(device, a.B * a.N, [&](Index task, Index) { backward_by_rows<T>(a, task / a.N, task % a.N); });
  }
}

template <class Device, class T>
void attention_step(Device& device, const AttentionStep<T>& a) {
  const Index H = a.N * a.K;
  const T scale = score_scale<T>(a.K);
  typename Device::Scope scratch(device.workspace);
  T* score_nc = scratch.template take<T>(a.N * a.length);
  parallel_for(device, a.N, [&](Index n, Index) {
    T* score_c = score_nc + n * a.length;
    T max = T(-infinity);
    for (Index c = 0; c < a.length; ++c) {
      RowSum<T> score;
      for_lanes<T>(a.K, [&]<class L>(Index k) {
        score += load<L>(a.query_h + n * a.K + k) * load<L>(a.key_ch + c * H + n * a.K + k);
      });
      score_c[c] = score.total() * scale;  // (attention.1)
      max = larger(max, score_c[c]);
    }
    RowSum<T> sum;  // (attention.2)
    for_lanes<T>(a.length, [&]<class L>(Index c) {
      const L power = exponential<L>(load<L>(score_c + c) - max);
      sum += power;
      store<L>(score_c + c, power);
    });
    const T inverse = a.length == 0 ? T(0) : T(1) / sum.total();
    for_lanes<T>(a.K, [&]<class L>(Index k) {  // (attention.3)
      L out = splat<L>(T(0));
      for (Index c = 0; c < a.length; ++c) out += score_c[c] * load<L>(a.value_ch + c * H + n * a.K + k);
      store<L>(a.out_h + n * a.K + k, out * inverse);
    });
  });
}

#define INSTANTIATE(T)                                                      \
  template decltype(attention_forward<Cpu, T>) attention_forward<Cpu, T>;   \
  template decltype(attention_backward<Cpu, T>) attention_backward<Cpu, T>; \
  template decltype(attention_step<Cpu, T>) attention_step<Cpu, T>;
ABH_FOR_EACH_SCALAR(INSTANTIATE)

}  // namespace abh
