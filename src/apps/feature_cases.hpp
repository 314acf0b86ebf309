#pragma once

#include <vector>

// Features with cases of golden files, or with layers that bench measures.
#if defined(ABH_EXTRAS)
#include "extras/adaptive_span/adaptive_span_cases.hpp"
#include "extras/bahdanau/bahdanau_cases.hpp"
#include "extras/bidirectional/bidirectional_cases.hpp"
#include "extras/chunks/chunks_cases.hpp"
#include "extras/classifiers/classifiers_cases.hpp"
#include "extras/kernel_regression/kernel_regression_cases.hpp"
#include "extras/leap/leap_cases.hpp"
#include "extras/lsh/lsh_cases.hpp"
#include "extras/positions/positions_cases.hpp"
#include "extras/reversible/reversible_cases.hpp"
#include "extras/seq2seq/seq2seq_cases.hpp"
#include "extras/sparse/sparse_cases.hpp"
#include "extras/transformer_xl/transformer_xl_cases.hpp"
#include "extras/windows/windows_cases.hpp"
#endif

namespace abh {

// add_golden(cases) adds the cases of the features. measure(bench) measures their layers with the shapes of bench.
template <class... Features>
struct CasesOfFeatures {
  template <class Case>
  static void add_golden(std::vector<Case>& cases) {
    (Features::template add_golden<typename Case::Golden>(cases), ...);
  }
  template <class Bench>
  static void measure(Bench& bench) {
    (Features::measure(bench), ...);
  }
};

#if defined(ABH_EXTRAS)
using FeatureCases = CasesOfFeatures<AdaptiveSpanCases, BahdanauCases, BidirectionalCases, ChunkCases, ClassifierCases,
                                     KernelRegressionCases, LeapCases, LshCases, PositionCases, ReversibleCases,
                                     SequenceCases, SparseCases, TransformerXlCases, WindowCases>;
#else
using FeatureCases = CasesOfFeatures<>;
#endif

}  // namespace abh
