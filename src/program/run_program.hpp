#pragma once

namespace abh {

// Writes out what is buffered for standard output. Error if that, or any earlier write, failed. A program that streams
// calls it now and then: SIGPIPE is ignored, so nothing else would stop it once its reader has gone.
void flush_standard_output();

// The common main: runs body(argc, argv) and returns its status. An exception becomes the line `name: message` on
// standard error and the status of the Error, or 1. Standard output is flushed and checked at the end. Writes beyond
// the file size limit and into a closed pipe fail with an error instead of a signal.
int run_program(const char* name, int argc, char** argv, int (*body)(int, char**));

}  // namespace abh
