"""Floorplan: each block with multipliers gets a row of them, and nothing else is placed."""

import pytest

from hw.flow.floorplan import MULTIPLIER, ROWS, place_multipliers, sites


def netlist_of(**cells):
    """Return a netlist of cells: a type by name, where two underscores are a dot."""
    kinds = {name.replace("__", "."): kind for name, kind in cells.items()}
    return {
        "modules": {"top": {"cells": {n: {"type": k, "attributes": {}} for n, k in kinds.items()}}}
    }


def placed(netlist):
    cells = netlist["modules"]["top"]["cells"]
    return {name: cell["attributes"].get("BEL") for name, cell in cells.items()}


def test_sites_are_in_the_middle_of_a_row():
    row = sites(10, 100)
    assert len(row) == len(set(row)) == 52
    assert row[:5] == [f"X{x}/Y10/MULT18_{n}" for x, n in ((4, 0), (5, 1), (8, 4), (9, 5), (13, 0))]
    for count in range(53):
        few = sites(34, count)
        assert len(few) == count
        first = (52 - count) // 2
        assert few == [site.replace("Y10", "Y34") for site in row[first : first + count]]


def test_multipliers_follow_the_data():
    netlist = netlist_of(
        setup_block__span_stage__o_MULT18X18D_P9=MULTIPLIER,
        setup_block__clip_stage__b_MULT18X18D_P9=MULTIPLIER,
        setup_block__clip_stage__a_MULT18X18D_P9=MULTIPLIER,
        setup_block__clip_stage__a_LUT4_Z="LUT4",
        walk_generator__x_MULT18X18D_P9=MULTIPLIER,
        setup_blocks__x_MULT18X18D_P9=MULTIPLIER,
    )
    place_multipliers(netlist)
    setup = sites(ROWS["setup_block"], 3)
    assert placed(netlist) == {
        "setup_block.clip_stage.a_MULT18X18D_P9": setup[0],
        "setup_block.clip_stage.b_MULT18X18D_P9": setup[1],
        "setup_block.span_stage.o_MULT18X18D_P9": setup[2],
        "setup_block.clip_stage.a_LUT4_Z": None,
        "walk_generator.x_MULT18X18D_P9": sites(ROWS["walk_generator"], 1)[0],
        "setup_blocks.x_MULT18X18D_P9": None,
    }


@pytest.mark.parametrize("count", [52, 60])
def test_no_two_cells_get_one_place(count):
    netlist = netlist_of(**{f"setup_block__m{n}": MULTIPLIER for n in range(count)})
    place_multipliers(netlist)
    given = [site for site in placed(netlist).values() if site]
    assert len(given) == len(set(given)) == 52
