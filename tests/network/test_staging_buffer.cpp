// Tests of the transfers between the host and a device in one piece.

#include <cstring>

#include "cpu/cpu.hpp"
#include "network/staging_buffer.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// A device with separate memory, which copies data only when the host waits.
struct Remote {
  MemorySource memory() const { return abh::host_memory(); }
  MemorySource host_memory() const { return abh::host_memory(); }
  void copy_from_host_later(std::byte* to, const std::byte* from, Index count) {
    later = {to, from, static_cast<std::size_t>(count)};
    ++sent;
  }
  void copy_to_host(std::byte* to, const std::byte* from, Index count) {
    synchronize();
    std::memcpy(to, from, static_cast<std::size_t>(count));
    ++fetched;
  }
  void synchronize() {
    if (later.bytes > 0) std::memcpy(later.to, later.from, later.bytes);
    later.bytes = 0;
    ++waits;
  }

  struct {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  } later{};
  int sent = 0, fetched = 0, waits = 0;
};

template <class Device>
struct Letters {
  typename StagingBuffer<Device>::Places places;
  typename StagingBuffer<Device>::template StagingRange<double> answer = places.template take<double>(1);
  typename StagingBuffer<Device>::template StagingRange<Index> count = places.template take<Index>(1);
  typename StagingBuffer<Device>::template StagingRange<Token> none = places.template take<Token>(0),
                                                               token = places.template take<Token>(3);
  StagingBuffer<Device> staging_buffer;
  explicit Letters(Device& device) : staging_buffer(device, places) {}

  double sum() const {
    double sum = double(*staging_buffer.on_device(count));
    for (int i = 0; i < 3; ++i) sum += staging_buffer.on_device(token)[i];
    return sum;
  }
  void send(Token first) {
    *staging_buffer.to_send(count) = 1000;
    for (int i = 0; i < 3; ++i) staging_buffer.to_send(token)[i] = first + i;
    staging_buffer.send(count.begin, token.end());
  }
};

TEST_CASE("staging_buffer: one copy to the device, one copy back", "[staging_buffer]") {
  Remote device;
  Letters<Remote> letters(device);
  CHECK(letters.token.begin % 64 == 0);
  CHECK(letters.none.end() == letters.token.begin);
  letters.send(1);
  CHECK(device.sent == 1);
  CHECK(device.waits == 0);
  device.synchronize();
  *letters.staging_buffer.on_device(letters.answer) = letters.sum();
  letters.staging_buffer.fetch(letters.answer.begin, letters.answer.end());
  CHECK(*letters.staging_buffer.on_host(letters.answer) == 1006);
  CHECK(device.fetched == 1);
  CHECK(device.waits == 2);
}

TEST_CASE("staging_buffer: data in transfer are not overwritten", "[staging_buffer]") {
  Remote device;
  Letters<Remote> letters(device);
  letters.send(1);
  *letters.staging_buffer.to_send(letters.token) = 7;
  CHECK(device.waits == 1);
  CHECK(letters.sum() == 1006);
  letters.staging_buffer.to_send(letters.token)[1] = 7;
  CHECK(device.waits == 1);
}

TEST_CASE("staging_buffer: shared memory needs no copies", "[staging_buffer]") {
  CpuDevice<Isa::baseline> device(1);
  Letters<CpuDevice<Isa::baseline>> letters(device);
  letters.send(1);
  CHECK(letters.sum() == 1006);
  *letters.staging_buffer.on_device(letters.answer) = 5;
  letters.staging_buffer.fetch(letters.answer.begin, letters.answer.end());
  CHECK(*letters.staging_buffer.on_host(letters.answer) == 5);
}

}  // namespace
}  // namespace abh
