"""Annual report of a ferry company: figures in tables and charts, and one report per route in the same form."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import (
    BarChart,
    Contents,
    Cover,
    DemoDocument,
    DemoQuestion,
    Design,
    Heading,
    Part,
    Table,
    paragraphs,
)
from visar.benchmarks.demo.documents import ferry_company, ferry_routes

OPENING = (
    Cover(
        "Annual Report 2023",
        "Halvarsund Ferries",
        ("Five routes, five ships, one timetable", "Reporting period 1 January to 31 December 2023"),
    ),
    Heading("Contents"),
    Contents(),
    *paragraphs(
        """Halvarsund Ferries carries people, cars and goods between the mainland and the islands of the Halvar
        Sound. The company is owned by the three coastal counties (together 61 per cent), by the Seafarers' Pension
        Fund and by some four thousand small shareholders, most of whom live within sight of one of our quays. All
        amounts in this report are in crowns unless the text says otherwise. Passenger figures count single
        journeys."""
    ),
    Heading("Letter from the managing director"),
    *paragraphs(
        """Dear shareholders, dear passengers,

        A ferry company is judged by three things: whether the ship leaves, whether it arrives, and whether the
        coffee is hot. In the past year we did better on the first, about as well on the second, and we are told
        that the third is a matter of opinion. After two years in which we mostly repaired what the quiet seasons
        had left behind, 2023 was the first year in which we could plan again.

        Travel on the Sound has changed. Commuters come back on Tuesdays and Thursdays rather than every day;
        families travel earlier in the summer; and the islands have more winter visitors than our timetable was
        written for. We answered by moving sailings to the hours when people want to travel, not by adding sailings
        that nobody asked for. Not everywhere did this succeed. On one route we lost passengers to the new road
        tunnel at Lindhaven, as the reports on the single routes explain openly.

        Our ships are ageing with dignity. Two of the five are not older than ten years, and the other three will
        need either new engines or successors before the end of the decade. The board has decided that no further
        vessel with only diesel machinery will be ordered. What that decision means for our borrowing is described
        in the chapter on risks; what it means for the air at our quays can be read in the chapter on the
        environment.

        I would like to thank the crews. In October, when the storm named Ragna closed the harbours for two days,
        they stayed aboard so that the ships could sail the moment the wind dropped. I would also like to thank
        those passengers who wrote to us. We received more letters than ever, and fewer of them were angry. Many
        asked for later departures on Sunday evenings; we have listened, and the summer timetable of the coming year
        has them.

        The year ahead will not be easy. Fuel remains expensive, wages rise faster than fares, and the agreement
        with the counties about the island routes ends in two years. Yet we go into these talks as a company that is
        wanted by the people it serves. That is worth more than any forecast.

        Ingrid Solvang, managing director"""
    ),
    Heading("Market and traffic"),
    *paragraphs(
        """The whole market for sea crossings on the Halvar Sound grew by four per cent. Our share of it stayed at a
        little more than two thirds; the remainder is shared by the car ferries of the road administration and by
        two small operators of excursion boats. Growth came from leisure travellers in spring and autumn. Business
        travel has not returned to what it was in 2019 and, in our view, will not do so.

        Table 1 shows how many passengers travelled on each route in the past five years. The low figures of 2020
        and 2021 were caused by the travel restrictions of those years. The reasons behind the changes in the year
        under review are given in the report of each route on the following pages."""
    ),
    Table(
        "Table 1: Passengers by route, thousand single journeys",
        ("Route", "2019", "2020", "2021", "2022", "2023"),
        (
            ("North Sound", "1,412", "704", "893", "1,268", "1,351"),
            ("Kestrel Strait", "986", "512", "640", "874", "902"),
            ("Outer Isles", "318", "201", "262", "301", "377"),
            ("Lindhaven Express", "655", "288", "341", "512", "498"),
            ("Night Line", "241", "63", "97", "188", "214"),
        ),
        (2, 1, 1, 1, 1, 1),
        mark="traffic",
    ),
    *paragraphs(
        """Cars grew more slowly than foot passengers, since many travellers now leave the car at the mainland quay
        and hire a bicycle on the island. Lorries were stable in number but longer than before. We measure the use
        of our ships by the share of places that were sold, averaged over all departures; Figure 1 shows it by
        season."""
    ),
    BarChart(
        "Figure 1: Share of passenger places sold, per cent",
        ("Winter", "Spring", "Summer", "Autumn"),
        (("2022", (31.2, 42.8, 71.9, 39.4)), ("2023", (34.6, 47.3, 73.5, 44.1))),
    ),
)

QUESTIONS = (
    DemoQuestion(
        "ferry-hybrid-capacity",
        "For how many passengers is the ship with hybrid machinery certified?",
        "276 passengers (MS Skua).",
        (("fleet", "276"),),
    ),
    DemoQuestion(
        "ferry-worst-month",
        "In which month of 2023 was the share of departures on time lowest across the network, and how high was it?",
        "November, 86.9 per cent.",
        (("punctuality", "86.9"),),
    ),
    DemoQuestion(
        "ferry-absent-director",
        "Which director missed the most board meetings in 2023?",
        "Olav Brandt, who attended 5 of 9.",
        (("board", "Olav Brandt"),),
    ),
    DemoQuestion(
        "ferry-growth",
        "Which line of the company gained the largest percentage of travellers from 2022 to 2023, and what caused it?",
        "The Outer Isles (301 to 377 thousand, about 25 per cent): the new 07:10 sailing from Skarv lets pupils of the "
        "upper school live at home.",
        (("traffic", "377"), ("story-outer-isles", "07:10")),
    ),
    DemoQuestion(
        "ferry-revenue-per-post",
        "How much operating revenue did the company earn per full-time post in 2023?",
        "1.15 million crowns (1,288.0 million divided by 1,120 posts).",
        (("income", "1,288.0"), ("posts", "1,120")),
    ),
    DemoQuestion(
        "ferry-yard-days",
        "How many days altogether did MS Terna, MS Fulmar and MS Petrel spend in planned yard stays?",
        "78 days (19, 26 and 33).",
        (("yard-north-sound", "19 days"), ("yard-outer-isles", "26 days"), ("yard-night-line", "33 days")),
    ),
    DemoQuestion(
        "ferry-cancelled",
        "On all five routes together, how many departures were called off in the last three months of 2023?",
        "214 (39, 58, 47, 63 and 7).",
        (
            ("quarters-north-sound", "2,930 39"),
            ("quarters-kestrel-strait", "2,016 58"),
            ("quarters-outer-isles", "1,288 47"),
            ("quarters-lindhaven-express", "1,067 63"),
            ("quarters-night-line", "180 7"),
        ),
    ),
    DemoQuestion(
        "ferry-advertising",
        "What did Halvarsund Ferries spend on advertising in 2023?",
        "The report does not say.",
        absent=("advertising", "advertisement", "advertisements", "marketing", "publicity"),
    ),
)

FERRY = DemoDocument(
    id="ferry-annual-report",
    title="Halvarsund Ferries, Annual Report 2023",
    design=Design(accent="#0b4f6c", font_size=10.3, page_size=(498.9, 708.66)),
    parts=(Part((*OPENING, *ferry_routes.ROUTES, *ferry_company.COMPANY)),),
    questions=QUESTIONS,
)
