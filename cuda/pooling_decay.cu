// Pooling on the GPU over all positions so far, with decay: logits decrease by the slope at every position.

#include "cuda/pooling_global.hpp"
#include "layers/pooling_decay.hpp"

namespace abh {

template <class Device, class T>
void pooling_decay_forward(Device& device, const PoolingForward<T>& a) {
  pooling_forward_global<true>(device, a);
}

template <class Device, class T>
void pooling_decay_backward(Device& device, const PoolingBackward<T>& a) {
  pooling_backward_global<true>(device, a);
}

ABH_INSTANTIATE(Gpu, pooling_decay_forward, pooling_decay_backward)

}  // namespace abh
