"""Pages that the project draws itself, with queries that name things on one page and exact boxes around those things.

A stand-in for document collections that a laptop can train on: words, coloured shapes, small tables and charts at
random places of small pages.
"""

from conceptformer.drawn.data_set import DrawnFolders, DrawnPages

__all__ = ["DrawnFolders", "DrawnPages"]
