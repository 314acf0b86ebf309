#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "device/mode.hpp"

namespace abh {

// A persistent team of threads that runs numbered tasks. Every worker has a share of neighbouring tasks, which it finds
// in its cache from run to run, and takes them one by one; whoever is done with its own takes those that others have
// left. A worker that sleeps, or that the system gave no processor, is not waited for: only a task that somebody has
// begun is. In which order a number is summed must depend on the task's number alone, never on the worker or on their
// number: then results are bitwise the same for every number of threads.
class Threads {
 public:
  using Task = void (*)(void* context, Index task, Index worker);

  // count: workers including the calling thread, at least 1. Throws Error when the system refuses to start them. Where
  // work is only counted none are started and run() returns at once.
  explicit Threads(Index count, Mode mode = Mode::compute);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  Index count() const { return count_; }
  Mode mode() const { return mode_; }

  // Runs task(context, i, worker) for i in [0, tasks) and returns when all are done. A worker runs one task at a time,
  // its share in ascending order; worker 0 is the caller. Tasks must not throw or call run.
  void run(Task task, void* context, Index tasks);

 private:
  // A number in a cache line that it shares with no other.
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
  // The run under way. Read by late workers, too, who then find nothing left of the run they came for.
  std::atomic<Task> task_ = nullptr;
  std::atomic<void*> context_ = nullptr;
  std::atomic<Index> first_ = 0, tasks_ = 0;
  // Per worker: remaining tasks of its share (low 32 bits) and run number (high 32 bits). A thread that lowers the
  // value by one takes a task.
  std::vector<Apart<std::uint64_t>> shares_;
  Apart<std::uint32_t> run_number_;          // counts runs; workers wait for it to move
  Apart<std::uint32_t> tasks_done_;          // of this run, by other workers than the caller
  std::atomic<std::uint32_t> sleepers_ = 0;  // workers that wait for another run asleep
  std::atomic<bool> stop_ = false;
  // Runs follow each other as they did in the last layer or step: what one was worth, the next one is, as a rule.
  std::chrono::steady_clock::duration last_took_ = std::chrono::seconds(1);
  std::vector<std::thread> workers_;
};

}  // namespace abh
