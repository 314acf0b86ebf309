# Calls CMake and the programs. `make help` lists the targets.
BUILD ?= build
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
ARGS ?=
# The default flags of `make train`: those of `make train_long` with a smaller network. The run takes at most three
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
# Prints the sample, unless ARGS can select another folder.
sample = $(if $(ARGS),,@printf '\nGenerated sample ($(1)/sample.txt):\n'; head -n 12 $(1)/sample.txt)

story: configure ## run src/apps/story.cpp, a complete training program in one file (ARGS="my.txt 800")
	$(call build,story)
	@$(BUILD)/story $(ARGS)

train: configure ## train on Tiny Shakespeare (ARGS="--steps 500 ..."), into runs/tiny; an older run is moved
	$(call build,train)
	@text=$$(data/tinyshakespeare.sh $(BUILD)) && $(START) $(BUILD)/train --data "$$text" $(or $(ARGS),$(RECIPE))
	$(call sample,runs/tiny)

reviews: configure ## train to classify synthetic reviews (ARGS="--labels tone"), into runs/reviews
	$(call build,train draw)
	@$(BUILD)/train --task reviews $(ARGS)
	$(call sample,runs/reviews)
	$(if $(ARGS),,@printf '\nLoss curve: runs/reviews/loss.svg\n'; $(BUILD)/draw --checkpoint runs/reviews --example 2)

digits: configure ## train to classify synthetic images of digits (ARGS="--class-pooling cls"), into runs/digits
	$(call build,train draw)
	@$(START) $(BUILD)/train --task digits $(ARGS)
	$(call sample,runs/digits)
	$(if $(ARGS),,@printf '\nLoss curve: runs/digits/loss.svg\n'; $(BUILD)/draw --checkpoint runs/digits --example 3)

train_long: ## train a larger network with Muon, for up to half an hour, into runs/shakespeare
	@$(MAKE) --no-print-directory train ARGS='--preset shakespeare $(ARGS)'
	$(call sample,runs/shakespeare)

train_many: ## like train, in two processes with one thread each (ARGS="--steps 500 ...")
	@tools/need.sh cmake c++ mpi
	@[ -f $(BUILD)-mpi/Makefile ] || cmake -S . -B $(BUILD)-mpi -DBUILD_MPI=ON >/dev/null
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-mpi START='extras/distributed/mpirun.sh 2' train \
	  ARGS='--threads 1 --shards 2 $(or $(ARGS),$(RECIPE))'

train_gpu: ## like train, on an NVIDIA GPU in bf16, preset baby (ARGS="--preset ..."), into runs/baby
	@tools/need_gpu.sh
	@tools/need.sh cmake c++
	@[ -f $(BUILD)-cuda/Makefile ] || { gpu=$$(tools/gpu_architectures.sh); \
	  cmake -S . -B $(BUILD)-cuda -DBUILD_CUDA=ON $${gpu:+"-DCMAKE_CUDA_ARCHITECTURES=$$gpu"} >/dev/null; }
	@$(MAKE) --no-print-directory BUILD=$(BUILD)-cuda train \
	  ARGS='--device cuda --type bf16 $(if $(findstring --preset,$(ARGS)),,--preset baby) $(ARGS)'

sort: configure ## train to sort arrays of six digits, into runs/sort (ARGS="--length 8 --digits 5 ...")
	$(call build,train generate evaluate draw)
	@$(START) $(BUILD)/train --task sort $(ARGS)
	$(if $(ARGS),,@printf '\nSorted digits of 3 1 2 1 3 2: '; \
	  $(BUILD)/generate --checkpoint runs/sort --prompt '3 1 2 1 3 2'; $(BUILD)/evaluate --checkpoint runs/sort; \
	  $(BUILD)/draw --checkpoint runs/sort --text '3 1 2 1 3 2')

dates: configure ## train to convert dates to the form 1999-09-22, into runs/dates (ARGS="--mixer additive ...")
	$(call build,train generate evaluate draw)
	@$(START) $(BUILD)/train --task dates $(ARGS)
	$(if $(ARGS),,@printf '\nThe 22nd of September 1999, converted: '; \
	  $(BUILD)/generate --checkpoint runs/dates --prompt 'the 22nd of september 1999'; \
	  $(BUILD)/evaluate --checkpoint runs/dates --decode --beam 4; \
	  $(BUILD)/draw --checkpoint runs/dates --text 'the 22nd of september 1999')

recall: configure ## train to recall the symbol after a marker, into runs/recall (ARGS="--mixer additive ...")
	$(call build,train evaluate draw)
	@$(START) $(BUILD)/train --task recall $(ARGS)
	$(if $(ARGS),,@$(BUILD)/evaluate --checkpoint runs/recall; $(BUILD)/draw --checkpoint runs/recall --example 0)

generate: configure ## continue a text with the trained model (ARGS='--prompt "ROMEO:"')
	$(call build,generate)
	@$(BUILD)/generate $(ARGS)

evaluate: configure ## evaluate the trained model on a text (ARGS="--data my.txt --by-character")
	$(call build,evaluate)
	@$(if $(findstring --data,$(ARGS)),,text=$$(data/tinyshakespeare.sh $(BUILD)) &&) \
	  $(BUILD)/evaluate $(if $(findstring --data,$(ARGS)),,--data "$$text") $(ARGS)

draw: configure ## draw the activations of a trained model (ARGS='--text "ROMEO:"')
	$(call build,draw)
	@$(BUILD)/draw $(ARGS)

golden: configure ## compare results with numbers of other programs (FILES="a.safetensors ...")
	$(call build,golden)
	$(if $(FILES),,@echo 'make golden: set FILES="..."; docs/golden.md describes the files' >&2; exit 2)
	@$(BUILD)/golden $(ARGS) $(FILES)

bench: configure ## measure the speed, compared with the peak rates of this machine (ARGS="--preset baby")
	$(call build,bench)
	@$(BUILD)/bench $(ARGS)

regress: configure ## run kernel regression on fifty points (ARGS="--draws 1000 --out runs/regress")
	$(call build,regress)
	@$(BUILD)/regress $(ARGS)

test: ## build and run the tests (about 8 minutes on 2 cores)
	@tools/test.sh $(BUILD)

gradcheck: ## print a table that compares the GPU kernels (emulated, real) with the CPU in double, per layer and tensor
	@tools/gradcheck.sh $(BUILD)

site: ## write the web site with equations, plain loops, CPU and GPU code, into build/site
	@tools/site.sh --out $(BUILD)/site

check-all: ## run all checks: sanitizers, clang++, several processes, fallbacks, fuzzing (about two hours)
	@tools/check_all.sh

help: ## list the targets
	@sed -n 's/^\([a-z_-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

clean: ## remove build folders (runs/ stays)
	rm -rf build build-*
