# The two commands of the README, and what they are made of. Each target does its own set-up.

HOST := $(shell rustc -vV | sed -n 's/^host: //p')
STATIC_FLAGS := -C target-feature=+crt-static
RELEASE := target/$(HOST)/release/bankfull

.PHONY: help demo test check bench release setup fuzz clean

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

setup: ## Install what building and testing need (Debian and Ubuntu)
	@scripts/setup

release: setup ## The program, optimised and statically linked, in target/HOST/release
	RUSTFLAGS="$(STATIC_FLAGS)" cargo build --locked --release --target $(HOST) -p bankfull-cli

demo: release ## Run the main job on real input, with an interruption and a resume
	scripts/demo $(RELEASE)

check: setup ## Format, lints, docs and layering
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

test: check ## Every test
	cargo test --locked --workspace

bench: release ## Compare with scp, rsync and iperf3 on loopback, in one run
	benches/compare $(RELEASE)

fuzz: ## Fuzz the decoders for a minute each
	fuzz/run 60

clean: ## Remove what was built
	cargo clean
