#pragma once

#include <algorithm>

#include "blocks/block.hpp"
#include "blocks/parts/attention_core.hpp"
#include "extras/sparse/gather_rows.hpp"
#include "extras/sparse/merge_softmax.hpp"
#include "extras/sparse/pattern.hpp"

namespace abh {

// Scores of attention_core.hpp: dot products of queries with the keys of a sparse pattern. A pattern has one or two
// folds. Each fold is attention over contiguous rows, and their results are merged. In the backward pass every fold
// reads the merged outputs and log-sum-exps and adds its share to the gradients. Without a pattern it is the attention
// layer.
template <class Device, class T>
class PatternedScores {
 public:
  using A = Accum<T>;

  // For sequences of up to `longest` positions. lse: of a fold of the even heads (or of all heads) and of one of the
  // odd heads, rows_of_folds numbers per head and sequence.
  PatternedScores(const Pattern& pattern = {}, const PatternTables& tables = {}, Index longest = 0,
                  A* lse_even = nullptr, A* lse_odd = nullptr)
      : pattern_(pattern), tables_(tables), longest_(longest), lse_{lse_even, lse_odd} {}

  static PatternedScores of(Layout<T>& layout, const ModelConfig& config, const BlockOptions& options,
                            const BlockCapacity& capacity) {
    const Pattern pattern = Pattern::of(config, options.layer);
    if (pattern.form == Pattern::Form::none) return {};
    const Index C = capacity.C, N = config.heads;
    const PatternTables tables = PatternTables::of(pattern, C, [&](const char* name, Index count, const auto& value) {
      return layout.template constant<Token>(name, count, [value](Index i) { return static_cast<double>(value(i)); });
    });
    const auto lse = [&](Index group) {
      return layout.template activation<A>(capacity.B * rows_of_folds(pattern, C) * pattern.heads_of(group, N));
    };
    A* const even = lse(0);
    return {pattern, tables, C, even, lse(1)};
  }

  void forward(Device& device, const AttentionForward<T>& a) const {
    if (pattern_.form == Pattern::Form::none) return attention_forward<Device, T>(device, a);
    if (pattern_.part != Pattern::Part::heads) return forward_of(device, a, pattern_.part, lse_[0]);
    for (Index group = 0; group < 2; ++group) {
      const Heads heads = heads_of_group(group, a.in);
      if (heads.count == 0) continue;
      typename Device::Scope scratch(device.workspace);
      AttentionForward<T> of_heads = a;
      of_heads.in = inputs_of(device, scratch, heads, a.in);
      of_heads.out_bch = take_rows(scratch, heads);
      of_heads.lse_bnc = scratch.template take<A>(heads.BC * heads.count);
      forward_of(device, of_heads, pattern_.part_of(group), lse_[group]);
      put_rows(device, a.out_bch, 0, of_heads.out_bch, heads);
      move_lse(device, a.lse_bnc, heads.N, group, 2, of_heads.lse_bnc, heads.count, 0, 1, heads);
    }
  }

  void backward(Device& device, const AttentionBackward<T>& a) const {
    if (pattern_.form == Pattern::Form::none) return attention_backward<Device, T>(device, a);
    if (pattern_.part != Pattern::Part::heads) return backward_of(device, a, pattern_.part, lse_[0]);
    for (Index group = 0; group < 2; ++group) {
      const Heads heads = heads_of_group(group, a.in);
      if (heads.count == 0) continue;
      typename Device::Scope scratch(device.workspace);
      AttentionBackward<T> of_heads = a;
      of_heads.in = inputs_of(device, scratch, heads, a.in);
      of_heads.out_bch = heads_from(device, scratch, a.out_bch, 0, heads);
      of_heads.d_out_bch = heads_from(device, scratch, a.d_out_bch, 0, heads);
      A* lse_bnc = scratch.template take<A>(heads.BC * heads.count);
      move_lse(device, lse_bnc, heads.count, 0, 1, a.lse_bnc, heads.N, group, 2, heads);
      of_heads.lse_bnc = lse_bnc;
      of_heads.d_query_bch = take_rows(scratch, heads);
      of_heads.d_key_bsh = take_rows(scratch, heads);
      of_heads.d_value_bsh = take_rows(scratch, heads);
      of_heads.d_query_stride = of_heads.d_key_stride = of_heads.d_value_stride = 0;
      backward_of(device, of_heads, pattern_.part_of(group), lse_[group]);
      put_rows(device, a.d_query_bch, a.d_query_stride, of_heads.d_query_bch, heads);
      put_rows(device, a.d_key_bsh, a.d_key_stride, of_heads.d_key_bsh, heads);
      put_rows(device, a.d_value_bsh, a.d_value_stride, of_heads.d_value_bsh, heads);
    }
  }

