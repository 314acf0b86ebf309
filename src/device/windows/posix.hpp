// POSIX functions of this project that the C library of Windows does not have or declares differently. On Windows,
// CMakeLists.txt includes this file before every other file.
#pragma once

#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstddef>
#include <cstdlib>

inline constexpr int O_CLOEXEC = _O_NOINHERIT, O_NONBLOCK = 0;

// The functions of the library have 32-bit sizes.
inline constexpr std::size_t largest_transfer = std::size_t{1} << 30;
inline ssize_t read(int file, void* bytes, std::size_t size) {
  return ::read(file, bytes, static_cast<unsigned>(std::min(size, largest_transfer)));
}
inline ssize_t write(int file, const void* bytes, std::size_t size) {
  return ::write(file, bytes, static_cast<unsigned>(std::min(size, largest_transfer)));
}

inline int mkdir(const char* path, int) { return ::mkdir(path); }
inline int lstat(const char* path, struct stat* status) { return ::stat(path, status); }

// Windows opens the standard streams of every program.
inline constexpr int F_GETFD = 1;
inline int fcntl(int, int) { return 0; }

inline constexpr int _SC_PHYS_PAGES = 1, _SC_PAGESIZE = 2;
long sysconf(int name);  // system.cpp

// SIGHUP: the window is closed or the user logs out. signal() rejects SIGPIPE; a failed write returns an error instead.
inline constexpr int SIGHUP = 1, SIGPIPE = 13;
inline constexpr int SA_RESTART = 0, SA_RESETHAND = 0;  // signal() does both
struct sigaction {
  void (*sa_handler)(int);
  int sa_flags;
};
int sigaction(int number, const struct sigaction* action, struct sigaction* before);  // system.cpp

using locale_t = _locale_t;
inline constexpr int LC_ALL_MASK = LC_ALL;
inline locale_t newlocale(int categories, const char* name, locale_t) { return _create_locale(categories, name); }
inline double strtod_l(const char* text, char** end, locale_t locale) { return _strtod_l(text, end, locale); }
