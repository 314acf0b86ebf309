#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "device/work.hpp"

namespace abh {

// A persistent team of threads that runs numbered tasks. Worker w of W always gets the tasks [w*n/W, (w+1)*n/W), so
// there is no queue and no lock; a single task stays with the caller. In which order a number is summed must depend on
// the task's number alone, never on the worker or on W: then results are bitwise the same for every number of threads.
class Threads {
 public:
  using Task = void (*)(void* context, Index task, Index worker);

  // count: workers including the calling thread, at least 1. Throws Error when the system refuses to start them. Where
  // work is only counted none are started and run() returns at once.
  explicit Threads(Index count, Work work = Work::done);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  Index count() const { return count_; }
  Work work() const { return work_; }

  // Runs task(context, i, worker) for i in [0, tasks) and returns when all are done. Tasks must not throw or call run.
  void run(Task task, void* context, Index tasks);

 private:
  void wait_and_run(Index worker);
  void run_share(Index worker) const;

  Index count_;
  Work work_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  Index tasks_ = 0;
  std::atomic<std::uint32_t> generation_ = 0;  // counts runs; workers wait for it to move
  std::atomic<std::uint32_t> running_ = 0;     // workers that are not done with this run
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> workers_;
};

// Number of threads to use when none is asked for: what the system grants this process, at least 1.
Index available_threads();

}  // namespace abh
