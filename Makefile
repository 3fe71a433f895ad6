# `make help` lists the targets. Everything that takes long says what it does and how long it took.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help packages dev-env engine-env images cluster-up cluster-down demo demo-down check test \
        test-offline test-unit test-admission test-engine test-vllm test-triton test-models test-matrix test-state \
        test-integration integration-clusters integration-programs test-e2e test-long \
        acceptance bench bench-router bench-operator bench-engine bench-state golden clean

STACK ?= cpu
CLUSTER ?=
CLUSTER_NAME ?= rwkv
PY := .venv/bin/python
ENGINE_PY := build/engine-env/$(STACK)/bin/python
RWKV_CLUSTER := PYTHONPATH=tests/cluster $(PY) -m rwkv_cluster --name $(CLUSTER_NAME)
export CLUSTER
# Each on a core of its own; what one says is shown when it has ended.
PAIR := $(MAKE) --no-print-directory --jobs=2 --output-sync=target PAIRED=1
# All else is one after the other whatever -j says: tiers share a cluster and two cores.
ifndef PAIRED
.NOTPARALLEL:
endif

help:  ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  %-18s %s\n", $$1, $$2}'

demo: dev-env  ## Bring up a cluster, install, apply a sample, hold a conversation
	$(PY) tests/demo/demo.py up --cluster-name $(CLUSTER_NAME)

demo-down: dev-env  ## Remove the demo's cluster (images and tools stay in ~/.cache/rwkv-operator)
	$(PY) tests/demo/demo.py down --cluster-name $(CLUSTER_NAME)

check: dev-env  ## Format, lint, types, import rules, generated copies (under a minute)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	$(PY) charts/rwkv-operator/sync.py --check

test: dev-env test-offline test-vllm test-integration test-e2e  ## Every tier; ends with pytest's summary

test-offline: engine-env images  ## What needs a core and nothing else: check, unit, Triton's interpreter
	@echo "test-offline: two at a time, each is shown when it has ended, all in about a minute and a half"
	+$(PAIR) check test-unit test-triton

test-unit: dev-env  ## Offline: unit and contract
	$(PY) -m pytest -p no:cacheprovider tests/unit tests/contract -m "not long"

test-engine: test-vllm test-triton  ## The real vLLM engine on the CPU, kernels in Triton's interpreter

test-vllm: engine-env
	$(ENGINE_PY) -m pytest tests/engine -m "not long"

test-triton: engine-env
	PYTHONPATH=build/engine-env/triton $(ENGINE_PY) -m pytest -p no:cacheprovider tests/triton -m "not long"

test-models: engine-env  ## Sources and formats of models: hubs with faults, checkpoints, volumes
	$(PY) -m pytest tests/unit/server/fetch tests/unit/server/checkpoint tests/unit/server/inspection \
	  tests/unit/server/preflight tests/unit/server/model tests/unit/operator/decide/test_model.py \
	  tests/unit/operator/manifests tests/contract/test_models_page.py tests/contract/test_engine_config.py
	$(ENGINE_PY) -m pytest tests/engine/test_fetch.py tests/engine/test_fetch_process.py tests/engine/test_pth.py
	$(PY) -m pytest tests/integration/test_crd_samples.py tests/e2e/test_4_models.py

test-matrix: engine-env  ## The same tree with vLLM 0.32 and 0.18: parity, slots, plugin, server (about 6 GB each)
	PYTHONPATH=image $(PY) tests/matrix/run.py

test-state: engine-env  ## Saved states: stores, turns, the API, real engines, pods that die
	$(PY) -m pytest tests/unit/server/states tests/contract/test_state_page.py -m "not long"
	$(ENGINE_PY) -m pytest tests/engine/test_state_*.py tests/engine/test_states_*.py -m "not long"
	$(PY) -m pytest tests/e2e/test_2_sessions.py tests/e2e/test_2_states.py \
	  tests/e2e/test_4_models.py::test_a_state_that_has_gone_with_its_pod_is_lost_and_said_so -m "not long"

test-integration: dev-env images  ## A real API server, a real HAProxy, the built images
	@echo "test-integration: two halves at a time, each is shown when it has ended, in about four minutes"
	$(RWKV_CLUSTER) build
	+$(PAIR) integration-clusters integration-programs

