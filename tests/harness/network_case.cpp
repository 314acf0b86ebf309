#include "tests/harness/network_case.hpp"

namespace abh {

template class Network<CpuDevice<Isa::scalar>, float>;
template class Network<CpuDevice<Isa::scalar>, Dual>;

std::vector<Parameter> NetworkCase::parameters() const { return Network<Reference, double>::parameter_table(config); }

Array<double> NetworkCase::weights(std::uint64_t seed) const {
  Array<double> all;
  std::uint32_t index = 0;
  for (const Parameter& parameter : parameters()) {
    all.resize(std::max(all.size(), static_cast<std::size_t>(parameter.offset + parameter.count)));
    const Array<double> values = random_values(spec_of(parameter), seed, index++);
    for (std::size_t i = 0; i < values.size(); ++i) all[static_cast<std::size_t>(parameter.offset) + i] = values[i];
  }
  return all;
}

}  // namespace abh
