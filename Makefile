# Every target that needs the environment makes it by itself; `make help` lists them.

PY := .venv/bin/python
TESTS ?= tests
PYTEST := $(PY) -m pytest -n 2 --dist loadgroup

# A room is a folder of tests: make test ROOM=raft
ROOMS := $(filter-out support,$(notdir $(patsubst %/,%,$(dir $(wildcard tests/*/__init__.py tests/node/*/__init__.py)))))
ifdef ROOM
  TESTS := $(wildcard tests/$(ROOM) tests/node/$(ROOM))
  ifeq ($(filter $(ROOM),$(ROOMS)),)
    $(error there is no room "$(ROOM)"; the rooms are $(sort $(ROOMS)))
  endif
endif

SEED ?= 0
SEEDS ?= 20000
RAFT_SEEDS ?= 100000
HOURS ?= 0.5
MINUTES ?= 10
RUNS ?= 30

# Where a container sets it, each of the suite's hundreds of Python processes would compile every
# module anew: a third of their start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help docs setup check quick test thorough mutants sim jepsen score soak upgrade members locks neighbours celery-suites deploy-check spark disks demo bench pictures walk lock release clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock (skipped while that is unchanged)
	@python="$$(PYTHON='$(PYTHON)' sh tools/find_python.sh)" && "$$python" tools/set_up.py

check: setup ## lint, formatting, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

quick: check ## the inner loop, under a minute: also every test that starts no process and is not slow
	$(PYTEST) --quick $(TESTS)

test: check ## everything that CI runs; one room with ROOM=raft
	$(PYTEST) $(TESTS)

thorough: setup ## about eight hours of two cores: the queue machine beside its model, fresh seeds in both simulators
	$(PY) -m pytest -n 2 --timeout 3600 --hypothesis-profile=thorough tests/machine/model tests/client/model
	$(PY) -m tests.sim --fresh --seeds $(SEEDS)
	$(PY) -m tests.sim --fresh --plan sharing --seeds $$(($(SEEDS) / 10))
	for plan in members disks operated; do $(PY) -m tests.sim --fresh --plan $$plan --seeds $$(($(SEEDS) / 10)) || exit 1; done
	$(PY) -m tests.node.raft --fresh --seeds $(RAFT_SEEDS)
	$(PY) -m tests.node.raft --members --fresh --seeds $$(($(RAFT_SEEDS) / 20))

mutants: setup ## put back every known bug, one by one: each must be caught; writes docs/mutants.md
	$(PY) -m pytest tests/node/raft/stock_proofs.py # the harm of the library as it ships
	$(PY) -m tests.mutants

sim: setup ## replay one simulated run: make sim SEED=123
	@$(PY) -m tests.sim --seed $(SEED) --trace

jepsen: setup ## real nodes, real faults, every rule: about ten minutes (MINUTES=n), a report
	@$(PY) -m tests.jepsen --minutes $(MINUTES)

score: setup ## every mutation of good histories, judged by both checkers; writes docs/checkers.md
	@$(PY) -m tests.jepsen.score

soak: setup ## the same on one cluster for HOURS (0.5), its memory watched: make soak HOURS=8
	@$(PY) -m tests.jepsen --hours $(HOURS)

upgrade: setup ## two real releases in one cluster: nodes there, back and there again under load, with faults, disks and members: twenty minutes
	@$(PY) -m tests.upgrade

members: setup ## members change on real processes under load: every procedure of operating.md, crashes; three minutes
	@$(PY) -m tests.members

locks: setup ## renewed locks on real nodes: the leader paused, killed, cut off, RUNS (30) times each; 15 minutes
	@$(PY) -m tests.jepsen.held_locks --runs $(RUNS)

neighbours: setup ## every kind of hostile client beside an honest one, on real nodes: ten minutes; writes docs/neighbours.md
	@$(PY) -m tests.neighbours --write $(NEIGHBOURS)

celery-suites: setup ## the tests of kombu, Celery, dramatiq and taskiq from their source packages (redis-server): half an hour
	@$(PY) -m tests.suites --write $(SUITES)

spark: setup ## Spark with killed drivers, through Connect, on hosts without a common clock (root): ten minutes
	$(PY) -m pytest -n 0 tests/spark/recipe_runs.py tests/spark/lock_runs.py tests/spark/connect_runs.py
	$(PY) -m tests.spark.machines --write docs/spark-machines.md

deploy-check: setup ## deploy/ through the tools of its formats, built twice, started: ten minutes; writes docs/deploy-checks.md
	@$(PY) -m tests.deploy --write

disks: setup ## small disks filled and drained, disks that hang, on real nodes (root, strace): three minutes
	@$(PY) -m tests.node.cli.disk_runs

demo: setup ## three nodes, Spark, 336 776 flights, a killed leader, a report; DEMO=--upgrade upgrades the nodes meanwhile, DEMO=--grow makes them five
	@exec $(PY) -m bench.demo $(DEMO)

bench: setup ## the machine, a cluster, Raft, depth, growth, locks, other systems, the cost of a check: hours
	$(PY) -m bench.floor
	$(PY) -m bench.machine
	$(PY) -m bench.rates
	$(PY) -m bench.hashing
	$(PY) -m bench.raft
	$(PY) -m bench.depth --restart-gb 2 --runs 1
	$(PY) -m bench.growth
	$(PY) -m bench.locks
	$(PY) -m bench.tasks
	$(PY) -m bench.peers
	$(PY) -m bench.check.cost

pictures: setup ## the console's pages as docs/pictures/console-*.png, by Chromium: look at them
	@$(PY) -m tests.node.http.console_pictures

walk: setup ## render docs/walk.md anew: what a publish, an ack, a renewal run through
	@$(PY) -m tests.walk

docs: setup ## the site of these pages and the API reference, in site/; strict: a link that leads nowhere fails
	@$(PY) tools/docs_site.py

lock: setup ## write requirements.lock anew from pyproject.toml (needs uv)
	UV_PYTHON_DOWNLOADS=never uv pip compile pyproject.toml --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade \
	  --extra spark --extra avro --extra protobuf --extra bench --extra peers --extra celery --extra jwt --extra otel --extra dramatiq --extra taskiq --group server --group dev --group build --output-file requirements.lock
	UV_PYTHON_DOWNLOADS=never uv pip compile --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade \
	  --group docs --output-file requirements-docs.lock

release: setup ## build the two wheels of the version in pyproject.toml and keep them in tests/releases
	@$(PY) -m tools.release

clean: ## remove .venv, caches and reports
	rm -rf .venv .venv-docs site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-report.html jepsen-report.html jepsen-runs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
