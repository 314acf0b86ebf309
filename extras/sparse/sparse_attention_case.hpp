#pragma once

#include "cases/attention.hpp"
#include "extras/sparse/patterned_scores.hpp"

namespace abh {

// out_bch = attention(query_bch, key_bch, value_bch) over the pairs of a pattern. The device reads the tables.
struct SparseAttentionCase : AttentionCase {
  Pattern pattern;
  PatternTables tables;

  std::vector<TensorSpec> saved() const {
    const auto lse = [&](const char* name, Index group) {
      return statistic(name, {B, rows_of_folds(pattern, C), pattern.heads_of(group, N)});
    };
    return {statistic("lse_bnc", {B, N, C}), lse("lse_of_fold", 0), lse("lse_of_other_fold", 1)};
  }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    products<Device, T>(a).forward(device, forward_arguments<T>(a));
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    products<Device, T>(a).backward(device, backward_arguments<T>(a));
  }

  // weight_bncs, after forward; on the plain device.
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void weights(Device& device, T* weight_bncs, Arrays& a) const {
    products<Device, T>(a).template weights<T>(device, weight_bncs, a.saved[0].data(), inputs_of<T>(a));
  }

  template <class Device, class T, class Arrays>
  PatternedScores<Device, T> products(Arrays& a) const {
    return {pattern, tables, C, a.saved[1].data(), a.saved[2].data()};
  }
};

}  // namespace abh
