#include "device/threads.hpp"

#include <sched.h>

#include <algorithm>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace abh {

namespace {

// A parallel region of a small model lasts some ten microseconds, about as long as waking a sleeping thread: look for
// this many turns before sleeping.
constexpr int spin_turns = 1000;

inline void pause_turn() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

template <class Changed>
bool spin_until(Changed changed) {
  for (int turn = 0; turn < spin_turns; ++turn) {
    if (changed()) return true;
    pause_turn();
  }
  return false;
}

}  // namespace

Threads::Threads(Index count, Work work) : count_(std::max<Index>(count, 1)), work_(work) {
  if (work_ == Work::counted) return;
  workers_.reserve(static_cast<std::size_t>(count_ - 1));
  try {
    for (Index worker = 1; worker < count_; ++worker) workers_.emplace_back(&Threads::wait_and_run, this, worker);
  } catch (const std::system_error&) {
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& thread : workers_) thread.join();
    throw Error("cannot start " + std::to_string(count_) + " threads: the system refused after " +
                std::to_string(workers_.size() + 1));
  }
}

Threads::~Threads() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void Threads::run_share(Index worker) const {
  const Index begin = worker * tasks_ / count_;
  const Index end = (worker + 1) * tasks_ / count_;
  for (Index task = begin; task < end; ++task) task_(context_, task, worker);
}

void Threads::run(Task task, void* context, Index tasks) {
  if (work_ == Work::counted) return;
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  if (count_ == 1 || tasks_ <= 1) {
    for (Index i = 0; i < tasks_; ++i) task_(context_, i, 0);
    return;
  }
  running_.store(static_cast<std::uint32_t>(count_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  run_share(0);
  const auto all_done = [this] { return running_.load(std::memory_order_acquire) == 0; };
  if (spin_until(all_done)) return;
  for (std::uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) {
    running_.wait(left, std::memory_order_acquire);
  }
}

void Threads::wait_and_run(Index worker) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto moved = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(moved)) generation_.wait(seen, std::memory_order_acquire);
    if (!moved()) continue;
    ++seen;
    if (stop_) return;
    run_share(worker);
    if (running_.fetch_sub(1, std::memory_order_release) == 1) running_.notify_one();
  }
}

Index available_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace abh
