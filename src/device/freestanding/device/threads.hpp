#pragma once

// Replaces src/device/threads.hpp on systems with one thread, such as a web page.

#include "base/types.hpp"
#include "device/mode.hpp"

namespace abh {

class Threads {
 public:
  using Task = void (*)(void* context, Index task, Index worker);

  explicit Threads(Index, Mode mode = Mode::compute) : mode_(mode) {}
  Index count() const { return 1; }
  Mode mode() const { return mode_; }

  void run(Task task, void* context, Index tasks) {
    if (mode_ == Mode::dry_run) return;
    for (Index i = 0; i < tasks; ++i) task(context, i, 0);
  }

 private:
  Mode mode_;
};

}  // namespace abh