  // Gathers the cached rows to which the last position attends. If heads alternate, both parts are computed for all
  // heads.
  void decode(Device& device, const AttentionStep<T>& a) const {
    if (pattern_.form == Pattern::Form::none) return attention_step<Device, T>(device, a);
    if (pattern_.part != Pattern::Part::heads) return step_of(device, a, pattern_.part);
    typename Device::Scope scratch(device.workspace);
    AttentionStep<T> of_part = a;
    of_part.out_h = scratch.template take<T>(a.N * a.K);
    for (Index group = 0; group < 2; ++group) {
      step_of(device, of_part, pattern_.part_of(group));
      const Index heads = pattern_.heads_of(group, a.N), first = group * a.K;
      copy_rows<Device, T>(device, {.to = a.out_h + first,
                                    .to_stride = 2 * a.K,
                                    .from = of_part.out_h + first,
                                    .from_stride = 2 * a.K,
                                    .rows = heads,
                                    .columns = a.K});
    }
  }

  // Attention weights, computed on the host. in: the inputs of forward on the host, except values.
  template <class Number>
  void weights(Device&, Number* weight_bncs, const Number* lse_bnc, const AttentionInputs<Number>& in) const {
    PlainDevice plain;
    attention_weights<PlainDevice, Number>(plain, weight_bncs, lse_bnc, in);
    if (pattern_.form == Pattern::Form::none) return;
    for (Index i = 0; i < in.B * in.N * in.C * in.S; ++i) {
      if (!pattern_.sees(i / (in.C * in.S) % in.N, i / in.S % in.C, i % in.S)) weight_bncs[i] = Number(0);
    }
  }

 private:
  using Scope = typename Device::Scope;

  // ---- One part of the pattern, all heads ----

  void forward_of(Device& device, const AttentionForward<T>& a, Pattern::Part part, A* lse_of_fold) const {
    const Folds folds = folds_of(pattern_, part, tables_, a.in.C, longest_);
    Scope scratch(device.workspace);
    MergeSoftmax<T> merge{.out_bch = a.out_bch,
                          .lse_bnc = a.lse_bnc,
                          .part = {},
                          .parts = folds.count,
                          .B = a.in.B,
                          .C = a.in.C,
                          .N = a.in.N,
                          .K = a.in.K};
    for (int m = 0; m < folds.count; ++m) {
      const Fold& fold = folds.fold[m];
      const bool in_place = m == 0 && !moves_queries(fold, a.in);
      T* out_rh = in_place ? a.out_bch : scratch.template take<T>(a.in.B * fold.queries * a.in.N * a.in.K);
      A* lse_bnc = lse_of(fold, a.in, a.lse_bnc, lse_of_fold);
      merge.part[m] = {.out_rh = out_rh,
                       .lse_bnc = lse_bnc,
                       .row_c = fold.row_c,
                       .rows = fold.queries,
                       .positions = fold.queries / fold.sequences};
      Scope of_fold(device.workspace);
      attention_forward<Device, T>(device,
                                   {.out_bch = out_rh, .lse_bnc = lse_bnc, .in = folded(device, of_fold, fold, a.in)});
    }
    const bool is_whole = folds.count == 1 && merge.part[0].lse_bnc == a.lse_bnc;  // one fold, without gathered rows
    if (!is_whole) merge_softmax<Device, T>(device, merge);
  }

