#!/usr/bin/env bash
# Sets everything up on a fresh machine and runs the main job on the embedded documents, offline: which pages does a
# question need? Opens nothing; prints where the reports lie.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment offline,ocr

.venv/bin/python -m visar.eval dataset=demo dataset.folder=runs/demo/documents output=runs/demo
.venv/bin/python -m visar.ask document=runs/demo/documents/city-budget.pdf output=runs/demo/ask.html \
    question="What is the sum of the 2025 amounts for libraries in Northmoor, Quarry Hill and Saltmarsh?"
echo
echo "Open runs/demo/report.html (the comparison) and runs/demo/ask.html (one question) in a browser."
