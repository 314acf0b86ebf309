#!/bin/sh
# extras/distributed/mpirun.sh PROCESSES PROGRAM ARGUMENTS...: mpirun as these tools want it, or mpirun.NAME where the
# environment variable MPI holds a name, such as mpich. To Open MPI, root is as good as anyone here, more processes than
# cores are allowed, and none is bound to a core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
exec "mpirun${MPI:+.$MPI}" -np "$@"
