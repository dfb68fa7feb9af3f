"""The sentence says what the numbers say."""

from __future__ import annotations

import dataclasses
import json

from made_up import comparison

from rewriter.comparing.report import Profile
from rewriter.comparing.statistics import Ratio
from rewriter.comparing.verdict import verdict


def test_faster():
    text = verdict(comparison())
    assert text == ("Fused, the model runs 2.50 times as fast in ONNX Runtime (95 % interval 2.42 to 2.58). Its values "
                    "agree: at most 3.0e-05 apart. What was fused took 90 % of the unfused model's time.")


def test_slower_and_noise():
    assert "is SLOWER in ONNX Runtime: 0.50 times as fast" in verdict(comparison(ratio=0.5))
    assert "no difference beyond noise" in verdict(comparison(ratio=1.01))


def test_a_biased_machine_proves_little():
    made = comparison(ratio=1.2)
    made.control = Ratio(0.8, 0.75, 0.85)
    assert "no difference beyond noise" in verdict(made)


def test_mismatch_comes_first():
    made = comparison(good=False)
    assert verdict(made).startswith("MISMATCH: ORT fused, functions does not give the unfused model's values.")
    assert not made.agrees and "agree" not in verdict(made)


def test_it_hardly_matters():
    made = comparison()
    made.before = Profile(1.0, 0.004, 0.0, [])
    assert "less than 1 % of the unfused model's time, so it hardly matters" in verdict(made)


def test_nothing_ran():
    made = comparison()
    for variant in made.variants:
        variant.failed = "died"
    assert verdict(made) == "No fused variant could be run." and not made.agrees


def test_json():
    made = comparison()
    made.variants[2].errors = [dataclasses.replace(made.variants[2].errors[0], absolute=float("inf"))]
    document = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert document["verdict"] == verdict(made) and document["agrees"] is True
    assert document["variants"][2]["errors"][0]["absolute"] == "inf"
    assert document["variants"][2]["faster"] == {"value": 2.5, "low": 2.425, "high": 2.575}
