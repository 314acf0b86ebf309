#pragma once

#include <memory>
#include <string>

#include "base/types.hpp"

namespace abh {

// The processes that train together, each on its part of every batch; most of the time there is one. All of them call
// the same members in the same order, and all see the same results. Where one of them ends before its time the others
// are ended too, with one line on standard error.
class Processes {
 public:
  virtual ~Processes() = default;  // waits for the others

  Index rank() const { return rank_; }  // from 0
  Index size() const { return size_; }
  Index rank_here() const { return rank_here_; }  // among the processes of this machine
  bool leads() const { return rank_ == 0; }       // the one that writes and prints

  // Adds up the arrays of all, element by element, as a balanced binary tree over the ranks, of which there are a power
  // of two: all get the sum. What has begun goes on beside the caller, who leaves the arrays alone until finish_sums().
  virtual void begin_sum(float* values, Index count) = 0;
  virtual void finish_sums() = 0;
  virtual void sum(double* values, Index count) = 0;

  virtual Index largest(Index value) = 0;
  virtual std::string of_first(const std::string& text) = 0;  // what process 0 calls it with

  // This process cannot go on. Where there are others all end, with `status` and the line `program: message` of one of
  // them, the first that says why, and this does not return.
  virtual void leave(const std::string& message, int status) = 0;

 protected:
  Index rank_ = 0, size_ = 1, rank_here_ = 0;
};

// How processes add up their gradients, while backward goes on with others, on devices that compute in the memory of
// the host. A GPU has its own (extras/distributed/gpu_sums.hpp).
class HostSums {
 public:
  template <class Device>
  HostSums(Device&, Processes& processes) : processes_(processes) {}
  void begin_sum(float* values, Index count) { processes_.begin_sum(values, count); }
  void finish_sums() { processes_.finish_sums(); }

 private:
  Processes& processes_;
};

// This process alone.
Processes& one_process();

// Those that mpirun or the like started together with this one. Error where they are several and this build has no MPI.
std::unique_ptr<Processes> join_processes(const std::string& program);

}  // namespace abh
