#pragma once

namespace abh {

// Flushes standard output. Error if this or any earlier write failed. A program that streams output calls it regularly:
// SIGPIPE is ignored, so nothing else stops the program after the reader has exited.
void flush_standard_output();

// Common main: runs body(argc, argv) and returns its status. For an exception, it prints the line `name: message` on
// standard error and returns the status of the Error, or 1. At the end it flushes and checks standard output. Writes
// beyond the file size limit and into a closed pipe fail with an error instead of a signal.
int run_program(const char* name, int argc, char** argv, int (*body)(int, char**));

}  // namespace abh
