"""Operating manual of a heat pump: instructions, tables of fault codes, lists of spare parts."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import DemoDocument, DemoQuestion, Design, Part
from visar.benchmarks.demo.documents.heat_pump_faults import FAULTS
from visar.benchmarks.demo.documents.heat_pump_service import PARTS, UPKEEP
from visar.benchmarks.demo.documents.heat_pump_use import USE

QUESTIONS = (
    DemoQuestion(
        "heat-pump-service-menu",
        "How long does one have to keep the key pressed to get into the menu for the installer?",
        "8 seconds (the spanner key).",
        (("keys", "8 seconds"),),
    ),
    DemoQuestion(
        "heat-pump-curve",
        "Which of the curves gives water of 44 degrees when it is ten below zero outdoors?",
        "Curve 3.",
        (("curve", "44"),),
    ),
    DemoQuestion(
        "heat-pump-fan-code",
        "The display reads E25. What is wrong and what should be done first?",
        "The fan does not turn; remove ice or leaves from the guard, then reset.",
        (("codes-refrigerant-2", "E25"),),
    ),
    DemoQuestion(
        "heat-pump-vessel",
        "Under which number can a new expansion vessel for the bigger model be ordered?",
        "40-2418 (18 litres, NV-12).",
        (("parts-indoor", "40-2418"),),
    ),
    DemoQuestion(
        "heat-pump-circulation-pump-codes",
        "Which fault codes name the circulation pump as a possible cause?",
        "E13, E22, E36 and E44.",
        (
            ("codes-hydraulic", "E13"),
            ("codes-refrigerant", "E22"),
            ("codes-sensors", "E36"),
            ("codes-electric", "E44"),
        ),
    ),
    DemoQuestion(
        "heat-pump-filter",
        "How often must the dirt filter be cleaned after the first year, and which order number has its gasket?",
        "Every 12 months; the gasket has the order number 40-2217.",
        (("filter-interval", "dirt filter every 12 months"), ("parts-indoor", "40-2217")),
    ),
    DemoQuestion(
        "heat-pump-wireless",
        "How do I connect the unit to my Wi-Fi network and the app on my phone?",
        "The manual does not describe any connection to Wi-Fi or to an app.",
        absent=("Wi-Fi", "wireless", "internet", "smartphone", "phone", "app"),
    ),
)

HEAT_PUMP = DemoDocument(
    id="heat-pump-manual",
    title="Norrvind NV-8 and NV-12, manual",
    design=Design(accent="#b3541e", font_size=11, page_size=(498.9, 708.66)),
    parts=(Part((*USE, *UPKEEP, *FAULTS, *PARTS)),),
    questions=QUESTIONS,
)
