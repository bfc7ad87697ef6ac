"""The species of the field guide: invented flowers of an invented island."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Species:
    """One flower.

    Attributes: height: In centimetres, lowest and highest. months: First and last month of bloom, 1 to 12. habitat:
    Where it grows: one of the keys of ``HABITATS``."""

    name: str
    botanical: str
    height: tuple[int, int]
    petals: int
    colour: str
    paint: tuple[str, str]
    months: tuple[int, int]
    habitat: str
    portrait: str
    alike: str
    lore: str
    place: str


HABITATS = {
    "meadow": "It needs hay meadows and pastures that are not fertilised, and it disappears where the grass is cut "
    "before July.",
    "bog": "It stands with its feet in the wet, in bogs and beside pools of the moor. It does not survive draining.",
    "shingle": "It grows on shingle beaches above the line of the highest tide, where hardly anything else finds hold.",
    "woodland": "It lives under birch and hazel in the small woods of the eastern valleys and makes use of the light "
    "before the leaves come out.",
    "wall": "It roots in the joints of old walls, in quarries and on roofs of stone, and can do with very little soil.",
    "cliff": "It clings to ledges of the sea cliffs, out of reach of sheep, and endures salt and storm.",
}

SPECIES = (
    Species(
        "Bell sandwort",
        "Arenella campanula",
        (8, 15),
        5,
        "white",
        ("#f4f4f0", "#d8c84a"),
        (5, 7),
        "shingle",
        "A low cushion with fleshy leaves, over which hundreds of small bells open in fine weather. The leaves feel "
        "cool and taste of salt. After rain the bells stay shut for a day.",
        "Star chickweed has flat flowers and hairy stems, and never forms cushions.",
        "Children used to press the seed pods so that they burst with a crack. Pods were thrown into the wake of "
        "departing boats for a safe return.",
        "The spit of Carrick Ness, near the old slipway, where ropes keep visitors off the cushions.",
    ),
    Species(
        "Moor lantern",
        "Luminaria paludis",
        (30, 55),
        6,
        "orange",
        ("#e98a2b", "#7a3b12"),
        (6, 8),
        "bog",
        "A single nodding flower on a bare stem, so bright that it is seen across the whole bog. The leaves form a "
        "rosette that lies under water for half of the year.",
        "Marsh trumpet carries several flowers on one stem, and they are yellow.",
        "Travellers were warned not to follow its glow at dusk, as the ground around it seldom bears a grown person. "
        "Its dried stems served as wicks.",
        "The pools below Ben Tolm, to be seen from the boardwalk at the third post.",
    ),
    Species(
        "Widow's thimble",
        "Digitella vidua",
        (60, 110),
        5,
        "purple",
        ("#7d4a9c", "#efe6f5"),
        (6, 9),
        "woodland",
        "A tall spire of drooping thimbles, all turned to the side from which the light comes. The inside is spotted "
        "and hairy. All parts are poisonous.",
        "Tower bellwort is of the same height, but its flowers look in all directions and have no spots.",
        "Its leaves were laid into the shoes of those who had to walk by night. The doctor of Portnahaven bought them"
        " by weight until the last war.",
        "Hazel wood of Glen Orrin, along the upper path.",
    ),
    Species(
        "Cottar's gold",
        "Ranunculoides agrestis",
        (20, 40),
        5,
        "yellow",
        ("#f2cf1d", "#b58b00"),
        (5, 8),
        "meadow",
        "The commonest flower of the hay. Its petals shine as if they had been varnished, and the leaves are cut into"
        " three lobes. Cattle avoid it when it is fresh and eat it when it is dry.",
        "Lesser sunwheel has narrow petals in a larger number and leaves like those of a dandelion.",
        "Butter was coloured with the petals in spring, when the milk is pale. A bunch over the door of the byre was "
        "thought to keep the cream from turning.",
        "Every hay meadow between Kilmory and the church.",
    ),
    Species(
        "Lesser sunwheel",
        "Helianthella minor",
        (15, 30),
        12,
        "yellow",
        ("#f5d742", "#8a5a00"),
        (7, 9),
        "meadow",
        "Twelve narrow petals around a brown heart, on a stem without leaves. The flower turns with the sun and "
        "closes when a cloud passes, so that whole slopes seem to wink.",
        "Cottar's gold has five broad and shining petals.",
        "The roots were roasted and brewed in years when no coffee came to the island. They are bitter, and opinions "
        "about the drink differed.",
        "The southern slope of Kilmory Hill, best in the early afternoon.",
    ),
    Species(
        "Netmaker's madder",
        "Rubiola tinctoria",
        (40, 80),
        4,
        "pale green",
        ("#cfe0a8", "#6c8c3c"),
        (6, 8),
        "cliff",
        "A straggling plant with whorls of rough leaves, which cling to wool. The flowers are so small that most "
        "people pass it by. Its roots are as thick as a finger and red within.",
        "Cleaver's cousin has smooth leaves, white roots and grows on walls.",
        "Fishermen boiled the roots with their herring nets, which turned the colour of rust and lasted for three "
        "seasons instead of two. The great iron pot stands outside the museum.",
        "Ledges of the Gannet Stack; use field glasses and do not climb.",
    ),
    Species(
        "Drift pea",
        "Lathyrella litoris",
        (25, 60),
        5,
        "blue and pink",
        ("#6a7fd0", "#e48fb1"),
        (6, 9),
        "shingle",
        "Grey-green shoots creep over the stones and lift their blue flowers, which turn pink with age. The seeds "
        "float, and they have been found alive after five years in the sea.",
        "Meadow vetchling climbs in the grass by tendrils and has yellow flowers.",
        "In the famine of the black harvest, the seeds were boiled and eaten. They are bitter, and who ate of nothing"
        " else became lame.",
        "The northern bay of Carrick, between the wrecks.",
    ),
    Species(
        "Snow piper",
        "Galanthella tibia",
        (10, 20),
        3,
        "white",
        ("#ffffff", "#7fae6a"),
        (3, 4),
        "woodland",
        "Three long petals hang from a stem that is hollow and can be blown like a whistle. The leaves come up rolled"
        " together and pierce the last snow.",
        "Wood anemonet has six petals and a single ring of leaves half-way up the stem.",
        "On the first Sunday of spring children piped with the stems in front of the houses and were given eggs. The "
        "custom was taken up again some years ago.",
        "The birch wood behind the manse, where it was probably planted.",
    ),
    Species(
        "Wood anemonet",
        "Anemonella silvatica",
        (8, 18),
        6,
        "pale violet",
        ("#c9b6e4", "#f0e08a"),
        (3, 5),
        "woodland",
        "Six rounded petals above a collar of three leaves. Carpets of it cover the ground before the trees are "
        "green; by the end of June nothing is left above the soil.",
        "Snow piper has three petals and a hollow stem without a collar.",
        "It was believed to be unlucky indoors. A girl who found one with seven petals would marry a man from "
        "overseas, and parents saw to it that none was found.",
        "Glen Orrin, from the ford to the second bridge.",
    ),
    Species(
        "Marsh trumpet",
        "Tubiflora palustris",
        (70, 140),
        5,
        "yellow",
        ("#eec73e", "#c0562b"),
        (7, 8),
        "bog",
        "The tallest flower of the wet ground: long yellow trumpets in groups of four to seven, scented in the "
        "evening. Moths with long tongues visit it, and the smaller bees bite a hole into the side.",
        "Moor lantern has one orange flower that hangs down.",
        "The stalks were plaited into mats for the floor of the chapel. Four old women still know how, and they teach"
        " it on Thursdays in winter.",
        "Ditches along the road to Loch Esk.",
    ),
    Species(
        "Grey tansel",
        "Tanacella cinerea",
        (30, 50),
        8,
        "cream",
        ("#f3e9c6", "#c9a227"),
        (7, 10),
        "wall",
        "Felted leaves, grey as lichen, with a smell of camphor. The flowers stand in flat heads like small plates. "
        "Snails, which spare little else, do not touch it.",
        "Wall daisel has green leaves without smell.",
        "An infusion of the leaves was taken for sleeplessness, sweetened with honey and never after Easter. Bundles "
        "hung in wardrobes against moths.",
        "The ruined tower at Esk, on the side that faces the sea.",
    ),
    Species(
        "Wall daisel",
        "Bellidastra muralis",
        (5, 12),
        14,
        "white and rose",
        ("#f6d5de", "#e6c02f"),
        (3, 10),
        "wall",
        "It flowers for longer than any other plant of the island and does so in the smallest crack. The petals are "
        "white above and rose below, and the rosettes of green spoon-shaped leaves can be as small as a button.",
        "Grey tansel has felted leaves with a strong smell.",
        "Masons called it the inspector, for where it grows the mortar is bad. The leaves were chewed for the "
        "toothache.",
        "The harbour wall at Portnahaven, and almost every churchyard.",
    ),
    Species(
        "Tern's cradle",
        "Crambella nidus",
        (40, 70),
        4,
        "white",
        ("#fbfbf5", "#9aa84f"),
        (5, 6),
        "shingle",
        "Broad, wavy leaves, blue as cabbage, make a bowl in which terns like to nest. The clouds of flowers smell of"
        " honey and can be smelt from a boat.",
        "Sea rocket is smaller, with lilac flowers and thin leaves.",
        "The young shoots, bleached under upturned baskets, were sold to the hotels of the mainland. Picking has been"
        " forbidden since the terns came back.",
        "The outer bar of Carrick Ness, closed from April to July.",
    ),
    Species(
        "Chapel sorrel",
        "Oxalidina sacra",
        (6, 10),
        5,
        "pink",
        ("#ec9bb4", "#fff2c9"),
        (4, 6),
        "woodland",
        "Three heart-shaped leaves that fold at night and before rain. The pink flowers stand singly. It spreads by "
        "runners and covers mossy stumps.",
        "Clover has round leaves and flowers in heads.",
        "Sailors' wives watched a pot of it on the window sill: when the leaves folded by day, boats were called in. "
        "The sour leaves went into soup.",
        "The old chapel in Glen Orrin, inside as well as outside.",
    ),
    Species(
        "Storm pink",
        "Dianthella procellae",
        (10, 25),
        5,
        "deep red",
        ("#b3163b", "#f7c9d4"),
        (6, 9),
        "cliff",
        "Tight tufts of narrow leaves and fringed flowers of a red that is found nowhere else on the island. In "
        "winter the tufts turn silver.",
        "Thrift has round heads of pale flowers.",
        "Young men climbed for it on midsummer night, and more than one did not return. The laird forbade the custom,"
        " without success; it ended when the ferry brought roses.",
        "Western cliffs, half a mile beyond the lighthouse.",
    ),
)
