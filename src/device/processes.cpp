#include "device/processes.hpp"

#include <cstdlib>
#include <string_view>

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
  // What mpirun of Open MPI, that of MPICH, and others tell every process that they start.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(name)) return join_mpi_processes(program);
  }
#else
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size && std::string_view(size) != "1") {
    throw Error("started as one of " + std::string(size) +
                " processes, but this build knows of no others; build it with cmake -DBUILD_MPI=ON");
  }
#endif
  return std::make_unique<OneProcess>();
}

}  // namespace abh
