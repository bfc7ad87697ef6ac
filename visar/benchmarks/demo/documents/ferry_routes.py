"""The five route reports of the ferry company: one page each, in the same form."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import Block, Heading, Table, Text, paragraphs


def _route(name: str, story: str, quarters: tuple[tuple[str, ...], ...], yard: Text) -> tuple[Block, ...]:
    return (
        Heading(f"Route report: {name}"),
        *paragraphs(story),
        Table(
            f"Sailings and results of the {name} by quarter",
            ("2023", "Sailings planned", "Sailings cancelled", "Places sold, %", "Fare revenue, million"),
            tuple((f"Quarter {number}", *row) for number, row in enumerate(quarters, start=1)),
            (1.2, 1.3, 1.4, 1.2, 1.6),
            mark=f"quarters-{name.lower().replace(' ', '-')}",
        ),
        Heading("Yard time and outlook", level=2),
        yard,
    )


ROUTES: tuple[Block, ...] = (
    *_route(
        "North Sound",
        """The North Sound is our oldest and busiest crossing: thirty-five minutes from Halvarsund to Torvik, with
        sixteen departures in each direction on working days. It is served by MS Terna and, at peak times, by a
        second ship lent from the Kestrel Strait. More than half of those on board hold a monthly ticket.

        Passenger numbers rose moderately. The new waiting hall at Torvik was opened in March, and since then the
        ship has been boarded through two doors instead of one, which saves four minutes at each call. Those minutes
        went into punctuality rather than into more sailings. Complaints about the lack of bicycle places remained
        frequent; thirty additional racks were fitted on the car deck in June.

        Competition comes from the bus line around the head of the fjord. It takes an hour and forty minutes, but it
        costs half as much, and students in particular use it. From January a student ticket will be offered on all
        sailings outside the morning peak. We expect it to bring back about a tenth of those who left.

        The kiosk on board was leased to a baker from Torvik. Turnover rose by a fifth and the share of waste fell.
        The same arrangement is being considered for the other day routes.""",
        (
            ("2,880", "21", "48.1", "51.9"),
            ("2,912", "6", "55.9", "63.7"),
            ("2,944", "4", "71.3", "82.0"),
            ("2,930", "39", "52.2", "58.0"),
        ),
        Text(
            "MS Terna spent 19 days in the yard at Brekke in February, as planned, for her ten-year class survey and "
            "new stern ramp hinges. The relief ship carried the traffic without cancellations. No yard stay is "
            "planned for the coming year. The route will get card readers at the gates before the summer.",
            mark="yard-north-sound",
        ),
    ),
    *_route(
        "Kestrel Strait",
        """The crossing of the Kestrel Strait is short but exposed. In a south-westerly gale the swell stands
        straight into the harbour of Kestrel, and the master may have to turn back within sight of the quay. MS
        Alkenes has served the route since she was built and is known for her patience.

        The year was steady. Passenger numbers grew slightly, lorries a little more, after the fish plant on the
        eastern shore began to send its products by road to the airport. For these lorries a fixed booking window
        was introduced: they reserve by noon and are loaded first. The queue of vehicles in Harbour Street, about
        which residents had complained for years, became noticeably shorter.

        The breakwater is the property of the county and needs repair. As long as the work lasts, that is until the
        spring after next, the ship has to enter at reduced speed, which costs two minutes for each call. The
        timetable was adapted in September and connections to the train were kept.

        On board, the saloon was refurnished with benches from a closed cinema. They are popular with children and
        were cheaper than new ones.""",
        (
            ("1,980", "44", "39.7", "27.2"),
            ("2,010", "12", "46.0", "33.3"),
            ("2,040", "9", "63.4", "42.0"),
            ("2,016", "58", "41.5", "28.9"),
        ),
        Text(
            "MS Alkenes was not in the yard during the year; small repairs were done at the quay at night. Her main "
            "engines will be overhauled next autumn, for which a ship has to be chartered. For the coming year we "
            "expect an unchanged number of passengers and a little more freight.",
        ),
    ),
    *_route(
        "Outer Isles",
        """The Outer Isles route links seven small harbours with Torvik. It is run under contract for the counties,
        which decide on fares and pay for the losses. MS Fulmar, built for shallow water, calls at each island at
        least twice a day.

        {story-outer-isles} It was the best year since the route was opened. The increase in passengers has one
        cause above all: the 07:10 sailing from Skarv, introduced in January, lets pupils of the upper school live
        at home instead of boarding on the mainland during the week. Within a month the ship was full on that
        sailing, and parents and craftsmen began to use it too. A summer season with little wind did the rest.

        The larger number of travellers has its price. The waiting rooms on Skarv and Little Auk are too small,
        luggage is left in the rain, and the freight of the island shops has to share the deck with prams. Together
        with the counties we have drawn up a list of simple improvements: roofs, trolleys, and a separate hatch for
        goods.

        Medical transport by night, which we carry out on call, was needed on fewer occasions than in earlier years,
        as the rescue helicopter is now stationed on Skarv.""",
        (
            ("1,274", "31", "33.8", "8.7"),
            ("1,302", "8", "44.6", "10.5"),
            ("1,396", "3", "66.2", "14.1"),
            ("1,288", "47", "37.9", "9.3"),
        ),
        Text(
            "MS Fulmar went to the yard at Brekke for 26 days in April, as planned, to have her hull blasted and her "
            "bow thruster replaced. Meanwhile a chartered catamaran kept up the service with fewer calls. The "
            "contract with the counties ends in two years; the tender for the following period is expected next "
            "winter.",
            mark="yard-outer-isles",
        ),
    ),
    *_route(
        "Lindhaven Express",
        """The Lindhaven Express is our fast passenger link along the coast: a catamaran without car deck, seventy
        minutes between the two cities. MS Skua has served it since she was delivered.

        The road tunnel at Lindhaven, opened in the spring, shortened the way by car by half an hour. As expected,
        it took passengers from us, above all those who travel at weekends with luggage. Working days were almost
        unaffected, because nobody finds a place to park in the middle of Lindhaven. We withdrew the early sailing
        on Sundays and added tables with power sockets, since four out of five regular passengers say that they work
        on the way.

        The fast ship reacts to floating timber. After the autumn floods logs drifted in the fairway for weeks, and
        speed had to be reduced after dark. This, rather than technical faults, explains most of the delays in the
        last quarter.

        Fares were left unchanged. A joint ticket with the tram company of Lindhaven was sold for the first time;
        every ninth passenger chose it.""",
        (
            ("1,092", "18", "41.9", "28.1"),
            ("1,104", "5", "47.7", "32.9"),
            ("1,118", "2", "58.8", "38.8"),
            ("1,067", "63", "38.3", "25.7"),
        ),
        Text(
            "MS Skua had an unplanned stay of 5 days in the yard in November after a log had damaged a water jet. The"
            " insurers have accepted the claim. The number of passengers is expected to settle at about the present "
            "level, as the effect of the tunnel has now been felt in full.",
        ),
    ),
    *_route(
        "Night Line",
        """The Night Line leaves Halvarsund at ten in the evening and reaches Port Sorrel at seven. MS Petrel has
        cabins for three hundred travellers, a car deck, and a restaurant which opens at the time when others close.

        The trend towards travelling overnight continued. Families, groups of hikers and, for the first time, a
        noticeable number of business travellers filled the cabins in the middle of the week. The price of a cabin
        now depends on demand, which was criticised at first but raised the average revenue only a little, as many
        cheap berths are sold on quiet nights.

        Freight without drivers, that is trailers which are brought on board by our own tractors, has become the
        second leg of the route. A second tractor was bought in August. The customs area at Port Sorrel was
        enlarged, so that trailers can be left there over the weekend.

        Noise from the ventilation on deck six was the most frequent reason for complaint. During her stay in the
        yard the ducts were lined, and since then there has been silence, or at least no more letters.""",
        (
            ("176", "4", "43.3", "39.9"),
            ("181", "1", "57.0", "54.2"),
            ("184", "0", "81.6", "76.2"),
            ("180", "7", "50.4", "46.0"),
        ),
        Text(
            "MS Petrel spent 33 days in the yard at Sorrel Dock in January and February, as planned, for new cabins "
            "on deck six and a connection for shore power. Her sailings were suspended during that time and "
            "passengers were moved to the train. Bookings for the coming summer are above those of the year before.",
            mark="yard-night-line",
        ),
    ),
)
