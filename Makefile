# The two commands of the README, and what they are made of. Each target does its own set-up.

HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# The same bytes from any directory and user.
STATIC_FLAGS := -C target-feature=+crt-static --remap-path-prefix=$(CURDIR)=/bankfull \
  --remap-path-prefix=$(abspath $(or $(CARGO_TARGET_DIR),target))=/target \
  --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
RELEASE := $(or $(CARGO_TARGET_DIR),target)/$(HOST)/release/bankfull
LAB := $(or $(CARGO_TARGET_DIR),target)
FUZZ_SECONDS ?= 60
FUZZ_DIR := $(or $(CARGO_TARGET_DIR),target)/$(HOST)/release
# What cargo-fuzz passes, so that it need not be installed.
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
  -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1

# Packages share a directory of what they have.
.NOTPARALLEL:

.PHONY: help demo test campaign check java bench lab release dist deb rpm image sbom setup fuzz clean

help: ## This list
	@sed -n 's/^\([a-z ]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

setup: ## Install what building and testing need (Debian and Ubuntu)
	@scripts/setup

release: ## The program, optimised and statically linked, in target/HOST/release
	@scripts/setup build
	RUSTFLAGS="$(STATIC_FLAGS)" cargo build --locked --release --target $(HOST) -p bankfull-cli
	@echo "The program: $(RELEASE)" >&2

dist deb rpm image sbom: release ## A package in dist/: an archive with an installer, Debian's, RPM, OCI, list of crates
	@scripts/setup package-$@
	scripts/package stage $@

demo: release ## Run the main job on real input, with an interruption and a resume
	scripts/demo $(RELEASE)

check: setup ## Format, lints, documentation and types of the fuzz targets
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --exclude bankfull-cli --no-deps --quiet
	@# Apart: the program and the library have the same name, and would share a directory.
	RUSTDOCFLAGS="-D warnings" cargo doc --locked -p bankfull-cli --no-deps --quiet
	cargo check --locked --no-default-features --manifest-path fuzz/Cargo.toml \
	  --target-dir $(abspath $(LAB))

test: check release ## The checks and every test; faults are injected into the optimised program
	BANKFULL_INJECTED=$(abspath $(RELEASE)) cargo test --locked --workspace
	@$(MAKE) --no-print-directory java

campaign: test ## Longer checks: measurements, kills, injected faults, tests over a path, the units under systemd
	cargo test --locked --workspace --test lab -- --ignored --skip thirty_two
	cargo test --locked --workspace --test lab -- --ignored thirty_two
	BANKFULL_INJECTIONS=2000 BANKFULL_INJECTED=$(abspath $(RELEASE)) \
	  cargo test --locked --workspace --test cli injection
	BANKFULL_KILLS=24 cargo test --locked --workspace --test cli kills
	scripts/over-path
	@scripts/setup bench
	scripts/service $(RELEASE)
	scripts/check-metrics $(RELEASE)
	scripts/check-manifests
	$(MAKE) dist deb rpm image sbom
	scripts/try-packages

java: setup ## The client in Java, tested against the daemon
	cargo build --locked --workspace --bin bankfull
	@if command -v mvn >/dev/null; then \
	  mvn -q -B -f java/pom.xml verify -Dbankfull.program=$(abspath $(LAB))/debug/bankfull; \
	else echo "java: skipped, for there is no mvn: apt-get install maven default-jdk-headless" >&2; fi

bench: release ## Compare with scp, rsync and iperf3 on loopback, in one run
	@scripts/setup bench
	benches/compare $(RELEASE)

lab: ## Scenarios of some three minutes on emulated networks, beside other tools (root)
	@scripts/setup lab
	cargo build --locked --release -p bankfull-cli -p bankfull-lab
	mkdir -p $(LAB)/lab
	rm -f $(LAB)/lab/quick.json $(LAB)/lab/quick.html
	$(LAB)/release/bankfull-lab run experiments/quick/*.toml \
	  --json $(LAB)/lab/quick.json --report $(LAB)/lab/quick.html; code=$$?; \
	  if [ -s $(LAB)/lab/quick.html ]; then \
	  echo "The report of all runs that count: $(LAB)/lab/quick.html" >&2; fi; exit $$code

fuzz: setup ## Fuzz each decoder, a minute long or FUZZ_SECONDS
	fuzz/seed.sh
	cd fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" cargo build --locked --release --target $(HOST)
	cd fuzz && for corpus in corpus/*; do \
	  $(FUZZ_DIR)/$$(basename $$corpus) -max_total_time=$(FUZZ_SECONDS) -max_len=8192 $$corpus || exit 1; \
	done

clean: ## Remove what was built
	cargo clean
