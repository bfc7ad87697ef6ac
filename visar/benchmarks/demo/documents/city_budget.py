"""A city's budget: for every district the same two pages with other figures, which makes hard distractors."""

from __future__ import annotations

import random

from visar.benchmarks.demo.blocks import (
    BarChart,
    Block,
    Contents,
    Cover,
    DemoDocument,
    DemoQuestion,
    Design,
    Heading,
    Part,
    PieChart,
    Table,
    Text,
    paragraphs,
)
from visar.benchmarks.demo.documents.city_districts import DISTRICTS, District, Project
from visar.benchmarks.demo.documents.city_services import (
    COST_PER_PERSON,
    SERVICE_STORIES,
    SERVICES,
    USUAL_PROJECTS,
)

INTRODUCTION: tuple[Block, ...] = (
    Cover("Budget 2025 by district", "City of Carrow Bridge", ("Adopted by the council on 12 December",)),
    Heading("Contents"),
    Contents(),
    Heading("From the mayor"),
    *paragraphs(
        """A budget is a long letter in which a city tells itself what matters. This one was written under the sign
        of rising wages and falling reserves. We have not closed a single library or swimming bath, but we have put
        off much that is desirable, and some things that are necessary.

        For the second time the budget is printed by district. Councillors used to know what the city as a whole
        spent on roads, but nobody could tell whether the roads of one district were treated like those of another.
        Now everybody can. The figures show differences, and they are meant to. Some of them have good reasons: a
        district with many old people needs more care, a district with new houses needs more schools. Others have
        grown by habit. The council has decided to reduce the latter step by step, without taking money from one
        district overnight.

        Each district is presented on two pages. The first shows the running costs of the services which are
        rendered in the district, the second shows projects of building and repair that will take more than a year
        or cost more than a hundred thousand crowns. Services for the city as a whole, such as the fire brigade, the
        theatre and the administration in the town hall, are not divided among the districts and are summed up in
        the following chapter.

        Three rules guided us. Running costs are paid from running income; loans are taken up only for buildings
        that will outlast them. What is repaired in time need not be rebuilt. And whoever is affected is heard
        first: ten evenings were held in the districts, at which four hundred and sixty residents spoke. Many of
        their suggestions are in this budget, from benches with backs to lamps that are switched off at night.

        I thank the treasurer and her staff, who answered more than nine hundred questions by councillors without
        losing their good humour.

        Harriet Combe, mayor"""
    ),
    Heading("Income and city-wide services"),
    *paragraphs(
        """The city lives on its share of income tax, on the tax on land and buildings, on grants by the state and
        on fees. The rate of the tax on land and buildings remains at 3.85 per thousand of the value; for empty
        buildings it is doubled after two years. The tax on dogs rises by four crowns. Fees for waste and sewage
        have to cover their costs and no more; surpluses are returned after three years."""
    ),
    Table(
        "Income of the city, million crowns",
        ("", "2024", "2025"),
        (
            ("Share of income tax", "148.2", "153.9"),
            ("Tax on land and buildings", "61.7", "62.4"),
            ("Grants by the state", "57.3", "55.1"),
            ("Fees", "44.0", "46.2"),
            ("Rents and interest", "9.6", "8.8"),
            ("Sale of land", "6.5", "3.0"),
        ),
        (2.5, 1, 1),
    ),
    PieChart(
        "City-wide services not divided among the districts, per cent",
        (
            ("Fire brigade", 27),
            ("Buses", 24),
            ("Town hall", 19),
            ("Theatre and museums", 14),
            ("Interest on loans", 16),
        ),
    ),
    *paragraphs(
        """The debt of the city will rise from 118 to 131 million crowns, as loans are taken up for school
        buildings. The reserve for bad years stands at 14 million crowns, which is less than the council's own rule
        demands. It is to be filled up again from the sale of the former barracks."""
    ),
)


def _crowns(amount: int) -> str:
    return f"{amount:,}"


def _slug(district: District) -> str:
    return district.name.lower().replace(" ", "-")


def running_costs(district: District) -> dict[str, tuple[int, int]]:
    """Crowns for each service in 2024 and 2025, the same on every call."""
    lots = random.Random(f"running costs of {district.name}")
    costs = {}
    for service, share in zip(SERVICES, COST_PER_PERSON, strict=True):
        before = round(district.people * share * lots.uniform(0.75, 1.3), -2)
        costs[service] = (int(before), int(round(before * lots.uniform(0.96, 1.09), -2)))
    return costs


def projects(district: District) -> tuple[Project, ...]:
    """The particular projects of the district and three of the usual kind."""
    lots = random.Random(f"projects of {district.name}")
    usual = tuple(
        Project(project.name, round(project.cost * lots.uniform(0.7, 1.4) / 10) * 10, project.source, project.story)
        for project in lots.sample(USUAL_PROJECTS, 3)
    )
    return district.projects + usual


