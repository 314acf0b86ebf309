#include "program/machine_flags.hpp"

#include <string>

#include "device/isa.hpp"

namespace abh {

void add_machine_flags(Flags& flags, DeviceChoice& choice) {
  flags.section("Machine");
  flags.choice(
      "device", choice.device, {"auto", "plain", "cpu", "cuda", "emulated"},
      "where to compute; plain: the loops as the equations have them, slowly; auto: cuda if it is there, else cpu");
  for (const char* word : {"cpu", "gpu", "cuda"}) flags.also_called(word, "device");
  flags.integer("threads", choice.threads, "N", "threads of the CPU device; no more than there are processors work", 1,
                256);
  flags.environment("ATTENTION_ISA", std::string("instruction set of the CPU device: ") + isa_choices() +
                                         "; without it the widest that the machine has");
  flags.choice(
      "gemm", choice.gemm, {"auto", "library", "hand"},
      "matrix products of the CUDA device: cuBLASLt's or ours; auto: cuBLASLt's, but ours when it is emulated");
}

}  // namespace abh
