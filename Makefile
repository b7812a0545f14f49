# Each target first creates the virtual environment .venv with pinned packages, if it is missing.

PYTHON := .venv/bin/python
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

# A variable of the command line must be one that the help of the target names.
given := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),'$(name)'))
ifneq ($(strip $(given)),)
unknown := $(shell $(firstword $(wildcard .venv/bin/python) python3) .ci/variables.py '$(MAKECMDGOALS)' $(given))
$(if $(unknown),$(error $(unknown)))
endif

VECTORS ?=
TARGET ?= golden
PRESET ?= default
PIN = $(PYTHON) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command 'make pins' $(if $(UPGRADE),--upgrade-package '$(UPGRADE)')
CREW = $(if $(SCHEDULER),--scheduler $(SCHEDULER)) $(if $(WORKERS),--workers $(WORKERS))
MIKE = PATH="$(CURDIR)/.venv/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup sim test regress soc formal fuzz soak lint verification paths verilog conformance replay coverage mutate mutate-golden bench \
	cells synth sta bench-golden pins readme registers docs publish waves clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | awk -F '\t' '{ printf "make %-13s %s\n", $$1, $$2 }'

setup: ## create the virtual environment .venv with all packages; every other target does this first
	@sh .ci/setup

sim: setup ## run a warp-specialized GEMM on the behavioural SM and check its result, or replay its loads and stores in Icarus Verilog from X at power-up [M= N= K= STAGES= EPILOGUE=store|reduce CLUSTER=2x1 A=a.npy B=b.npy SIM=icarus]
	$(if $(filter-out store reduce,$(EPILOGUE)),$(error EPILOGUE = $(EPILOGUE): must be store or reduce))
	$(if $(filter-out icarus,$(SIM)),$(error SIM = $(SIM): must be icarus))
	$(if $(SIM),$(if $(CLUSTER)$(filter reduce,$(EPILOGUE)),$(error SIM = icarus: one SM and EPILOGUE=store only)))
	@$(PYTHON) -m $(if $(SIM),sim_tb.four_state,sim_tb run $(if $(filter reduce,$(EPILOGUE)),gemm_split_k,gemm) --report build/sim) \
		$(if $(M),--m $(M)) $(if $(N),--n $(N)) $(if $(K),--k $(K)) $(if $(STAGES),--stages $(STAGES)) \
		$(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(A),--a '$(A)') $(if $(B),--b '$(B)')

test: setup ## every test but the long ones
	@$(PYTHON) -W error -m pytest -n auto --dist loadgroup --durations 10 -m "not regress"

regress: setup ## every test, on all cores or on the workers of a scheduler [SCHEDULER=tcp://host:8786] [WORKERS=2]
	@$(PYTHON) -W error -m tests.regress $(CREW)

soc: setup ## multiply matrices in an example SoC, a RISC-V processor with the unit, and check them; needs Debian's gcc-riscv64-unknown-elf [M= N= K=]
	@$(PYTHON) -W error -m examples.soc $(if $(M),--m $(M)) $(if $(N),--n $(N)) $(if $(K),--k $(K))

formal: setup ## run all proofs, and again with planted bugs, which must fail
	@$(PYTHON) -W error -m tests.formal

fuzz: setup ## compare random and malformed requests on the golden model and the RTL; write what differs to build/fuzz [COUNT=10000] [SEED=1] [CLUSTERS=1] [SCHEDULER=tcp://host:8786] [WORKERS=2]
	@$(PYTHON) -W error -m tests.fuzz $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(CLUSTERS),--clusters) $(CREW)

lint: setup ## run ruff, mypy, Verilator's lint on the generated Verilog, and the check of combinational paths
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -W error -m hw.lint
	@$(PYTHON) -W error -m hw.paths --ports --preset host & host=$$!; \
	$(PYTHON) -W error -m hw.paths --ports; default=$$?; \
	wait $$host && exit $$default

paths: setup ## print the longest path between registers and the paths from inputs to outputs of each block; fail on one that is not listed [PRESET=default] [BLOCK=name]
	@$(PYTHON) -W error -m hw.paths --preset $(PRESET) $(if $(BLOCK),--block $(BLOCK))

verilog: setup ## write the unit to build/rtl, as Verilog with macros and JSON of its ports, and print the ports [PRESET=default]
	@$(PYTHON) -W error -m hw.verilog --preset $(PRESET)

conformance: setup ## run recorded cases of the silicon through the golden model or the RTL: VECTORS=FILE [TARGET=golden|rtl] [KINDS=a,b] [LIMIT=n] [MODELS=rough] [PORT=axi|tlb|contexts]
	@test -n "$(VECTORS)" || { echo "make conformance: VECTORS=FILE is missing" >&2; exit 2; }
	@$(PYTHON) -W error -m sim_tb.conformance '$(VECTORS)' --target $(TARGET) \
		$(if $(KINDS),--kinds $(KINDS)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(MODELS),--models $(MODELS)) \
		$(if $(PORT),--port $(PORT))

replay: setup ## run recorded launches of PTX kernels and compare each byte of memory: CASES=DIR [LIMIT=n]
	@test -n "$(CASES)" || { echo "make replay: CASES=DIR is missing" >&2; exit 2; }
	@$(PYTHON) -W error -m sim_tb ptx '$(CASES)' $(if $(LIMIT),--limit $(LIMIT))

