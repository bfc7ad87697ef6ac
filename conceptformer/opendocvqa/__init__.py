"""The training data of the paper (Table 4): OpenDocVQA's queries and pages, and the boxes of the authors' release."""

from conceptformer.opendocvqa.queries import OpenDocVqaQueries, QuerySource, TrainingQuery
from conceptformer.opendocvqa.released import ReleasedTrainset
from conceptformer.opendocvqa.training_data import Corpus, Written, write_training_data

__all__ = [
    "Corpus",
    "OpenDocVqaQueries",
    "QuerySource",
    "ReleasedTrainset",
    "TrainingQuery",
    "Written",
    "write_training_data",
]
