# A thin face over CMake. `make help` lists what there is.
BUILD ?= build
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
ARGS ?=

.DEFAULT_GOAL := all
.PHONY: all train generate golden bench test check-all help clean configure

all: configure ## build the programs into build/
	@cmake --build $(BUILD) -j $(JOBS)

configure:
	@tools/need.sh cmake c++
	@[ -f $(BUILD)/CMakeCache.txt ] || cmake -S . -B $(BUILD) >/dev/null

train: configure ## train on Tiny Shakespeare (ARGS="--steps 500 ..."), into runs/tiny
	@cmake --build $(BUILD) -j $(JOBS) --target train | tail -n 1
	@text=$$(data/tinyshakespeare.sh $(BUILD)) && $(BUILD)/train --data "$$text" $(ARGS)
	@[ -n "$(ARGS)" ] || { printf '\nA sample of what it writes (runs/tiny/sample.txt):\n'; head -n 12 runs/tiny/sample.txt; }

generate: configure ## continue a text with the trained model (ARGS='--prompt "ROMEO:"')
	@cmake --build $(BUILD) -j $(JOBS) --target generate | tail -n 1
	@$(BUILD)/generate $(ARGS)

golden: configure ## check numbers computed elsewhere (FILES="a.safetensors ...")
	@cmake --build $(BUILD) -j $(JOBS) --target golden | tail -n 1
	@[ -n "$(FILES)" ] || { echo 'make golden: name the files, FILES="..."; docs/golden.md says what they hold' >&2; exit 2; }
	@$(BUILD)/golden $(ARGS) $(FILES)

bench: configure ## measure speed beside this machine's peaks (ARGS="--preset baby")
	@cmake --build $(BUILD) -j $(JOBS) --target bench | tail -n 1
	@$(BUILD)/bench $(ARGS)

test: ## build and run the tests (under 5 minutes on 2 cores)
	@tools/test.sh $(BUILD)

check-all: ## everything, the long way: sanitizers, clang, fallback, fuzzing (an hour or so)
	@tools/check_all.sh

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

clean: ## remove what was built (runs/ stays)
	rm -rf build build-*
