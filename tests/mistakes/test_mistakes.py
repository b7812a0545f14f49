"""Each mistake is named, its mended twin is not, and the document says the same."""

import re

import pytest

from sim_tb.kernels import library
from sim_tb.sm.device import Device
from sim_tb.sm.launch import Addresses
from tests.mistakes.catalogue import GROUPS, MISTAKES, PAGE, UNITS, entries, quoted, said
from tests.mistakes.form import lint

KERNELS = library().kernels

pytestmark = pytest.mark.simulators(*UNITS)

FACTS = ("On the GPU", "Cause", "Mend", "Met in")
"""Facts that the document has about each entry, beside what is said."""


@pytest.fixture(scope="module")
def messages():
    return said(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_mistake_is_named(messages, mistake):
    wrong, _ = messages[mistake.name]
    assert mistake.is_in(wrong), wrong


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_nothing_is_said_about_the_mended_twin(messages, mistake):
    _, mended = messages[mistake.name]
    assert mended == ""


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_said_about_the_maps_of_a_shipped_kernel(name):
    kernel, device = KERNELS[name](), Device(Addresses())
    kernel.host(device)
    findings = {
        address: lint(words.tobytes(), kernel.arch) for address, words in device.maps.items()
    }
    assert not any(findings.values()), findings


def test_the_document_has_the_same_entries():
    assert entries(PAGE.read_text()) == [
        (group.title, [each.name for each in group.mistakes]) for group in GROUPS
    ]


def test_the_document_has_all_facts_about_each_entry():
    for entry in re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        facts = re.findall(r"^- \*\*(.*?):\*\* \S", entry, re.MULTILINE)
        assert facts == list(FACTS), entry
        assert re.search(
            r"^- \*\*Met in:\*\* (\[\S+#\d+\]\(https://\S+\)|PTX ISA|CUDA |H200)", entry, re.M
        ), entry


def test_the_document_quotes_what_is_said(messages):
    page = PAGE.read_text()
    assert page == quoted(page, messages), "stale, run: .venv/bin/python -m tests.mistakes"