coverage: setup ## report the kinds of requests that were simulated, the branches of the RTL that were taken, and the edges of registers [PRESET=sm_100a] [SEEDS=3] [COUNT=400]
	@$(PYTHON) -W error -m sim_tb.coverage --preset $(PRESET) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(COUNT),--count $(COUNT))

soak: setup ## run random requests on the default unit and on a cluster without a reset; nothing may be stuck or lost [CLOCKS=100000000] [SEED=1] [DESIGN=unit|cluster] [SCHEDULER=tcp://host:8786] [WORKERS=2]
	@$(PYTHON) -W error -m tests.soak $(if $(CLOCKS),--clocks $(CLOCKS)) $(if $(SEED),--seed $(SEED)) \
		$(if $(DESIGN),--design $(DESIGN)) $(CREW)

mutate: setup ## plant mutants in the RTL and report how many of them each suite of tests kills; 60 take an hour [COUNT=1000] [SEED=1] [DESIGN=unit|axi|tlb|contexts] [BLOCK=LineCutter] [SUITE=recordings|random|directed|blocks] [APART=100] [SCHEDULER=tcp://host:8786] [WORKERS=2]
	@$(PYTHON) -W error -m sim_tb.mutation $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
		$(if $(DESIGN),--design $(DESIGN)) $(if $(BLOCK),--block $(BLOCK)) $(if $(SUITE),--suite $(SUITE)) \
		$(if $(APART),--apart $(APART)) $(CREW)

mutate-golden: setup ## plant mutants in the golden model and report how many of them its tests kill; 1,000 take an hour [COUNT=1000] [SEED=1] [MODULE=walk] [WORKERS=1] [DOCS=1]
	$(if $(filter-out 1,$(DOCS)),$(error DOCS = $(DOCS): must be 1))
	@$(PYTHON) -W error -m tests.golden.mutation $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
		$(if $(MODULE),--module $(MODULE)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(DOCS),--docs)

bench: setup ## measure cycles per box, compare them with the floor and the silicon, and check the bounds [VECTORS=FILE|random:SEED:COUNT] [WAY=store|both] [COUNTERS=1]
	@$(PYTHON) -W error -m sim_tb.bench $(if $(VECTORS),'$(VECTORS)') $(if $(WAY),--way $(WAY)) \
		$(if $(COUNTERS),--counters)

cells: setup ## count the gates and flip-flops that each optional feature adds
	@$(PYTHON) -W error -m hw.cells

synth: setup ## synthesize presets for an ECP5 and report area and clock; takes more than half an hour [PRESET=tiny|fpga|full] [SEEDS=2,3,4] [NEXTPNR=program]
	@$(PYTHON) -W error -m hw.synth $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(NEXTPNR),--nextpnr $(NEXTPNR)) \
		$(if $(filter file,$(origin PRESET)),,--preset $(PRESET))

sta: setup ## map presets to standard cells, and report area and clock before layout; needs Debian's yosys and opensta [PRESET=tiny,fpga,default] [LIBERTY=file]
	@$(PYTHON) -W error -m hw.sta $(if $(LIBERTY),--liberty $(LIBERTY)) \
		$(if $(filter file,$(origin PRESET)),,--preset $(PRESET))

bench-golden: setup ## compare the time of the golden model with numpy.copyto of the same bytes
	@$(PYTHON) -W error -m golden.bench

pins: setup ## write .ci/requirements.txt and .ci/sdist.txt, versions and hashes of all packages, from pyproject.toml; versions that fit are kept [UPGRADE=name]
	@$(PIN) pyproject.toml --extra all --group dev --output-file .ci/requirements.txt
	@$(PIN) --group sdist --constraints .ci/requirements.txt --output-file .ci/sdist.txt

readme: setup ## write the tables of README.md from their sources [MEASURE=1]
	$(if $(filter-out 1,$(MEASURE)),$(error MEASURE = $(MEASURE): must be 1))
	@$(PYTHON) -W error -m sim_tb.readme $(if $(MEASURE),--measure)

verification: setup ## write the tables of docs/verification.md: tests, proofs, coverage and mutants of each block
	@$(PYTHON) -W error -m tests.docs.verification

registers: setup ## write docs/registers.md and the C header of the registers from hw/host/registers.rdl
	@$(PYTHON) -W error -m hw.registers

docs: setup ## build all pages of docs and this README as a site that needs no network, in build/docs
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet --strict --config-file .ci/mkdocs.yml
	@echo "build/docs/index.html"

publish: setup ## commit the site to the branch gh-pages, in a folder of its version beside those of other versions
	@$(MIKE) --quiet deploy --config-file .ci/mkdocs.yml --update-aliases \
		$$($(PYTHON) -c 'import open_tma; print(open_tma.__version__)') latest
	@$(MIKE) set-default --config-file .ci/mkdocs.yml latest
	@$(MIKE) list --config-file .ci/mkdocs.yml

waves: setup ## run a test with a trace, and write a save file for GTKWave: TEST=name
	@test -n "$(TEST)" || { echo "make waves: TEST=name is missing" >&2; exit 2; }
	@$(PYTHON) -m sim_tb.waves $(TEST)

clean: ## remove the folder build
	@rm -rf build