  void backward_of(Device& device, const AttentionBackward<T>& a, Pattern::Part part, A* lse_of_fold) const {
    const Folds folds = folds_of(pattern_, part, tables_, a.in.C, longest_);
    const Index B = a.in.B, H = a.in.N * a.in.K;
    for (int m = 0; m < folds.count; ++m) {
      const Fold& fold = folds.fold[m];
      Scope scratch(device.workspace);
      AttentionBackward<T> of_fold = a;
      of_fold.in = folded(device, scratch, fold, a.in);
      of_fold.lse_bnc = lse_of(fold, a.in, a.lse_bnc, lse_of_fold);
      if (moves_queries(fold, a.in)) {
        of_fold.out_bch = gathered(device, scratch, a.out_bch, 0, fold.query_p, fold.queries, a.in);
        of_fold.d_out_bch = gathered(device, scratch, a.d_out_bch, 0, fold.query_p, fold.queries, a.in);
      }
      // The first fold covers every query and every key, so it may write its gradients directly.
      const bool queries_aside = m > 0 || moves_queries(fold, a.in), keys_aside = m > 0 || moves_keys(fold, a.in);
      if (queries_aside) {
        of_fold.d_query_bch = scratch.template take<T>(B * fold.queries * H);
        of_fold.d_query_stride = 0;
      }
      if (keys_aside) {
        of_fold.d_key_bsh = scratch.template take<T>(B * fold.keys * H);
        of_fold.d_value_bsh = scratch.template take<T>(B * fold.keys * H);
        of_fold.d_key_stride = of_fold.d_value_stride = 0;
      }
      attention_backward<Device, T>(device, of_fold);
      const auto scatter = [&](T* d_rows, Index stride, const T* d_of_fold, const Token* index_p, Index rows) {
        gather_rows_backward<Device, T>(device, {.d_from_bci = d_rows,
                                                 .d_to_bpi = d_of_fold,
                                                 .d_from_stride = stride,
                                                 .add = m > 0,
                                                 .index_p = index_p,
                                                 .B = B,
                                                 .P = rows,
                                                 .C = a.in.C,
                                                 .columns = H});
      };
      if (queries_aside) scatter(a.d_query_bch, a.d_query_stride, of_fold.d_query_bch, fold.query_p, fold.queries);
      if (keys_aside) {
        scatter(a.d_key_bsh, a.d_key_stride, of_fold.d_key_bsh, fold.key_p, fold.keys);
        scatter(a.d_value_bsh, a.d_value_stride, of_fold.d_value_bsh, fold.key_p, fold.keys);
      }
    }
  }

  void step_of(Device& device, const AttentionStep<T>& a, Pattern::Part part) const {
    const Index H = a.N * a.K, stride = pattern_.stride, summary = pattern_.summary, c = a.length - 1;
    // Rows of the cache: `count` groups of `size` rows; the first rows of the groups are a stride apart.
    struct Rows {
      Index first, count, size;
    };
    Rows near{0, 1, 0}, far{0, 0, 1};
    const bool first = part != Pattern::Part::second, second = part != Pattern::Part::first;
    if (pattern_.form == Pattern::Form::strided) {
      if (first) near = {std::max<Index>(c - stride + 1, 0), 1, std::min(stride, c + 1)};
      if (second) far = {c % stride, c / stride + (first ? 0 : 1), 1};
    } else {
      const Index own = c / stride * stride, begin = std::min(first ? own : own + stride - summary, c + 1);
      near = {begin, 1, c + 1 - begin};
      if (second) far = {stride - summary, c / stride, summary};
    }
    const Index length = far.count * far.size + near.size;
    AttentionStep<T> seen = a;
    seen.mask = {};
    seen.length = length;
    Scope scratch(device.workspace);
    if (far.count == 0) {
      seen.key_ch += near.first * H;
      seen.value_ch += near.first * H;
    } else {
      const auto side_by_side = [&](const T* cache_ch) {
        T* rows_ch = scratch.template take<T>(length * H);
        T* to = rows_ch;
        for (const Rows& rows : {far, near}) {
          const Index columns = rows.size * H;
          copy_rows<Device, T>(device, {.to = to,
                                        .to_stride = columns,
                                        .from = cache_ch + rows.first * H,
                                        .from_stride = stride * H,
                                        .rows = rows.count,
                                        .columns = columns});
          to += rows.count * columns;
        }
        return rows_ch;
      };
      seen.key_ch = side_by_side(a.key_ch);
      seen.value_ch = a.value_ch == a.key_ch ? seen.key_ch : side_by_side(a.value_ch);
    }
    attention_step<Device, T>(device, seen);
  }

  // ---- A fold ----

  // True if the fold reads other rows than those of the sequence.
  static bool moves_queries(const Fold& fold, const AttentionInputs<T>& in) {
    return fold.query_p || fold.queries != in.C;
  }
  static bool moves_keys(const Fold& fold, const AttentionInputs<T>& in) { return fold.key_p || fold.keys != in.C; }
  // Location of its log-sum-exps: if its sequences are those of the batch, in the array of the batch.
  template <class Pointer>
  static Pointer lse_of(const Fold& fold, const AttentionInputs<T>& in, Pointer of_sequence, A* of_fold) {
    return fold.sequences == 1 && !moves_queries(fold, in) ? of_sequence : of_fold;
  }

  const T* gathered(Device& device, Scope& scratch, const T* rows_bch, Index stride, const Token* index_p, Index rows,
                    const AttentionInputs<T>& in) const {
    const Index H = in.N * in.K;
    T* to = scratch.template take<T>(in.B * rows * H);
    gather_rows_forward<Device, T>(device, {.to_bpi = to,
                                            .from_bci = rows_bch,
                                            .from_stride = stride,
                                            .index_p = index_p,
                                            .B = in.B,
                                            .P = rows,
                                            .C = in.C,
                                            .columns = H});
    return to;
  }

