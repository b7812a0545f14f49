"""Steps of ``clusters.npz`` whose words differ, because a phase ended at a part of the bytes.

A request signals its bytes in parts, and a phase that expects fewer bytes than come may end at one
of them. The golden model signals once, the RTL once for each packet, and the silicon in parts of
its own. No other word may differ.
"""

ENDED_AT_A_PART = {
    "golden": [
        "dcopy[20]: step 12, DCOPY",
        "dcopy[24]: step 8, DCOPY",
        "dred[64]: step 13, DRED",
    ],
    "rtl": [
        "dcopy[20]: step 12, DCOPY",
        "dcopy[24]: step 8, DCOPY",
        "mixed[537]: step 9, DCOPY",
        "mixed[560]: step 7, STAS",
    ],
}
"""Steps by the target that differs from the silicon."""
