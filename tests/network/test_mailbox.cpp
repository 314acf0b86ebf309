// Tests of the transfers between the host and a device in one piece.

#include <cstring>

#include "cpu/cpu.hpp"
#include "network/mailbox.hpp"
#include "tests/harness/catch.hpp"

namespace abh {
namespace {

// A device with a memory of its own, which reads what it is sent when somebody waits for it.
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
  typename Mailbox<Device>::Places places;
  typename Mailbox<Device>::template Slot<double> answer = places.template take<double>(1);
  typename Mailbox<Device>::template Slot<Index> count = places.template take<Index>(1);
  typename Mailbox<Device>::template Slot<Token> none = places.template take<Token>(0),
                                                 token = places.template take<Token>(3);
  Mailbox<Device> mailbox;
  explicit Letters(Device& device) : mailbox(device, places) {}

  double sum() const {
    double sum = double(*mailbox.there(count));
    for (int i = 0; i < 3; ++i) sum += mailbox.there(token)[i];
    return sum;
  }
  void send(Token first) {
    *mailbox.to_send(count) = 1000;
    for (int i = 0; i < 3; ++i) mailbox.to_send(token)[i] = first + i;
    mailbox.send(count.begin, token.end());
  }
};

TEST_CASE("mailbox: everything goes there in one copy, and an answer comes in another one", "[mailbox]") {
  Remote device;
  Letters<Remote> letters(device);
  CHECK(letters.token.begin % 64 == 0);
  CHECK(letters.none.end() == letters.token.begin);
  letters.send(1);
  CHECK(device.sent == 1);
  CHECK(device.waits == 0);
  device.synchronize();
  *letters.mailbox.there(letters.answer) = letters.sum();
  letters.mailbox.fetch(letters.answer.begin, letters.answer.end());
  CHECK(*letters.mailbox.fetched(letters.answer) == 1006);
  CHECK(device.fetched == 1);
  CHECK(device.waits == 2);
}

TEST_CASE("mailbox: nothing is overwritten that is still on its way", "[mailbox]") {
  Remote device;
  Letters<Remote> letters(device);
  letters.send(1);
  *letters.mailbox.to_send(letters.token) = 7;
  CHECK(device.waits == 1);
  CHECK(letters.sum() == 1006);
  letters.mailbox.to_send(letters.token)[1] = 7;
  CHECK(device.waits == 1);
}

TEST_CASE("mailbox: a device that shares the host's memory has everything at once", "[mailbox]") {
  CpuDevice<Isa::baseline> device(1);
  Letters<CpuDevice<Isa::baseline>> letters(device);
  letters.send(1);
  CHECK(letters.sum() == 1006);
  *letters.mailbox.there(letters.answer) = 5;
  letters.mailbox.fetch(letters.answer.begin, letters.answer.end());
  CHECK(*letters.mailbox.fetched(letters.answer) == 5);
}

}  // namespace
}  // namespace abh
