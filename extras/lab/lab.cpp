// Interface of the lab for its page (worker.js). The input of a call is in `room`, with its size as argument. The
// output is JSON in `text`, with numbers and bytes in arrays. A call that fails traps, and `error` gives the reason.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "extras/lab/files.hpp"
#include "extras/lab/glue.hpp"
#include "extras/lab/session.hpp"
#include "program/terminal.hpp"

#define EXPORT(name) __attribute__((export_name(#name))) name

namespace abh {

// There is no terminal: the text of --help is not shown.
void print(std::string_view) {}
std::optional<std::size_t> terminal_columns() { return std::nullopt; }

namespace {

std::string given, told;
Numbers numbers;
std::vector<char> bytes;
std::unique_ptr<Session> session;

// Zero-terminated words in `room`.
std::vector<std::string> words(int size) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < static_cast<std::size_t>(size);) {
    all.emplace_back(given.c_str() + begin);
    begin += all.back().size() + 1;
  }
  return all;
}

Session& open_session() {
  if (!session) throw Error("expected an open run or network, found none");
  return *session;
}

}  // namespace
}  // namespace abh

extern "C" {

using namespace abh;

char* EXPORT(room)(int size) {
  given.resize(static_cast<std::size_t>(size));
  return given.data();
}
const char* EXPORT(error)() { return thrown_text().c_str(); }
const char* EXPORT(text)() { return told.c_str(); }
const float* EXPORT(numbers_at)() { return numbers.values.data(); }
int EXPORT(numbers_count)() { return static_cast<int>(numbers.values.size()); }
const char* EXPORT(bytes_at)() { return bytes.data(); }
int EXPORT(bytes_count)() { return static_cast<int>(bytes.size()); }

// Called after a failed call, which did not change its objects.
void EXPORT(mend)() {
  PageDevice::touches = nullptr;
  PageDevice::reads = nullptr;
  PageDevice::sees_gradient = nullptr;
}

// A name, a zero byte, and the bytes of a file. The file replaces an earlier one with this name.
void EXPORT(file)(int size) {
  const std::string name = given.c_str();
  page_files().clear();
  page_files()[name] = given.substr(name.size() + 1, static_cast<std::size_t>(size) - name.size() - 1);
}
// If a run or a network cannot be opened, the previous one stays open.
void EXPORT(open_run)(int size) {
  session = std::make_unique<Session>(words(size), numbers);
  told = session->description();
}
void EXPORT(load)(int size) {
  const std::string name = given.c_str();
  session = std::make_unique<Session>(
      std::string_view(given).substr(name.size() + 1, static_cast<std::size_t>(size) - name.size() - 1), name, numbers);
  told = session->description();
}

// Restricts the data of later steps, and adds label noise (Session::limit_data).
void EXPORT(limit_data)(int batches, double noise) { open_session().limit_data(batches, noise); }
double EXPORT(step)() { return open_session().step(); }
int EXPORT(steps)() { return static_cast<int>(open_session().steps()); }
int EXPORT(done)() { return open_session().done(); }
double EXPORT(gradient_norm)() { return open_session().gradient_norm(); }
double EXPORT(learning_rate)() { return open_session().learning_rate(); }

void EXPORT(begin_evaluation)() { open_session().begin_evaluation(); }
int EXPORT(evaluate_some)() {
  const bool more = open_session().evaluate_some();
  if (!more) told = open_session().evaluation();
  return more;
}

// All changes as words; an empty word ends a change.
void EXPORT(touch)(int size) {
  std::vector<std::vector<std::string>> changes;
  std::vector<std::string> change;
  for (std::string& word : words(size)) {
    if (!word.empty()) {
      change.push_back(std::move(word));
    } else {
      changes.push_back(std::exchange(change, {}));
    }
  }
  open_session().touch(changes);
}

void EXPORT(example)(int number) { told = open_session().example(number); }
void EXPORT(holds)() { told = open_session().memory(); }
void EXPORT(look)(int size) { told = open_session().look(given.substr(0, static_cast<std::size_t>(size))); }
void EXPORT(answer)(int size) { told = open_session().answer(given.substr(0, static_cast<std::size_t>(size))); }
void EXPORT(values)(int size) {
  const std::vector<std::string> asked = words(size);
  told = open_session().values(asked.at(0), asked.at(1));
}

// The prompt, and the sampling settings of generate.
void EXPORT(begin_writing)(int size, int has_prompt, double temperature, unsigned seed) {
  open_session().begin_writing(given.substr(0, static_cast<std::size_t>(size)), has_prompt != 0,
                               {.temperature = temperature, .seed = seed});
}
void EXPORT(write_some)(int tokens) { told = open_session().write_some(tokens); }
void EXPORT(score)(int size) { told = open_session().score(given.substr(0, static_cast<std::size_t>(size))); }
void EXPORT(save)() { bytes = open_session().checkpoint(); }
}
