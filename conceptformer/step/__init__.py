"""One training step: a batch, its passes through the model, and the objective over all processes."""
