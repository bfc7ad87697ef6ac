"""Operating manual of a heat pump: maintenance, spare parts, technical data."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import Block, Callout, Heading, Items, Table, paragraphs


def _parts(title: str, rows: tuple[tuple[str, str, str, str], ...], mark: str | None = None) -> Table:
    return Table(title, ("Pos.", "Part", "Fits", "Order number"), rows, (0.5, 2.6, 1.2, 1.2), mark)


UPKEEP: tuple[Block, ...] = (
    Heading("Maintenance"),
    *paragraphs(
        """The owner can do most of the maintenance. Once in two years an installer should look at the unit; the
        refrigerant circuit is checked for leaks on this occasion, and the result is entered in the record.
        Neglected maintenance shows itself in the electricity bill long before it shows on the display."""
    ),
    Table(
        "What has to be done, and when",
        ("Work", "Interval", "By whom"),
        (
            ("Clear leaves from the air inlet", "Every month in autumn", "Owner"),
            ("Read the pressure of the heating circuit", "Every 3 months", "Owner"),
            ("Wash the evaporator with a soft jet of water", "Every spring", "Owner"),
            ("Check the drain of the condensate", "Before the winter", "Owner"),
            ("Clean the dirt filter", "After the first month, then as below", "Owner or installer"),
            ("Test the safety valve of the tank", "Every 6 months", "Owner"),
            ("Check the refrigerant circuit for leaks", "Every 24 months", "Installer"),
            ("Measure the inhibitor in the heating water", "Every 24 months", "Installer"),
            ("Replace the anode of the tank", "When worn to a third", "Installer"),
        ),
        (2.4, 1.8, 1.2),
    ),
    *paragraphs(
        """{filter-interval} In the first year the dirt filter is cleaned three times, since rust and sand are
        washed out of the pipes. From then on clean the dirt filter every 12 months, at the end of the heating
        season, and in addition whenever a message asks for it.

        Do not use a high-pressure cleaner for the evaporator: its fins bend easily, and a bent fin costs output.
        Salt from the road and from the sea should be washed off twice in winter. Use neither vinegar nor any
        cleaner that contains acid."""
    ),
    Heading("Cleaning the dirt filter"),
    *paragraphs(
        """The dirt filter sits in the return pipe below the indoor unit. You need a spanner of 30 millimetres, a
        bucket, a cloth and a new gasket. The work takes a quarter of an hour."""
    ),
    Items(
        (
            "Set the unit to Off at the control panel and wait until the circulation pump has stopped.",
            "Close both valves beside the filter: a quarter turn, so that the levers stand across the pipe.",
            "Hold the bucket below the filter and loosen the cap slowly. About half a litre of water runs out.",
            "Pull out the sieve and rinse it under the tap. A magnet in the middle holds black sludge; wipe it with "
            "the cloth.",
            "Look at the seat of the gasket. Put in the new gasket dry, without grease.",
            "Screw in the cap by hand, then tighten it by a quarter of a turn.",
            "Open both valves. Check for drops.",
            "Read the pressure. If it is below 1.2 bar, fill up with treated water.",
            "Set the unit back to Automatic and enter the date in the record.",
        ),
        numbered=True,
    ),
    Callout(
        "Note: black water",
        "Dark water is normal in steel pipes. If the sieve is full of sludge again after a week, the whole circuit "
        "has to be flushed by an installer.",
    ),
    *paragraphs(
        """If the cap cannot be loosened, do not use a longer lever, because the pipe might turn and leak at another
        place. Warm the cap with a cloth soaked in hot water and try again. The valves should be moved once a year
        even if the filter is clean; otherwise they seize."""
    ),
)

PARTS: tuple[Block, ...] = (
    Heading("Spare parts: indoor unit"),
    _parts(
        "Parts of the indoor unit",
        (
            ("101", "Circulation pump with plug", "NV-8, NV-12", "40-1180"),
            ("102", "Diverter valve, motor", "NV-8, NV-12", "40-1204"),
            ("103", "Diverter valve, body", "NV-8, NV-12", "40-1205"),
            ("104", "Sieve of the dirt filter", "NV-8, NV-12", "40-2215"),
            ("105", "Magnet of the dirt filter", "NV-8, NV-12", "40-2216"),
            ("106", "Gasket of the filter cap", "NV-8, NV-12", "40-2217"),
            ("107", "Heating rod, 6 kW", "NV-8", "40-3306"),
            ("108", "Heating rod, 9 kW", "NV-12", "40-3309"),
            ("109", "Safety valve, 3 bar", "NV-8, NV-12", "40-2301"),
            ("110", "Expansion vessel, 12 litres", "NV-8", "40-2412"),
            ("111", "Expansion vessel, 18 litres", "NV-12", "40-2418"),
            ("112", "Control panel with wheel", "NV-8, NV-12", "40-5001"),
            ("113", "Temperature sensor with cable, 3 m", "NV-8, NV-12", "40-5110"),
            ("114", "Anode for the tank", "NV-8, NV-12", "40-2600"),
        ),
        "parts-indoor",
    ),
    *paragraphs(
        """Use original parts only. Order numbers are valid for units built from 2019; for older ones ask the
        service and give the serial number, which is printed on the silver plate inside the front door. Parts are
        kept in stock for fifteen years after the last unit has been built. Electrical parts that have been unpacked
        cannot be returned."""
    ),
    Heading("Spare parts: outdoor unit"),
    _parts(
        "Parts of the outdoor unit",
        (
            ("201", "Fan with motor", "NV-8", "41-1080"),
            ("202", "Fan with motor", "NV-12", "41-1120"),
            ("203", "Guard of the fan", "NV-8, NV-12", "41-1130"),
            ("204", "Compressor, exchange", "NV-8", "41-7008"),
            ("205", "Compressor, exchange", "NV-12", "41-7012"),
            ("206", "Expansion valve, coil", "NV-8, NV-12", "41-7105"),
            ("207", "Inverter board", "NV-8", "41-5508"),
            ("208", "Inverter board", "NV-12", "41-5512"),
            ("209", "Heating band for the drain", "NV-8, NV-12", "41-3001"),
            ("210", "Rubber feet, set of four", "NV-8, NV-12", "41-9004"),
            ("211", "Sleeve against martens, 2 m", "NV-8, NV-12", "41-9020"),
        ),
    ),
    *paragraphs(
        """Parts 204 to 208 are delivered to certified technicians only. The old compressor has to be sent back with
        its openings closed; the deposit is refunded when it arrives. After a part of the refrigerant circuit has
        been replaced, the circuit is evacuated, filled by weight, and tested with the leak detector."""
    ),
    Heading("Technical data"),
    Table(
        "Technical data of both sizes",
        ("", "NV-8", "NV-12"),
        (
            ("Heat output at 7 degrees outside, flow 35 degrees", "8.1 kW", "11.9 kW"),
            ("Coefficient of performance at that point", "4.9", "4.7"),
            ("Heat output at minus 7 degrees, flow 35 degrees", "6.8 kW", "10.2 kW"),
            ("Coefficient of performance at that point", "3.1", "3.0"),
            ("Lowest outside temperature", "minus 22 degrees", "minus 22 degrees"),
            ("Highest flow without the rod", "63 degrees", "63 degrees"),
            ("Weight of the refrigerant", "1.3 kg", "1.9 kg"),
            ("Weight of the outdoor unit", "118 kg", "151 kg"),
            ("Breaker of the power circuit", "16 A", "20 A"),
            ("Smallest flow of water", "0.9 cubic metres per hour", "1.4 cubic metres per hour"),
        ),
        (2.6, 1.4, 1.4),
    ),
    *paragraphs(
        """Values were measured on a test stand and may differ by five per cent. The coefficient of performance
        tells how many units of heat are gained from one unit of electricity. Over a year, with defrosting and hot
        water, it is lower than in the table: expect between 3.2 and 4.1 with a heated floor and about half a point
        less with radiators.

        Warranty: two years on all parts, seven on the compressor if the record is complete. Damage caused by frost,
        by lightning or by heating water which was not treated is excluded. At the end of its life, return the unit
        to a dealer; the refrigerant has to be recovered and must not escape."""
    ),
)
