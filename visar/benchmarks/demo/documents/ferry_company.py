"""The ferry company behind the routes: fleet, punctuality, environment, people, board, risks and accounts."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import BarChart, Block, Callout, Heading, Items, PieChart, Table, paragraphs

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

COMPANY: tuple[Block, ...] = (
    Heading("The fleet"),
    *paragraphs(
        """At the end of the year the fleet consisted of five ships of our own and one relief ship on long charter.
        The average age of our own was eighteen years. Table 2 gives the particulars for which we are asked most
        often. The number of passengers is the one in the safety certificate; in daily service we sell fewer places,
        so that everybody finds a seat indoors."""
    ),
    Table(
        "Table 2: Ships at 31 December 2023",
        ("Ship", "Built", "Machinery", "Length, m", "Passengers", "Cars", "Home port"),
        (
            ("MS Terna", "2013", "Diesel", "92", "850", "110", "Torvik"),
            ("MS Alkenes", "1994", "Diesel", "78", "540", "85", "Kestrel"),
            ("MS Fulmar", "1998", "Diesel", "49", "190", "18", "Skarv"),
            ("MS Skua", "2021", "Hybrid, battery", "41", "276", "none", "Lindhaven"),
            ("MS Petrel", "1999", "Diesel", "136", "910", "240", "Halvarsund"),
            ("MS Guillemot (relief)", "1987", "Diesel", "71", "430", "70", "Brekke"),
        ),
        (1.7, 0.75, 1.25, 0.95, 1.4, 0.75, 1.3),
        mark="fleet",
    ),
    *paragraphs(
        """Ships are maintained by their own crews and by a workshop at Halvarsund with twenty-two fitters. Larger
        work is put out to tender. In the past the company tended to choose the cheapest yard; we now also weigh how
        many days a ship is away, since a day without a ship costs more than a day in dock. The yard stays of the
        year are described in the reports of the routes on which the ships sail.

        The successor of MS Alkenes is being designed. She will have a battery large enough for the whole crossing
        and will be charged at each call. Tenders were invited from four yards. A decision is expected after the
        general meeting."""
    ),
    Callout(
        "Names of ships",
        "Our ships are named after sea birds of the Sound. Suggestions for the next one may be left in the box at the"
        " ticket office in Halvarsund. Gulls are excluded.",
    ),
    Heading("Punctuality and safety"),
    *paragraphs(
        """A departure counts as punctual when the ship has left the quay no later than five minutes after the time
        in the timetable. Sailings cancelled because of the weather are not counted; those cancelled for technical
        reasons count as late. Figure 2 shows the result for the network as a whole by month."""
    ),
    BarChart(
        "Figure 2: Punctual departures in the whole network, per cent, 2023",
        MONTHS,
        (("2023", (91.7, 92.4, 94.8, 95.6, 96.2, 95.9, 93.1, 92.8, 95.1, 88.3, 86.9, 90.5)),),
        mark="punctuality",
    ),
    *paragraphs(
        """The goal of ninety-four per cent for the year was just missed. Fog, floating timber and the storm Ragna
        are to blame for most of the loss in the last quarter. In high summer it is rather the loading of camper
        vans, which takes longer than the timetable allows; for the coming season two stewards will direct the
        vehicles before the ship arrives.

        There was no accident with serious injuries. Eleven passengers were hurt in falls, eight of them on wet
        stairs, and a deckhand broke a wrist when a mooring line parted. All lines of that maker were replaced.
        Rescue drills were held every week on each ship and twice with the coast guard. The authority inspected the
        fleet nine times and noted four defects, all of which were put right before the ship next sailed."""
    ),
    Heading("Environment"),
    *paragraphs(
        """Ships burn fuel, and fuel is by far our largest burden on the environment. During the year the fleet used
        14,900 tonnes of marine gas oil, four per cent less than in the year before, although it sailed slightly
        further. Slower steaming on the Night Line made the largest contribution, followed by the new propellers of
        MS Terna.

        Figure 3 compares the carbon dioxide set free per passenger kilometre on the five routes. The differences
        come from the kind of ship and from how full it is. The catamaran of the Lindhaven Express would do worse
        without her batteries, with which she enters and leaves harbour."""
    ),
    BarChart(
        "Figure 3: Carbon dioxide per passenger kilometre, grams",
        ("North Sound", "Kestrel Strait", "Outer Isles", "Lindhaven Express", "Night Line"),
        (("2022", (118.0, 141.0, 209.0, 173.0, 156.0)), ("2023", (112.0, 139.0, 187.0, 177.0, 144.0))),
        form="%.0f",
    ),
    *paragraphs(
        """Since spring, MS Petrel has drawn electric power from the shore by day, and her generators are silent in
        port. At Torvik the grid is still too weak for a second connection. Waste water is pumped ashore on all
        routes. Food waste fell by a quarter after portions in the restaurant had been made smaller and second
        helpings free.

        Underwater noise was measured for the first time, together with the marine station on Skarv, because
        porpoises calve in the outer sound in June. On their advice the speed in the inner channel was reduced
        during that month."""
    ),
    Heading("People"),
    *paragraphs(
        """{posts} On average the company employed 1,120 people in 2023, counted as full-time posts. In summer there
        were four hundred seasonal workers besides. Women hold 38 per cent of the posts ashore and 17 per cent of
        those at sea. The first woman to become chief engineer of the fleet took up her duty on MS Fulmar in May."""
    ),
    PieChart(
        "Figure 4: Posts by field of work, per cent",
        (
            ("Deck and navigation", 31),
            ("Engine room", 17),
            ("Catering and service", 24),
            ("Terminals", 19),
            ("Offices", 9),
        ),
    ),
    *paragraphs(
        """Sickness leave fell to 6.1 per cent of working time. The new rota, two weeks aboard followed by two weeks
        at home, was tried on the Night Line and is to be extended to the Outer Isles. In wage talks the unions and
        the company agreed on a rise of 4.8 per cent over eighteen months.

        Twenty-six apprentices were in training at the end of the year, more than ever. Most of them come from the
        islands. Everyone who works with passengers attended a course of two days on helping travellers with
        disabilities, which was held by people who use wheelchairs or who cannot see."""
    ),
    Heading("The board"),
    *paragraphs(
        """The board is elected by the general meeting for three years. Two of its seven members are chosen by the
        employees. It met nine times, once aboard MS Alkenes in a swell that shortened the agenda. The audit
        committee met four times and dealt with the tender for the new ship, the hedging of fuel and a
        whistle-blower's report, which proved to be unfounded."""
    ),
    Table(
        "Table 3: Members of the board and attendance in 2023",
        ("Name", "On the board since", "Elected by", "Board meetings", "Audit committee"),
        (
            ("Astrid Holm (chair)", "2016", "General meeting", "9 of 9", "4 of 4"),
            ("Peder Vik", "2018", "General meeting", "8 of 9", "4 of 4"),
            ("Marte Lunde", "2020", "General meeting", "9 of 9", "3 of 4"),
            ("Olav Brandt", "2014", "General meeting", "5 of 9", "none"),
            ("Signe Aasen", "2022", "General meeting", "8 of 9", "none"),
            ("Jon Myhre", "2019", "Employees", "9 of 9", "none"),
            ("Randi Foss", "2021", "Employees", "7 of 9", "none"),
        ),
        (1.6, 1.3, 1.3, 1.2, 1.2),
        mark="board",
    ),
    *paragraphs(
        """Members receive a fixed fee and nothing that depends on the result. The chair is paid twice the fee of an
        ordinary member. No member of the board holds more than one thousandth of the shares. Members who have an
        interest in a matter leave the room while it is discussed, which happened on two occasions, both of which
        concerned land.

        Auditors are elected each year. The present firm has been in office for six years and will be replaced after
        the seventh, as the rules of the counties demand."""
    ),
    Heading("Risks"),
    *paragraphs(
        """The board reviews the risks of the company in spring and autumn. Those which it holds to be the most
        important are listed here in the order of their weight."""
    ),
    Items(
        (
            "Price of fuel. A rise of ten per cent would cost 16 million crowns in a year. About half of the need is "
            "bought in advance for twelve months.",
            "The contract for the island routes. Should the next tender be lost, one ship and ninety posts would be "
            "without work. The counties have signalled that they may tender the islands in two lots.",
            "Age of the fleet. Three ships are older than twenty years. Spare parts for their engines have to be made"
            " to order, and a long breakdown in summer could not be bridged by the relief ship alone.",
            "Interest. New ships are financed by loans. The board has set a ceiling for the net debt of three times "
            "the yearly result before depreciation.",
            "Weather. The number of days with winds above gale force has risen slowly for twenty years, and the quays"
            " on the outer islands were built for a lower sea.",
            "Information systems. The booking system was moved to a second computing centre in autumn, after a "
            "failure of nine hours at Whitsun.",
        ),
        numbered=True,
    ),
    *paragraphs(
        """The board considers the sum of these risks to be bearable. Insurance covers hull, machinery, liability
        and loss of hire after the fourteenth day. War risks are not insured, because the ships do not leave home
        waters."""
    ),
    Heading("Income statement"),
    Table(
        "Table 4: Income statement, million crowns",
        ("", "2023", "2022"),
        (
            ("Fares from passengers", "771.4", "702.8"),
            ("Fares from vehicles and freight", "298.6", "281.3"),
            ("Payments by the counties", "151.0", "149.5"),
            ("Sales on board and other", "67.0", "58.9"),
            ("Operating revenue", "1,288.0", "1,192.5"),
            ("Wages and social costs", "-588.2", "-557.7"),
            ("Fuel", "-161.3", "-178.8"),
            ("Maintenance and yards", "-143.9", "-120.2"),
            ("Harbour dues", "-71.5", "-68.4"),
            ("Other operating costs", "-120.7", "-112.1"),
            ("Depreciation", "-98.4", "-96.9"),
            ("Operating result", "104.0", "58.4"),
            ("Net interest", "-37.2", "-29.1"),
            ("Tax", "-14.7", "-6.4"),
            ("Result for the year", "52.1", "22.9"),
        ),
        (3, 1, 1),
        mark="income",
    ),
    *paragraphs(
        """Revenue grew with the number of passengers and with the fares of the Night Line. Fuel cost less than in
        the year before, as the price fell and consumption too. Yard stays were dearer, for three ships were docked
        instead of two. Interest rose with the general level. The board proposes to add the whole result to the
        reserves in view of the coming order for a ship."""
    ),
    Heading("Balance sheet and notes"),
    Table(
        "Table 5: Balance sheet at 31 December, million crowns",
        ("", "2023", "2022"),
        (
            ("Ships", "1,364.8", "1,402.3"),
            ("Buildings, quays and equipment", "212.6", "205.7"),
            ("Stocks and receivables", "96.1", "90.4"),
            ("Cash", "143.3", "118.0"),
            ("Total assets", "1,816.8", "1,816.4"),
            ("Equity", "748.5", "696.4"),
            ("Loans from banks", "842.0", "899.5"),
            ("Other liabilities", "226.3", "220.5"),
        ),
        (3, 1, 1),
    ),
    *paragraphs(
        """Note 1, accounting. Ships are written off evenly over thirty years, batteries over ten. Costs of class
        surveys are spread over the time until the next one. The relief ship is chartered and therefore not among
        the assets.

        Note 2, loans. The loans of the banks are secured by mortgages on MS Terna, MS Skua and MS Petrel. They
        carry interest at a floating rate, which is fixed for two fifths of the amount until 2027. All conditions
        agreed with the lenders were kept.

        Note 3, pensions. The company pays fixed contributions to the Seafarers' Pension Fund and owes nothing
        beyond.

        Note 4, lawsuits. A haulier claims damages for a cargo of lettuce which froze on the car deck in February.
        The company disputes the claim and has set aside 0.9 million crowns.

        Note 5, events after the end of the year. On 14 January the ice closed the harbour of Port Sorrel for six
        days."""
    ),
)
