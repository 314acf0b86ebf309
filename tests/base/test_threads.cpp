#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include "device/threads.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// Runs body(task, worker) for every task.
template <class Body>
void run(Threads& threads, Index tasks, Body&& body) {
  using Context = std::remove_reference_t<Body>;
  threads.run([](void* context, Index task, Index worker) { (*static_cast<Context*>(context))(task, worker); }, &body,
              tasks);
}

// Number of runs per task, the worker of each task, and the number of tasks or workers out of range.
struct Record {
  explicit Record(Index tasks) : runs(static_cast<std::size_t>(tasks)), worker(static_cast<std::size_t>(tasks), -1) {}

  std::vector<std::atomic<int>> runs;
  std::vector<Index> worker;
  std::atomic<int> strays = 0;

  void operator()(Index task, Index by) {
    if (task < 0 || task >= static_cast<Index>(runs.size())) {
      ++strays;
    } else {
      ++runs[static_cast<std::size_t>(task)];
      worker[static_cast<std::size_t>(task)] = by;
    }
  }
  bool every_task_ran(int times) const {
    return strays == 0 && std::all_of(runs.begin(), runs.end(), [=](const auto& count) { return count == times; });
  }
};

TEST_CASE("threads: every task runs exactly once", "[threads]") {
  for (Index count : {1, 2, 3, 7}) {
    Threads threads(count);
    CHECK(threads.count() == count);
    for (Index tasks : {0, 1, 5, 1000}) {
      INFO(count << " threads, " << tasks << " tasks");
      Record record(tasks);
      run(threads, tasks, record);
      CHECK(record.every_task_ran(1));
      for (const Index worker : record.worker) CHECK((worker >= 0 && worker < count));
      if (tasks == 1) CHECK(record.worker[0] == 0);  // a single task is not worth waking anybody
    }
  }
}

TEST_CASE("threads: no run waits for a worker that is busy elsewhere", "[threads]") {
  // The first task ends after all others, so free workers must take their shares. A new team shares its first run,
  // however short. Later, the caller may do a run of about two microseconds without the workers.
  for (Index count : {2, 3, 7}) {
    for (int time = 0; time < 20; ++time) {
      Threads threads(count);
      std::atomic<int> done = 0;
      bool in_time = true;
      run(threads, 100, [&](Index task, Index) {
        if (task != 0) {
          ++done;
          return;
        }
        const auto begin = std::chrono::steady_clock::now();
        while (done != 99 && in_time) in_time = std::chrono::steady_clock::now() - begin < std::chrono::seconds(30);
      });
      REQUIRE(in_time);
    }
  }
}

TEST_CASE("threads: each worker number belongs to one thread at a time", "[threads]") {
  // Scratch memory is found by the same number.
  std::vector<std::atomic<int>> busy(7);
  std::atomic<int> collisions = 0;
  Threads threads(7);
  for (int time = 0; time < 300; ++time) {
    run(threads, 50, [&](Index, Index worker) {
      if (busy[static_cast<std::size_t>(worker)]++ != 0) ++collisions;
      std::this_thread::yield();
      --busy[static_cast<std::size_t>(worker)];
    });
  }
  CHECK(collisions == 0);
}

TEST_CASE("threads: the caller is worker 0", "[threads]") {
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> strangers = 0;
  Threads threads(3);
  for (int time = 0; time < 100; ++time) {
    run(threads, 30,
        [&](Index, Index worker) { strangers += (worker == 0) != (std::this_thread::get_id() == caller); });
  }
  CHECK(strangers == 0);
}

TEST_CASE("threads: the number of threads is at least one", "[threads]") {
  for (Index count : {0, -3}) {
    Threads threads(count);
    CHECK(threads.count() == 1);
    Record record(5);
    run(threads, 5, record);
    CHECK(record.every_task_ran(1));
  }
}

TEST_CASE("threads: many consecutive runs, each complete on return", "[threads]") {
  for (Index count : {2, 3, 7}) {
    INFO(count << " threads");
    Threads threads(count);
    Record record(13);
    int incomplete = 0;
    for (int time = 1; time <= 2000; ++time) {
      run(threads, 13, record);
      incomplete += !record.every_task_ran(time);
    }
    CHECK(incomplete == 0);
  }
}

TEST_CASE("threads: a run reads the results of the run before", "[threads]") {
  // Each task reads its neighbour's number of the last run: plain memory, so that run is all that orders it.
  std::vector<long> from(64, 0), to(64, 0);
  Threads threads(3);
  for (int time = 0; time < 1000; ++time) {
    run(threads, 64, [&](Index task, Index) {
      to[static_cast<std::size_t>(task)] = from[static_cast<std::size_t>((task + 21) % 64)] + 1;
    });
    std::swap(from, to);
  }
  CHECK(from == std::vector<long>(64, 1000));
}

TEST_CASE("threads: sleeping workers wake up for a long run", "[threads]") {
  Threads threads(3);
  for (int time = 1; time <= 3; ++time) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // far longer than workers spin
    Record record(3000);
    run(threads, 3000, [&](Index task, Index worker) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      record(task, worker);
    });
    CHECK(record.every_task_ran(1));
    for (const Index worker : {0, 1, 2}) {
      CHECK(std::count(record.worker.begin(), record.worker.end(), worker) > 0);
    }
  }
}

TEST_CASE("threads: a caller that finishes first waits for the other workers", "[threads]") {
  Threads threads(2);
  std::atomic<bool> done = false;
  run(threads, 2, [&](Index task, Index) {
    if (task == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
  });
  CHECK(done);
}

TEST_CASE("threads: a team may end without a run, asleep or awake", "[threads]") {
  int ended = 0;
  for (int round = 0; round < 20; ++round) {
    Threads threads(7);
    if (round % 10 == 9) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ++ended;
  }
  CHECK(ended == 20);  // or the test would hang
}

TEST_CASE("threads: two teams at the same time", "[threads]") {
  Threads first(3), second(2);
  Record a(100), b(100);
  std::thread other([&] {
    for (int time = 0; time < 200; ++time) run(second, 100, b);
  });
  for (int time = 0; time < 200; ++time) run(first, 100, a);
  other.join();
  CHECK(a.every_task_ran(200));
  CHECK(b.every_task_ran(200));
}

TEST_CASE("threads: a dry-run team starts no thread and runs no task", "[threads]") {
  Threads threads(1'000'000, Mode::dry_run);
  CHECK(threads.count() == 1'000'000);
  for (const Index tasks : {1, 2, 100}) run(threads, tasks, [](Index, Index) { FAIL("a task ran"); });
}

}  // namespace
}  // namespace abh
