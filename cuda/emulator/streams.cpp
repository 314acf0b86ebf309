// Streams, events and graphs of the emulator: captured nodes and their dependencies.

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>
#include <vector>

#include "cuda/emulator/emulator.hpp"

namespace emulator {

namespace {

using Numbers = std::vector<std::size_t>;

struct Node {
  std::function<void()> work;
  Numbers after;  // nodes that precede it, with smaller indices
};

struct Stream;

struct Recording {
  std::vector<Node> nodes;
  std::vector<Stream*> streams;  // the first is the one where capture began
  bool broken = false;
};

struct Stream {
  Recording* recording = nullptr;
  Numbers last;  // predecessors of its next node
};

struct Event {
  Recording* recording = nullptr;
  Numbers last;
};

thread_local Recording* recording_of_thread = nullptr;
std::atomic<std::size_t> last_size = 0, last_length = 0;

Stream& of(cudaStream_t stream) { return *reinterpret_cast<Stream*>(stream); }
Event& of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

// True if a path leads from every node to the end of the first stream.
bool all_joined(const Recording& recording) {
  std::vector<bool> before(recording.nodes.size());
  for (const std::size_t i : recording.streams.front()->last) before[i] = true;
  for (std::size_t i = recording.nodes.size(); i-- > 0;) {
    if (!before[i]) return false;
    for (const std::size_t j : recording.nodes[i].after) before[j] = true;
  }
  return true;
}

// Length of the longest chain of dependent nodes.
std::size_t longest_way(const std::vector<Node>& nodes) {
  Numbers length(nodes.size(), 1);
  std::size_t longest = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::size_t j : nodes[i].after) length[i] = std::max(length[i], length[j] + 1);
    longest = std::max(longest, length[i]);
  }
  return longest;
}

// Runs the nodes in an allowed order: as captured, as late as possible, or in between.
void run(std::vector<Node>& nodes) {
  std::vector<Numbers> before(nodes.size());
  Numbers waits(nodes.size()), ready;  // ready: in decreasing order
  for (std::size_t i = nodes.size(); i-- > 0;) {
    waits[i] = nodes[i].after.size();
    for (const std::size_t j : nodes[i].after) before[j].push_back(i);
    if (waits[i] == 0) ready.push_back(i);
  }
  std::minstd_rand random(static_cast<unsigned>(order().seed) + 1);
  while (!ready.empty()) {
    const std::size_t choice = order().kind == Order::forward   ? ready.size() - 1
                               : order().kind == Order::reverse ? 0
                                                                : random() % ready.size();
    const std::size_t i = ready[choice];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(choice));
    nodes[i].work();
    for (const std::size_t j : before[i]) {
      if (--waits[j] == 0) ready.insert(std::upper_bound(ready.begin(), ready.end(), j, std::greater<>()), j);
    }
  }
}

}  // namespace

namespace detail {

bool records(cudaStream_t stream) { return stream && stream != idle_stream() && of(stream).recording; }

void record(cudaStream_t stream, std::function<void()> work) {
  Recording& recording = *of(stream).recording;
  if (recording.broken) throw Error("emulator: kernel launch: the recording is broken by what was done before");
  recording.nodes.push_back({std::move(work), std::move(of(stream).last)});
  of(stream).last = {recording.nodes.size() - 1};
}

bool breaks_recording() {
  if (!recording_of_thread) return false;
  recording_of_thread->broken = true;
  return true;
}

}  // namespace detail

std::size_t size_of_last_graph() { return last_size; }
std::size_t length_of_last_graph() { return last_length; }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &of(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  of(event) = {of(stream).recording, of(stream).last};
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Stream& s = of(stream);
  const Event& e = of(event);
  if (s.recording && s.recording != e.recording) {
    s.recording->broken = true;
    return e.recording ? cudaErrorStreamCaptureMerge : cudaErrorStreamCaptureIsolation;
  }
  if (!e.recording) return cudaSuccess;
  if (!s.recording) {
    s.recording = e.recording;
    s.recording->streams.push_back(&s);
  }
  for (const std::size_t i : e.last) {
    if (std::find(s.last.begin(), s.last.end(), i) == s.last.end()) s.last.push_back(i);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (!stream) return cudaErrorStreamCaptureUnsupported;
  if (of(stream).recording || recording_of_thread) return cudaErrorIllegalState;
  recording_of_thread = new Recording;
  recording_of_thread->streams = {&of(stream)};
  of(stream) = {recording_of_thread, {}};
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  Recording* const recording = of(stream).recording;
  if (!recording) return cudaErrorIllegalState;
  if (recording->streams.front() != &of(stream)) {
    recording->broken = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  const cudaError_t status = recording->broken         ? cudaErrorStreamCaptureInvalidated
                             : !all_joined(*recording) ? cudaErrorStreamCaptureUnjoined
                                                       : cudaSuccess;
  for (Stream* taking_part : recording->streams) *taking_part = {};
  if (status == cudaSuccess) {
    last_size = recording->nodes.size();
    last_length = longest_way(recording->nodes);
    *graph = reinterpret_cast<cudaGraph_t>(new std::vector<Node>(std::move(recording->nodes)));
  }
  delete recording;
  recording_of_thread = nullptr;
  return status;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new auto(*reinterpret_cast<std::vector<Node>*>(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  detail::ask(stream, [nodes = *reinterpret_cast<std::vector<Node>*>(executable)]() mutable { run(nodes); });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<std::vector<Node>*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<std::vector<Node>*>(executable);
  return cudaSuccess;
}

}  // namespace emulator
