#!/bin/sh
# Package: glibc (2.36 of Debian 12 was tried) on x86-64; nothing is downloaded, a C compiler is needed.
# Expectation: one binary has one result of exp(x), log(x), sin(x), cos(x) and pow(x, y) on every processor.
# Behaviour: glibc chooses variants with fused multiply-adds where the processor has them. They differ from the others in
#   the last bit of up to 8 doubles in ten thousand. GLIBC_TUNABLES, which takes FMA away, shows this on one machine.
# Consequence: initial weights, the schedule and tables of positions take these functions in double and round to float,
#   which hides the difference unless a float border lies between (docs/same_bits.md).
set -u
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cat >"$folder/functions.c" <<'PROGRAM'
#include <gnu/libc-version.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

static double power(double x) { return pow(x, 0.3); }
static double exp_float(double x) { return expf((float)x); }
static double log_float(double x) { return logf((float)x); }
static double sin_float(double x) { return sinf((float)x); }

int main(void) {
  double (*const functions[])(double) = {exp, log, sin, cos, power, exp_float, log_float, sin_float};
  const char* const names[] = {"exp", "log", "sin", "cos", "pow", "expf", "logf", "sinf"};
  fprintf(stderr, "glibc %s\n", gnu_get_libc_version());
  for (int f = 0; f < 8; ++f) {
    uint64_t state = 1;
    for (int i = 0; i < 100000; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const double y = functions[f]((double)(state >> 11) * 0x1p-49);  // from 0 to 16
      printf("%s %a %a\n", names[f], y, (double)(float)y);
    }
  }
  return 0;
}
PROGRAM
"${CC:-cc}" -O1 -ffp-contract=off -o "$folder/functions" "$folder/functions.c" -lm || exit 2
"$folder/functions" >"$folder/here" || exit 2
GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4 "$folder/functions" >"$folder/without" 2>/dev/null || exit 2
paste -d ' ' "$folder/here" "$folder/without" | awk '
  $1 != name { name = names[++count] = $1 }
  { ++all[name]; differ[name] += $2 != $5; rounded[name] += $3 != $6 }
  END {
    for (i = 1; i <= count; ++i) {
      name = names[i]
      printf "%-4s %d of %d results differ without FMA, %d as floats\n", name, differ[name], all[name], rounded[name]
      sum += differ[name]
    }
    print sum ? "as described" : "CHANGED, or a processor without FMA"
    exit !sum
  }'
