#!/usr/bin/env bash
# Sets everything up, lints, and runs all tests. Arguments go to pytest: bash scripts/test.sh tests/visar/test_weights.py
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment offline,ocr,encoders,train,text,api,dev

.venv/bin/ruff check .
.venv/bin/ruff format --check .
# One thread a process: two test processes with two threads each stand in each other's way on two cores.
OMP_NUM_THREADS=1 .venv/bin/python -m pytest --numprocesses "${TEST_PROCESSES:-2}" --dist loadfile "$@"
