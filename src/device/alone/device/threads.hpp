#pragma once

// In the place of src/device/threads.hpp where there is one thread and nothing to start another with: a page.

#include "base/types.hpp"
#include "device/work.hpp"

namespace abh {

class Threads {
 public:
  using Task = void (*)(void* context, Index task, Index worker);

  explicit Threads(Index, Work work = Work::done) : work_(work) {}
  Index count() const { return 1; }
  Work work() const { return work_; }

  void run(Task task, void* context, Index tasks) {
    if (work_ == Work::counted) return;
    for (Index i = 0; i < tasks; ++i) task(context, i, 0);
  }

 private:
  Work work_;
};

}  // namespace abh
