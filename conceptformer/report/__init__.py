"""Self-contained HTML pages on training runs and on comparisons of them."""
