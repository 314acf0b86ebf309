#include "device/threads.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include "base/error.hpp"

namespace abh {

namespace {

using Clock = std::chrono::steady_clock;

// Time that a waiting thread polls before it sleeps. The layers of a training step follow each other within
// microseconds. Polling costs less than sleeping and waking for every layer, also on a busy machine.
constexpr auto looking = std::chrono::microseconds(50);

// Tasks below this total time run on the caller alone, as in very small models. Distributing them would transfer cache
// lines between cores, and on a busy machine a task may wait for its worker.
constexpr auto worth_sharing = std::chrono::microseconds(2);
// Waking a sleeping thread takes about ten microseconds of the caller.
constexpr auto worth_waking = std::chrono::microseconds(15);

inline void pause_turn() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

template <class Changed>
bool look_for(Changed changed) {
  constexpr int turns = 64;  // between two reads of the clock
  const Clock::time_point begin = Clock::now();
  do {
    for (int turn = 0; turn < turns; ++turn) {
      if (changed()) return true;
      pause_turn();
    }
  } while (Clock::now() - begin < looking);
  return false;
}

// Tasks [begin, end) of a worker, of a run of `tasks` tasks.
struct Range {
  Index begin, end;
};
Range share_of(Index worker, Index count, Index tasks) {
  return {worker * tasks / count, (worker + 1) * tasks / count};
}

constexpr std::uint64_t low_half = 0xFFFF'FFFF;

}  // namespace

Threads::Threads(Index count, Mode mode) : count_(std::max<Index>(count, 1)), mode_(mode) {
  if (mode_ == Mode::dry_run) return;
  shares_ = std::vector<Apart<std::uint64_t>>(static_cast<std::size_t>(count_));
  workers_.reserve(static_cast<std::size_t>(count_ - 1));
  try {
    for (Index worker = 1; worker < count_; ++worker) workers_.emplace_back(&Threads::wait_and_run, this, worker);
  } catch (const std::system_error&) {
    stop();
    throw Error("cannot start " + std::to_string(count_) + " threads: the system refused after " +
                std::to_string(workers_.size() + 1));
  }
}

Threads::~Threads() { stop(); }

void Threads::stop() {
  stop_ = true;
  run_number_.value.fetch_add(1, std::memory_order_release);
  run_number_.value.notify_all();
  for (std::thread& thread : workers_) thread.join();
}

void Threads::run(Task task, void* context, Index tasks) {
  if (mode_ == Mode::dry_run) return;
  if (count_ == 1 || tasks <= 1) {
    for (Index i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  const Clock::time_point begin = Clock::now();
  Index first = 0;
  if (last_took_ <= worth_sharing) {
    while (first < tasks && Clock::now() - begin <= worth_sharing) task(context, first++, 0);
  }
  constexpr Index most = Index{1} << 31;  // largest count of a share
  for (; first < tasks; first += most) run_piece(task, context, first, std::min(most, tasks - first));
  last_took_ = Clock::now() - begin;
}

void Threads::run_piece(Task task, void* context, Index first, Index tasks) {
  task_.store(task, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  first_.store(first, std::memory_order_relaxed);
  tasks_.store(tasks, std::memory_order_relaxed);
  tasks_done_.value.store(0, std::memory_order_relaxed);
  const std::uint32_t run = run_number_.value.load(std::memory_order_relaxed) + 1;
  for (Index worker = 0; worker < count_; ++worker) {
    const Range share = share_of(worker, count_, tasks);
    shares_[static_cast<std::size_t>(worker)].value.store(
        std::uint64_t{run} << 32 | static_cast<std::uint64_t>(share.end - share.begin), std::memory_order_relaxed);
  }
  const Clock::time_point begin = Clock::now();
  bool woken = false;
  const auto wake_sleepers = [&] {
    if (!woken && sleepers_.load() > 0) run_number_.value.notify_all();
    woken = true;
  };
  run_number_.value.store(run);
  if (last_took_ > worth_waking) wake_sleepers();
  const std::uint32_t others = static_cast<std::uint32_t>(tasks) - take_tasks(0, run, [&] {
                                 if (!woken && Clock::now() - begin > worth_waking) wake_sleepers();
                               });
  const auto all_done = [&] { return tasks_done_.value.load(std::memory_order_acquire) == others; };
  if (look_for(all_done)) return;
  for (std::uint32_t done; (done = tasks_done_.value.load(std::memory_order_acquire)) != others;) {
    tasks_done_.value.wait(done, std::memory_order_acquire);
  }
}

// Runs remaining tasks, first of the own share, and returns their number. Fields that are read before a task is taken
// are valid if the take succeeds, because the caller of run() changes them only after the last task.
template <class AfterTask>
std::uint32_t Threads::take_tasks(Index worker, std::uint32_t run, const AfterTask& after_task) {
  const Task task = task_.load(std::memory_order_relaxed);
  void* const context = context_.load(std::memory_order_relaxed);
  const Index first = first_.load(std::memory_order_relaxed), tasks = tasks_.load(std::memory_order_relaxed);
  std::uint32_t taken = 0;
  for (Index i = 0; i < count_; ++i) {
    const Index owner = worker + i < count_ ? worker + i : worker + i - count_;
    std::atomic<std::uint64_t>& share = shares_[static_cast<std::size_t>(owner)].value;
    for (std::uint64_t seen = share.load(std::memory_order_relaxed); seen >> 32 == run && (seen & low_half) != 0;) {
      if (!share.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
      task(context, first + share_of(owner, count_, tasks).end - static_cast<Index>(seen & low_half), worker);
      ++taken;
      after_task();
      seen = share.load(std::memory_order_relaxed);
    }
  }
  return taken;
}

void Threads::wait_and_run(Index worker) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto moved = [&] { return run_number_.value.load(std::memory_order_acquire) != seen; };
    if (!look_for(moved)) {
      ++sleepers_;  // before the number is read again; the caller changes the number before it reads sleepers_
      run_number_.value.wait(seen);
      --sleepers_;
    }
    seen = run_number_.value.load(std::memory_order_acquire);
    if (stop_) return;
    const std::uint32_t taken = take_tasks(worker, seen, [] {});
    if (taken == 0) continue;
    tasks_done_.value.fetch_add(taken, std::memory_order_release);
    tasks_done_.value.notify_one();
  }
}

}  // namespace abh
