"""Training runs: rows in order, the trainer, its checkpoints, what is measured on the way, and runs compared."""
