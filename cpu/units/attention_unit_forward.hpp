#pragma once

// Forward pass of attention on bf16 rows by a unit.

#include "cpu/units/attention_unit_products.hpp"

namespace abh {

namespace {

// A block of queries with all keys to which they attend.
template <class Tiles>
class UnitForward {
  using L = Wide<float>;
  static constexpr Index width = lane_width<float>, rows = Tiles::rows;

 public:
  // Scratch memory of a worker, in words.
  static Index words(Index K, Index block) {
    const Index steps = Tiles::steps_of(K), padded_K = up_to(K, Tiles::columns), strips = up_to(block, rows);
    return (strips + unit_keys) * steps + padded_K * (Tiles::steps_of(unit_keys) + strips);
  }

  UnitForward(const AttentionForward<bf16>& a, Index b, Index n, Index first_query, Index block, const float* bias_x,
              Pair* scratch, float* sums)
      : in_(a.in),
        first_query_(first_query),
        K_(a.in.K),
        steps_(Tiles::steps_of(K_)),
        queries_(min_of(block, a.in.C - first_query)),
        mask_(a.in.mask.of_head(n)),
        mask_s_(mask_.mask_bs ? mask_.mask_bs + b * a.in.S : nullptr),
        bias_x_(bias_x),
        scale_(score_scale<float>(a.in)),
        to_exponent_(scale_ * float(log2_e)),
        key_sk_(head_rows(a.in.key_bsh, a.in.key_stride, b, n, a.in.S, a.in.N, K_)),
        value_sk_(head_rows(a.in.value_bsh, a.in.value_stride, b, n, a.in.S, a.in.N, K_)),
        out_ck_(head_rows(a.out_bch, 0, b, n, a.in.C, a.in.N, K_).from(first_query)),
        lse_c_(a.lse_bnc + (b * a.in.N + n) * a.in.C + first_query),
        query_(scratch),
        key_(query_ + up_to(block, rows) * steps_),
        value_(key_ + unit_keys * steps_),
        sum_ck_{sums, up_to(K_, Tiles::columns)} {
    pack_left<Tiles>(query_, head_rows(a.in.query_bch, a.in.query_stride, b, n, a.in.C, a.in.N, K_).from(first_query),
                     queries_, K_);
  }

  void run() {
    clear_rows(sum_ck_, queries_, sum_ck_.stride);
    for (Index c = 0; c < up_to(queries_, width); ++c) {
      max_c_[c] = float(-infinity);
      sum_c_[c] = 0;
    }
    const Stretch seen = seen_by(0, queries_);
    for (Index key = seen.begin / unit_keys * unit_keys; key < seen.end; key += unit_keys) {
      const Index keys = min_of(unit_keys, in_.S - key);
      pack_columns<Tiles>(key_, key_sk_.from(key), keys, K_);
      pack_steps<Tiles>(value_, value_sk_.from(key), keys, K_);
      for (Index s = 0; mask_s_ && s < keys; ++s) hide_s_[s] = mask_s_[key + s] == 0 ? float(-infinity) : 0;
      for (Index c = 0; c < queries_; c += rows) meet(c, min_of(rows, queries_ - c), key, keys);
    }
    finish();
  }

 private:
  Stretch seen_by(Index first, Index count) const {
    return mask_.keys_of({first_query_ + first, first_query_ + first + count}, in_.S);
  }

  // A strip of queries with a tile of keys.
  void meet(Index c, Index queries, Index first_key, Index keys) {
    const Stretch met = within(seen_by(c, queries), first_key, keys);
    if (met.empty()) return;
    // (attention.1), without its factor
    const Pair* query = query_ + c * steps_;
    const Rows<float> score_rs{score_rs_, unit_keys};
    multiply_strip<Tiles>(score_rs, {query, steps_, 1}, key_, steps_, met, {0, steps_}, queries, false);
    const Stretch whole{met.begin / (2 * amx_side) * (2 * amx_side), up_to(met.end, 2 * amx_side)};
    for (Index r = 0; r < queries; ++r) weigh(r, c + r, within(seen_by(c + r, 1), first_key, keys), whole, first_key);
    rescale(c, queries);
    multiply_strip<Tiles>(sum_ck_.from(c), {reinterpret_cast<const Pair*>(weight_rs_), unit_keys / 2, 1}, value_,
                          Tiles::steps_of(keys), {0, K_}, {met.begin / 2, (met.end + 1) / 2}, queries, true);
  }

