# The only entry. `make up` runs the whole network, `make test` runs every test; both install what is missing first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CARGO_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin
FLAGS ?=

.PHONY: help up build dist console screenshots functions install-run install-dist install-test check test soak bench gpu-check golden clean

help:
	@echo "make up        install what is missing, build, run the whole network (FLAGS='…' are handed to fdn up)"
	@echo "make test      install what is missing, then every quick test, on real PostgreSQL, RabbitMQ, Docker, DNS clients and a browser"
	@echo "make soak      the long tests: chaos, time, size and upgrades (GROUP='…' for some of them; endurance and release when they are named; docs/testing.md)"
	@echo "make build     build every program, those that run as separate processes too"
	@echo "make dist      a release of this tree, into dist/: programs, packages, images, bills of materials, a bundle (TARGETS='…', docs/operations/release.md)"
	@echo "make check     formatting, lints, sizes"
	@echo "make bench     figures, with the conditions they were taken under (AGAINST=REVISION: beside that revision, in turns)"
	@echo "make gpu-check binding of GPU slices against the devices of this machine (FLAGS=--fault: with a fault on each GPU); says so where there is none"
	@echo "make console   build the web console into web/dist, from where it gets into the programs"
	@echo "make screenshots  pictures of every page of the console, into docs/console"
	@echo "make golden    write the expected outputs of tests anew; look at the difference before you commit it"
	@echo "make functions build every ready-made function"

up: install-run console
	@echo "building fdn (the first time takes some minutes)"
	@cargo build --release --locked -p fdn-cli --bin fdn
	@scripts/install-fdn.sh "$(CARGO_BIN)"
	@exec target/release/fdn up $(FLAGS)

build: console
	@echo "building all programs (the first time takes some minutes)"
	@cargo build --release --locked --workspace --bins

dist: install-dist console
	@scripts/dist.py $(FLAGS)

console:
	@scripts/console.sh

screenshots: install-test build
	@cd web && npm run --silent screenshots

functions:
	@$(MAKE) --no-print-directory -C functions all

install-run:
	@scripts/install.sh run

install-dist:
	@scripts/install.sh run dist

install-test:
	@scripts/install.sh run test

check:
	@scripts/check.sh

test: install-test
	@scripts/test.py gate

soak: install-test
	@scripts/test.py soak $(GROUP)

bench: install-run build
	@scripts/bench.sh

gpu-check:
	@cargo run --release -p fdn-devices --example gpu-check -- $(FLAGS)

golden:
	@scripts/deploy/helm.py write
	@UPDATE_GOLDEN=1 cargo test --release --workspace -- golden openapi help

clean:
	@cargo clean
