#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "device/threads.hpp"

namespace abh {
namespace {

// How often each task ran, by whom, and how many tasks or workers were out of range.
struct Record {
  explicit Record(Index tasks) : runs(static_cast<std::size_t>(tasks)), worker(static_cast<std::size_t>(tasks), -1) {}

  std::vector<std::atomic<int>> runs;
  std::vector<Index> worker;
  std::atomic<int> strays = 0;

  static void note(void* context, Index task, Index worker) {
    Record& record = *static_cast<Record*>(context);
    if (task < 0 || task >= static_cast<Index>(record.runs.size())) {
      ++record.strays;
      return;
    }
    ++record.runs[static_cast<std::size_t>(task)];
    record.worker[static_cast<std::size_t>(task)] = worker;
  }
  bool every_task_ran(int times) const {
    for (const std::atomic<int>& count : runs) {
      if (count != times) return false;
    }
    return strays == 0;
  }
};

TEST_CASE("threads: every task runs exactly once", "[threads]") {
  for (Index count : {1, 2, 3, 7}) {
    Threads threads(count);
    CHECK(threads.count() == count);
    for (Index tasks : {0, 1, 5, 1000}) {
      INFO(count << " threads, " << tasks << " tasks");
      Record record(tasks);
      threads.run(Record::note, &record, tasks);
      CHECK(record.every_task_ran(1));
      for (const Index worker : record.worker) CHECK((worker >= 0 && worker < count));
      if (tasks == 1) CHECK(record.worker[0] == 0);  // a single task is not worth waking anybody
    }
  }
}

TEST_CASE("threads: nobody waits for a worker that is busy elsewhere", "[threads]") {
  // The first task ends when all others are done: their shares have to be taken by whoever is free. A new team shares
  // its first run, however short; later a run like one of two microseconds may be the caller's alone.
  struct Others {
    std::atomic<int> done = 0;
    bool in_time = true;
  };
  for (Index count : {2, 3, 7}) {
    for (int run = 0; run < 20; ++run) {
      Threads threads(count);
      Others others;
      threads.run(
          [](void* context, Index task, Index) {
            Others& all = *static_cast<Others*>(context);
            if (task != 0) {
              ++all.done;
              return;
            }
            const auto begin = std::chrono::steady_clock::now();
            while (all.done != 99 && all.in_time) {
              all.in_time = std::chrono::steady_clock::now() - begin < std::chrono::seconds(30);
            }
          },
          &others, 100);
      REQUIRE(others.in_time);
    }
  }
}

TEST_CASE("threads: a worker's number is one thread's at a time", "[threads]") {
  // As scratch memory is found by it.
  struct Busy {
    std::vector<std::atomic<int>> workers = std::vector<std::atomic<int>>(7);
    std::atomic<int> collisions = 0;
  } busy;
  Threads threads(7);
  for (int run = 0; run < 300; ++run) {
    threads.run(
        [](void* context, Index, Index worker) {
          Busy& all = *static_cast<Busy*>(context);
          if (all.workers[static_cast<std::size_t>(worker)]++ != 0) ++all.collisions;
          std::this_thread::yield();
          --all.workers[static_cast<std::size_t>(worker)];
        },
        &busy, 50);
  }
  CHECK(busy.collisions == 0);
}

TEST_CASE("threads: the caller is worker 0", "[threads]") {
  struct Strangers {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> count = 0;
  } strangers;
  Threads threads(3);
  for (int run = 0; run < 100; ++run) {
    threads.run(
        [](void* context, Index, Index worker) {
          Strangers& all = *static_cast<Strangers*>(context);
          if ((worker == 0) != (std::this_thread::get_id() == all.caller)) ++all.count;
        },
        &strangers, 30);
  }
  CHECK(strangers.count == 0);
}

TEST_CASE("threads: at least one", "[threads]") {
  for (Index count : {0, -3}) {
    Threads threads(count);
    CHECK(threads.count() == 1);
    Record record(5);
    threads.run(Record::note, &record, 5);
    CHECK(record.every_task_ran(1));
  }
}

TEST_CASE("threads: many runs in a row, each done when run returns", "[threads]") {
  for (Index count : {2, 3, 7}) {
    INFO(count << " threads");
    Threads threads(count);
    Record record(13);
    int incomplete = 0;
    for (int run = 1; run <= 2000; ++run) {
      threads.run(Record::note, &record, 13);
      if (!record.every_task_ran(run)) ++incomplete;
    }
    CHECK(incomplete == 0);
  }
}

TEST_CASE("threads: a run sees what the run before wrote", "[threads]") {
  // Each task reads its neighbour's number of the last run: plain memory, so that run is all that orders it.
  struct Numbers {
    std::vector<long> from = std::vector<long>(64, 0), to = std::vector<long>(64, 0);
  } numbers;
  Threads threads(3);
  for (int run = 0; run < 1000; ++run) {
    threads.run(
        [](void* context, Index task, Index) {
          Numbers& all = *static_cast<Numbers*>(context);
          all.to[static_cast<std::size_t>(task)] = all.from[static_cast<std::size_t>((task + 21) % 64)] + 1;
        },
        &numbers, 64);
    std::swap(numbers.from, numbers.to);
  }
  CHECK(numbers.from == std::vector<long>(64, 1000));
}

TEST_CASE("threads: workers that fell asleep wake up for a long run", "[threads]") {
  Threads threads(3);
  for (int run = 1; run <= 3; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // far longer than they look for work
    Record record(3000);
    threads.run(
        [](void* context, Index task, Index worker) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          Record::note(context, task, worker);
        },
        &record, 3000);
    CHECK(record.every_task_ran(1));
    for (const Index worker : {0, 1, 2}) {
      CHECK(std::count(record.worker.begin(), record.worker.end(), worker) > 0);
    }
  }
}

TEST_CASE("threads: a caller that is done first waits for the rest", "[threads]") {
  Threads threads(2);
  std::atomic<bool> done = false;
  threads.run(
      [](void* context, Index task, Index) {
        if (task == 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        *static_cast<std::atomic<bool>*>(context) = true;
      },
      &done, 2);
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

TEST_CASE("threads: two teams at once", "[threads]") {
  Threads first(3), second(2);
  Record a(100), b(100);
  std::thread other([&] {
    for (int run = 0; run < 200; ++run) second.run(Record::note, &b, 100);
  });
  for (int run = 0; run < 200; ++run) first.run(Record::note, &a, 100);
  other.join();
  CHECK(a.every_task_ran(200));
  CHECK(b.every_task_ran(200));
}

TEST_CASE("threads: a team whose work is only counted starts nothing and runs nothing", "[threads]") {
  Threads threads(1'000'000, Work::counted);
  CHECK(threads.count() == 1'000'000);
  for (const Index tasks : {1, 2, 100}) {
    threads.run([](void*, Index, Index) { FAIL("a task ran"); }, nullptr, tasks);
  }
}

}  // namespace
}  // namespace abh
