# Each target does all set-up it needs, once: a virtual environment in .venv, packages pinned.

PYTHON := .venv/bin/python
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

VECTORS ?=
TARGET ?= golden
PRESET ?= default

.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup sim test regress formal lint verilog conformance coverage bench cells synth \
	bench-golden waves clean

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | awk -F '\t' '{ printf "make %-12s %s\n", $$1, $$2 }'

setup: ## the virtual environment with all packages; every other target does it, too
	@sh .ci/setup

sim: setup ## a warp-specialized GEMM on the behavioural SM [M= N= K= STAGES= EPILOGUE=store|reduce CLUSTER=2x1 A=a.npy B=b.npy]
	$(if $(filter-out store reduce,$(EPILOGUE)),$(error EPILOGUE = $(EPILOGUE): must be store or reduce))
	@$(PYTHON) -m sim_tb run $(if $(filter reduce,$(EPILOGUE)),gemm_split_k,gemm) --report build/sim \
		$(if $(M),--m $(M)) $(if $(N),--n $(N)) $(if $(K),--k $(K)) $(if $(STAGES),--stages $(STAGES)) \
		$(if $(CLUSTER),--cluster $(CLUSTER)) $(if $(A),--a $(A)) $(if $(B),--b $(B))

test: setup ## every test but the long ones
	@$(PYTHON) -W error -m pytest -n auto --dist loadgroup --durations 10 -m "not regress"

regress: setup ## every test
	@$(PYTHON) -W error -m pytest --durations 10

formal: setup ## all proofs, and again with planted bugs, which must fail them
	@$(PYTHON) -W error -m tests.formal

lint: setup ## ruff, mypy, Verilator's lint of the generated Verilog
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -W error -m hw.lint

verilog: setup ## build/rtl/tma.v, its ports as JSON and as a table [PRESET=default]
	@$(PYTHON) -W error -m hw.verilog --preset $(PRESET)

conformance: setup ## silicon vectors: VECTORS=FILE [TARGET=golden|rtl] [KINDS=a,b] [LIMIT=n] [MODELS=rough]
	@test -n "$(VECTORS)" || { echo "make conformance: VECTORS=FILE is missing" >&2; exit 2; }
	@$(PYTHON) -W error -m sim_tb.conformance $(VECTORS) --target $(TARGET) \
		$(if $(KINDS),--kinds $(KINDS)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(MODELS),--models $(MODELS))

coverage: setup ## kinds of loads simulated, branches of the RTL taken [PRESET= SEEDS= COUNT=]
	@$(PYTHON) -W error -m sim_tb.coverage --preset $(PRESET) $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(COUNT),--count $(COUNT))

bench: setup ## steady-state cycles a box beside floor and silicon's; bounds [VECTORS=file|random:SEED:COUNT] [WAY=store|both]
	@$(PYTHON) -W error -m sim_tb.bench $(VECTORS) $(if $(WAY),--way $(WAY))

cells: setup ## what each optional feature costs
	@$(PYTHON) -W error -m hw.cells

synth: setup ## area and clock in an ECP5, half an hour and more [PRESET=tiny|fpga|full SEEDS=1,2,3]
	@$(PYTHON) -W error -m hw.synth $(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(filter file,$(origin PRESET)),,--preset $(PRESET))

bench-golden: setup ## the golden model's time beside numpy.copyto of the same bytes
	@$(PYTHON) -W error -m golden.bench

waves: setup ## the named test again, traced, with a GTKWave save file: TEST=name
	@test -n "$(TEST)" || { echo "make waves: TEST=name is missing" >&2; exit 2; }
	@$(PYTHON) -m sim_tb.waves $(TEST)

clean: ## remove what was built; .venv stays
	@rm -rf build
