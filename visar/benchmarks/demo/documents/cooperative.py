"""Minutes of a housing cooperative: recent meetings as text, and typed minutes of its first years as scanned pages."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import (
    Block,
    Callout,
    Contents,
    Cover,
    DemoDocument,
    DemoQuestion,
    Design,
    Heading,
    Items,
    Part,
    Table,
    paragraphs,
)
from visar.benchmarks.demo.documents.cooperative_archive import ARCHIVE


def _meeting(title: str, facts: tuple[tuple[str, str], ...], text: str) -> tuple[Block, ...]:
    return (Heading(title), Table("", (), facts, (1, 4)), *paragraphs(text))


FRONT: tuple[Block, ...] = (
    Cover(
        "Minutes",
        "Lindenhof Housing Cooperative",
        ("General meetings and meetings of the board, 2023 and 2024", "With typed minutes from the years 1974 to 1976"),
    ),
    Heading("About this collection"),
    *paragraphs(
        """The Lindenhof is a house of fifty-two flats around a courtyard with six lime trees. It has belonged to
        those who live in it since 1974. When the cooperative turned fifty, the board decided to hand out its
        minutes in one booklet, so that new members can read how things came to be as they are.

        The minutes of the last two years are printed from the computer. Those of the first years were typed on a
        machine that Mr Novak had saved from the closed post office, and were photographed from the binder. The
        pages between are kept in the cellar, where the damp has made them hard to read.

        Minutes record what was decided and, where members asked for it, who was against. They are approved at the
        following meeting. Every member holds one vote, whatever the size of the flat. Resolutions need a simple
        majority, save those on the statutes, on sales and on loans, for which three quarters of the votes cast are
        needed."""
    ),
    Heading("Contents", level=2),
    Contents(),
)

RECENT: tuple[Block, ...] = (
    *_meeting(
        "Board meeting, 17 January 2023",
        (
            ("Present", "Ms Adeyemi (chair), Mr Kolar, Ms Winter, Mr Jansen; Ms Petri took the minutes"),
            ("Absent", "Mr Haddad (excused)"),
            ("Time", "19.00 to 21.10"),
        ),
        """1. The minutes of the December meeting are approved without changes.

        2. Lift in staircase B. The lift stood still on nineteen days in the past year. The maintenance firm
        declares that relays for the control can no longer be had. Mr Kolar has asked three makers for offers, which
        will be put before the general meeting in March. Ms Winter points out that two residents of the fifth floor
        cannot leave their flats when the lift is out of order. Until the replacement a carrying chair will be kept
        in the porter's lodge.

        3. Bicycles. Of the 140 bicycles in the yard about forty seem to belong to nobody. Labels will be tied to
        all of them; those whose label is still there at Whitsun will be given to the workshop of the parish.

        4. Heating. Consumption of gas fell by eleven per cent against the winter before, in part because it was
        mild. The temperature in the staircases is lowered to fifteen degrees. Flat 31 reports a cold bedroom; the
        valve is checked.

        5. Noise. Three letters were received about the drums in flat 12. The chair will speak with the family and
        look for a solution before anything is put in writing.

        6. Miscellaneous. The snow shovel is missing again. A new one will be chained.""",
    ),
    *_meeting(
        "General meeting, 25 March 2023",
        (
            ("Present", "38 members of 52, among them four by proxy"),
            ("Chair", "Ms Adeyemi; Ms Petri took the minutes"),
            ("Place", "Parish hall, 18.00 to 21.45"),
        ),
        """1. The accounts of 2022 are approved with 37 votes and one abstention. Rents were in arrears at three
        flats; payment by instalments was agreed with all of them.

        {lift-decision} 2. Lift in staircase B. Three offers were presented. After a long discussion about the
        colour of the cabin, the meeting resolves with 35 votes to 3 to have the old lift replaced by the firm of
        Hebewerk for 148,000 crowns, of which 60,000 are taken from the reserve and the remainder from a loan over
        ten years.

        3. Lime trees. The tree surgeon recommends thinning the crowns. Some members fear for the shade. Resolved
        with 29 votes to 9 to have four of the trees thinned in autumn, and to wait with the remaining two.

        4. Guest flat. The flat on the ground floor of staircase C has been empty since the death of Ms Roth. It
        becomes a guest flat, which members may book for up to ten nights a year. A working group will propose rules
        and a fee.

        5. Election. Mr Haddad does not stand again for personal reasons. Mr Okafor is elected to the board with 36
        votes. The meeting thanks Mr Haddad for eleven years of work and for his cakes.

        6. Motion of flat 7: dogs should be allowed in the courtyard. Rejected with 12 votes to 26.""",
    ),
    *_meeting(
        "Board meeting, 12 September 2023",
        (
            ("Present", "Ms Adeyemi (chair), Mr Kolar, Ms Winter, Mr Okafor; Mr Jansen took the minutes"),
            ("Absent", "nobody"),
            ("Time", "19.00 to 20.35"),
        ),
        """1. The minutes of July are approved after the spelling of a name has been corrected.

        2. Lift. The new cabin was delivered in the wrong width and had to be sent back. The firm bears the costs
        and promises to have the lift running before Advent. The residents of the upper floors are informed by
        letter. The young people of staircase A have offered to carry shopping, which is noted with thanks.

        3. Guest flat. The working group proposes 22 crowns a night for the first person and eight for each
        additional one. Bed linen is to be brought along. The board agrees. Ms Winter keeps the key and the
        calendar.

        4. Cellar. After the heavy rain of August there was water in the cellars of staircase D. A plumber found
        that a non-return valve had been installed the wrong way round. It has been turned. Members are reminded not
        to store paper on the floor.

        5. Laundry. The second washing machine has reached the end of its life. A new one with a larger drum is
        bought. The price of a wash rises from 1.20 to 1.50 crowns. The list for booking remains on paper, since a
        trial with the computer was not liked.

        6. Solar panels. Mr Okafor will find out what the roof can carry. He has heard that papers about the roof
        exist from the early years and will look for them in the binder.""",
    ),
)

LATER: tuple[Block, ...] = (
    *_meeting(
        "Board meeting, 16 January 2024",
        (
            ("Present", "Ms Adeyemi (chair), Ms Winter, Mr Okafor, Mr Jansen; Ms Petri took the minutes"),
            ("Absent", "Mr Kolar (ill)"),
            ("Time", "19.00 to 21.00"),
        ),
        """1. The minutes of November are approved.

        {lift-final} 2. Lift. The new lift has been running since 4 December. The final invoice of the firm amounts
        to 153,400 crowns. The additional amount arose because asbestos was found in the shaft. It is paid from the
        reserve. The old motor is given to the museum of technology, which has asked for it.

        3. Guest flat. It was booked on 83 nights since October, mostly at weekends. One guest locked himself out
        twice. A key safe with a number is fitted beside the door.

        4. Lime trees. The four trees were thinned in November. The wood was given to members for their stoves at
        the allotments. A nest was found and left in place.

        5. Smoke detectors. The batteries of all detectors have to be replaced this year. It will be done by
        staircase in the weeks after Easter. Whoever is absent leaves a key with a neighbour.

        6. Fifty years. The anniversary will be celebrated on the first Saturday in June. There will be a long table
        in the courtyard, music until ten, and an exhibition of photographs. Members are asked to look through their
        albums.""",
    ),
    *_meeting(
        "General meeting, 23 March 2024",
        (
            ("Present", "41 members of 52, among them six by proxy"),
            ("Chair", "Ms Adeyemi; Mr Jansen took the minutes"),
            ("Place", "Parish hall, 18.00 to 22.05"),
        ),
        """1. The accounts of 2023 are approved with 40 votes and one abstention. The reserve stands at 96,000
        crowns after the lift has been paid.

        2. Solar panels. Mr Okafor reports that the rafters can carry the weight if every second one is
        strengthened. The meeting resolves with 33 votes to 8 to put panels on the southern and the western roof,
        with an output of 64 kilowatts, and to sell the power to members at a price below that of the public
        supplier.

        3. Heating. The gas boilers are eighteen years old. A student of the technical college presents three ways
        of replacing them: district heat, heat pumps, or wood pellets. The board is asked to have district heat and
        heat pumps examined in more detail. Pellets find no friends because of the lorries in the yard.

        4. Statutes. The share which a new member has to buy is raised from 2,000 to 2,400 crowns for each room.
        Carried with 34 votes to 7, more than three quarters.

        5. Election. Ms Adeyemi and Ms Winter are confirmed for three years by show of hands.

        6. Motion of flat 7: dogs should be allowed in the courtyard on a lead. Rejected with 19 votes to 22. The
        mover announces that she will come again.""",
    ),
    Callout(
        "Note of the editors",
        "Names of residents who received letters about noise or arrears have been left out of this booklet at their "
        "request.",
    ),
    *_meeting(
        "Board meeting, 10 September 2024",
        (
            ("Present", "Ms Adeyemi (chair), Mr Kolar, Ms Winter, Mr Okafor, Mr Jansen"),
            ("Absent", "nobody"),
            ("Time", "19.00 to 21.20"),
        ),
        """1. The minutes of July are approved.

        2. Anniversary. About two hundred people came. The cost was 4,150 crowns, a little less than planned,
        because the band, in which two members play, declined its fee. The exhibition stays in staircase A until
        Christmas. Three albums are still to be collected.

        3. Solar panels. The scaffold has been standing since August. Strengthening the rafters takes longer than
        expected, as some of them are not straight. The panels should be mounted by the end of October. Swifts nest
        below the western eaves; work there was therefore put off until they had left.

        4. Heating. The district heating company demands a contract over twenty years. The board finds this too long
        and asks for a second offer. Heat pumps could stand on the flat roof of the bicycle shed. The neighbours are
        to be heard.

        5. Bicycles. This year 23 bicycles were given to the workshop of the parish. Space has become available for
        two cargo bikes, which are to be shared.

        6. Miscellaneous. The snow shovel has been found in the shed of the neighbouring house. It is chained
        nonetheless.""",
    ),
    Heading("Open tasks", level=2),
    Items(
        (
            "Second offer for district heat: Mr Kolar.",
            "Cargo bikes, rules for sharing: Mr Jansen.",
            "Albums: Ms Petri.",
        )
    ),
)

QUESTIONS = (
    DemoQuestion(
        "minutes-roof-firm",
        "Which firm covered the roof anew in the seventies, and what did it charge?",
        "Brandl and Sons, 86,500 crowns.",
        (("archive-roof", "Brandl and Sons"),),
    ),
    DemoQuestion(
        "minutes-courtyard-well",
        "Why was the old well in the courtyard filled in?",
        "Its cover was rotten: the ball of a small boy and very nearly the boy himself had fallen in.",
        (("archive-well", "the well is to be filled"),),
    ),
    DemoQuestion(
        "minutes-lift-overrun",
        "By how much did the final bill for the new lift exceed the price that the members had agreed to, and why?",
        "By 5,400 crowns (153,400 instead of 148,000), because asbestos was found in the shaft.",
        (("lift-decision", "148,000"), ("lift-final", "153,400")),
    ),
    DemoQuestion(
        "minutes-first-lift",
        "The lift replaced in 2023 had been bought in the first years of the cooperative. Who made the old one and who "
        "was chosen to make the new one?",
        "The old one was made by Astra Aufzug, the new one by Hebewerk.",
        (("archive-lift", "Astra Aufzug"), ("lift-decision", "firm of Hebewerk")),
    ),
    DemoQuestion(
        "minutes-parking",
        "How many parking spaces for cars does the underground garage have?",
        "The minutes mention no garage.",
        absent=("garage", "parking"),
    ),
)

COOPERATIVE = DemoDocument(
    id="cooperative-minutes",
    title="Lindenhof Housing Cooperative, minutes",
    design=Design(accent="#5b2a4a", serif=True, font_size=11, page_size=(482, 680)),
    parts=(Part((*FRONT, *RECENT)), Part(ARCHIVE, scanned=True), Part(LATER)),
    questions=QUESTIONS,
)
