#include "tests/harness/network_case.hpp"

namespace abh {

template class Network<CpuDevice<Isa::scalar>, float>;
template class Network<CpuDevice<Isa::scalar>, Dual>;

}  // namespace abh
