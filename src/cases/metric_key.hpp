#pragma once

#include "cases/case.hpp"
#include "layers/metric_key.hpp"

namespace abh {

// key_bch = metric project_bch, per head. The gradient of project_bch is added to.
struct MetricKeyCase {
  static constexpr bool multiplies_matrices = true;  // by `gemm` on a GPU

  Index BC, N, K;
  MetricForm form = MetricForm::packed;

  std::vector<TensorSpec> inputs() const {
    TensorSpec project = activation("project_bch", {BC, N * K});
    project.adds = true;
    return {project, weight("metric", {metric_count(form, N, K)})};
  }
  std::vector<TensorSpec> outputs() const { return {activation("key_bch", {BC, N * K})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    metric_key_forward<Device, T>(device, a.out[0].data(), inputs_of<T>(a));
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    metric_key_backward<Device, T>(device, {.d_project_bch = a.d_in[0].data(),
                                            .d_metric = a.d_in[1].data(),
                                            .d_key_bch = a.d_out[0].data(),
                                            .in = inputs_of<T>(a)});
  }

 private:
  template <class T, class Arrays>
  MetricKeyInputs<T> inputs_of(Arrays& a) const {
    return {.project_bch = a.in[0].data(), .metric = a.in[1].data(), .form = form, .BC = BC, .N = N, .K = K};
  }
};

}  // namespace abh