  // Turns the scores of a query into weights, relative to the largest score so far; 0 for all other keys of `whole`.
  void weigh(Index r, Index c, Stretch own, Stretch whole, Index first_key) {
    float* score_s = score_rs_ + r * unit_keys;
    bf16* weight_s = weight_rs_ + r * unit_keys;
    const L zero = splat<L>(0.0f);
    const Index begin = own.empty() ? whole.end : own.begin / width * width, end = own.empty() ? begin : own.end;
    for (Index s = whole.begin; s < begin; s += width) store<L>(weight_s + s, zero);
    L top = splat<L>(float(-infinity));
    const float* bias_s = bias_x_ ? bias_x_ + first_key - mask_.at(first_query_ + c) : nullptr;
    for (Index s = begin; s < end; s += width) {
      L x = load<L>(score_s + s);
      if (bias_s) x += load<L>(bias_s + s);  // (attention.11)
      if (mask_s_) x = load<L>(hide_s_ + s) == zero ? x : load<L>(hide_s_ + s);
      if (s < own.begin || s + width > own.end) x = lanes_within(x, own.begin - s, own.end - s, float(-infinity));
      store<L>(score_s + s, x);
      top = larger(top, x);
    }
    const float max = larger(max_c_[c], max_halves<width>(top)), base = max == float(-infinity) ? 0 : max;
    L sum = zero;
    const auto weigh_keys = [&]<int count>(Index s) {
      L power[count];
      unrolled<count>([&](int i) { power[i] = (load<L>(score_s + s + i * width) - base) * to_exponent_; });
      powers_of_two(power);
      unrolled<count>([&](int i) {
        sum += power[i];
        store<L>(weight_s + s + i * width, power[i]);
      });
    };
    Index s = begin;
    for (; s + (weights_at_once - 1) * width < end; s += weights_at_once * width) {
      weigh_keys.template operator()<weights_at_once>(s);
    }
    for (; s < end; s += width) weigh_keys.template operator()<1>(s);
    for (; s < whole.end; s += width) store<L>(weight_s + s, zero);
    shrink_r_[r] = (max_c_[c] - base) * to_exponent_;
    max_c_[c] = max;
    here_r_[r] = sum_lanes<L>(sum);
  }

  // Rescales the sums of a strip to the new maxima.
  void rescale(Index c, Index queries) {
    for (Index r = 0; r < queries; r += width) {
      L shrink[] = {load<L>(shrink_r_ + r)};
      powers_of_two(shrink);
      store<L>(shrink_r_ + r, shrink[0]);
    }
    for (Index r = 0; r < queries; ++r) {
      const float shrink = shrink_r_[r];
      sum_c_[c + r] = fused<float>(sum_c_[c + r], shrink, here_r_[r]);  // (attention.2)
      if (shrink == 1) continue;
      float* sum_k = sum_ck_[c + r];
      for (Index k = 0; k < sum_ck_.stride; k += width) store<L>(sum_k + k, load<L>(sum_k + k) * shrink);
    }
  }

  void finish() {
    for (Index c = 0; c < queries_; c += width) {
      const L sum = load<L>(sum_c_ + c), none = splat<L>(0.0f);
      const L lse = fused<L>(load<L>(max_c_ + c), scale_, natural_log<L>(sum));  // (attention.4)
      store<L>(sum_c_ + c, sum == none ? none : 1.0f / sum);
      store<L>(max_c_ + c, sum == none ? splat<L>(float(infinity)) : lse);
    }
    for (Index c = 0; c < queries_; ++c) {
      lse_c_[c] = max_c_[c];
      for_lanes<bf16>(K_, [&]<class M>(Index k) {                       // sum_c_ now holds 1 / sum
        store<M>(out_ck_[c] + k, load<M>(sum_ck_[c] + k) * sum_c_[c]);  // (attention.3)
      });
    }
  }

  const AttentionInputs<bf16>& in_;
  const Index first_query_, K_, steps_, queries_;
  const AttentionMask<float> mask_;
  const Token* const mask_s_;
  const float* const bias_x_;
  const float scale_, to_exponent_;
  const Rows<const bf16> key_sk_, value_sk_;
  const Rows<bf16> out_ck_;
  float* const lse_c_;
  Pair *const query_, *const key_, *const value_;
  const Rows<float> sum_ck_;
  alignas(64) float max_c_[most_rows], sum_c_[most_rows], shrink_r_[up_to(rows, 16)], here_r_[up_to(rows, 16)];
  alignas(64) float hide_s_[unit_keys];
  alignas(64) float score_rs_[rows * unit_keys];
  alignas(64) bf16 weight_rs_[rows * unit_keys];
};

}  // namespace

}  // namespace abh
