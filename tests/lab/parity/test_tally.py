from __future__ import annotations

from lab.parity.tally import Tally


def test_the_table_says_how_often_what_mattered() -> None:
    tally = Tally()
    tally.expect(["NodePorts", "NodeAffinity"])
    tally.add({"NodeAffinity", "ImageLocality"}, differs=False)
    tally.add({"NodeAffinity"}, differs=True)
    tally.add(set(), differs=False)

    assert tally.table() == [
        "what decisions hung on  decisions  differing",
        "all decisions                   3          1",
        "ImageLocality                   1          0",
        "NodeAffinity                    2          1",
        "NodePorts                       0          0",
    ]
    assert tally.rarest(["NodeAffinity", "ImageLocality"]) == 1
    assert tally.rarest(["NodePorts"]) == 0
