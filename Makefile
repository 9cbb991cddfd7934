# Everything a newcomer needs: `make demo` and `make test`. The rest is for daily work.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
SPARK_STAMP := .venv/.installed-spark

.PHONY: demo test test-ha check bench dev ext fuzz clean

$(STAMP): pyproject.toml setup.py
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install -q --upgrade pip
	COMETMQ_DISABLE_EXT=1 $(BIN)/pip install -q -e '.[dev]'  # `ext` compiles, once
	@touch $@

dev: $(STAMP) ext  ## install everything into .venv, editable, and compile

ext: $(STAMP)  ## compile the *_cy.py modules in place (only what changed)
	@flock .venv/.ext.lock $(BIN)/python setup.py -q build_ext --inplace -j 2
	@$(BIN)/python -m compileall -q src/cometmq  # start-up does not depend on who may write .pyc files

demo: dev $(SPARK_STAMP)
	@$(BIN)/cometmq demo

# Spark and a Java for it (770 MB unpacked). Without them the demo leaves its last part out, so a failure stops nothing; the
# next `make demo` tries again.
$(SPARK_STAMP): $(STAMP)
	@echo "installing Spark for the demo's last part (cometmq[spark])"
	@COMETMQ_DISABLE_EXT=1 $(BIN)/pip install -q -e '.[spark]' && touch $@ \
		|| echo "Spark could not be installed: the demo goes on without its last part"

# Tests with real processes and JVMs depend on time; on a busy machine one may miss its deadline. What failed runs once
# more, alone, and must then pass.
test: dev
	$(BIN)/pytest -q || $(BIN)/pytest -q --last-failed

test-ha: dev  ## every fault that processes can suffer, clients at work, promises checked; HA_TIMES=10 for ten times as many
	HA_STORE_MB=$${HA_STORE_MB:-1024} $(BIN)/pytest -q -s -m 'slow or not slow' tests/ha \
		tests/interop/test_interop_ha_group.py tests/interop/test_interop_ha_classic.py

check: dev  ## style, types, tests that take no Java
	$(BIN)/ruff format --check src tests bench
	$(BIN)/ruff check src tests bench
	$(BIN)/mypy
	$(BIN)/pytest -q -m 'not interop and not crash'

bench: dev  ## CPU per message in process, then the whole broker beside the Java one (bench/RESULTS.md)
	$(BIN)/python -m bench.micro
	$(BIN)/python -m bench.macro

fuzz: dev  ## a million mutated frames and records through all decoders, both twins
	$(BIN)/python -m bench.fuzz --count 1000000 --seed 1

clean:
	rm -rf build dist src/*.egg-info
	find src -name '*.so' -delete
