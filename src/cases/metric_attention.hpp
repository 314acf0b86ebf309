#pragma once

#include "cases/case.hpp"
#include "layers/metric_attention.hpp"

namespace abh {

// key_bch = metric project_bch, head by head. The gradient of project_bch is added to.
struct MetricKeyCase {
  Index BC, N, K;
  MetricForm form = MetricForm::packed;

  std::vector<Slot> inputs() const {
    Slot project = activation("project_bch", {BC, N * K});
    project.adds = true;
    return {project, weight("metric", {metric_count(form, N, K)})};
  }
  std::vector<Slot> outputs() const { return {activation("key_bch", {BC, N * K})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    metric_key_forward<Device, T>(device, a.out[0].data(), a.in[0].data(), a.in[1].data(), form, BC, N, K);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    metric_key_backward<Device, T>(device, {.d_project_bch = a.d_in[0].data(),
                                            .d_metric = a.d_in[1].data(),
                                            .d_key_bch = a.d_out[0].data(),
                                            .project_bch = a.in[0].data(),
                                            .metric = a.in[1].data(),
                                            .form = form,
                                            .BC = BC,
                                            .N = N,
                                            .K = K});
  }
};

}  // namespace abh
