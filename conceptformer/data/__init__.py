"""Training pairs, retrieval tasks and page images on disk."""
