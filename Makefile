# A thin face over CMake. `make help` lists what there is.
BUILD ?= build
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
ARGS ?=
# The default recipe of `make train`: that of `make train_long` at a smaller size. Its number of steps fits into three
# minutes on two cores.
RECIPE = --preset shakespeare --out runs/tiny --layers 4 --channels 160 --heads 5 --context 512 --dropout 0.02 \
  --steps 2800

.DEFAULT_GOAL := all
.PHONY: all story train train_long train_many train_gpu sort reviews digits dates recall generate evaluate draw golden \
  bench regress test gradcheck site check-all help clean configure

all: configure ## build the programs into build/
	@cmake --build $(BUILD) -j $(JOBS)

configure:
	@tools/need.sh cmake c++
	@[ -f $(BUILD)/Makefile ] || cmake -S . -B $(BUILD) >/dev/null

build = @JOBS=$(JOBS) tools/build.sh $(BUILD) $(1)
# Where no ARGS name another folder.
sample = $(if $(ARGS),,@printf '\nA sample of what it writes ($(1)/sample.txt):\n'; head -n 12 $(1)/sample.txt)

story: configure ## read src/apps/story.cpp, then run it: a whole training program (ARGS="my.txt 800")
	$(call build,story)
	@$(BUILD)/story $(ARGS)

train: configure ## train on Tiny Shakespeare (ARGS="--steps 500 ..."), into runs/tiny; an older run moves aside
	$(call build,train)
	@text=$$(data/tinyshakespeare.sh $(BUILD)) && $(START) $(BUILD)/train --data "$$text" $(or $(ARGS),$(RECIPE))
	$(call sample,runs/tiny)

reviews: configure ## learn to judge reviews that are made up (ARGS="--labels tone"), into runs/reviews
	$(call build,train draw)
	@$(BUILD)/train --task reviews $(ARGS)
	$(call sample,runs/reviews)
	$(if $(ARGS),,@printf '\nIts losses: runs/reviews/loss.svg\n'; $(BUILD)/draw --checkpoint runs/reviews --example 2)

digits: configure ## learn to tell drawn digits apart (ARGS="--class-pooling cls"), into runs/digits
	$(call build,train draw)
	@$(START) $(BUILD)/train --task digits $(ARGS)
	$(call sample,runs/digits)
	$(if $(ARGS),,@printf '\nIts losses: runs/digits/loss.svg\n'; $(BUILD)/draw --checkpoint runs/digits --example 3)

train_long: ## a larger network and Muon, for up to half an hour, into runs/shakespeare
	@$(MAKE) --no-print-directory train ARGS='--preset shakespeare $(ARGS)'
	$(call sample,runs/shakespeare)

train_many: ## the same in two processes of one thread (ARGS="--steps 500 ...")
	@tools/need.sh cmake c++ mpi
	@[ -f $(BUILD)-mpi/Makefile ] || cmake -S . -B $(BUILD)-mpi -DBUILD_MPI=ON >/dev/null
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-mpi START='extras/distributed/mpirun.sh 2' train \
	  ARGS='--threads 1 --shards 2 $(or $(ARGS),$(RECIPE))'

train_gpu: ## the same on an NVIDIA GPU: the larger preset (ARGS="--preset ..."), in bf16, into runs/baby
	@tools/need_gpu.sh
	@tools/need.sh cmake c++
	@[ -f $(BUILD)-cuda/Makefile ] || { gpu=$$(tools/gpu_architectures.sh); \
	  cmake -S . -B $(BUILD)-cuda -DBUILD_CUDA=ON $${gpu:+"-DCMAKE_CUDA_ARCHITECTURES=$$gpu"} >/dev/null; }
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-cuda train \
	  ARGS='--device cuda --type bf16 $(if $(findstring --preset,$(ARGS)),,--preset baby) $(ARGS)'

sort: configure ## learn to sort arrays of six digits, into runs/sort (ARGS="--length 8 --digits 5 ...")
	$(call build,train generate evaluate draw)
	@$(START) $(BUILD)/train --task sort $(ARGS)
	$(if $(ARGS),,@printf '\nThe digits 3 1 2 1 3 2, sorted by it: '; \
	  $(BUILD)/generate --checkpoint runs/sort --prompt '3 1 2 1 3 2'; $(BUILD)/evaluate --checkpoint runs/sort; \
	  $(BUILD)/draw --checkpoint runs/sort --text '3 1 2 1 3 2')

dates: configure ## learn to write dates as machines do, into runs/dates (ARGS="--mixer additive ...")
	$(call build,train generate evaluate draw)
	@$(START) $(BUILD)/train --task dates $(ARGS)
	$(if $(ARGS),,@printf '\nThe 22nd of September 1999, as it writes that: '; \
	  $(BUILD)/generate --checkpoint runs/dates --prompt 'the 22nd of september 1999'; \
	  $(BUILD)/evaluate --checkpoint runs/dates --decode --beam 4; \
	  $(BUILD)/draw --checkpoint runs/dates --text 'the 22nd of september 1999')

recall: configure ## learn to recall the symbol behind a marker, into runs/recall (ARGS="--mixer additive ...")
	$(call build,train evaluate draw)
	@$(START) $(BUILD)/train --task recall $(ARGS)
	$(if $(ARGS),,@$(BUILD)/evaluate --checkpoint runs/recall; $(BUILD)/draw --checkpoint runs/recall --example 0)

generate: configure ## continue a text with the trained model (ARGS='--prompt "ROMEO:"')
	$(call build,generate)
	@$(BUILD)/generate $(ARGS)

evaluate: configure ## how well the trained model predicts a text (ARGS="--data my.txt --by-character")
	$(call build,evaluate)
	@$(if $(findstring --data,$(ARGS)),,text=$$(data/tinyshakespeare.sh $(BUILD)) &&) \
	  $(BUILD)/evaluate $(if $(findstring --data,$(ARGS)),,--data "$$text") $(ARGS)

draw: configure ## pictures of what a trained model computes (ARGS='--text "ROMEO:"')
	$(call build,draw)
	@$(BUILD)/draw $(ARGS)

golden: configure ## check numbers computed elsewhere (FILES="a.safetensors ...")
	$(call build,golden)
	$(if $(FILES),,@echo 'make golden: name the files, FILES="..."; docs/golden.md says what they hold' >&2; exit 2)
	@$(BUILD)/golden $(ARGS) $(FILES)

bench: configure ## measure speed beside this machine's peaks (ARGS="--preset baby")
	$(call build,bench)
	@$(BUILD)/bench $(ARGS)

regress: configure ## kernel regression on fifty points (ARGS="--draws 1000 --out runs/regress")
	$(call build,regress)
	@$(BUILD)/regress $(ARGS)

test: ## build and run the tests (some 8 minutes on 2 cores)
	@tools/test.sh $(BUILD)

gradcheck: ## a table of every layer and tensor: GPU kernels (emulated, real) against the CPU in double
	@tools/gradcheck.sh $(BUILD)

site: ## the page to read: equation, plain loop, CPU and GPU line side by side, into build/site
	@tools/site.sh --out $(BUILD)/site

check-all: ## everything, the long way: sanitizers, clang, processes, fallback, fuzzing (an hour or so)
	@tools/check_all.sh

help: ## this list
	@sed -n 's/^\([a-z_-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

clean: ## remove what was built (runs/ stays)
	rm -rf build build-*
