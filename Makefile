# Needs Python 3.11+ and make. The environment lives in .venv and is set up once.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
QUICK := test_architecture.py _lib core models methods/test_pde_plus.py cli \
	training/test_config.py training/test_loop.py training/test_before_the_rooms.py

.PHONY: demo test quick lint format docs figures benchmark campaign package release clean

demo: $(READY)  ## compare three methods, in minutes
	$(BIN)/pdeplus demo

test: lint  ## style, types and tests
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

quick: $(READY)  ## the tests that catch most mistakes, in 90 seconds
	$(BIN)/pytest -n 2 --dist loadfile $(addprefix tests/,$(QUICK))

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(READY) build/theory/theory.html  ## the site, into build/docs; warnings are errors, nothing is downloaded
	$(BIN)/python -m sphinx -q -W --keep-going -n -b html -c docs . build/docs
	@echo "open build/docs/index.html"

build/theory/theory.html: $(READY)
	$(BIN)/pdeplus theory --out build/theory

figures: $(READY)  ## the documentation's figures
	$(BIN)/python tools/figures.py method cost answers sigma

benchmark: $(READY)  ## speed, as ratios measured in one run
	$(BIN)/python -m benchmarks --out benchmarks
	$(BIN)/python -m benchmarks augment fidelity

campaign: $(READY)  ## kills, damaged files and hostile input, for hours
	$(BIN)/python -m campaign $(CAMPAIGN)

package: $(READY)  ## sdist and wheel, built and tested in fresh environments
	$(PYTHON) tools/package.py

release: test docs  ## all that a release must pass; sdist and wheel, built and tested, into dist
	$(PYTHON) tools/package.py --keep dist

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pdeplus needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,digits,docs,hub,onnx,peers,plots,ray,tensorboard]'
	touch $(READY)

clean:
	rm -rf .venv
