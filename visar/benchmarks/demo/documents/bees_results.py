"""Research report on bees kept on city roofs, second half: results, discussion, references, appendix."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import BarChart, Block, Heading, Items, LineChart, PieChart, Table, Text, paragraphs

RESULTS: tuple[Block, ...] = (
    Heading("3 Results", new_page=False),
    Heading("3.1 Honey yield", level=2),
    *paragraphs(
        """Over the three years the colonies in the city gave 36.9 kilograms of honey per year on average, and those
        at the rural sites 29.4 (Figure 1). The difference is clear. It is due to the weeks from mid June to mid
        July, when the lime trees of the avenues are in flower and the fields around the villages have little to
        offer once the rape is over.

        Between the sites in the city the yield differed by more than a factor of two. The poorest, the Opera House,
        has almost as much green around it as others, but it is also the one with most other hives nearby. The share
        of green area alone explains a third of the variation between sites; together with the number of hives it
        explains two thirds."""
    ),
    BarChart(
        "Figure 1: Yield per colony and year, kilograms",
        ("Harb.", "Opera", "Tram", "Libr.", "Hosp.", "Gard.", "Marl", "Stow"),
        (("Mean", (38.6, 21.3, 39.1, 30.8, 47.2, 44.5, 31.9, 26.8)),),
        mark="yield",
    ),
    *paragraphs(
        """The years differed too. In the second year a late frost destroyed the blossom of the horse chestnut, and
        a wet July washed the honeydew off the leaves. Yields were a fifth lower at all sites in that year. In the
        third year they were the highest of the study, except at the Opera House and the University Library, where
        four new keepers had moved in during the spring."""
    ),
    Heading("3.2 Gain of weight over the season", level=2),
    *paragraphs(
        """Figure 2 shows how the weight of an average hive changed from month to month. In the city the gain began
        earlier, reached its peak in June, and turned into a loss in August, when a colony used up more than it
        brought home. At the rural sites the loss in August was about twice as large, although a small gain from ivy
        and heather followed in September."""
    ),
    LineChart(
        "Figure 2: Change of hive weight per month, kilograms",
        (3, 4, 5, 6, 7, 8, 9),
        (("City", (1, 8, 13, 21, 9, -4, -1)), ("Rural", (0, 5, 17, 8, 4, -7, 2))),
        x_title="Month",
        y_title="Kilograms",
    ),
    Heading("3.3 Sources of pollen", level=2),
    *paragraphs(
        """In all, 1,152 samples with 96 types of pollen were examined. Trees and shrubs made up 71 per cent of the
        mass in the city. In April willow and maple dominated; in May horse chestnut and the rose family; in June
        and July lime and sweet chestnut. Plants from balconies, such as geranium and petunia, contributed less than
        one per cent in every month.

        August is a special case. The trees have finished, lawns are mown, and what is left grows on railway land
        and in neglected corners. Figure 3 shows the composition in that month. Most of these plants came to the
        region by accident and are not popular with conservationists."""
    ),
    PieChart(
        "Figure 3: Pollen in August, city sites, per cent of mass",
        (("Buddleia", 27), ("White clover", 19), ("Goldenrod", 16), ("Knotweed", 13), ("Bramble", 8), ("Others", 17)),
        mark="pollen",
    ),
    *paragraphs(
        """The number of types per sample was highest in May, with eleven on average, and lowest in the second half
        of July, with three. Colonies with a more varied diet reared more brood in the following month, but this
        relation vanished once the amount of pollen was taken into account."""
    ),
    Heading("3.4 Mites", level=2),
    *paragraphs(
        """The number of mites rose each year from June to September. In September of the third year the limit for
        treatment was exceeded in 44 per cent of all samples, as against 29 per cent in the first year. Colonies on
        warm roofs had brood for eighteen days longer in autumn than the rural ones, and on average one and a half
        times as many mites. The height of the roof itself had no effect.

        Treatment with formic acid worked less well on roofs, because the wind carried off the vapour. After the
        entrances had been narrowed, the number of dead mites on the bottom boards doubled."""
    ),
    Heading("3.5 Winter losses", level=2),
    *paragraphs(
        """Altogether 25 of 120 winterings ended with the loss of the colony. Table 2 lists them by site. Neither
        the weight of the hive in October nor the height of the site helped to predict a loss; the count of mites in
        September did. With each doubling of that count the odds of a loss rose by a factor of 1.8."""
    ),
    Table(
        "Table 2: Colonies lost in three winters",
        ("Site", "1st", "2nd", "3rd", "Sum"),
        (
            ("Harbour Office", "0", "1", "1", "2 of 15"),
            ("Opera House", "2", "3", "2", "7 of 15"),
            ("Tram Depot", "0", "0", "1", "1 of 15"),
            ("University Library", "1", "2", "2", "5 of 15"),
            ("St Bride's Hospital", "1", "0", "2", "3 of 15"),
            ("Botanic Garden", "1", "1", "2", "4 of 15"),
            ("Upper Marl (rural)", "0", "1", "0", "1 of 15"),
            ("Stow Farm (rural)", "0", "2", "0", "2 of 15"),
        ),
        (2.6, 0.6, 0.6, 0.6, 1.1),
        mark="losses",
    ),
    Heading("3.6 Wild bees", level=2),
    *paragraphs(
        """On 640 patch observations 9,414 visitors were noted: 58 per cent honey bees, 27 per cent bumble bees and
        15 per cent other wild bees. Where more than thirty other hives stood within the range of flight, wild bees
        other than bumble bees made up only 6 per cent. Bumble bees were not affected in June, but in August their
        share was lower at these sites too. Small species which fly short distances were the first to be missing."""
    ),
    Heading("4 Discussion", new_page=False),
    *paragraphs(
        """Our results confirm that honey bees in a city may find more food than in an intensively farmed
        countryside. The finding of Quill and Abara (2009) that the season is longer in towns holds for Brannick as
        well. At the same time it became clear that the mean hides a good deal. A hive on the Hospital roof and a
        hive on the Opera House live in different worlds, although the birds cross the distance in two minutes.

        The lime trees carry the system. Brannick owns 6,300 of them, most of which were planted a century ago along
        the tram lines. About a third will have to be felled in the coming twenty years. If they are replaced by
        trees without nectar, as the present list of species for streets suggests, the yield in July will fall
        accordingly. Our pollen data do not show this directly, since lime trees give little pollen; only the scales
        reveal what they are worth. This explains why Farrow (2012), who worked with honey alone, came to a
        different order of species.

        The lean time in August deserves more attention than it receives. It coincides with the rearing of the bees
        that have to live through the winter. That the plants which fill the gap are for the most part unloved
        newcomers puts gardeners into an awkward position. We do not recommend planting knotweed. Late-flowering
        native shrubs and meadows that are mown in September would serve the same purpose, as Ashdown (2019) showed
        in a trial on railway embankments.

        With respect to mites, roofs are at a disadvantage. The long brood season gives the parasite two additional
        generations. Keepers in the city should therefore count more often, and treat earlier, than the books
        advise. Weight is no substitute for counting: the heaviest hives of October were not safer than the others.

        What about wild bees? Our data cannot prove that honey bees displace them, for sites with many hives may be
        poor for other reasons. Still, the pattern has the order of magnitude that one would expect, and it agrees
        with the effect of distance which Moravec (2014) deduced from flight times. It would be prudent to limit the
        number of hives where it is already high. A permit for hives on public buildings, as practised in two
        neighbouring cities, would be a simple way of doing this."""
    ),
    Heading("4.1 Limits of the study", level=2),
    *paragraphs(
        """Eight sites are few, and two rural ones are very few. All queens were sisters, so that our results hold
        for one strain of bees only. Traps catch the pellets of large bees more readily than those of small ones.
        Some keepers may have treated their colonies in spite of our request. Finally, three years are short in
        comparison with the life of a tree."""
    ),
    Heading("5 Recommendations", new_page=False),
    Items(
        (
            "Replace old lime trees by lime trees, or by other species with nectar in July.",
            "Mow a third of the public meadows only after the middle of September.",
            "Do not permit new hives where more than thirty stand within one and a half kilometres.",
            "Offer keepers a free count of mites in July, August and September.",
            "Shield hives on roofs from the wind, and narrow the entrance during treatment.",
            "Stop praising balcony flowers as food for bees; they do no harm, but they do not help.",
            "Leave railway land and embankments alone where safety allows it.",
            "Repeat the count of wild bees every five years by the same method.",
        ),
        numbered=True,
    ),
    Heading("Acknowledgements", level=2),
    Text(
        "We thank the keepers, who carried hives up many stairs, and the porters of the Opera House for their "
        "patience. The study was funded by the Garrick Lowe Foundation and by the Parks Department of the city under "
        "grant GLF-0417. The funders had no part in the design or the analysis. P. Nwosu drew the maps, and L. Berg "
        "lent the scales.",
        mark="funding",
    ),
    Heading("References"),
    *paragraphs(
        """Ashdown, R. (2019). Flowers on the line: late forage on railway embankments. Journal of Verge Ecology 12,
        41-57.

        Belling, T. and Sato, K. (2015). Counting mites with alcohol and with sugar. The Hive Inspector 88, 203-211.

        Farrow, J. (2012). What the honey tells: sources of nectar in three cities. Melissa Review 7, 5-29.

        Gantz, O. (2011). Keeping bees above the street. Roof and Garden Press, Port Sorrel.

        Harcourt, E., Mbeki, S. and Roy, D. (2018). Formic acid in windy places. The Hive Inspector 91, 17-26.

        {reference-lindqvist} Lindqvist, P. and Dhar, N. (2017). How many hives can a city feed? A model of shared
        flowers. Annals of Applied Pollination 23, 310-334.

        Moravec, Z. (2014). The long way home: flight times of foragers in a dense city. Melissa Review 9, 88-104.

        Nakamura, H. (2016). An atlas of pollen for the temperate garden. Quince and Daughters, Halvarsund.

        Okonjo-Reyes, I. (2020). Sister queens and the comparison of sites. Brannick Institute, Report 24.

        Pell, A. and Ivarsson, G. (2013). Scales under hives: a practical guide. Bulletin of Field Methods 30, 1-19.

        Quill, F. and Abara, C. (2009). Town hives and country hives: weight gain compared. Rural Science Letters
        44, 120-131.

        Tolland, V. (2021). Wild bees of river cities, with a key to the smaller species. Quince and Daughters,
        Halvarsund.

        Ueda, R. and Clay, M. (2018). Street trees and nectar: the forgotten list. Journal of Verge Ecology 11,
        2-20.

        Wren, B. (2010). Brood in a warm autumn. Rural Science Letters 45, 77-83."""
    ),
    Heading("Appendix: Questions put to the keepers"),
    Items(
        (
            "How many colonies do you keep at this site, and how many elsewhere?",
            "For how many years have you kept bees?",
            "Did a colony swarm this year? If so, was the swarm caught?",
            "Did you feed the colonies? When, and with how much sugar?",
            "Did you treat against mites other than by our plan? Your answer will be kept confidential.",
            "Which plants near the site do you think are the most important for your bees?",
            "Have neighbours complained, and about what?",
            "Would you keep bees on this roof again?",
        ),
        numbered=True,
    ),
    *paragraphs(
        """The questions were answered in writing in November of each year. Of 24 forms sent out, 22, 23 and 19 came
        back. Eleven of the keepers named balcony flowers among the three most important plants. Complaints of
        neighbours concerned yellow spots on washing and cars (nine), swarms (six), stings (two) and, once, the
        smell of smoke. All but one of the keepers would do it again; the exception had been stung on the eyelid
        during a concert."""
    ),
)
