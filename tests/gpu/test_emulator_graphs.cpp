// Captured work on the emulator: it runs at each launch of the graph, in every order that the graph allows. Also the
// operations that invalidate a capture.

#include <algorithm>
#include <vector>

#include "tests/harness/emulator_case.hpp"

namespace {

using namespace emulator_test;
using namespace emulator;

__global__ void multiply_kernel(float* x, float factor) { *x *= factor; }
__global__ void add_kernel(float* x, const float* y) { *x += *y; }

void require_success(cudaError_t status) {
  INFO(cudaGetErrorString(status));
  REQUIRE(status == cudaSuccess);
}

// Two streams, an event and two numbers of global memory.
struct Streams {
  cudaStream_t first, second;
  cudaEvent_t event;
  float* x;
  float* y;
  Streams() {
    require_success(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    require_success(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    require_success(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    require_success(cudaMalloc(&x, sizeof(float)));
    require_success(cudaMalloc(&y, sizeof(float)));
    *x = 1;
    *y = 10;
  }
  ~Streams() {
    static_cast<void>(cudaFree(x));
    static_cast<void>(cudaFree(y));
    static_cast<void>(cudaEventDestroy(event));
    static_cast<void>(cudaStreamDestroy(first));
    static_cast<void>(cudaStreamDestroy(second));
  }
  // Makes later work of stream `to` wait for the current work of stream `from`.
  cudaError_t order(cudaStream_t from, cudaStream_t to) {
    require_success(cudaEventRecord(event, from));
    return cudaStreamWaitEvent(to, event);
  }
  void begin() { require_success(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal)); }
  cudaError_t end() {
    cudaGraph_t graph;
    const cudaError_t status = cudaStreamEndCapture(first, &graph);
    CHECK((graph != nullptr) == (status == cudaSuccess));
    if (graph) static_cast<void>(cudaGraphDestroy(graph));
    return status;
  }
  // Ends the recording and does it.
  void run(int times) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    require_success(cudaStreamEndCapture(first, &graph));
    require_success(cudaGraphInstantiate(&executable, graph, 0));
    require_success(cudaGraphDestroy(graph));
    for (int time = 0; time < times; ++time) require_success(cudaGraphLaunch(executable, first));
    require_success(cudaGraphExecDestroy(executable));
  }
};

TEST_CASE("emulator: a graph replays the captured work with the captured arguments", "[emulator]") {
  in_all_orders([] {
    Streams s;
    float factor = 2;
    s.begin();
    launch(multiply_kernel, 1, 1, 0, s.first, s.x, factor);
    launch(multiply_kernel, 0, 1, 0, s.first, s.x, 100.0f);
    require_success(cudaMemcpyAsync(s.y, s.x, sizeof(float), cudaMemcpyDefault, s.first));
    require_success(cudaMemsetAsync(s.x, 0, 0, s.first));
    launch(multiply_kernel, 1, 1, 0, nullptr, s.y, 3.0f);  // not of this stream: done at once
    factor = 7;
    CHECK(*s.x == 1);
    CHECK(*s.y == 30);
    s.run(3);
    CHECK(*s.x == 8);
    CHECK(*s.y == 8);
    CHECK(size_of_last_graph() == 2);

    s.begin();
    require_success(cudaMemsetAsync(s.x, 0, sizeof(float), s.first));
    s.run(0);
    CHECK(*s.x == 8);
    s.begin();
    s.run(1);  // no work
    CHECK(*s.x == 8);
  });
}

TEST_CASE("emulator: work of two streams keeps only the requested order", "[emulator]") {
  std::vector<float> found;
  in_all_orders([&] {
    Streams s;
    s.begin();
    launch(multiply_kernel, 1, 1, 0, s.first, s.x, 2.0f);
    require_success(s.order(s.first, s.second));
    launch(add_kernel, 1, 1, 0, s.second, s.y, s.x);  // 10 + 2
    require_success(s.order(s.second, s.first));
    launch(add_kernel, 1, 1, 0, s.first, s.x, s.y);         // 2 + 12
    launch(multiply_kernel, 1, 1, 0, s.second, s.y, 1.0f);  // concurrent with the last one
    require_success(s.order(s.second, s.first));
    s.run(1);
    CHECK(*s.x == 14);
    CHECK(size_of_last_graph() == 4);
    CHECK(length_of_last_graph() == 3);

    *s.x = 1;
    *s.y = 10;
    s.begin();
    require_success(s.order(s.first, s.second));
    launch(multiply_kernel, 1, 1, 0, s.first, s.x, 2.0f);  // before or after the work of the other stream
    launch(add_kernel, 1, 1, 0, s.second, s.y, s.x);
    require_success(s.order(s.second, s.first));
    s.run(1);
    CHECK(*s.x == 2);
    found.push_back(*s.y);
  });
  CHECK(std::count(found.begin(), found.end(), 11.0f) > 0);
  CHECK(std::count(found.begin(), found.end(), 12.0f) > 0);
  CHECK(std::count(found.begin(), found.end(), 11.0f) + std::count(found.begin(), found.end(), 12.0f) == 4);
}

TEST_CASE("emulator: operations that capture forbids invalidate the capture", "[emulator]") {
  float of_host = 5;
  const auto broken_by = [&](const auto& body, cudaError_t expected) {
    Streams s;
    s.begin();
    launch(multiply_kernel, 1, 1, 0, s.first, s.x, 2.0f);
    CHECK(body(s) == expected);
    CHECK(s.end() == cudaErrorStreamCaptureInvalidated);
    CHECK(*s.x == 1);
    static_cast<void>(cudaGetLastError());
    s.begin();  // and the next one is as good as ever
    launch(multiply_kernel, 1, 1, 0, s.first, s.x, 2.0f);
    s.run(1);
    CHECK(*s.x == 2);
  };
  const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;
  broken_by(
      [](Streams&) {
        void* memory;
        return cudaMalloc(&memory, 4);
      },
      unsupported);
  broken_by([](Streams& s) { return cudaFree(s.y); }, unsupported);
  broken_by([](Streams& s) { return cudaStreamSynchronize(s.first); }, unsupported);
  const auto copy = [](void* to, const void* from, Streams& s, std::size_t bytes = sizeof(float)) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, s.first);
  };
  broken_by([&](Streams& s) { return copy(s.x, &of_host, s); }, unsupported);
  broken_by([&](Streams& s) { return copy(&of_host, s.x, s); }, unsupported);
  broken_by([&](Streams& s) { return copy(s.y, s.x, s, 2 * sizeof(float)); }, unsupported);
  broken_by(
      [](Streams& s) {
        static_cast<void>(cudaStreamSynchronize(s.first));
        try {
          launch(multiply_kernel, 1, 1, 0, s.first, s.x, 2.0f);
        } catch (const Error& error) {
          require_words(error.what(), {"kernel launch", "recording is broken"});
          return unsupported;
        }
        return cudaSuccess;
      },
      unsupported);
  broken_by(
      [](Streams& s) {
        require_success(cudaEventRecord(s.event, s.second));  // which is not recorded
        return cudaStreamWaitEvent(s.first, s.event);
      },
      cudaErrorStreamCaptureIsolation);
  broken_by(
      [](Streams& s) {
        require_success(s.order(s.first, s.second));
        cudaGraph_t graph;
        const cudaError_t status = cudaStreamEndCapture(s.second, &graph);
        CHECK(graph == nullptr);
        return status;
      },
      cudaErrorStreamCaptureUnmatched);
  CHECK(of_host == 5);
}

TEST_CASE("emulator: a capture begins once and ends with all streams joined", "[emulator]") {
  Streams s;
  CHECK(s.end() == cudaErrorIllegalState);
  CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal) == cudaErrorStreamCaptureUnsupported);
  s.begin();
  CHECK(cudaStreamBeginCapture(s.first, cudaStreamCaptureModeThreadLocal) == cudaErrorIllegalState);
  CHECK(s.end() == cudaSuccess);

  s.begin();
  require_success(s.order(s.first, s.second));
  launch(multiply_kernel, 1, 1, 0, s.second, s.x, 2.0f);
  require_success(s.order(s.second, s.first));
  CHECK(s.end() == cudaSuccess);
  s.begin();
  require_success(s.order(s.first, s.second));
  require_success(s.order(s.second, s.first));
  launch(multiply_kernel, 1, 1, 0, s.second, s.x, 2.0f);  // no stream waits for this one
  CHECK(s.end() == cudaErrorStreamCaptureUnjoined);
  CHECK(*s.x == 1);
  launch(multiply_kernel, 1, 1, 0, s.second, s.x, 2.0f);  // no longer recorded
  CHECK(*s.x == 2);
}

}  // namespace