integration-clusters:
	$(PY) -m pytest -p no:cacheprovider tests/integration -m "not long and not apiserver and not haproxy"

integration-programs:
	$(PY) -m pytest -p no:cacheprovider tests/integration -m "not long and (apiserver or haproxy)"

test-admission: dev-env  ## Gates of hardware stacks: decisions, a real API server, patched nodes
	$(PY) -m pytest tests/unit/operator/decide tests/unit/operator/handlers tests/unit/server/preflight \
	  tests/contract/test_vendor_pins.py tests/contract/test_ascend_image.py tests/contract/test_acceptance_job.py
	$(PY) -m pytest tests/integration/operator/test_admission.py tests/integration/test_admission_policy.py

test-e2e: dev-env  ## A real cluster: Helm, pods, router, OpenAI SDK
	$(PY) -m pytest tests/e2e -m "not long"

test-long: engine-env  ## What takes too long for every run: repeated kills and soaks
	$(PY) image/ascend_env.py
	$(ENGINE_PY) -m pytest tests/engine -m long
	PYTHONPATH=build/engine-env/triton $(ENGINE_PY) -m pytest tests/triton -m long
	PYTHONPATH=image $(PY) tests/matrix/run.py
	$(PY) -m pytest tests/unit tests/contract tests/integration tests/e2e -m long

acceptance: engine-env  ## The acceptance scenario of a hardware stack, three times
	for run in 1 2 3; do \
	  $(ENGINE_PY) -m rwkv_server acceptance --stack crds/stacks/$(STACK).yaml --model image/models/tiny-recall; \
	done

images: dev-env  ## Build the server, operator and router images
	$(PY) image/build.py server operator router

cluster-up: dev-env  ## Only the cluster (CLUSTER=local|kind|current)
	$(RWKV_CLUSTER) up

cluster-down: dev-env  ## Remove the cluster
	$(RWKV_CLUSTER) down

ENV_ascend := ascend_env.py
ENV_cpu-0.18 := version_env.py cpu-0.18
engine-env: dev-env  ## The engine's own environment (STACK=cpu|cpu-0.18|ascend), from hash-pinned constraints
	$(PY) image/$(or $(ENV_$(STACK)),engine_env.py $(STACK))
	$(PY) image/triton_env.py
	$(PY) server/rwkv_server/kernels/cpu_build.py

bench: bench-router bench-operator bench-engine bench-state  ## Every bench, then docs/performance.md from their results
	$(PY) tests/bench/report.py

bench-router: dev-env  ## Writes build/bench/router.json
	$(PY) tests/bench/router_bench.py

bench-operator: dev-env  ## Writes build/bench/operator.json
	$(PY) tests/bench/operator_bench.py

bench-engine: engine-env  ## Writes build/bench/engine.json: beside llama.cpp and rwkv, 15 minutes
	$(PY) tests/bench/engine_bench.py

bench-state: engine-env  ## Writes build/bench/state.json: saving, going on, automatic reuse, 10 minutes
	$(ENGINE_PY) tests/bench/state_bench.py

golden: dev-env  ## Write the golden files anew, to be read in the diff
	UPDATE_GOLDEN=1 $(PY) -m pytest -q tests/unit tests/contract

packages:  ## What everything here needs from Debian (says what it installs)
	.ci/prepare

dev-env: packages .venv/.ready  ## The Python environment of this checkout

.venv/.ready: image/constraints/dev.txt pyproject.toml | packages
	@echo "dev-env: a Python environment in .venv (about 250 MB), from image/constraints/dev.txt"
	test -x .venv/bin/pip || python3 -m venv .venv
	.venv/bin/pip install -q --require-hashes --only-binary :all: -r image/constraints/uv.txt
	.venv/bin/uv pip sync -q --python .venv/bin/python --require-hashes image/constraints/dev.txt
	.venv/bin/uv pip install -q --python .venv/bin/python --no-deps --no-build-isolation -e .
	touch $@

clean:  ## Remove build results of this checkout (not the shared cache)
	rm -rf build .venv
