#pragma once

#include "cases/case.hpp"
#include "layers/embedding.hpp"

namespace abh {

// out_bcd = scale token_vd {+ position_cd | positions} for the ids in tokens_bc, in device memory. P: rows of
// position_cd.
struct EmbeddingCase {
  Index B, C, D, V, P;
  const Token* tokens_bc;
  bool positions = true;
  double scale = 1;

  std::vector<TensorSpec> inputs() const {
    std::vector<TensorSpec> specs = {weight("token_vd", {V, D})};
    if (positions) specs.push_back(weight("position_cd", {P, D}));
    return specs;
  }
  std::vector<TensorSpec> outputs() const { return {activation("out_bcd", {B, C, D})}; }

  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    embedding_forward<Device, T>(device, a.out[0].data(), tokens_bc, a.in[0].data(),
                                 positions ? a.in[1].data() : nullptr, B, C, D, 0, scale);
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    embedding_backward<Device, T>(device, a.d_in[0].data(), positions ? a.d_in[1].data() : nullptr, a.d_out[0].data(),
                                  tokens_bc, B, C, D, V, scale);
  }
};

}  // namespace abh
