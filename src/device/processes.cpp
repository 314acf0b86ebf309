#include "device/processes.hpp"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.hpp"

namespace abh {

#if defined(ABH_MPI)
std::unique_ptr<Processes> join_mpi_processes(const std::string& program);  // processes_mpi.cpp
#endif

namespace {

class OneProcess : public Processes {
 public:
  void begin_sum(float*, Index) override {}
  void finish_sums() override {}
  void sum(double*, Index) override {}
  Index largest(Index value) override { return value; }
  std::string of_first(const std::string& text) override { return text; }
  void leave(const std::string&, int) override {}
};

}  // namespace

Processes& one_process() {
  static OneProcess process;
  return process;
}

std::unique_ptr<Processes> join_processes([[maybe_unused]] const std::string& program) {
#if defined(ABH_MPI)
  // Variables that mpirun of Open MPI, mpirun of MPICH and other launchers set for every process.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name)) return join_mpi_processes(program);
  }
#else
  // Values of these variables, and of srun, for a single process. PMIx sets no size, so only ranks above 0 are
  // rejected.
  constexpr std::pair<const char*, std::string_view> of_one[] = {
      {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMI_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}};
  for (const auto& [name, expected] : of_one) {
    const char* found = std::getenv(name);
    if (!found || found == expected) continue;
    throw Error("started as one of several processes (" + std::string(name) + " is " + found +
                "), but this build supports only one process; build it with cmake -DBUILD_MPI=ON");
  }
#endif
  return std::make_unique<OneProcess>();
}

}  // namespace abh
