// Several processes with MPI: the only file that uses MPI.

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/processes.hpp"
#include "extras/distributed/recursive_halving.hpp"

namespace abh {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto between_looks = std::chrono::milliseconds(50);  // between checks of the other processes
constexpr int looks_a_beat = 10;                               // a heartbeat every half second
constexpr int most_silent_looks = 120;                         // a process without a heartbeat for six seconds is lost
constexpr auto time_to_speak = std::chrono::seconds(1);        // delay before others report an error of process 0

constexpr Index largest_message = Index{1} << 20;  // maximum number of numbers per message of a sum

// Tags of messages.
constexpr int of_sum = 1, of_life = 2, of_leaving = 3;
// Content of a heartbeat: the process is running, or it is done and this is the last one.
constexpr char sign_of_life = 0, last_sign = 1;

template <class T>
const MPI_Datatype type_of = MPI_DATATYPE_NULL;
template <>
const MPI_Datatype type_of<float> = MPI_FLOAT;
template <>
const MPI_Datatype type_of<double> = MPI_DOUBLE;

// Another process on this machine; the operating system reports its end immediately.
class Neighbour {
 public:
  Neighbour() = default;
  ~Neighbour() {
    if (process_ >= 0) ::close(process_);
  }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  // Identity of this process: the machine since its start, the namespace of process ids, and the process id.
  struct Place {
    char machine[64] = {}, room[64] = {};
    pid_t number = 0;
  };
  static Place here() {
    Place place;
    std::ifstream("/proc/sys/kernel/random/boot_id").getline(place.machine, sizeof place.machine);
    if (::readlink("/proc/self/ns/pid", place.room, sizeof place.room - 1) < 0) place.room[0] = 0;
    place.number = ::getpid();
    return place;
  }

  // Starts to watch the process. For a process on another machine an end is never reported.
  void watch([[maybe_unused]] const Place& place) {
#if defined(SYS_pidfd_open)
    const Place mine = here();
    if (!*mine.machine || !*mine.room) return;
    if (std::string(mine.machine) != place.machine || std::string(mine.room) != place.room) return;
    process_ = static_cast<int>(::syscall(SYS_pidfd_open, place.number, 0));
#endif
  }
  bool has_ended() const {
    pollfd end{process_, POLLIN, 0};
    return process_ >= 0 && ::poll(&end, 1, 0) == 1;
  }

 private:
  int process_ = -1;
};

// A single thread calls MPI. It executes tasks in order, and concurrently with the layers' computation it monitors the
// previous process of a ring. Each process has one monitor, so only one process reports the loss and the reason for the
// end.
class MpiProcesses : public Processes {
 public:
  explicit MpiProcesses(std::string program) : program_(std::move(program)) {
    do_now([this] { join(); });
  }
  ~MpiProcesses() override {
    largest(0);  // waits for processes that are not done
    do_now([this] { part(); });
    speaker_.join();
  }

  void begin_sum(float* values, Index count) override {
    for (Index first = 0; first < count; first += largest_message) {
      const Index size = std::min(largest_message, count - first);
      begin([this, part = values + first, size] { sum_by_tree(part, size); });
    }
  }
  void finish_sums() override { finish(); }
  void sum(double* values, Index count) override {
    do_now([this, values, count] { sum_by_tree(values, count); });
  }

  Index largest(Index value) override {
    do_now([this, &value] {
      MPI_Request request;
      require(MPI_Iallreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, &request));
      wait_for(&request, 1);
    });
    return value;
  }

  std::string of_first(const std::string& text) override {
    std::string first = text;
    do_now([this, &first] {
      MPI_Request request;
      std::int64_t size = static_cast<std::int64_t>(first.size());
      require(MPI_Ibcast(&size, 1, MPI_INT64_T, 0, MPI_COMM_WORLD, &request));
      wait_for(&request, 1);
      first.resize(static_cast<std::size_t>(size));
      require(MPI_Ibcast(first.data(), static_cast<int>(size), MPI_CHAR, 0, MPI_COMM_WORLD, &request));
      wait_for(&request, 1);
    });
    return first;
  }

  void leave(const std::string& message, int status) override {
    // All processes detect a common error, such as a wrong flag, at about the same time; process 0 reports it.
    if (!leads()) std::this_thread::sleep_for(time_to_speak);
    reason_ = message;
    status_ = status;
    leaves_ = true;
    for (;;) ::pause();  // the MPI thread ends this process
  }

 private:
  // Work of the caller's thread:

  void begin(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty(); });
  }
  void do_now(std::function<void()> task) {
    begin(std::move(task));
    finish();
  }

  // Work of the MPI thread:

  void speak() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      changed_.wait_for(lock, between_looks, [this] { return !tasks_.empty(); });
      const std::function<void()> task = tasks_.empty() ? [this] { look_around(); } : tasks_.front();
      const bool given = !tasks_.empty();
      lock.unlock();
      task();
      lock.lock();
      if (!given) continue;
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  void join() {
    int given = 0, rank = 0, size = 0, rank_here = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given);  // this thread is MPI's main thread
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rank_ = rank;
    size_ = size;
    MPI_Comm here_only;  // processes on this machine
    require(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here_only));
    MPI_Comm_rank(here_only, &rank_here);
    MPI_Comm_free(&here_only);
    rank_here_ = rank_here;
    previous_ = (rank + size - 1) % size;
    next_ = (rank + 1) % size;
    Neighbour::Place here = Neighbour::here(), place;
    require(MPI_Sendrecv(&here, sizeof here, MPI_BYTE, next_, of_life, &place, sizeof place, MPI_BYTE, previous_,
                         of_life, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    neighbour_.watch(place);
    require(MPI_Irecv(&left_with_, 1, MPI_INT, MPI_ANY_SOURCE, of_leaving, MPI_COMM_WORLD, &leaving_));
    await_life();
  }
  void await_life() { require(MPI_Irecv(&sign_, 1, MPI_CHAR, previous_, of_life, MPI_COMM_WORLD, &life_)); }
  void send_life(const char& sign) {
    MPI_Request sent;  // not awaited: it is small, and `sign` stays valid
    require(MPI_Isend(&sign, 1, MPI_CHAR, next_, of_life, MPI_COMM_WORLD, &sent));
    MPI_Request_free(&sent);
  }

  // Regular end of a run: no message is in flight and no receive is pending afterwards.
  void part() {
    send_life(last_sign);
    const auto receive = [this] { require(MPI_Wait(&life_, MPI_STATUS_IGNORE)); };
    for (receive(); sign_ != last_sign; receive()) await_life();
    MPI_Cancel(&leaving_);
    MPI_Wait(&leaving_, MPI_STATUS_IGNORE);
    MPI_Finalize();
    over_ = true;
  }

  template <class T>
  void sum_by_tree(T* values, Index count) {
    received_.resize(static_cast<std::size_t>((count + 1) / 2) * sizeof(T));
    sum_by_halving(
        values, count, reinterpret_cast<T*>(received_.data()), rank_, size_,
        [this](Index partner, const T* out, Index out_count, T* in, Index in_count) {
          exchange(partner, out, out_count, in, in_count);
        },
        [](T* to, const T* from, Index size) {
          for (Index i = 0; i < size; ++i) to[i] += from[i];
        });
  }
  template <class T>
  void exchange(Index partner, const T* out, Index out_count, T* in, Index in_count) {
    MPI_Request requests[2];
    const int other = static_cast<int>(partner);
    require(MPI_Irecv(in, static_cast<int>(in_count), type_of<T>, other, of_sum, MPI_COMM_WORLD, &requests[0]));
    require(MPI_Isend(out, static_cast<int>(out_count), type_of<T>, other, of_sum, MPI_COMM_WORLD, &requests[1]));
    wait_for(requests, 2);
  }

  // MPI makes progress only during its calls; between calls the layers use the core.
  void wait_for(MPI_Request* requests, int count) {
    for (int turn = 0, done = 0;; ++turn) {
      require(MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE));
      if (done) return;
      look_around();
      turn < 200 ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  // Periodic check: is the previous process alive, has a process left, must this process leave?
  void look_around() {
    const Clock::time_point now = Clock::now();
    if (size_ == 1 || now < next_look_) return;
    next_look_ = now + between_looks;
    const bool ended = neighbour_.has_ended();
    // A process that leaves notifies the others first; MPI may need several calls to send the message.
    for (int turn = 0, left = 0; turn < (ended ? 1000 : 1); ++turn) {
      require(MPI_Test(&leaving_, &left, MPI_STATUS_IGNORE));
      if (left) ::_exit(left_with_);
    }
    int alive = 0;
    require(MPI_Test(&life_, &alive, MPI_STATUS_IGNORE));
    if (alive && sign_ != last_sign) await_life();  // after the last sign MPI_Test finds no receive, and calls it done
    silent_looks_ = alive ? 0 : silent_looks_ + 1;
    if (ended || silent_looks_ > most_silent_looks) {
      end_all("process " + std::to_string(previous_) + " of " + std::to_string(size_) +
                  (ended ? " has ended" : " gives no sign of life") +
                  ": all other processes also end and save nothing; continue with --resume",
              1);
    }
    if (leaves_) end_all(reason_, status_);
    if (++looks_ % looks_a_beat == 0) send_life(sign_of_life);
  }

  [[noreturn]] void end_all(const std::string& reason, int status) {
    const std::string line = program_ + ": " + reason + '\n';
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // mpirun reads it before other processes end
    std::vector<MPI_Request> requests(static_cast<std::size_t>(size_), MPI_REQUEST_NULL);
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      MPI_Isend(&status, 1, MPI_INT, other, of_leaving, MPI_COMM_WORLD, &requests[static_cast<std::size_t>(other)]);
    }
    const Clock::time_point latest = Clock::now() + std::chrono::milliseconds(300);
    for (int done = 0; !done && Clock::now() < latest;) {
      if (MPI_Testall(static_cast<int>(size_), requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
    }
    ::_exit(status);
  }

  void require(int result) {
    if (result == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int size = 0;
    MPI_Error_string(result, text.data(), &size);
    end_all("MPI says: " + std::string(text.data(), static_cast<std::size_t>(size)), 1);
  }

  const std::string program_;
  int previous_ = 0, next_ = 0;
  Neighbour neighbour_;
  MPI_Request leaving_ = MPI_REQUEST_NULL, life_ = MPI_REQUEST_NULL;  // pending receives
  int left_with_ = 0;
  char sign_ = sign_of_life;  // last one received
  int looks_ = 0, silent_looks_ = 0;
  Clock::time_point next_look_{};
  std::vector<std::byte> received_;
  bool over_ = false;

  std::string reason_;  // reason why this process leaves
  int status_ = 0;
  std::atomic<bool> leaves_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // the first one is running
  std::thread speaker_{&MpiProcesses::speak, this};
};

}  // namespace

std::unique_ptr<Processes> join_mpi_processes(const std::string& program) {
  return std::make_unique<MpiProcesses>(program);
}

}  // namespace abh
