"""Research report on bees kept on city roofs, first half: abstract, introduction, methods; and the questions."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import (
    Block,
    Cover,
    DemoDocument,
    DemoQuestion,
    Design,
    Heading,
    Part,
    Table,
    paragraphs,
)
from visar.benchmarks.demo.documents import bees_results

METHODS: tuple[Block, ...] = (
    Cover(
        "Forage and strength of honey bee colonies kept on city roofs",
        "A study over three years in Brannick",
        ("M. Teasdale, I. Okonjo-Reyes and W. Hartnell", "Brannick Institute for Urban Ecology, Report 31"),
    ),
    Heading("Abstract"),
    *paragraphs(
        """Beekeeping on roofs has become popular in many cities, yet little is known about what such colonies live
        on and how they fare over several years. We followed forty colonies at eight sites in the city of Brannick
        for three seasons. Hives stood on scales; pollen was trapped once a week and identified under the
        microscope; mites were counted each month; and the strength of every colony was estimated before and after
        winter.

        Colonies in the city gathered more honey than those at two rural sites used for comparison, but the
        differences between sites within the city were larger than the difference between city and country. A few
        species of trees made up most of the forage, and the weeks after the lime blossom were a time of want almost
        everywhere. Losses in winter followed the number of mites in late summer and not the weight of the hives.
        Where hives stood close together, colonies were weaker and wild bees were seen less often on the flowers
        nearby.

        We conclude that a city can feed a limited number of colonies well, that the limit is set by the lean weeks
        of late summer, and that more hives help neither honey bees nor their wild relatives. Cities that wish to
        help bees should plant for August."""
    ),
    Heading("1 Introduction", new_page=False),
    *paragraphs(
        """The idea that bees thrive in cities is older than the fashion for roof hives. Allotment gardeners have
        always kept a few colonies behind the shed, and their harvest was seldom worse than that of the farmer.
        Quill and Abara (2009) weighed hives in four towns and found that they gained weight for longer in the year
        than hives in fields of wheat and maize. They explained this by the mixture of gardens, parks and avenues,
        in which something is in flower from the willow in March to the ivy in October.

        {intro-warning} Later studies drew a less simple picture. In dense city centres the distances to the next
        park are long, and bees have to fly over streets with little to offer. Moravec (2014) counted the returning
        foragers and reported that flights became longer towards the end of the summer. Lindqvist and Dhar (2017)
        pointed out that the number of hives in some cities had multiplied within ten years, whereas the area of
        flowers had not, and they warned of competition with wild bees. Their warning was based on a model, and
        measurements were lacking.

        It is also a matter of dispute what the bees in cities actually collect. Beekeepers tend to credit the
        balconies. From the pollen in honey, however, Farrow (2012) concluded that trees are by far the more
        important source and that flower boxes hardly matter. Pollen in honey is a poor guide, because many trees
        with much nectar give little pollen, and the other way round. In this study we therefore combined trapped
        pollen with the weight of the hives.

        Health is the third question. Warm roofs allow the queen to lay until late in autumn, which also allows
        mites to multiply for longer. On the other hand few pesticides are used in cities. Which of the two weighs
        more could not be said from earlier data, since these were confined to single seasons.

        This report deals with three questions. First, what do honey bees in Brannick feed on over the year? Second,
        how do yield and survival differ between sites, and why? Third, is there a density of hives beyond which
        colonies, or the wild bees around them, begin to suffer?"""
    ),
    Heading("2 Methods", new_page=False),
    Heading("2.1 Sites", level=2),
    *paragraphs(
        """Brannick has 410,000 inhabitants and lies on a tidal river. Eight sites were chosen so that they differ
        in the share of green area within one and a half kilometres, which is the distance most foragers fly. Six of
        them are roofs in the city; two, at Upper Marl and at Stow Farm, are rural and served for comparison. Table
        1 describes them. On every site five colonies were set up in the spring of the first year. They came from a
        single breeder and had sister queens.

        On the roofs, hives were placed behind a parapet or a reed screen against the wind. Water was offered in
        shallow trays with stones. The owners of the buildings agreed not to allow further hives on their ground
        during the study. We had, of course, no influence on hives in the neighbourhood, which were counted every
        spring from the register of the veterinary office."""
    ),
    Table(
        "Table 1: Sites",
        ("Site", "Roof, m", "Green, %", "Hives nearby"),
        (
            ("Harbour Office", "22", "14", "9"),
            ("Opera House", "31", "18", "46"),
            ("Tram Depot", "11", "27", "17"),
            ("University Library", "26", "33", "38"),
            ("St Bride's Hospital", "19", "41", "12"),
            ("Botanic Garden", "6", "58", "21"),
            ("Upper Marl (rural)", "0", "74", "5"),
            ("Stow Farm (rural)", "0", "81", "3"),
        ),
        (1.9, 1, 1, 1.2),
    ),
    Heading("2.2 Weight and yield", level=2),
    *paragraphs(
        """Each hive stood on a scale that recorded its weight every ten minutes. From the readings at midnight we
        computed the daily gain. Manipulations such as adding a box were noted by the keeper and taken out of the
        series. Honey was extracted twice a year, in late June and in early August. Yield is the mass of honey taken
        from a colony, not counting the fifteen kilograms of stores which were left in every hive for the winter.
        Colonies that swarmed were kept in the analysis.

        Scales failed on 61 of the 8,760 hive days of the first year, mostly in the Opera House, where the building
        shook during rehearsals. Missing days were filled in with the mean of the other hives at the site."""
    ),
    Heading("2.3 Pollen", level=2),
    *paragraphs(
        """From April to September a pollen trap was fitted to two hives of every site for one day a week. The
        pellets were sorted by colour, weighed, and a sample of each colour was examined at a magnification of four
        hundred. Five hundred grains were counted per sample. Grains were compared with a collection of 212 species
        of the region, made for this purpose in the year before the study. Types that could not be told apart, such
        as those of the rose family, were treated as one."""
    ),
    Heading("2.4 Mites and treatment", level=2),
    *paragraphs(
        """Varroa mites were counted once a month by washing three hundred bees from the brood nest in alcohol. A
        colony was treated with formic acid as soon as more than 9 mites were found in such a sample, and with
        oxalic acid in the broodless time in December regardless of the count. Keepers were asked not to treat on
        their own account.

        Samples were drawn by the same two persons throughout, who did not know the earlier counts. Bees were
        returned to the hive only when the sugar method was used, that is in the first two months; later all counts
        were made with alcohol, which finds more mites."""
    ),
    Heading("2.5 Strength and survival", level=2),
    *paragraphs(
        """Strength was estimated in the first week of October and in the last week of March as the number of comb
        sides covered with bees. A colony counted as lost if in March it was dead, had no queen, or covered fewer
        than four comb sides. Lost colonies were replaced in April by offspring of survivors from the same site."""
    ),
    Heading("2.6 Wild bees", level=2),
    *paragraphs(
        """Within three hundred metres of each site, ten patches of flowers of one square metre were watched for ten
        minutes, on four sunny days between June and August of the second and third year. All visitors were noted as
        honey bees, bumble bees or other wild bees. The observers, most of them students, had been trained for two
        days."""
    ),
    Heading("2.7 Analysis", level=2),
    *paragraphs(
        """Yield and strength were compared with linear mixed models, in which the site and the year were random
        effects. Survival was analysed with a logistic model. We give means with standard errors and call a
        difference clear if the interval of 95 per cent does not include zero. The plan of the analysis was written
        down before the third season."""
    ),
)

QUESTIONS = (
    DemoQuestion(
        "bees-august-pollen",
        "What made up the largest share of the pollen in August?",
        "Buddleia, 27 per cent.",
        (("pollen", "Buddleia 27"),),
    ),
    DemoQuestion(
        "bees-funding",
        "Who paid for the study?",
        "The Garrick Lowe Foundation and the city's Parks Department (grant GLF-0417).",
        (("funding", "GLF-0417"),),
    ),
    DemoQuestion(
        "bees-best-yield-losses",
        "How many colonies died over the three winters at the place that produced the most honey per hive?",
        "3 of 15 (St Bride's Hospital, with the highest mean yield of 47.2 kg).",
        (("yield", "47.2"), ("losses", "3 of 15")),
    ),
    DemoQuestion(
        "bees-competition-source",
        "In which journal did the earlier paper appear whose warning about competition with wild bees rested only on "
        "a model?",
        "Annals of Applied Pollination (Lindqvist and Dhar, 2017).",
        (("intro-warning", "warning was based on a model"), ("reference-lindqvist", "Annals of Applied Pollination")),
    ),
    DemoQuestion(
        "bees-rent",
        "How much rent did the building owners charge for the roofs?",
        "The report does not mention any rent.",
        absent=("rent", "rents", "lease", "charge", "charged"),
    ),
)

BEES = DemoDocument(
    id="roof-bees-study",
    title="Honey bee colonies on city roofs",
    design=Design(accent="#7a5c00", serif=True, columns=2, font_size=10.4, page_size=(540, 720)),
    parts=(Part((*METHODS, *bees_results.RESULTS)),),
    questions=QUESTIONS,
)
