// Sums between GPUs, emulated, with a thread in the place of each process.

#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "cuda/emulator/emulator.hpp"
#include "cuda/emulator/nccl.hpp"
#include "extras/distributed/gpu_sums.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/model_case.hpp"

namespace abh {
namespace {

using Device = GpuDevice<Backend::emulated>;
using Numbers = std::vector<float>;

struct Meeting {
  explicit Meeting(Index size) : barrier(size) {}
  std::barrier<> barrier;
  std::string of_first;
};

class ThreadAsProcess : public Processes {
 public:
  ThreadAsProcess(Meeting& meeting, Index rank, Index size) : meeting_(meeting) {
    rank_ = rank;
    size_ = size;
  }
  std::string of_first(const std::string& text) override {
    if (leads()) meeting_.of_first = text;
    meeting_.barrier.arrive_and_wait();
    return meeting_.of_first;
  }
  void begin_sum(float*, Index) override { throw Error("not by the host"); }
  void finish_sums() override {}
  void sum(double*, Index) override {}
  Index largest(Index value) override { return value; }
  void leave(const std::string&, int) override {}

 private:
  Meeting& meeting_;
};

// Runs body(processes, device) in this number of threads; rethrows the exception of any of them.
void in_threads(Index size, const std::function<void(Processes&, Device&)>& body) {
  Meeting meeting(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (Index rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ThreadAsProcess process(meeting, rank, size);
        Device device;
        body(process, device);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

// Terms have very different sizes, so that the order of a sum shows in its last bits.
Numbers random_numbers(Index count, Index seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  Numbers numbers;
  for (Index i = 0; i < count; ++i) {
    numbers.push_back(std::ldexp(static_cast<float>(random()) / 4e9f - 0.5f, static_cast<int>(random() % 8)));
  }
  return numbers;
}

Numbers tree_sum(std::vector<Numbers> parts) {
  for (; parts.size() > 1; parts.resize(parts.size() / 2)) {
    for (std::size_t i = 0; i < parts.size() / 2; ++i) {
      Numbers& sum = parts[i];
      const Numbers left = parts[2 * i], right = parts[2 * i + 1];
      sum.resize(left.size());
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] = left[j] + right[j];
    }
  }
  return parts.front();
}

bool same_bits(const Numbers& a, const float* b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  }
  return true;
}

// Sums `count` numbers in these parts, the last part first, as a network does, in pieces of the given size.
void check_sums(Index size, Index count, const std::vector<Index>& borders, Index piece, Index times = 1) {
  INFO(size << " processes, " << count << " numbers, " << borders.size() << " borders, pieces of " << piece);
  std::vector<Numbers> parts;
  for (Index rank = 0; rank < size; ++rank) parts.push_back(random_numbers(count, rank));
  const Numbers expected = tree_sum(parts);
  std::vector<char> good(static_cast<std::size_t>(size));
  in_threads(size, [&](Processes& processes, Device& device) {
    GpuSums<Backend::emulated> sums(device, processes, piece);
    const auto rank = static_cast<std::size_t>(processes.rank());
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    const DeviceMemory given(device.memory(), bytes), memory(device.memory(), bytes), after(device.memory(), bytes);
    float *values = memory.as<float>(), *found = after.as<float>();
    device.copy_from_host(given.as<float>(), parts[rank].data(), count);
    Device::CapturedGraph step;
    good[rank] = 1;
    for (Index time = 0; time < times; ++time) {  // directly, then captured, then replayed
      step.run(device, [&] {
        device.copy(values, given.as<float>(), count);
        Index end = count;
        for (const Index begin : borders) {
          sums.begin_sum(values + begin, end - begin);
          end = begin;
        }
        sums.begin_sum(values, end);
        sums.finish_sums();
        device.copy(found, values, count);
      });
      device.synchronize();
      if (!same_bits(expected, found)) good[rank] = 0;
      device.set_zero(found, count);
    }
  });
  for (const char each : good) CHECK(each);
}

TEST_CASE("gpu sums: the bits of a balanced tree, for any number of processes", "[gpu_sums][threads]") {
  for (const Index size : {1, 2, 4, 8}) {
    for (const Index count : {0, 1, 2, 3, 17, 1000, 4099}) check_sums(size, count, {}, 1 << 22);
  }
}

TEST_CASE("gpu sums: in pieces, captured or not, in every order of concurrent work", "[gpu_sums][threads]") {
  using emulator::Order;
  for (const Order order : {Order{}, Order{Order::reverse, 0}, Order{Order::shuffled, 1}}) {
    emulator::set_order(order);
    for (const Index piece : {1, 7, 100, 1000}) check_sums(4, 211, {200, 150, 149, 20, 20}, piece, 4);
    check_sums(2, 5, {}, 2, 3);
    check_sums(2, 0, {}, 2, 3);
  }
  emulator::set_order({});
}

TEST_CASE("gpu sums: non-contiguous arrays", "[gpu_sums][threads]") {
  in_threads(2, [&](Processes& processes, Device& device) {
    GpuSums<Backend::emulated> sums(device, processes);
    const DeviceMemory memory(device.memory(), 4 * sizeof(float));
    float* values = memory.as<float>();
    for (int i = 0; i < 4; ++i) values[i] = static_cast<float>(10 * i + processes.rank());
    sums.begin_sum(values, 1);
    sums.begin_sum(values + 2, 1);  // not before the work that was started
    sums.begin_sum(values + 3, 1);
    sums.finish_sums();
    const float own = static_cast<float>(10 + processes.rank());
    if (values[0] != 1 || values[1] != own || values[2] != 41 || values[3] != 61) throw Error("wrong sums");
    values[0] = 5;  // the next sum begins anew
    sums.begin_sum(values, 1);
    sums.finish_sums();
    if (values[0] != 10 || values[2] != 41) throw Error("wrong sums");
  });
}

// A gradient whose late sums are not done when it is sent is none.
TEST_CASE("gpu sums: two processes train like one process with two shards", "[gpu_sums][threads]") {
  const ModelConfig config{
      .layers = 2, .channels = 12, .heads = 2, .context = 6, .vocabulary = 9, .mixer = "additive,dot"};
  TrainingConfig training{.batch = 4, .steps = 9, .learning_rate = 0.01, .warmup = 0, .dropout = 0.1};
  training.shards = 2;
  const auto weights_of = [&](Processes& processes, Index size) {
    const auto model =
        with_weights(make_model({.device = "emulated", .threads = 1}, config,
                                training_capacity(config, training, false, size), training.dropout, "float", processes),
                     some_weights(config, 0.2));
    for (Index step = 0; step < 3; ++step) {  // as it is, then recorded, then again
      Batch batch{.B = 4, .C = 6};
      for (Index i = 0; i < 24; ++i) {
        batch.token_bc.push_back(static_cast<Token>((i * i + step) % 9));
        batch.target_r.push_back(i % 5 == 0 ? ignored_target : static_cast<Token>((3 * i + step) % 9));
      }
      model->train_step(batch, training, step);
    }
    return model->read(Model::Arena::weights);
  };
  const std::vector<float> expected = weights_of(one_process(), 1);
  std::vector<std::vector<float>> found(2);
  in_threads(2, [&](Processes& processes, Device&) {
    found[static_cast<std::size_t>(processes.rank())] = weights_of(processes, 2);
  });
  for (const std::vector<float>& weights : found) CHECK((weights == expected));
}

TEST_CASE("gpu sums: a process that leaves with an error does not wait for the others", "[gpu_sums][threads]") {
  std::atomic<int> left = 0;
  CHECK_THROWS_WITH(in_threads(2,
                               [&](Processes& processes, Device& device) {
                                 GpuSums<Backend::emulated> sums(device, processes);
                                 if (processes.leads()) {
                                   while (left == 0) std::this_thread::yield();
                                 } else {
                                   struct Tell {
                                     std::atomic<int>& left;
                                     ~Tell() { left = 1; }
                                   };
                                   const Tell tell{left};
                                   throw Error("the disk is full");
                                 }
                               }),
                    "the disk is full");
}

TEST_CASE("emulator: messages of a group are concurrent and arrive in order", "[gpu_sums][threads]") {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  std::vector<int> good(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ncclComm_t all;
      if (ncclCommInitRank(&all, 3, id, rank) != ncclSuccess) return;
      const std::size_t large = 1 << 20;  // more than a socket holds
      Numbers first(large, static_cast<float>(rank)), second(3, static_cast<float>(10 + rank));
      std::vector<Numbers> got(6, Numbers(large));
      ncclGroupStart();
      for (int other = 0; other < 3; ++other) {
        if (other == rank) continue;
        const auto at = static_cast<std::size_t>(2 * other);
        ncclSend(first.data(), large, ncclFloat, other, all, nullptr);
        ncclSend(second.data(), 3, ncclFloat, other, all, nullptr);
        ncclRecv(got[at].data(), large, ncclFloat, other, all, nullptr);
        ncclRecv(got[at + 1].data(), 3, ncclFloat, other, all, nullptr);
      }
      bool right = ncclGroupEnd() == ncclSuccess;
      for (int other = 0; other < 3; ++other) {
        if (other == rank) continue;
        const auto at = static_cast<std::size_t>(2 * other);
        right = right && got[at] == Numbers(large, static_cast<float>(other));
        right = right && got[at + 1][0] == static_cast<float>(10 + other) && got[at + 1][3] == 0;
      }
      right = right && ncclSend(first.data(), 1, ncclFloat, rank, all, nullptr) == emulator::ncclInvalidArgument;
      right = right && ncclSend(first.data(), 1, ncclFloat, 3, all, nullptr) == emulator::ncclInvalidArgument;
      right = right && ncclGroupEnd() == emulator::ncclInvalidUsage;
      right = right && ncclCommDestroy(all) == ncclSuccess;
      good[static_cast<std::size_t>(rank)] = right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int each : good) CHECK(each);
  ncclComm_t none;
  CHECK(ncclCommInitRank(&none, 2, id, 2) == emulator::ncclInvalidArgument);
  CHECK(ncclCommInitRank(&none, 0, id, 0) == emulator::ncclInvalidArgument);
}

}  // namespace
}  // namespace abh
