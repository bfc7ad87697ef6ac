"""What all districts of the city budget share: the services, their usual cost, and the sentences said about them."""

from __future__ import annotations

from visar.benchmarks.demo.documents.city_districts import Project

SERVICES = (
    "Road maintenance",
    "Street lighting",
    "Street cleaning",
    "Waste collection",
    "Parks and playgrounds",
    "Library services",
    "Primary schools, running costs",
    "Day nurseries",
    "Youth clubs",
    "Care for the elderly",
    "Sports grounds",
    "District office",
)

# Crowns per resident and year that a service costs on average, in the order of SERVICES.
COST_PER_PERSON = (64, 21, 29, 58, 33, 26, 187, 142, 17, 231, 19, 24)

# Sentences about services. Each district gets one of every group, so that all of them speak of the same things.
SERVICE_STORIES = (
    (
        "Road maintenance concentrates on {street}, where frost has lifted the paving; smaller holes elsewhere are "
        "filled as they are reported.",
        "Most of the money for roads goes into the surface of {street} and of the lanes which lead to {square}.",
        "In road maintenance a new contractor will be at work, who has to answer reports of damage within five days.",
        "Roads were surveyed last spring, and one kilometre in six was found to be in poor condition, above all "
        "around {square}.",
    ),
    (
        "Lamps with sodium light are being replaced street by street, so that less has to be paid for power and more "
        "for fitting.",
        "Street lighting in {park} will be switched off between one and four in the morning, as residents suggested.",
        "The lamps in {street} are replaced by new ones with warmer light, which attract fewer insects.",
        "For street lighting a reserve is included, since the contract for electricity ends in the autumn.",
    ),
    (
        "Leaves will be collected on fixed days in November, and the dates are printed on the calendar for waste.",
        "Street cleaning is reinforced on the mornings after market days in {square}.",
        "Two sweeping machines are shared with the neighbouring district; the second driver's post is new.",
        "Cleaning of {street} moves from the early morning to the evening, when fewer cars are parked there.",
    ),
    (
        "In {park} the playground for small children is fenced, and a tap for drinking water is installed.",
        "The gardeners will sow a third of the lawns of {park} with meadow flowers and mow them twice a year only.",
        "Benches with backs were the most frequent wish in the survey of park visitors; twenty will be set up in "
        "{park}.",
        "The lavatories in {park} will be open all year, which is paid from the amount for parks and playgrounds.",
    ),
    (
        "The branch library at {square} opens on Saturdays as a trial; the hours on Mondays are reduced in return.",
        "Library services include a bus that stops in {street} on Wednesdays.",
        "The library lends tools and musical instruments as well as books, and needs a larger store for them.",
        "Loans from the library rose again, mostly of books for children, of which more will be bought.",
    ),
    (
        "Fees for day nurseries remain unchanged, and places for children under two are to be added near {street}.",
        "Day nurseries found it hard to fill their posts, so that part of last year's money was not spent.",
        "A group with longer hours is opened in the day nursery at {square} for parents who work in shifts.",
        "Meals in schools and day nurseries will be cooked on the spot; the kitchens are ready for it.",
    ),
    (
        "The youth club has moved into the cellar of the district office and may stay until it becomes too loud.",
        "The youth club in {street} will be open during all school holidays, with one more member of staff.",
        "The budget for youth clubs now covers the skating ramp next to {park} and its repair.",
        "Young people were asked what they missed; they asked for a roof at {square} under which to stand.",
    ),
    (
        "In care for the elderly, wages were raised by agreement, and two vacant posts will not be filled.",
        "A visiting service calls on residents above eighty who live alone; it is run by volunteers and one paid "
        "nurse.",
        "Lunch for the elderly is served at {square} on four days a week at a price which has not changed for six "
        "years.",
        "The number of people who receive care at home has grown, and routes for the nurses have been planned anew.",
    ),
)

USUAL_PROJECTS = (
    Project(
        "Primary school, new windows",
        640,
        "state programme",
        "The windows of the primary school near {park} no longer close; they are replaced during the summer holidays.",
    ),
    Project(
        "Primary school, extension for dining",
        1_780,
        "city loan",
        "The dining room of the primary school in {street} is too small, and pupils eat in three shifts.",
    ),
    Project(
        "Playground in the park",
        310,
        "city budget",
        "The playground in {park} is rebuilt after plans which children drew.",
    ),
    Project(
        "Crossing with traffic lights",
        190,
        "transport grant",
        "A crossing with lights is built in {street}, where two accidents happened last year.",
    ),
    Project(
        "Sewer, relining",
        2_240,
        "sewage fees",
        "The sewer below {street} is relined from within, so that the road need not be opened.",
    ),
    Project(
        "District office, heating",
        560,
        "city budget",
        "The oil boiler of the office at {square} is replaced by a heat pump.",
    ),
    Project(
        "Sports ground, changing rooms",
        830,
        "lottery grant",
        "New changing rooms are built at the sports ground behind {park}, with separate ones for girls.",
    ),
    Project(
        "Square, new paving",
        1_420,
        "state programme",
        "The paving of {square} is laid anew, and twelve trees are planted.",
    ),
)
