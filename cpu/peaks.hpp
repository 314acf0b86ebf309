#pragma once

namespace abh {

// Independent chains of multiply-adds on registers, which the rates of device/peaks.hpp repeat. flops: operations of
// one run. run(1) returns flops / 2, plus a small number: every multiply-add adds 1 to a chain, and chain c begins at
// c.
struct RegisterChains {
  double flops;
  float (*run)(float factor);
};
template <class Device>
RegisterChains multiply_add_chains(const Device&);

// Products of bf16 by the unit of the device; multiply_add_chains if it has no unit.
template <class Device>
RegisterChains narrow_product_chains(const Device&);

}  // namespace abh
