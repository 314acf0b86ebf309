#!/bin/sh
# Package: glibc (tested: 2.36 of Debian 12) on x86-64; downloads nothing, needs a C compiler.
# Expectation: exp(x), log(x), sin(x), cos(x) and pow(x, y) of one binary have the same result on every processor.
# Behaviour: glibc uses variants with fused multiply-adds if the processor has them. They differ from the other variants
#   in the last bit of up to 8 in ten thousand doubles. GLIBC_TUNABLES can disable FMA, so one machine shows both
#   variants.
# Consequence: initial weights, the schedule and position tables use these functions in double and round the result to
#   float. The rounding hides the difference unless the two doubles round to different floats (docs/same_bits.md).
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
