"""The typed minutes of the cooperative's first years. They reach the PDF as images of scanned pages."""

from __future__ import annotations

from visar.benchmarks.demo.blocks import Block, Heading, paragraphs

ARCHIVE: tuple[Block, ...] = (
    Heading("Founding meeting, 2 May 1974"),
    *paragraphs(
        """Present: 44 tenants. In the chair: Mr Novak. Minutes: Miss Lang.

        Mr Novak opens the meeting at half past seven and states that the owner of the house, the brewery, wishes to
        sell. An offer to the tenants is valid until the end of June. The alternative is a sale to an insurance
        company, which intends to modernise the flats and to raise the rents.

        Mr Stern of the savings bank explains how a cooperative works. Each household buys a share according to the
        number of its rooms. The bank lends the remainder for thirty years. Whoever moves out gets back his share,
        but no profit.

        Mrs Hollar asks what happens when somebody cannot pay. Mr Stern answers that a fund for such cases can be
        set up. Mr Prager thinks the whole matter is too risky. He is told that he may remain a tenant.

        Resolved with 41 votes to 3: the cooperative is founded and bears the name of Lindenhof. The price of the
        house is 1,120,000 crowns. Elected to the board: Mr Novak (chair), Mrs Hollar (treasurer), Mr Ruzicka, Miss
        Lang (secretary).

        The meeting ends at ten minutes past eleven with the singing of a song."""
    ),
    Heading("Board meeting, 9 October 1974"),
    *paragraphs(
        """Present: Mr Novak, Mrs Hollar, Mr Ruzicka, Miss Lang.

        1. The contract of sale was signed before the notary on 30 September. The keys to cellar, attic and boiler
        house were handed over. The key to the laundry is missing. A new lock is fitted.

        2. Coal. The stock will last until the middle of December. Mr Ruzicka has found a dealer who delivers for
        less than the former one if forty tonnes are ordered at a time. Resolved unanimously.

        {archive-well} 3. Courtyard. Last week the ball of the small Hollar boy fell into the old well, and the boy
        very nearly followed it, since the cover is rotten. It is resolved that the well is to be filled with rubble
        from the attic. The pump handle is kept as a memento and will be hung up in the passage.

        4. Rents. All households paid on time, save one, where there is illness. The payment is deferred without
        interest.

        5. House rules. Carpets are beaten on Fridays only. Rugs may be shaken daily before nine. Pianos are silent
        between one and three. Mr Prager wishes it to be recorded that he was not asked.

        6. The caretaker, Mr Benes, asks for a new broom and for a radio in the lodge. The broom is granted."""
    ),
    Heading("Board meeting, 12 March 1975"),
    *paragraphs(
        """Present: Mr Novak, Mrs Hollar, Mr Ruzicka, Miss Lang. Guest: Mr Brandl junior.

        {archive-roof} 1. Roof. The storm of February has lifted about three hundred tiles, and rain comes through
        the ceilings of staircase D. Mr Brandl shows by photographs that the battens are rotten throughout.
        Resolved: the entire roof is covered anew by the firm of Brandl and Sons for 86,500 crowns. Work starts
        after Easter. The tiles are to be red, as before.

        2. The sum is raised as follows: 50,000 from the savings bank, 20,000 from the fund, and the remainder by a
        levy of four hundred crowns on every three-roomed flat, and proportionately on the others. Mrs Hollar draws
        up a list.

        3. While the roof is open, the rafters are to be treated against worm. Members who store things in the attic
        clear them away by Palm Sunday. What is left will be carried to the yard and may be taken by anybody.

        4. Pigeons. Mr Benes has counted 120. The holes in the gable are closed with wire when the scaffold stands.
        Mr Prager is against it because of the animals.

        5. The lime trees have come through the storm without damage. The bench around the third tree is to be
        painted green."""
    ),
    Heading("General meeting, 14 June 1975"),
    *paragraphs(
        """Present: 47 members. In the chair: Mr Novak. Minutes: Miss Lang.

        1. The treasurer presents the first accounts. Income 214,300 crowns, expenditure 209,800 crowns, not
        counting the roof. The accounts were examined by Mr Weiss and Mrs Dvorak and found to be in order. The board
        is discharged.

        2. Roof. The work is nearly finished and remains within the agreed price. One roofer broke a leg; the
        members collect 310 crowns for him.

        3. Motion of Mrs Sykora: a lift should be installed in staircase B, which has five floors and many old
        residents. Mr Novak thinks that the cooperative cannot afford it before next year. The motion is referred to
        the board, which is to obtain offers.

        4. Motion of Mr Prager, who has meanwhile become a member: the music of the young people in the cellar
        should be forbidden. After the young people have been heard, it is allowed until nine in the evening. Mr
        Prager votes against.

        5. The summer feast takes place on 5 July. Every staircase brings a soup. The brewery, in memory of old
        times, gives two barrels."""
    ),
    Heading("Board meeting, 21 January 1976"),
    *paragraphs(
        """Present: Mr Novak, Mrs Hollar, Miss Lang. Absent: Mr Ruzicka (influenza).

        {archive-lift} 1. Lift. Offers from three makers are on the table. The cheapest has no inner door, which Mrs
        Hollar considers to be dangerous. It is resolved to order the lift of the maker Astra Aufzug for 71,200
        crowns, with a wooden cabin, a folding seat and a mirror. It carries four persons. The bank agrees to a loan
        over fifteen years.

        2. Use of the lift. Those who live on the ground floor shall not contribute to its running. Children under
        ten may ride only together with adults. Coal and bicycles are not carried.

        3. Boiler. The second boiler leaks. The welder has done what he could. Mr Benes heats with the first one
        alone, and it is noticeable. A conversion to oil is examined. Mr Novak recalls the price of oil two years
        ago and advises against it.

        4. Telephone. A coin telephone is installed in the passage next to the pump handle. The post office demands
        a guarantee of thirty calls a month.

        5. Thanks are due to Miss Lang, who has typed all rent books anew."""
    ),
    Heading("Board meeting, 6 October 1976"),
    *paragraphs(
        """Present: Mr Novak, Mrs Hollar, Mr Ruzicka, Miss Lang.

        1. Lift. It was put into service on 1 September by the oldest member, Mrs Sykora, who is ninety-one. It has
        stood still twice since then, once because of an umbrella.

        2. Laundry. The copper is replaced by two electric washing machines, the gift of a member who won in the
        lottery and does not wish to be named. Each household may wash on one day every fortnight. A list hangs on
        the door.

        3. Levy for the roof. All have paid with the exception of flat 40. The treasurer will call on the family. No
        reminder is to be sent in writing.

        4. Cellar. Mr Ruzicka reports that damp is rising along the north wall. Potatoes should be stored on boards.
        An engineer estimates that drying the wall would cost more than the lift; nothing is done for the present.

        5. Allotments. The city offers a strip of land behind the railway. Nineteen families are interested. Miss
        Lang draws lots for the plots on the coming Sunday in the passage.

        6. Mr Benes retires at Christmas. His nephew would take over the post of caretaker. The board agrees and
        grants the nephew the radio."""
    ),
)
