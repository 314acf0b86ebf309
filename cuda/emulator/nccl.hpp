#pragma once

// The part of NCCL that sends arrays from process to process, for the emulator: through sockets of one machine. Threads
// may take the place of processes. A message is sent when its group ends, or recorded. Where another process is lost a
// message waits for ever, as on GPUs.

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

// The name of a new set of processes, which one of them tells the others.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
// Waits for the others. Destroy is told by all when they are done, Abort by one that leaves; a graph that holds
// messages must be gone by then: NCCL would wait for that, this here ends the program.
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);

// Messages that one thread requests in one stream between Start and End form a group and run at the same time. A single
// message is a group. Messages from one process to another arrive in the order in which they were sent.
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
