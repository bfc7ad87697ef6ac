"""Operating manual of a heat pump: safety, controls and daily use."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import Block, Callout, Contents, Cover, Heading, Items, LineChart, Table, paragraphs

USE: tuple[Block, ...] = (
    Cover(
        "Norrvind NV-8 and NV-12",
        "Air-to-water heat pump: operating and service manual",
        ("For owners and for trained installers", "Keep this manual beside the unit"),
    ),
    Heading("Contents"),
    Contents(),
    *paragraphs(
        """This manual describes two sizes of one heat pump. Where the sizes differ, the text says so. Chapters on
        daily use are written for the people who live in the house. Chapters on faults, spare parts and technical
        data also address the installer. Work on the refrigerant circuit and on the electrical connection is
        reserved for trained persons in every case."""
    ),
    Heading("Safety"),
    *paragraphs(
        """The heat pump is safe when it is installed, used and serviced as described here. It contains a flammable
        refrigerant in a sealed circuit. The outdoor unit must therefore stand in the open, at least one metre away
        from cellar windows, light wells and drains, because the gas is heavier than air and would collect in low
        places."""
    ),
    Callout(
        "Danger: electric shock",
        "Parts behind the front panel carry mains voltage, even when the display is dark. Switch off both circuit "
        "breakers and wait five minutes before the panel is taken off.",
    ),
    Callout(
        "Warning: flammable refrigerant",
        "Do not drill, grind or use an open flame near the outdoor unit. If you smell something sweet or hear a hiss,"
        " keep away, and call the service. Do not operate any switch.",
    ),
    Callout(
        "Caution: hot surfaces",
        "Pipes of the hot water circuit may reach seventy degrees. Let them cool before you touch them.",
    ),
    *paragraphs(
        """Children may use the control panel only if an adult has explained it. The unit is not a toy, and its top
        is not a shelf. Do not lean ladders against it. Keep leaves, snow and laundry away from the air inlet, and
        never put a hand or a stick through the guard of the fan, which can start without notice.

        Water in the heating circuit is treated with an inhibitor. It is not for drinking. After any work on the
        pipes the pressure has to be checked again on the following day."""
    ),
    Heading("How the heat pump works"),
    *paragraphs(
        """A fan draws outside air through the evaporator. There the refrigerant boils at a low temperature and
        takes up heat from the air. The compressor raises its pressure and with it its temperature. In the condenser
        the hot gas turns into liquid again and hands its heat to the water of the heating circuit, which the
        circulation pump moves through the radiators or the floor. An expansion valve lowers the pressure, and the
        cycle begins anew.

        When the air is cold and damp, ice forms on the evaporator. From time to time the unit melts it by running
        the cycle backwards for a few minutes. Steam may rise during this defrosting, and water runs off below the
        unit. This is no fault. The heat for it is taken from the buffer tank, so the rooms do not become colder."""
    ),
    Table(
        "Main parts of the unit",
        ("No.", "Part", "Where", "Task"),
        (
            ("1", "Fan", "Outdoor unit, front", "Moves the outside air"),
            ("2", "Evaporator", "Outdoor unit, rear", "Takes heat from the air"),
            ("3", "Compressor", "Outdoor unit, right", "Raises the pressure of the refrigerant"),
            ("4", "Condenser", "Indoor unit, middle", "Gives heat to the heating water"),
            ("5", "Expansion valve", "Outdoor unit, right", "Lowers the pressure"),
            ("6", "Circulation pump", "Indoor unit, below", "Moves the heating water"),
            ("7", "Diverter valve", "Indoor unit, left", "Chooses between rooms and hot water"),
            ("8", "Dirt filter", "Return pipe", "Keeps rust and sand out of the condenser"),
            ("9", "Heating rod", "Buffer tank", "Helps on the coldest days"),
        ),
        (0.4, 1.2, 1.4, 2.2),
    ),
    Heading("Control panel"),
    *paragraphs(
        """The panel on the indoor unit has a display, a wheel and three keys. Turn the wheel to move through a list
        or to change a value; press the wheel to confirm. After two minutes without use the display goes dark, and
        settings which have not been confirmed are dropped."""
    ),
    Table(
        "Keys and their meaning",
        ("Key", "Short press", "Long press"),
        (
            ("Wheel", "Confirm the value", "Back to the first page"),
            ("House", "Temperature of the rooms", "Party mode until midnight"),
            ("Drop", "Temperature of the hot water", "One extra charge of hot water"),
            ("Spanner", "List of messages", "Service menu (hold for 8 seconds)"),
        ),
        (0.8, 1.6, 1.8),
        mark="keys",
    ),
    *paragraphs(
        """The first page shows the outside temperature, the temperature of the flow, and a symbol for what the unit
        is doing. A sun means heating, a drop means hot water, a snowflake means defrosting, and a moon means that
        the night setting is in force. A triangle announces a message. Press the spanner key to read it; the
        chapters on fault codes explain what to do.

        The panel can be locked against unintended use. Hold the house and the drop keys together until a padlock
        appears. The same keys open it again. While the panel is locked, messages are still shown and the unit works
        as before.

        The brightness of the display, the language and the clock are set in the menu Basics. The clock has to be
        set by hand after a power cut of more than three days."""
    ),
    Heading("First start"),
    *paragraphs(
        """The first start is made by the installer together with the owner. It takes about two hours. A record of
        the settings is kept in the pocket inside the front door of the indoor unit; without it the warranty of the
        compressor is not valid."""
    ),
    Items(
        (
            "Check that the heating circuit is filled and vented. The gauge must show between 1.2 and 1.8 bar.",
            "Open all valves of the radiators or of the floor circuits.",
            "Switch on the control circuit, then the power circuit. Wait until the display shows the first page.",
            "Choose the language, set the date, and enter the size of the unit, NV-8 or NV-12.",
            "Choose the kind of heating: floor, radiators, or both with a mixing valve.",
            "Run the programme Venting from the service menu. It lasts twelve minutes. The circulation pump starts "
            "and stops by turns while it runs.",
            "Run the programme Test of outputs. Each fan, pump and valve is switched in turn; listen and confirm.",
            "Let the compressor run for half an hour. The difference between flow and return should lie between four "
            "and eight degrees.",
            "Set the heating curve and the hot water as described in the next chapters.",
            "Enter the settings in the record, and have the owner sign it.",
        ),
        numbered=True,
    ),
    Callout(
        "Note: drying a new floor",
        "A fresh screed must not be heated with the normal programme. Use the programme Floor drying, which takes 21 "
        "days, and ask the layer of the floor for the temperatures.",
    ),
    *paragraphs(
        """In the first winter the house loses moisture and needs more heat than later. Do not judge the consumption
        before the second heating season. If rooms stay cold although the flow is warm, the circuits have to be
        balanced first; do not raise the curve."""
    ),
    Heading("Heating curve"),
    *paragraphs(
        """The colder it is outside, the warmer the water in the radiators has to be. The heating curve says how
        warm. A flat curve (number 1 or 2) suits a heated floor, a steep one (4 or 5) suits old radiators. Choose
        the flattest curve with which all rooms become warm: each degree less in the flow saves about two and a half
        per cent of electricity."""
    ),
    LineChart(
        "Flow temperature in degrees by outside temperature, heating curves 1 to 5",
        (-15, -10, -5, 0, 5, 10),
        (
            ("Curve 1", (34, 32, 30, 28, 26, 24)),
            ("Curve 2", (41, 38, 34, 31, 28, 25)),
            ("Curve 3", (48, 44, 40, 36, 32, 28)),
            ("Curve 4", (55, 50, 46, 41, 35, 30)),
            ("Curve 5", (62, 56, 51, 45, 39, 33)),
        ),
        x_title="Outside temperature, degrees",
        y_title="Flow temperature",
        mark="curve",
    ),
    *paragraphs(
        """Change the curve by one number at a time, then wait for two days. If it is too cold only on mild days,
        raise the parallel shift instead; if it is too cold only in hard frost, choose the next steeper curve. If it
        is too warm in a single room, close its valve a little and leave the curve alone.

        Open the valves in the main room fully. A valve that closes because the sun shines into the room misleads
        the unit, and the flow through the condenser may become too small."""
    ),
    Heading("Hot water"),
    *paragraphs(
        """Hot water is stored in a tank of 180 litres (NV-8) or 250 litres (NV-12). The diverter valve sends the
        heat to the tank whenever the water in it falls five degrees below the set value. Rooms are not heated
        meanwhile; this takes about forty minutes and is not noticed.

        Three programmes can be chosen. Eco keeps the tank at 46 degrees and charges it once a day, in the warmest
        hours of the afternoon, when the heat pump works best. Normal keeps it at 50 degrees. Comfort keeps it at 53
        degrees and uses the heating rod if many baths are taken one after the other.

        Once a week the tank is heated to 62 degrees against legionella. This happens in the night from Sunday to
        Monday unless you choose another day. The circulation of hot water through the house, if there is one,
        should run only at the hours when it is wanted, because it cools the tank faster than anything else.

        If nobody is at home for more than a week, choose Absent. The tank then cools down; on the day of your
        return it is first heated against legionella and only then released. Let the water run for a minute before
        the first shower.

        A clicking noise in the pipes during charging comes from the pipes getting longer. If it disturbs you, ask
        the installer to loosen the clamps."""
    ),
    Heading("Time programmes", level=2),
    *paragraphs(
        """For rooms and for hot water up to four periods can be set for each day. At night a reduction by two or
        three degrees is enough; a larger one costs more in the morning than it saves. With a heated floor, do
        without it entirely, since the floor reacts too slowly. A holiday can be entered with its first and last
        day."""
    ),
    Heading("Silent mode and cooling"),
    *paragraphs(
        """Between the hours that you choose, silent mode limits the speed of the fan and of the compressor. The
        output falls by about a third, so it should not be used in hard frost. The table shows the sound pressure in
        front of the unit, standing free on one side."""
    ),
    Table(
        "Sound pressure in decibels (A) by distance",
        ("Distance", "NV-8, normal", "NV-8, silent", "NV-12, normal", "NV-12, silent"),
        (
            ("1 metre", "49", "43", "52", "46"),
            ("3 metres", "40", "34", "43", "37"),
            ("5 metres", "36", "29", "39", "33"),
            ("10 metres", "30", "24", "33", "27"),
        ),
    ),
    *paragraphs(
        """A wall behind the unit adds three decibels, a corner adds six. Between ten at night and six in the
        morning many municipalities allow thirty-five decibels in front of the neighbour's bedroom window. Grass and
        hedges help little; turning the unit by ninety degrees often helps a lot.

        In summer the heat pump can cool the house gently by way of the floor. The flow never falls below eighteen
        degrees, so that no water condenses on the floor. Cooling has to be released by the installer, who also fits
        the dew point sensor. Close the windows in the daytime, draw the blinds first, and expect the rooms to
        become two or three degrees cooler, not more. Radiators cannot be used for cooling.

        Cooling stops while hot water is made. It also stops when the humidity in the main room is too high; the
        display then shows a drop with a line through it. Open the windows in the evening and wait."""
    ),
)
