#pragma once

#include <algorithm>
#include <string>

#include "base/types.hpp"
#include "blocks/layout.hpp"
#include "settings/config.hpp"

namespace abh {

// Sparse attention pattern: the positions to which a position attends (Child et al., "Generating long sequences with
// sparse transformers", 2019). It has two parts, with a stride:
//
//   strided   first: the last `stride` positions;          second: every stride-th one, counted back from here
//   fixed     first: those of its own block of `stride`;   second: the last `summary` of every block
//
// Both are causal. A layer has one part, or both merged in one softmax, or heads alternate: even heads have the first
// part, odd heads the second. Chapter: extras/sparse/README.md.
struct Pattern {
  enum class Form { none, strided, fixed };
  enum class Part { merged, first, second, heads };
  Form form = Form::none;
  Part part = Part::merged;
  Index stride = 0, summary = 0;

  // Pattern of a layer of a network.
  static Pattern of(const ModelConfig& config, Index layer) {
    if (!config.extras.has_pattern()) return {};
    const Part turn = layer % 2 == 0 ? Part::first : Part::second;
    return {
        .form = config.extras.pattern == "strided" ? Form::strided : Form::fixed,
        .part = config.extras.part == "layers" ? turn : (config.extras.part == "heads" ? Part::heads : Part::merged),
        .stride = config.extras.stride,
        .summary = config.extras.summary};
  }

  // Part of a head.
  Part part_of(Index n) const { return part != Part::heads ? part : (n % 2 == 0 ? Part::first : Part::second); }

  // Number of heads with a part: all heads or, if heads alternate, those of group 0 or of group 1.
  Index heads_of(Index group, Index N) const {
    if (part != Part::heads) return group == 0 ? N : 0;
    return (N + 1 - group) / 2;
  }

  // True if head n of position c attends to position s. The folds below are equivalent to it. Used for drawing, not in
  // passes.
  bool sees(Index n, Index c, Index s) const {
    if (s > c) return false;
    const bool first = form == Form::strided ? c - s < stride : c / stride == s / stride;
    const bool second = form == Form::strided ? (c - s) % stride == 0 : s % stride >= stride - summary;
    const Part of_head = part_of(n);
    return (of_head != Part::second && first) || (of_head != Part::first && second);
  }
};

// A part of the pairs of a pattern, as attention over contiguous rows with few masked pairs. Queries, keys and values
// are the rows of the sequence or gathered from it (extras/sparse/gather_rows.hpp).
struct Fold {
  const Token *query_p = nullptr, *key_p = nullptr;  // source positions of gathered rows; null: not gathered
  const Token* row_c = nullptr;                      // row of each position; null: row c
  const Token* mask_p = nullptr;                     // mask of gathered keys, as indices of the mask; null: none
  Index queries, keys;                               // rows per sequence, padding included
  Index sequences = 1;                               // sequences of the fold per sequence of the batch
  Index offset = 0, reach = 0, step_queries = 1, step_keys = 1;  // fields of its attention mask
};

// All folds of some part of a pattern for a head.
struct Folds {
  Fold fold[2];
  int count;
};

// Index tables of gathered rows, for sequences of up to C positions. They are constants of a network: they depend on
// the pattern alone, and a shorter sequence uses their first elements.
struct PatternTables {
  const Token *residue_p = nullptr, *residue_c = nullptr;  // by residue class, and the row of each position
  const Token* summary_p = nullptr;                        // last positions of every block
  const Token* own_summary_p = nullptr;                    // summaries: their own index; other positions: none

  // constant(name, count, value): makes a table of value(i), i < count.
  template <class Constant>
  static PatternTables of(const Pattern& pattern, Index C, const Constant& constant) {
    PatternTables tables;
    const Index stride = pattern.stride, summary = pattern.summary;
    if (pattern.form == Pattern::Form::strided && pattern.part != Pattern::Part::first) {
      const Index classes = residue_classes(pattern, C), members = in_blocks(C, classes);
      tables.residue_p =
          constant("residue_p", classes * members, [=](Index p) { return p % members * classes + p / members; });
      tables.residue_c = constant("residue_c", C, [=](Index c) { return c % classes * members + c / classes; });
    }
    if (pattern.form == Pattern::Form::fixed && pattern.part != Pattern::Part::first) {
      const Index blocks = in_blocks(C, stride);
      tables.summary_p = constant("summary_p", std::max<Index>(blocks - 1, 0) * summary,
                                  [=](Index p) { return p / summary * stride + stride - summary + p % summary; });
      if (pattern.part != Pattern::Part::merged) {
        tables.own_summary_p = constant("own_summary_p", blocks > 1 ? blocks * stride : C,
                                        [=](Index p) { return p % stride >= stride - summary ? p : Index{-1}; });
      }
    }
    return tables;
  }

  static Index in_blocks(Index C, Index size) { return (C + size - 1) / size; }
  // No two of C positions are C apart, so a longer stride has the same effect.
  static Index residue_classes(const Pattern& pattern, Index C) {
    return std::max<Index>(std::min(pattern.stride, C), 1);
  }
};

// Number of rows per sequence of up to C positions in the log-sum-exp of a fold, in the order of the fold.
inline Index rows_of_folds(const Pattern& pattern, Index C) {
  const Index size = PatternTables::residue_classes(pattern, C);  // also for a block of `fixed`
  return PatternTables::in_blocks(C, size) * size;
}

// Folds of a part of a pattern over sequences of C positions, with tables for `longest` positions.
inline Folds folds_of(const Pattern& pattern, Pattern::Part part, const PatternTables& tables, Index C, Index longest) {
  const Index stride = pattern.stride, summary = pattern.summary;
  const bool merged = part == Pattern::Part::merged;
  if (pattern.form == Pattern::Form::strided) {
    const Index classes = PatternTables::residue_classes(pattern, longest);
    const Index rows = classes * PatternTables::in_blocks(longest, classes);
    const Fold window{.queries = C, .keys = C, .reach = stride};
    // If merged with the window, which includes the position itself, this fold has only the other positions of the
    // class.
    const Fold residues{.query_p = tables.residue_p,
                        .key_p = tables.residue_p,
                        .row_c = tables.residue_c,
                        .queries = rows,
                        .keys = rows,
                        .sequences = classes,
                        .offset = merged ? -1 : 0};
    if (merged) return {{window, residues}, 2};
    return {{part == Pattern::Part::first ? window : residues, {}}, 1};
  }
  const Index blocks = std::max<Index>(PatternTables::in_blocks(C, stride), 1),
              of_blocks = blocks > 1 ? blocks * stride : C;
  const Fold block{.mask_p = part == Pattern::Part::second ? tables.own_summary_p : nullptr,
                   .queries = of_blocks,
                   .keys = of_blocks,
                   .sequences = blocks};
  if (part == Pattern::Part::first || blocks == 1) return {{block, {}}, 1};
  // Queries of a block attend to the summaries of earlier blocks.
  const Fold summaries{.key_p = tables.summary_p,
                       .queries = C,
                       .keys = (blocks - 1) * summary,
                       .offset = -1,
                       .step_queries = stride,
                       .step_keys = summary};
  return {{block, summaries}, 2};
}

}  // namespace abh
