#!/usr/bin/env bash
# Sets everything up on a fresh machine and runs the main jobs on the embedded data, offline: which pages does a question
# need, and training a page retriever. Opens nothing; prints where the reports lie.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment offline,ocr,train

.venv/bin/python -m visar.eval dataset=demo dataset.folder=runs/demo/documents output=runs/demo
.venv/bin/python -m visar.ask document=runs/demo/documents/ferry-annual-report.pdf output=runs/demo/ask.html \
    question="How much operating revenue did the company earn per full-time post in 2023?"

# A shorter form of +exp=tiny: fewer pages and steps.
.venv/bin/python -m conceptformer.train +exp=tiny output=runs/demo/training cache=runs/demo/cache \
    data.drawing.pages=2000 training.max_steps=120 training.evaluate_every=40 training.save_every=40
.venv/bin/python -m conceptformer.eval checkpoint=runs/demo/training/retriever output=runs/demo/retrieval \
    cache=runs/demo/cache benchmark.drawing.pages=2000
echo
echo "Open runs/demo/report.html (choosing pages), runs/demo/ask.html (one question) and"
echo "runs/demo/training/report.html (training) in a browser."
