#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "device/mode.hpp"

namespace abh {

// Persistent thread pool with work stealing for numbered tasks. Every worker has a contiguous share of the tasks, which
// stays the same from run to run, so the data is often in its cache. A worker takes its tasks one by one and then
// steals remaining tasks from others. The caller waits only for tasks that have started, not for a worker that sleeps
// or is not scheduled. The order of a sum must depend only on the number of the task, not on the worker or the number
// of workers. Then results are bitwise the same for every number of threads.
class Threads {
 public:
  using Task = void (*)(void* context, Index task, Index worker);

  // count: workers including the calling thread, at least 1. Error if the system refuses to start them. In a dry run,
  // no threads start and run() returns at once.
  explicit Threads(Index count, Mode mode = Mode::compute);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  Index count() const { return count_; }
  Mode mode() const { return mode_; }

  // Runs task(context, i, worker) for i in [0, tasks) and returns when all are done. A worker runs one task at a time,
  // its share in ascending order. Worker 0 is the caller. Tasks must not throw or call run.
  void run(Task task, void* context, Index tasks);

 private:
  // Number in its own cache line.
  template <class Number>
  struct Apart {
    std::atomic<Number> value = 0;
    char rest_of_line[64 - sizeof(std::atomic<Number>)];
  };

  void run_piece(Task task, void* context, Index first, Index tasks);
  template <class AfterTask>
  std::uint32_t take_tasks(Index worker, std::uint32_t run, const AfterTask& after_task);
  void wait_and_run(Index worker);
  void stop();

  Index count_;
  Mode mode_;
  // Current run. A late worker may read a newer run; it then finds no remaining tasks of its own run.
  std::atomic<Task> task_ = nullptr;
  std::atomic<void*> context_ = nullptr;
  std::atomic<Index> first_ = 0, tasks_ = 0;
  // Per worker: remaining tasks of its share (low 32 bits) and run number (high 32 bits). Decrementing the value takes
  // a task.
  std::vector<Apart<std::uint64_t>> shares_;
  Apart<std::uint32_t> run_number_;          // number of runs; workers wait for it to change
  Apart<std::uint32_t> tasks_done_;          // of this run, by workers other than the caller
  std::atomic<std::uint32_t> sleepers_ = 0;  // workers that sleep until the next run
  std::atomic<bool> stop_ = false;
  // Duration of the last run, the estimate for the next run: consecutive runs are usually similar.
  std::chrono::steady_clock::duration last_took_ = std::chrono::seconds(1);
  std::vector<std::thread> workers_;
};

}  // namespace abh
