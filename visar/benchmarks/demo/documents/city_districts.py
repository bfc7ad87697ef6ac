"""The districts of the city budget and what is true of each alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Project:
    """A capital project: its name, total cost in thousand crowns, how it is paid for, and a sentence about it."""

    name: str
    cost: int
    source: str
    story: str


@dataclass(frozen=True)
class District:
    """One district. ``projects`` holds what is particular; more of the usual kind are drawn by lot."""

    name: str
    people: int
    portrait: str
    park: str
    street: str
    square: str
    projects: tuple[Project, ...]


DISTRICTS = (
    District(
        "Harbourside",
        18_400,
        "Harbourside stretches along both banks of the lower river, from the old grain stores to the fish market. "
        "Flats have taken the place of warehouses, and the number of families has doubled in ten years.",
        "Sailmakers' Green",
        "Cable Street",
        "Customs Square",
        (
            Project(
                "New primary school, Cable Street",
                14_600,
                "city loan",
                "Sixteen classrooms and a hall will be built on the site of the former cable works.",
            ),
            Project(
                "Mooring posts at the fish market",
                870,
                "harbour fund",
                "The wooden posts, some of them a hundred years old, are replaced by steel.",
            ),
        ),
    ),
    District(
        "Eastgate",
        22_700,
        "Eastgate grew up outside the walls around the coach inns. It has the densest traffic of the city, the central "
        "bus station, and streets in which shops have changed hands more often than anywhere else.",
        "Drovers' Park",
        "Gallows Street",
        "Coach Square",
        (
            Project(
                "Bus station, new roof",
                4_150,
                "transport grant",
                "The roof over the platforms lets in rain at more than forty places and will be renewed in sections.",
            ),
        ),
    ),
    District(
        "Millfields",
        15_900,
        "Millfields was laid out for the workers of the cotton mills. Long rows of brick houses with small yards are "
        "its mark. The mills stand empty, save one that has been turned into studios.",
        "Spinners' Park",
        "Shuttle Lane",
        "Bobbin Square",
        (
            Project(
                "Mill pond, removal of mud",
                690,
                "city budget",
                "Four thousand cubic metres of mud are dredged and taken to the fields at Lower Weir.",
            ),
            Project(
                "Primary school in Shuttle Lane, new roof",
                1_240,
                "state programme",
                "The slates are replaced, and solar panels are mounted on the southern side.",
            ),
        ),
    ),
    District(
        "Tannery Row",
        9_800,
        "Tannery Row lies low, between the river and the railway. Where hides were once tanned there are now bicycle "
        "workshops and a brewery. Cellars are pumped out in most winters.",
        "Hide Market Garden",
        "Dyers' Steps",
        "Bark Square",
        (
            Project(
                "Raising the river wall at Dyers' Steps",
                3_480,
                "regional flood fund",
                "The wall is raised by sixty centimetres over three hundred metres, with gates at the stairs.",
            ),
            Project(
                "Pumping house, second pump",
                920,
                "city budget",
                "The pumping house receives a second pump, so that the first can be serviced in winter.",
            ),
        ),
    ),
    District(
        "Northmoor",
        26_300,
        "Northmoor is the largest district and the youngest. It was built in three waves of tower blocks on drained "
        "land. Its residents come from some seventy countries.",
        "Curlew Park",
        "Peat Road",
        "Lapwing Square",
        (
            Project(
                "New primary school, Peat Road",
                17_900,
                "state programme",
                "The school is planned for four hundred and fifty pupils and will share its kitchen with the nursery.",
            ),
            Project(
                "Lifts in the tower blocks of Lapwing Square",
                2_310,
                "housing company",
                "Eleven lifts are made large enough for a stretcher.",
            ),
        ),
    ),
    District(
        "Quarry Hill",
        12_100,
        "Quarry Hill looks down on the city from the north. Villas with old gardens stand above, terraces below, and "
        "between them lies the quarry which gave its stone to the cathedral.",
        "Quarry Park",
        "Mason Street",
        "Chisel Square",
        (
            Project(
                "Securing the rock face in the quarry",
                1_560,
                "city budget",
                "Loose rock is removed and nets are hung above the footpath, which has been closed for two years.",
            ),
        ),
    ),
    District(
        "Saltmarsh",
        8_600,
        "Saltmarsh is the last district before the sea wall: farms, greenhouses, a camp site and two villages which "
        "joined the city in the last reform. Distances are long here.",
        "Avocet Field",
        "Sluice Road",
        "Samphire Square",
        (
            Project(
                "Cycle track along Sluice Road",
                1_130,
                "transport grant",
                "The track closes the gap of two kilometres between the two villages.",
            ),
            Project(
                "Salt water gate, new drive",
                740,
                "regional coast fund",
                "The hand wheel of the gate is supplemented by an electric drive.",
            ),
        ),
    ),
    District(
        "Kingsmead",
        19_500,
        "Kingsmead has broad avenues, the hospital, and the schools to which parents from other districts would like "
        "to send their children. A third of its residents are older than sixty-five.",
        "King's Meadow",
        "Chancellor Road",
        "Crown Square",
        (
            Project(
                "Avenue trees in Chancellor Road",
                480,
                "city budget",
                "Ninety limes are planted in place of those that fell in the storm, with more room for their roots.",
            ),
        ),
    ),
    District(
        "Lower Weir",
        11_300,
        "Lower Weir has the water works, the sewage plant, the allotments and the rowing club. Its streets are quiet,"
        " for the only bridge is closed to lorries.",
        "Weir Island",
        "Lock Lane",
        "Oar Square",
        (
            Project(
                "New primary school, Lock Lane",
                12_750,
                "city loan",
                "The small school beside the lock, which has been in huts since the flood, receives a proper building.",
            ),
            Project(
                "Rowing club, landing stage",
                210,
                "lottery grant",
                "The stage is made accessible for rowers in wheelchairs.",
            ),
        ),
    ),
    District(
        "Observatory",
        14_200,
        "Observatory takes its name from the dome on the hill. The university has spread over half of the district, "
        "and in term time every second resident is a student.",
        "Meridian Gardens",
        "Comet Street",
        "Transit Square",
        (
            Project(
                "Dome of the observatory, copper cladding",
                1_890,
                "donations",
                "The cladding of the dome, through which rain drips on the telescope, is renewed.",
            ),
        ),
    ),
)
