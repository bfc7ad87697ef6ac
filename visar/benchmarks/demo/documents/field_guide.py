"""A field guide: one flower per page, in the same form, with a drawn plate."""

from __future__ import annotations

from calendar import month_name

from visar.benchmarks.demo.blocks import (
    Block,
    Contents,
    Cover,
    DemoDocument,
    DemoQuestion,
    Design,
    FlowerPlate,
    Heading,
    Items,
    Part,
    Table,
    Text,
    paragraphs,
)
from visar.benchmarks.demo.documents.wildflowers import HABITATS, SPECIES, Species

INTRODUCTION: tuple[Block, ...] = (
    Cover("Wild flowers of the Isle of Morrach", "A field guide for walkers", ("Fourth edition, with fifteen plates",)),
    Heading("How to use this guide"),
    *paragraphs(
        """The island of Morrach has some three hundred kinds of wild flowers. Fifteen of them are described here:
        those about which visitors ask most, and those which they should know in order not to tread on them. One
        page is given to each, so that the book can be held open with one hand.

        The plate on the left shows a single flower as seen from above, somewhat enlarged. The strip beside it shows
        the twelve months; those in which the flower can be found in bloom are filled. In cold years everything
        happens two weeks later, and on the western side of the island one week later than on the eastern.

        The description starts with what is seen at first sight. Then follow the kind of ground on which the plant
        grows and another species with which it may be confused. The paragraph on customs draws on the notes of the
        schoolmaster Ewan Baird, who asked old people all over the island between the wars. He wrote down what he
        heard, and it should not be tried at home: several of the plants are poisonous.

        The place named at the end is one where the flower can be seen from a path. There is no need to leave it.
        Please take photographs, not flowers, and keep dogs on the lead from April to July, when birds are nesting
        on the ground."""
    ),
    Heading("Contents", level=2),
    Contents(),
    Heading("Words used in this book"),
    *paragraphs(
        """Botanists have a language of their own. We have tried to do without it, but some words are hard to
        replace."""
    ),
    Table(
        "",
        (),
        (
            ("Bract", "A small leaf below a flower"),
            ("Collar", "A ring of leaves half-way up the stem"),
            ("Felted", "Covered with hairs so dense that the green does not show"),
            ("Fringed", "With an edge cut into fine teeth or threads"),
            ("Rosette", "Leaves in a circle, flat on the ground"),
            ("Runner", "A shoot above the ground that takes root and makes a new plant"),
            ("Spire", "Many flowers one above the other on an upright stem"),
            ("Tendril", "A thread with which a plant climbs"),
            ("Tuft", "Many stems or leaves from one root, close together"),
            ("Whorl", "Leaves in a circle around the stem"),
        ),
        (1, 4),
    ),
    Items(
        (
            "Count the petals. Most flowers of the island have five, so that any other number is a help.",
            "Look at the leaves, since they are there when the flower is not.",
            "Smell, but do not taste.",
            "Note what grows nearby. A plant of the bog is not found on a wall.",
        )
    ),
)


def _mark(species: Species) -> str:
    return species.name.lower().replace(" ", "-").replace("'", "")


def _page(species: Species) -> tuple[Block, ...]:
    first, last = (month_name[month] for month in species.months)
    low, high = species.height
    return (
        Heading(species.name, mark=_mark(species)),
        Text(
            f"{species.botanical}. {species.colour.capitalize()}, {species.petals} petals, {low} to {high} centimetres "
            "high."
        ),
        FlowerPlate(species.petals, *species.paint, species.months),
        Heading("What it looks like", level=2),
        Text(species.portrait),
        Heading("Where and when", level=2),
        Text(f"{HABITATS[species.habitat]} In bloom from {first} to {last}."),
        Heading("May be confused with", level=2),
        Text(species.alike),
        Heading("Customs and uses", level=2),
        Text(species.lore),
        Heading("A good place to see it", level=2),
        Text(species.place),
    )


def _named(name: str) -> Species:
    return next(species for species in SPECIES if species.name == name)


def _all_where(id_: str, text: str, chosen: list[Species], key: str) -> DemoQuestion:
    names = ", ".join(species.name for species in chosen)
    return DemoQuestion(id_, text, f"{names}.", tuple((_mark(species), key) for species in chosen))


QUESTIONS = (
    DemoQuestion(
        "guide-nets",
        "What plant gave the gear of the herring fleet its rusty colour and made it last longer?",
        "Netmaker's madder; its roots were boiled with the nets.",
        ((_mark(_named("Netmaker's madder")), "turned the colour of rust"),),
    ),
    _all_where(
        "guide-shingle",
        "Which flowers grow among the pebbles of the shore?",
        [species for species in SPECIES if species.habitat == "shingle"],
        "shingle beaches",
    ),
    _all_where(
        "guide-october",
        "What can still be found in flower in the tenth month of the year?",
        [species for species in SPECIES if species.months[1] == 10],
        "to October",
    ),
    DemoQuestion(
        "guide-red",
        "Where should one look for the flower whose red occurs nowhere else on the island?",
        "On the western cliffs, half a mile beyond the lighthouse (storm pink).",
        ((_mark(_named("Storm pink")), "beyond the lighthouse"),),
    ),
)

FIELD_GUIDE = DemoDocument(
    id="wildflower-guide",
    title="Wild flowers of the Isle of Morrach",
    design=Design(accent="#2f6b3a", serif=True, font_size=10.2, page_size=(419.53, 595.28)),
    parts=(Part((*INTRODUCTION, *(block for species in SPECIES for block in _page(species)))),),
    questions=QUESTIONS,
)
