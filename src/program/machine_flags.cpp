#include "program/machine_flags.hpp"

#include <string>

#include "device/isa.hpp"

namespace abh {

void add_machine_flags(Flags& flags, DeviceChoice& choice) {
  flags.section("Machine");
  flags.choice("device", choice.device, {"auto", "plain", "cpu", "cuda", "emulated"},
               "device; plain: the reference loops, slow; emulated: the CUDA kernels on the CPU, for tests; auto: cuda "
               "if there is a GPU, else cpu");
  for (const char* word : {"cpu", "gpu", "cuda"}) flags.also_called(word, "device");
  flags.integer("threads", choice.threads, "N", "threads of the CPU device, at most the number of processors", 1, 256);
  flags.environment("ATTENTION_ISA", std::string("instruction set of the CPU device: ") + isa_choices() +
                                         "; default: the widest that the machine supports");
  flags.choice("gemm", choice.gemm, {"auto", "library", "hand"},
               "matrix products of the CUDA device; library: cuBLASLt; hand: the kernels of this project; auto: "
               "library on a GPU, hand on the emulator");
}

}  // namespace abh
