"""ViSAR: how many pages of a long document a question needs, chosen without training.

The method works on the multi-vector embeddings of late-interaction encoders::

    from visar import select_pages
    selection = select_pages(query, pages)      # [m, D] and a list of [n_p, D]
    selection.pages, selection.k, selection.reason
"""

from visar.algorithm import select_pages
from visar.late_interaction import PackedPages
from visar.selection import Selection

__all__ = ["PackedPages", "Selection", "select_pages"]

__version__ = "0.1.0"
