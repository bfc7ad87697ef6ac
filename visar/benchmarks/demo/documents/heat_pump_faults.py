"""Operating manual of a heat pump: the fault codes, a family to a page and one family over two pages."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import Block, Heading, Table, paragraphs


def _codes(title: str, rows: tuple[tuple[str, str, str, str], ...], mark: str) -> Table:
    return Table(title, ("Code", "Message", "Possible cause", "What to do"), rows, (0.5, 1.4, 1.9, 2.2), mark)


FAULTS: tuple[Block, ...] = (
    Heading("Fault codes: how to read them"),
    *paragraphs(
        """A message consists of the letter E and two digits. The first digit tells the part of the plant: 1 stands
        for the water side, 2 for the refrigerant circuit, 3 for sensors, and 4 for electricity and communication.
        The unit distinguishes between messages after which it goes on working, perhaps with less output, and faults
        after which it stops.

        Write down the code, the outside temperature and the time before you reset anything. The list of messages
        keeps the last twenty entries, but a power cut deletes those that are older than a day. To reset a fault,
        open the list with the spanner key, choose the entry and press the wheel. If the same fault comes back
        within a day, do not reset it again, but call the service with your notes at hand.

        While the unit stands still, the heating rod keeps the house free from frost. It switches on by itself when
        the flow falls below ten degrees. This is expensive in the long run and not meant for more than a few days.
        You can also switch the rod on by hand in the menu Emergency, where the temperature of the flow is limited.

        Some messages appear once and never again: after a thunderstorm, after a cut in the mains, or when the
        valves of many radiators close at the same moment. They need no attention. What needs attention is a
        pattern: the same code at the same hour, or always in frost, or always while hot water is made. Such a
        pattern is worth more to a technician than any measurement, so please keep a note of it on paper.

        Faults with an exclamation mark behind the code concern safety. They cannot be reset by the owner."""
    ),
    Heading("Fault codes: water side"),
    _codes(
        "Codes E11 to E17",
        (
            ("E11", "Pressure low", "Leak; expansion vessel without air", "Fill up with treated water; look for drops"),
            ("E12", "Pressure high", "Too much water filled; vessel defective", "Drain a little water at the filter"),
            (
                "E13",
                "Flow too small",
                "Dirt filter blocked; valves closed; circulation pump defective",
                "Clean the filter; open the valves; if no success, call the service",
            ),
            ("E14", "Flow switch stuck", "Sludge on the paddle", "Call the service"),
            (
                "E15",
                "Diverter valve blocked",
                "Foreign body in the valve; motor defective",
                "Move the valve by its lever; reset",
            ),
            (
                "E16",
                "Tank not charged",
                "Hot water circulation runs all day; sensor loose",
                "Set its hours; check the sensor",
            ),
            ("E17", "Water too hot", "Heating rod welded on", "Switch off the breaker of the rod; call the service"),
        ),
        "codes-hydraulic",
    ),
    *paragraphs(
        """Most faults on the water side have a simple cause: somebody has closed a valve, air has collected in the
        pipes, or the filter is full. Look for these first. Air makes a gurgling noise; vent the radiators, starting
        on the lowest floor, and afterwards correct the pressure.

        A pressure which falls week after week means a leak, even if no water can be seen. A tenth of a bar each
        month is about a glass of water. Frequent refilling brings oxygen into the circuit and causes rust, so have
        the leak found."""
    ),
    Heading("Fault codes: refrigerant circuit"),
    _codes(
        "Codes E21 to E24",
        (
            (
                "E21",
                "Low pressure",
                "Evaporator iced or dirty; refrigerant lost",
                "Clear ice and leaves; if repeated, call the service",
            ),
            (
                "E22",
                "High pressure",
                "Heat not carried away: valves closed, circulation pump too slow",
                "Open the valves; choose a lower curve; reset",
            ),
            ("E23", "Hot gas", "Refrigerant lost; expansion valve stuck", "Do not reset; call the service"),
            (
                "E24",
                "Defrosting fails",
                "Buffer tank cold; drain frozen",
                "Wait one hour; thaw the drain with warm water",
            ),
        ),
        "codes-refrigerant",
    ),
    *paragraphs(
        """Nobody but a certified technician may open the refrigerant circuit. What the owner can do is to give the
        unit air. Snow drifts, ivy and garden furniture in front of the inlet reduce the pressure on the cold side
        and lead to more frequent defrosting. Half a metre has to be free on the inlet side and two metres on the
        outlet side.

        If the unit defrosts more often than every forty minutes in dry weather, the circuit has probably lost
        refrigerant. Make an appointment soon, because running it in this state wears out the compressor."""
    ),
    Heading("Fault codes: refrigerant circuit, continued"),
    _codes(
        "Codes E25 to E29",
        (
            (
                "E25",
                "Fan does not turn",
                "Ice or leaves in the guard; motor defective",
                "Remove ice or leaves from the guard, then reset",
            ),
            ("E26", "Fan speed uneven", "Blade damaged; bearing worn", "Look for damage; call the service"),
            ("E27", "Compressor does not start", "Drive too hot; phase missing", "Wait 30 minutes; check the breakers"),
            (
                "E28",
                "Compressor too hot",
                "Long run in hard frost; refrigerant lost",
                "Let the rod help; call the service",
            ),
            ("E29!", "Gas detected", "Leak in the outdoor unit", "Keep away; no switches; call the service at once"),
        ),
        "codes-refrigerant-2",
    ),
    *paragraphs(
        """The fan and the compressor are driven by inverters, which protect themselves against heat. In full
        sunshine and at a high load the drive may switch off for half an hour, and starts again without help. If
        this happens on several days in a row, shade the unit without blocking its inlet.

        Ice in the guard of the fan forms when wet snow freezes on the blades at night. Never knock it off. Pour
        lukewarm water over it, or set the unit to Off and wait for milder hours. Afterwards check with the breaker
        switched off whether the blades can be turned by hand without scraping."""
    ),
    Heading("Fault codes: sensors"),
    _codes(
        "Codes E31 to E37",
        (
            (
                "E31",
                "Outside sensor",
                "Cable cut; sensor in the sun",
                "Works with 0 degrees as a substitute; call the service",
            ),
            ("E32", "Flow sensor", "Plug loose; sensor defective", "Press the plug home; reset"),
            ("E33", "Return sensor", "Plug loose; sensor defective", "Press the plug home; reset"),
            ("E34", "Tank sensor", "Sensor pulled out of its pocket", "Push it in as far as the mark"),
            ("E35", "Evaporator sensor", "Clip broken; cable gnawed", "Call the service"),
            (
                "E36",
                "Flow and return equal",
                "Sensors exchanged; circulation pump stands still",
                "Listen for the motor; exchange the plugs; reset",
            ),
            ("E37", "Dew point sensor", "Cooling released without a sensor", "Switch off cooling; call the service"),
        ),
        "codes-sensors",
    ),
    *paragraphs(
        """All temperature sensors are of the same kind. At twenty-five degrees they have a resistance of ten
        kilo-ohms, and less when they are warmer. A broken cable is shown as minus fifty, a short circuit as plus
        one hundred and fifty degrees. Martens like the rubber of the cables on the outdoor unit; a sleeve of
        braided steel is available as an accessory.

        The outside sensor belongs on the north wall, two metres above the ground, and not above a window. If it
        hangs in the sun, the heating stops on clear winter days."""
    ),
    Heading("Fault codes: electricity and communication"),
    _codes(
        "Codes E41 to E46",
        (
            (
                "E41",
                "Indoor unit does not answer",
                "Data cable loose or next to the mains",
                "Check the cable; switch off for 5 minutes",
            ),
            ("E42", "Mains voltage low", "Weak supply; long cable", "Ask the supplier; call an electrician"),
            ("E43", "Phase order", "Two phases exchanged", "Have an electrician exchange them"),
            (
                "E44",
                "Output overloaded",
                "Circulation pump blocked; short circuit in the cable",
                "Unscrew the plug of the motor and turn its shaft; reset",
            ),
            ("E45", "Clock lost", "Battery on the board empty", "Set the clock; have the battery replaced"),
            ("E46", "Blocked by supplier", "Tariff signal active", "Wait; at most two hours three times a day"),
        ),
        "codes-electric",
    ),
    *paragraphs(
        """The power circuit feeds the compressor and the heating rod, the control circuit everything else. Each has
        a breaker of its own and a residual current device. If a device trips, switch it on once. If it trips again,
        leave it off and call an electrician, and tell him which of the two it was.

        Lightning may destroy the control board even when it strikes some distance away. Surge protection in the
        meter cabinet is recommended, and in some countries it is mandatory."""
    ),
)
