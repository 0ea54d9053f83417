# Every target installs what it needs first.

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
	$(shell $(p) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

OUT := demo-out

# Servers of the APIs of Google Cloud Storage and Beam, for the tests, from the Go module proxy
FAKE_GCS_SERVER := v1.56.1
PRISM := v2.77.0
CLOUD_TOOLS := $(addprefix .cloud/bin/,fake-gcs-server-$(FAKE_GCS_SERVER) prism-$(PRISM))

# Lets the documentation be searched where its pages are opened from disk (MIT license)
IFRAME_WORKER := 1.0.4

export PYTHONUNBUFFERED = 1
# Hundreds of processes import this project: without bytecode, each compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-photos demo-growing demo-cloud test test-all test-quick test-long test-prism test-cloud \
	test-browser test-proxy needs-go needs-chromium needs-nginx cloud-tools lint types format pytest audit \
	figures bench bench-quick docs screenshots hooks clean

help:  ## list the targets
	@echo 'Millrace: raw CSV and images -> sharded TFRecords -> TensorFlow Estimator -> served predictions'
	@echo
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

$(READY): pyproject.toml constraints.txt
	@[ -n '$(PYTHON)' ] || { echo 'error: Millrace needs Python 3.11, 3.12 or 3.13, and python3 is' \
	    "$$(python3 -V 2>&1); name one with: make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else "error: $(PYTHON) is \
	Python %d.%d, and Millrace needs 3.11, 3.12 or 3.13: make PYTHON=/path/to/python3.12" % v)'
	@echo 'Installing Millrace and what it needs into $(VENV), which takes some minutes'
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	@touch $@

# The demos type the commands of tutorials.
DEMO = rm -rf $(OUT)/$(1) && $(BIN)/python -m tools.tutorial docs/tutorials/$(1).md $(OUT)/$(1)

demo: $(READY)  ## docs/tutorials/table.md: from a CSV file to predictions over HTTP, in some minutes
	@$(call DEMO,table)
	@printf '%s\n' '' 'In a browser: $(OUT)/table/model/report-eval.html, and the data:' $(OUT)/table/data/*/report.html

demo-photos: $(READY)  ## docs/tutorials/photos.md: the same for photos
	@$(call DEMO,photos)

demo-growing: $(READY)  ## docs/tutorials/growing.md: data that grows and drifts, and models that are promoted
	@$(call DEMO,growing)

demo-cloud: $(READY)  ## docs/tutorials/cloud.md: the same on gs:// with Prism, on servers of this machine; needs Go
	@$(BIN)/python -m tools.tutorial docs/tutorials/cloud.md .

test: lint  ## lint, types and tests, without the long ones
	@$(MAKE) --no-print-directory -j 2 types pytest  # beside each other: mypy works on one core

lint: $(READY)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)  ## mypy
	$(BIN)/mypy

pytest: $(READY)  ## only the tests
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

test-quick: $(READY)  ## the tests without the slow ones, in less than two minutes
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow and not long and not figures and not cloud and not engines and not browser and not proxy'

test-long: $(READY)  ## the rest of the tests: whole trainings, clusters of processes, kills
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'long and not figures and not cloud and not engines and not browser and not proxy'

test-browser: needs-chromium $(READY)  ## the tests that open reports in a browser; needs Chromium
	$(BIN)/pytest -m browser

test-proxy: needs-nginx $(READY)  ## the tests of docs/nginx.conf, by nginx before a real server; needs nginx
	$(BIN)/pytest -m proxy tests/millrace/serve/test_guard.py

test-all: needs-go needs-chromium needs-nginx  ## all tests, one target after the other; needs Go, Chromium and nginx
	@set -e; for target in test test-long test-prism test-cloud test-browser test-proxy; do \
	    $(MAKE) --no-print-directory $$target; done

NEEDS_GO = command -v go >/dev/null || { echo 'error: make $(firstword $(MAKECMDGOALS)) needs Go 1.26 or newer, and finds no' \
	'go on PATH: see https://go.dev/doc/install' >&2; exit 2; }

needs-go:
	@$(NEEDS_GO)

needs-chromium:
	@[ -n "$$CHROMIUM" ] || command -v chromium chromium-browser google-chrome >/dev/null || { echo 'error: no Chromium:' \
	    'install chromium, or name its program with: make $(firstword $(MAKECMDGOALS)) CHROMIUM=/path/to/chrome' >&2; exit 2; }

needs-nginx:
	@PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || { echo 'error: no nginx: install it (Debian: nginx-light)' >&2; exit 2; }

test-cloud: $(READY) cloud-tools  ## the tests on gs://, against servers on loopback
	@# Beam makes a client of Cloud Storage for each of its operations on files, and leaves their connections to the
	@# garbage collector, which finds them in whatever test runs then.
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m cloud -W 'ignore:unclosed <s:ResourceWarning'

test-prism: $(READY) .cloud/bin/prism-$(PRISM)  ## the tests on Prism, Beam's runner in a process of its own; needs Go
	@rm -rf .cloud/go
	$(BIN)/pytest -m engines

cloud-tools: $(CLOUD_TOOLS)  ## build those servers, once; needs Go
	@rm -rf .cloud/go  # what Go keeps between builds

# A version's name is part of its file's, so that another version is built anew.
define go
	@$(NEEDS_GO)
	mkdir -p .cloud/bin
	GOBIN='$(CURDIR)/.cloud/bin' GOPATH='$(CURDIR)/.cloud/go' GOCACHE='$(CURDIR)/.cloud/go/build' \
	    GOFLAGS='-mod=mod -modcacherw' go $(1)
endef
define build
	$(call go,install '$(1)')
	ln -sf '$(2)' '$@'
endef

.cloud/bin/fake-gcs-server-$(FAKE_GCS_SERVER):
	$(call build,github.com/fsouza/fake-gcs-server@$(FAKE_GCS_SERVER),fake-gcs-server)

.cloud/bin/prism-$(PRISM):
	$(call build,github.com/apache/beam/sdks/v2/go/cmd/prism@$(PRISM),prism)

hooks: $(READY)  ## have git run lint, format and types before each commit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/pre-commit install

# Known vulnerabilities that are accepted for now, as: --ignore-vuln GHSA-xxxx-xxxx-xxxx. Say here why, and since when.
ACCEPTED :=

audit:  ## look up known vulnerabilities of the pinned packages; one that cannot be looked up fails, too
	[ -x .audit/bin/pip-audit ] || { $(PYTHON) -m venv .audit && .audit/bin/python -m pip install --quiet \
	    --disable-pip-version-check 'pip-audit==2.10.1'; }
	.audit/bin/pip-audit -r constraints.txt --no-deps --disable-pip --strict --progress-spinner off $(ACCEPTED)

figures: $(READY)  ## train on the real data (MILLRACE_TEST_DATA), and check the results of docs/benchmarks.md
	$(BIN)/pytest -m figures -s --durations=0 tests/test_figures.py

# Of the packages in benchmarks/sets.txt, only files are read, so that they are beside the environment and not in it.
.bench/.installed: $(READY) benchmarks/sets.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[benchmarks]'
	rm -rf .bench
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .bench/sets -r benchmarks/sets.txt
	@touch $@

bench: .bench/.installed  ## compare Millrace with the common alternatives, in about three hours; see docs/benchmarks.md
	$(BIN)/python -m benchmarks.run

bench-quick: .bench/.installed  ## the same on small inputs, in some minutes; only prints
	$(BIN)/python -m benchmarks.run --small

# The site's tools have an environment of their own. Browsers give pages that are opened from disk no worker, which the
# search needs: a script of the theme's author stands in for it, where npm can fetch that.
.docs/.installed: docs/requirements.txt constraints.txt
	[ -x .docs/bin/python ] || $(PYTHON) -m venv .docs
	.docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r docs/requirements.txt
	cd .docs && { archive=$$(npm pack --silent iframe-worker@$(IFRAME_WORKER) 2>/dev/null) && tar -xzOf $$archive \
	    package/shim/index.js > iframe-worker.js && rm $$archive || rm -f iframe-worker.js; }
	@touch $@

docs: .docs/.installed  ## build the documentation as a site in site/; a broken link fails
	.docs/bin/python -m tools.docs_site .docs/pages
	rm -rf site
	.docs/bin/zensical build --strict
	@echo 'site/index.html'

screenshots: demo  ## run the demo, and take the documentation's pictures of its reports; needs Chromium
	$(BIN)/python -m tools.screenshots $(OUT)/table/data/*/report.html $(OUT)/table/model/report-eval.html

clean:  ## remove everything that was made here
	rm -rf $(VENV) .audit .bench .cache .cloud .docs site $(OUT) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
