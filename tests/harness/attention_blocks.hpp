#pragma once

// Blocks of dot-product and metric attention for the tests of the core and of features.

#include <memory>

#include "blocks/dot.hpp"
#include "blocks/metric.hpp"
#include "network/mixers.hpp"
#include "tests/harness/block_case.hpp"

namespace abh {

using MakeDot = MakeBlock<DotBlock>;

inline BlockCase<MakeDot> dot_case(Index D, Index N, Index K, Index B, Index C) {
  return case_of_heads<MakeDot>(D, N, K, B, C);
}

// With and without biases, causal or not.
template <class Body>
void for_each_form(BlockCase<MakeDot> block, const Body& body) {
  for (const bool bias : {false, true}) {
    for (const bool causal : {false, true}) {
      block.config.attention_bias = bias;
      block.options.causal = causal;
      CAPTURE(bias, causal);
      body(block);
    }
  }
}

struct MakeMetric {
  MetricForm form = MetricForm::packed;
  template <class Device, class T>
  std::unique_ptr<Block<Device, T>> operator()(Layout<T>& layout, const ModelConfig& config,
                                               const BlockCapacity& capacity, const BlockOptions& options) const {
    return std::make_unique<MetricBlock<Device, T>>(layout, "", config, capacity, options, form);
  }
};

inline BlockCase<MakeMetric> metric_case(MetricForm form, Index D, Index N, Index K, Index B, Index C) {
  return case_of_heads<MakeMetric>(D, N, K, B, C, {form});
}

// Packed and full, causal or not.
template <class Body>
void for_each_form(BlockCase<MakeMetric> block, const Body& body) {
  for (const MetricForm form : {MetricForm::packed, MetricForm::full}) {
    for (const bool causal : {false, true}) {
      block.make.form = form;
      block.options.causal = causal;
      CAPTURE(form == MetricForm::packed, causal);
      body(block);
    }
  }
}

}  // namespace abh
