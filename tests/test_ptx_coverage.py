"""``docs/ptx_coverage.md``: it is up to date, and all that it claims is tried out."""

from dataclasses import fields
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from golden import Arch, Feature, TmaError
from golden.form_list import GROUPS
from golden.forms import forms_page
from hw.layouts.barriers import BarrierOp
from hw.layouts.isa import AccessMode, Operation
from hw.params import PRESETS, TmaParams
from hw.top import tma_ports
from tests.unit_arch import FEATURES

ROOT = Path(__file__).parents[1]
FORMS = {form.ptx: form for group in GROUPS for form in group.forms}
EXECUTED = {ptx: form for ptx, form in FORMS.items() if form.run}
IN_RTL = {ptx: form for ptx, form in FORMS.items() if form.rtl}
STORES_ONLY = {"TILE_SCATTER4"}


def test_the_page_is_up_to_date():
    page = (ROOT / "docs" / "ptx_coverage.md").read_text()
    assert page == forms_page(GROUPS), "write it: python -m golden forms docs/ptx_coverage.md"
    assert len(FORMS) == sum(len(group.forms) for group in GROUPS), "a form is listed twice"


@pytest.mark.parametrize("ptx", EXECUTED, ids=str)
def test_golden_has_the_form_on_its_targets_only(ptx):
    form = EXECUTED[ptx]
    for arch in Arch.members():
        if form.feature is None or arch.has(form.feature):
            form.run(arch)
            continue
        with pytest.raises(TmaError) as caught:
            form.run(arch)
        if form.feature is Feature.MBARRIER_V1:
            assert "must be v0: the unit has no other layout" in str(caught.value)
        else:
            missing = [feature for feature in Feature if not arch.has(feature)]
            assert any(arch.lacks(feature) in str(caught.value) for feature in missing)


@pytest.mark.parametrize("feature", Feature)
def test_every_feature_has_a_form(feature):
    """The version of a form is that of its feature, or later."""
    forms = [form for form in FORMS.values() if form.feature is feature]
    assert forms
    assert min(float(form.since) for form in forms) == float(feature.since)


@pytest.mark.parametrize("ptx", IN_RTL, ids=str)
def test_the_rtl_has_what_the_form_needs(ptx):
    form = IN_RTL[ptx]
    rtl = form.rtl
    switches = {field.name for field in fields(TmaParams)}
    assert set(rtl.parameters) <= switches
    assert [rtl.operation, rtl.barrier_op, rtl.port].count("") == 2
    if rtl.operation:
        assert rtl.operation in Operation.__members__
        assert bool(rtl.mode) is rtl.operation.startswith("TENSOR")
        assert rtl.mode in ("", *AccessMode.__members__)
    elif rtl.barrier_op:
        assert rtl.barrier_op in BarrierOp.__members__
    else:
        params = PRESETS["cluster" if "ctas" in rtl.parameters else "default"]
        assert rtl.port in tma_ports(params)
    if form.feature is not None:
        (switch,) = [name for name, features in FEATURES.items() if form.feature in features]
        assert switch in rtl.parameters


def test_each_form_that_the_rtl_lacks_has_a_reason():
    assert all(bool(form.absence) is (form.rtl is None) for form in FORMS.values())


def test_a_feature_that_the_rtl_lacks_is_not_claimed():
    has = {feature for features in FEATURES.values() for feature in features}
    claimed = {form.feature for form in IN_RTL.values()} - {None}
    assert claimed == has


def test_everything_in_the_rtl_has_a_form():
    """Each operation in each of its modes, each barrier operation, and each later feature."""
    operations = {(form.rtl.operation, form.rtl.mode) for form in IN_RTL.values()}
    assert {operation for operation, _ in operations} - {""} == set(Operation.__members__)
    barrier_ops = {form.rtl.barrier_op for form in IN_RTL.values()} - {""}
    assert barrier_ops == set(BarrierOp.__members__)
    loads = set(AccessMode.__members__) - STORES_ONLY
    for operation in "TENSOR_LOAD", "TENSOR_PREFETCH":
        assert {mode for name, mode in operations if name == operation} == loads
    stores = {"TILE", "IM2COL", "TILE_SCATTER4", "IM2COL_W"}
    assert {mode for name, mode in operations if name == "TENSOR_STORE"} == stores
    assert {mode for name, mode in operations if name == "TENSOR_REDUCE"} == stores - STORES_ONLY
    switches = {name for form in IN_RTL.values() for name in form.rtl.parameters}
    flags = {field.name for field in fields(TmaParams) if field.type in (bool, "bool")}
    without_ptx = {"short_rows", "axi_prefetch", "axi_atomics", "host", "counters"}
    assert switches == flags - without_ptx | {"ctas"}


@cache
def recorded(file: str) -> frozenset[str]:
    """Return the names of what a file of recordings has."""
    with np.load(ROOT / "tests" / "silicon" / file) as arrays:
        if file == "transfers.npz":
            return frozenset(map(str, arrays["cases"]["kind"]))
        if file == "tensormap_replace.npz":
            used = arrays["field"][arrays["field"] < len(arrays["fields"])]
            return frozenset(map(str, arrays["fields"][np.unique(used)]))
        steps = arrays["ops" if file == "barriers.npz" else "steps"]
        names = {str(arrays["op_names"][op]) for op in np.unique(steps["op"])}
        if "st_async" in arrays:
            names |= {f"STAS {name}" for name in arrays["st_async"]}
        return frozenset(names)


@pytest.mark.parametrize("ptx", [ptx for ptx, form in FORMS.items() if form.silicon])
def test_the_recording_has_the_form(ptx):
    form = FORMS[ptx]
    for entry in form.silicon:
        file, _, name = entry.partition(": ")
        assert name in recorded(file)
    # Nothing that an H200 lacks is recorded.
    assert form.feature is None or Arch.SM_90A.has(form.feature)
