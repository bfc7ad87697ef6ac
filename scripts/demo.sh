#!/usr/bin/env bash
# Sets everything up on a fresh machine and runs the main job on the embedded documents, offline: which pages does a
# question need? Opens nothing; prints where the reports lie.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment offline,ocr

.venv/bin/python -m visar.eval dataset=demo dataset.folder=runs/demo/documents output=runs/demo
.venv/bin/python -m visar.ask document=runs/demo/documents/ferry-annual-report.pdf output=runs/demo/ask.html \
    question="How much operating revenue did the company earn per full-time post in 2023?"
echo
echo "Open runs/demo/report.html (the comparison) and runs/demo/ask.html (one question) in a browser."