def _running_page(district: District) -> tuple[Block, ...]:
    lots = random.Random(f"stories of {district.name}")
    places = {"park": district.park, "street": district.street, "square": district.square}
    stories = [lots.choice(group).format(**places) for group in SERVICE_STORIES]
    costs = running_costs(district)
    totals = [sum(pair[year] for pair in costs.values()) for year in (0, 1)]
    rows = [
        (service, *map(_crowns, costs[service]), f"{costs[service][1] / district.people:.2f}") for service in SERVICES
    ]
    rows.append(("Total of the district", *map(_crowns, totals), f"{totals[1] / district.people:.2f}"))
    return (
        Heading(f"{district.name}: running costs"),
        Text(f"{district.portrait} At the last count {_crowns(district.people)} people lived here."),
        Table(
            f"Running costs of the services in {district.name}, crowns",
            ("Service", "2024", "2025", "2025 per resident"),
            tuple(rows),
            (2.4, 1.2, 1.2, 1.2),
            mark=f"running-{_slug(district)}",
        ),
        Text(" ".join(stories[:4])),
        Text(" ".join(stories[4:])),
    )


def _project_page(district: District) -> tuple[Block, ...]:
    lots = random.Random(f"instalments of {district.name}")
    places = {"park": district.park, "street": district.street, "square": district.square}
    chosen = projects(district)
    shares = [lots.uniform(0.5, 1.5) for _ in range(4)]
    million = sum(project.cost for project in chosen) / 1000
    yearly = tuple(round(million * share / sum(shares), 2) for share in shares)
    return (
        Heading(f"{district.name}: building and repair"),
        Text(
            f"The following projects in {district.name} have been approved. Costs are totals over all years in "
            "thousand crowns, including planning and a reserve of eight per cent for surprises in the ground."
        ),
        Table(
            f"Projects in {district.name}, thousand crowns",
            ("Project", "Total cost", "Paid by"),
            tuple((project.name, _crowns(project.cost), project.source) for project in chosen),
            (3.2, 1, 1.6),
            mark=f"projects-{_slug(district)}",
        ),
        Text(" ".join(project.story.format(**places) for project in chosen)),
        BarChart(
            f"Payments for projects in {district.name} by year, million crowns",
            ("2025", "2026", "2027", "2028"),
            (("Payments", yearly),),
            form="%.2f",
        ),
        Text(
            "Payments may move from one year to the next when a permit is late or when tenders bring no acceptable "
            "offer. The "
            f"district council of {district.name} is informed every quarter, and residents can see the drawings at the "
            f"district office at {district.square} on weekday afternoons."
        ),
    )


def _cost(name: str, service: str) -> int:
    return next(running_costs(district)[service][1] for district in DISTRICTS if district.name == name)


def _compared_roads() -> DemoQuestion:
    eastgate, millfields = (_cost(name, "Road maintenance") for name in ("Eastgate", "Millfields"))
    more = "Eastgate" if eastgate > millfields else "Millfields"
    return DemoQuestion(
        "budget-compared-roads",
        "Does Eastgate or Millfields get more for the upkeep of its roads in 2025, and what is the difference?",
        f"{more}, by {_crowns(abs(eastgate - millfields))} crowns ({_crowns(eastgate)} in Eastgate and "
        f"{_crowns(millfields)} in Millfields).",
        (("running-eastgate", _crowns(eastgate)), ("running-millfields", _crowns(millfields))),
    )


def _summed_libraries() -> DemoQuestion:
    amounts = {name: _cost(name, "Library services") for name in ("Northmoor", "Quarry Hill", "Saltmarsh")}
    return DemoQuestion(
        "budget-summed-libraries",
        "What is the sum of the 2025 amounts for libraries in Northmoor, Quarry Hill and Saltmarsh?",
        f"{_crowns(sum(amounts.values()))} crowns ({', '.join(map(_crowns, amounts.values()))}).",
        tuple((f"running-{name.lower().replace(' ', '-')}", _crowns(amount)) for name, amount in amounts.items()),
    )


def _districts_with(project: str, id_: str, text: str) -> DemoQuestion:
    found = [
        (district, each.name) for district in DISTRICTS for each in projects(district) if each.name.startswith(project)
    ]
    return DemoQuestion(
        id_,
        text,
        ", ".join(district.name for district, _ in found) + ".",
        tuple((f"projects-{_slug(district)}", name) for district, name in found),
    )


QUESTIONS = (
    DemoQuestion(
        "budget-harbourside-lighting",
        "How much is planned for street lighting in Harbourside in 2025?",
        f"{_crowns(_cost('Harbourside', 'Street lighting'))} crowns.",
        (("running-harbourside", _crowns(_cost("Harbourside", "Street lighting"))),),
    ),
    DemoQuestion(
        "budget-flood-fund",
        "Which undertaking receives money from the regional flood fund?",
        "Raising the river wall at Dyers' Steps in Tannery Row.",
        (("projects-tannery-row", "regional flood fund"),),
    ),
    _compared_roads(),
    _summed_libraries(),
    _districts_with(
        "New primary school",
        "budget-new-schools",
        "In which parts of the city will a completely new school for young children be built?",
    ),
    _districts_with(
        "Square, new paving", "budget-paving", "Which districts get a town square with a new surface and trees?"
    ),
    DemoQuestion(
        "budget-westfold",
        "How much will be spent on day nurseries in the district of Westfold?",
        "The city has no district of that name in this budget.",
        absent=("Westfold",),
    ),
)

CITY_BUDGET = DemoDocument(
    id="city-budget",
    title="City of Carrow Bridge, budget 2025 by district",
    design=Design(accent="#274690", font_size=11.5),
    parts=(
        Part(
            (*INTRODUCTION, *(block for place in DISTRICTS for block in (*_running_page(place), *_project_page(place))))
        ),
    ),
    questions=QUESTIONS,
)
