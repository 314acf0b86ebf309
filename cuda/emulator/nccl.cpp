#include "cuda/emulator/nccl.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

namespace emulator {

namespace {

struct Communicator {
  int rank = 0;
  std::vector<int> sockets;                                    // one per other process, -1 for its own
  std::shared_ptr<const int> uses = std::make_shared<int>(0);  // shared with captured messages
};

struct Message {
  int socket;
  bool sent;  // false: received
  char* at;
  std::size_t bytes;
  cudaStream_t stream;
  std::shared_ptr<const int> uses;
};

thread_local int open_groups = 0;
thread_local std::vector<Message> group;

#if defined(MSG_NOSIGNAL)
constexpr int no_signal = MSG_NOSIGNAL;
#else
constexpr int no_signal = 0;  // writing to a lost process ends the program otherwise
#endif

Communicator& of(ncclComm_t communicator) { return *reinterpret_cast<Communicator*>(communicator); }

// Address at which process `rank` of a set listens.
sockaddr_un address_of(const ncclUniqueId& id, int rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/tmp/%.64s.%d", id.internal, rank);
  return address;
}

int new_socket() { return ::socket(AF_UNIX, SOCK_STREAM, 0); }

// Connects to process `rank` and sends the own rank; waits until the process listens.
int connected(const ncclUniqueId& id, int rank, int own_rank) {
  const sockaddr_un address = address_of(id, rank);
  for (;;) {
    const int socket = new_socket();
    if (socket < 0) return -1;
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::send(socket, &own_rank, sizeof own_rank, no_signal) == sizeof own_rank) {
      return socket;
    }
    ::close(socket);
    ::usleep(1000);
  }
}

ncclResult_t connect_all(Communicator& all, const ncclUniqueId& id) {
  const int size = static_cast<int>(all.sockets.size()), listening = new_socket();
  const sockaddr_un address = address_of(id, all.rank);
  if (listening < 0 || ::bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listening, size) != 0) {
    if (listening >= 0) ::close(listening);
    return ncclSystemError;
  }
  bool whole = true;
  for (int other = 0; other < all.rank; ++other) {
    all.sockets[static_cast<std::size_t>(other)] = connected(id, other, all.rank);
    whole = whole && all.sockets[static_cast<std::size_t>(other)] >= 0;
  }
  for (int i = all.rank + 1; whole && i < size; ++i) {
    const int socket = ::accept(listening, nullptr, nullptr);
    int other = -1;
    whole = socket >= 0 && ::recv(socket, &other, sizeof other, MSG_WAITALL) == sizeof other && other > all.rank &&
            other < size;
    if (whole) all.sockets[static_cast<std::size_t>(other)] = socket;
  }
  ::close(listening);
  ::unlink(address.sun_path);
  return whole ? ncclSuccess : ncclSystemError;
}

// All of them at the same time: of those that go one way through one socket the first one first.
void exchange(std::vector<Message> messages) {
  for (;;) {
    std::vector<pollfd> ready;
    std::vector<Message*> next;
    for (Message& message : messages) {
      if (message.bytes == 0) continue;
      const short event = message.sent ? POLLOUT : POLLIN;
      bool first = true;
      for (const pollfd& other : ready) first = first && !(other.fd == message.socket && other.events == event);
      if (!first) continue;
      ready.push_back({message.socket, event, 0});
      next.push_back(&message);
    }
    if (next.empty()) return;
    ::poll(ready.data(), static_cast<nfds_t>(ready.size()), -1);
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (ready[i].revents == 0) continue;
      Message& message = *next[i];
      const ssize_t done = message.sent ? ::send(message.socket, message.at, message.bytes, no_signal | MSG_DONTWAIT)
                                        : ::recv(message.socket, message.at, message.bytes, MSG_DONTWAIT);
      if (done > 0) {
        message.at += done;
        message.bytes -= static_cast<std::size_t>(done);
      } else if (ready[i].revents & (POLLHUP | POLLERR)) {
        ::usleep(10000);  // connection lost
      }
    }
  }
}

ncclResult_t add(ncclComm_t communicator, int other, bool sent, void* at, std::size_t count, ncclDataType_t type,
                 cudaStream_t stream) {
  const Communicator& all = of(communicator);
  if (other < 0 || other >= static_cast<int>(all.sockets.size()) || other == all.rank) return ncclInvalidArgument;
  if (!group.empty() && group.front().stream != stream) return ncclInvalidUsage;
  const std::size_t bytes = count * (type == ncclDouble ? sizeof(double) : sizeof(float));
  ncclGroupStart();
  group.push_back(
      {all.sockets[static_cast<std::size_t>(other)], sent, static_cast<char*>(at), bytes, stream, all.uses});
  return ncclGroupEnd();
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "emulated-nccl-%08x%08x%08x", random(), random(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank) {
  *communicator = nullptr;
  if (size < 1 || rank < 0 || rank >= size) return ncclInvalidArgument;
  auto* all = new Communicator{.rank = rank, .sockets = std::vector<int>(static_cast<std::size_t>(size), -1)};
  *communicator = reinterpret_cast<ncclComm_t>(all);
  const ncclResult_t result = connect_all(*all, id);
  if (result != ncclSuccess) {
    ncclCommAbort(*communicator);
    *communicator = nullptr;
  }
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  if (of(communicator).uses.use_count() > 1) {
    std::fputs("emulated NCCL: a graph holds messages of processes that part: NCCL would wait for its end\n", stderr);
    std::abort();
  }
  for (const int socket : of(communicator).sockets) {
    if (socket >= 0) ::close(socket);
  }
  delete &of(communicator);
  return ncclSuccess;
}

// Waits until the others call it too, because they may still read sent messages.
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  char nothing = 0;
  for (const int socket : of(communicator).sockets) {
    if (socket < 0) continue;
    ::shutdown(socket, SHUT_WR);
    while (::recv(socket, &nothing, 1, 0) > 0) {
    }
  }
  return ncclCommAbort(communicator);
}

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (open_groups == 0) return ncclInvalidUsage;
  if (--open_groups > 0 || group.empty()) return ncclSuccess;
  const cudaStream_t stream = group.front().stream;
  std::vector<Message> messages;
  messages.swap(group);
  detail::ask(stream, [messages] { exchange(messages); });
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int to, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(communicator, to, true, const_cast<void*>(from), count, type, stream);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int from, ncclComm_t communicator,
                      cudaStream_t stream) {
  return add(communicator, from, false, to, count, type, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "no socket to another process";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
  }
  return "unknown error";
}

}  // namespace emulator
