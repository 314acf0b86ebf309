#pragma once

#include <memory>
#include <string>

#include "base/types.hpp"

namespace abh {

// Processes that train together, each on its part of every batch; usually there is one. All processes call the same
// members in the same order and get the same results. If one process ends unexpectedly, the others end too, with one
// line on standard error.
class Processes {
 public:
  virtual ~Processes() = default;  // waits for the others

  Index rank() const { return rank_; }  // from 0
  Index size() const { return size_; }
  Index rank_here() const { return rank_here_; }  // among the processes of this machine
  bool leads() const { return rank_ == 0; }       // true: this process writes files and prints

  // All-reduce: adds the arrays of all processes element by element, as a balanced binary tree over the ranks. The
  // number of ranks is a power of two. A sum that has begun runs concurrently; the caller must not access the array
  // before finish_sums().
  virtual void begin_sum(float* values, Index count) = 0;
  virtual void finish_sums() = 0;
  virtual void sum(double* values, Index count) = 0;

  virtual Index largest(Index value) = 0;
  virtual std::string of_first(const std::string& text) = 0;  // the argument of process 0

  // Ends all processes after an error, with `status` and the line `program: message` of the first process that gives a
  // reason. Returns only if there is a single process.
  virtual void leave(const std::string& message, int status) = 0;

 protected:
  Index rank_ = 0, size_ = 1, rank_here_ = 0;
};

// All-reduce of gradients in host memory, concurrently with the backward pass. A GPU has its own implementation
// (extras/distributed/gpu_sums.hpp).
class HostSums {
 public:
  template <class Device>
  HostSums(Device&, Processes& processes) : processes_(processes) {}
  void begin_sum(float* values, Index count) { processes_.begin_sum(values, count); }
  void finish_sums() { processes_.finish_sums(); }

 private:
  Processes& processes_;
};

// The implementation for a single process.
Processes& one_process();

// Processes that mpirun or a similar launcher started. Error if there are several and this build has no MPI.
std::unique_ptr<Processes> join_processes(const std::string& program);

}  // namespace abh
