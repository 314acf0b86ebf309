#pragma once

// Emulation of the part of NCCL that sends arrays between processes, by sockets of one machine. Threads may replace
// processes. A message is sent when its group ends, or captured. If another process is lost, a message waits forever,
// as on GPUs.

#include <cstddef>

#include "cuda/emulator/emulator.hpp"

struct ncclComm;

namespace emulator {

using ncclComm_t = ::ncclComm*;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t { ncclSuccess = 0, ncclSystemError = 2, ncclInvalidArgument = 4, ncclInvalidUsage = 5 };
enum ncclDataType_t { ncclFloat = 7, ncclDouble = 8 };

// Name of a new set of processes, created by one process and passed to the others.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
// Waits for the others. All processes call Destroy when they finish; a process that leaves early calls Abort. Graphs
// that hold messages must be destroyed before: NCCL would wait for them, and the emulator ends the program.
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);

// Messages that a thread requests in one stream between Start and End form a group and run concurrently. A single
// message is a group. Messages between two processes arrive in the order of sending.
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int to, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int from, ncclComm_t communicator,
                      cudaStream_t stream);
const char* ncclGetErrorString(ncclResult_t result);

}  // namespace emulator

using emulator::ncclComm_t, emulator::ncclUniqueId, emulator::ncclResult_t, emulator::ncclDataType_t;
using emulator::ncclGetUniqueId, emulator::ncclCommInitRank, emulator::ncclCommDestroy, emulator::ncclCommAbort,
    emulator::ncclGroupStart, emulator::ncclGroupEnd, emulator::ncclSend, emulator::ncclRecv,
    emulator::ncclGetErrorString;
using emulator::ncclSuccess, emulator::ncclFloat;
