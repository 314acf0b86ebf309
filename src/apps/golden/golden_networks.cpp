// Networks in double, used only for golden files and tests.

#include "cpu/cpu.hpp"
#include "network/network.hpp"
#include "plain/plain.hpp"

namespace abh {

template class Network<PlainDevice, double>;
template class Network<CpuDevice<Isa::baseline>, double>;

}  // namespace abh
