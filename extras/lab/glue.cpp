// Replaces the system calls that the standard libraries make, for a module without imports.

#include "extras/lab/glue.hpp"

#include <wasi/api.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <typeinfo>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

std::string& thrown_text() {
  static std::string text;
  return text;
}

}  // namespace abh

extern "C" {

// An exception ends the call: its text is stored, and the caller reads it and restarts. Nothing is caught here, and
// nothing is cleaned up.
void* __cxa_allocate_exception(std::size_t size) noexcept { return std::malloc(size); }
void __cxa_free_exception(void* thrown) noexcept { std::free(thrown); }
[[noreturn]] void __cxa_throw(void* thrown, std::type_info* type, void (*)(void*)) {
  std::string& text = abh::thrown_text();
  if (*type == typeid(abh::Error) || *type == typeid(abh::UsageError)) {
    text = abh::one_line(static_cast<abh::Error*>(thrown)->what());
  } else if (*type == typeid(std::bad_alloc)) {
    text = "out of memory";
  } else {
    text = type->name();
  }
  __builtin_trap();
}

// No environment, no streams, no exit.
char* getenv(const char*) { return nullptr; }
_Noreturn void abort() { __builtin_trap(); }
// Imports of wasi-libc's streams, which are not used.
int __imported_wasi_snapshot_preview1_fd_close(int) { return __WASI_ERRNO_BADF; }
int __imported_wasi_snapshot_preview1_fd_seek(int, long long, int, int) { return __WASI_ERRNO_BADF; }
int __imported_wasi_snapshot_preview1_fd_write(int, int, int, int) { return __WASI_ERRNO_BADF; }
}
