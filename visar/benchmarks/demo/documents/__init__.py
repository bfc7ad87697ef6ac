"""The demo documents as data."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import DemoDocument
from visar.benchmarks.demo.documents.bees import BEES
from visar.benchmarks.demo.documents.city_budget import CITY_BUDGET
from visar.benchmarks.demo.documents.cooperative import COOPERATIVE
from visar.benchmarks.demo.documents.ferry import FERRY
from visar.benchmarks.demo.documents.field_guide import FIELD_GUIDE
from visar.benchmarks.demo.documents.heat_pump import HEAT_PUMP

DOCUMENTS: tuple[DemoDocument, ...] = (FERRY, HEAT_PUMP, BEES, CITY_BUDGET, FIELD_GUIDE, COOPERATIVE)