  AttentionInputs<T> folded(Device& device, Scope& scratch, const Fold& fold, const AttentionInputs<T>& in) const {
    AttentionInputs<T> result = in;
    result.B = in.B * fold.sequences;
    result.C = fold.queries / fold.sequences;
    result.S = fold.keys / fold.sequences;
    result.mask = {.causal = true,
                   .query_offset = fold.offset,
                   .window = fold.reach,
                   .step_queries = fold.step_queries,
                   .step_keys = fold.step_keys,
                   .mask_bs = in.mask.mask_bs};
    if (moves_queries(fold, in)) {
      result.query_bch = gathered(device, scratch, in.query_bch, in.query_stride, fold.query_p, fold.queries, in);
      result.query_stride = 0;
    }
    if (moves_keys(fold, in)) {
      result.key_bsh = gathered(device, scratch, in.key_bsh, in.key_stride, fold.key_p, fold.keys, in);
      result.value_bsh = gathered(device, scratch, in.value_bsh, in.value_stride, fold.key_p, fold.keys, in);
      result.key_stride = result.value_stride = 0;
    }
    if (fold.mask_p || (in.mask.mask_bs && moves_keys(fold, in))) {
      Token* mask_bs = scratch.template take<Token>(in.B * fold.keys);
      gather_mask<Device>(device, mask_bs, in.mask.mask_bs, fold.mask_p ? fold.mask_p : fold.key_p, in.B, fold.keys,
                          in.C);
      result.mask.mask_bs = mask_bs;
    }
    return result;
  }

  // ---- Some of the heads, gathered ----

  struct Heads {
    Index first, count;  // `count` heads: every second head from `first` on
    Index B, C, BC, N, K;
  };
  Heads heads_of_group(Index group, const AttentionInputs<T>& in) const {
    return {group, pattern_.heads_of(group, in.N), in.B, in.C, in.B * in.C, in.N, in.K};
  }

  static T* take_rows(Scope& scratch, const Heads& heads) {
    return scratch.template take<T>(heads.BC * heads.count * heads.K);
  }
  T* heads_from(Device& device, Scope& scratch, const T* rows_bch, Index stride, const Heads& heads) const {
    T* to = take_rows(scratch, heads);
    for (Index i = 0; i < heads.count; ++i) {
      copy_rows<Device, T>(device, {.to = to + i * heads.K,
                                    .to_stride = heads.count * heads.K,
                                    .from = rows_bch + (heads.first + 2 * i) * heads.K,
                                    .from_stride = stride_or(stride, heads.N * heads.K),
                                    .rows = heads.BC,
                                    .columns = heads.K});
    }
    return to;
  }
  void put_rows(Device& device, T* rows_bch, Index stride, const T* from, const Heads& heads) const {
    for (Index i = 0; i < heads.count; ++i) {
      copy_rows<Device, T>(device, {.to = rows_bch + (heads.first + 2 * i) * heads.K,
                                    .to_stride = stride_or(stride, heads.N * heads.K),
                                    .from = from + i * heads.K,
                                    .from_stride = heads.count * heads.K,
                                    .rows = heads.BC,
                                    .columns = heads.K});
    }
  }
  // Copies lse of heads from an array of from_N heads to one of to_N heads; in each, heads start at `first` with a
  // step.
  void move_lse(Device& device, A* to, Index to_N, Index to_first, Index to_step, const A* from, Index from_N,
                Index from_first, Index from_step, const Heads& heads) const {
    for (Index i = 0; i < heads.count; ++i) {
      copy_rows<Device, A>(device, {.to = to + (to_first + to_step * i) * heads.C,
                                    .to_stride = to_N * heads.C,
                                    .from = from + (from_first + from_step * i) * heads.C,
                                    .from_stride = from_N * heads.C,
                                    .rows = heads.B,
                                    .columns = heads.C});
    }
  }

  AttentionInputs<T> inputs_of(Device& device, Scope& scratch, const Heads& heads, const AttentionInputs<T>& in) const {
    AttentionInputs<T> result = in;
    result.query_bch = heads_from(device, scratch, in.query_bch, in.query_stride, heads);
    result.key_bsh = heads_from(device, scratch, in.key_bsh, in.key_stride, heads);
    result.value_bsh = heads_from(device, scratch, in.value_bsh, in.value_stride, heads);
    result.query_stride = result.key_stride = result.value_stride = 0;
    result.N = heads.count;
    return result;
  }

  Pattern pattern_;
  PatternTables tables_;
  Index longest_;
  A* lse_[2];
};

}  // namespace abh
