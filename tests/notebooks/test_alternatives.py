"""What a picture says in words: its own description, wherever it stands, or its axes."""

from __future__ import annotations

import altair as alt
import pandas as pd

from notebooks.alternatives import in_words

FRAME = pd.DataFrame({"x": [1, 2], "y": [3, 4], "side": ["a", "b"]})


def test_a_description_of_a_layer_or_a_facet_is_the_pictures() -> None:
    base = alt.Chart(FRAME, description="Two points, the second higher.").encode(x="x:Q", y="y:Q")
    layered = base.mark_rule() + base.mark_point()
    assert in_words(layered.to_dict()) == "Two points, the second higher."
    assert in_words(layered.facet("side:N").to_dict()) == "Two points, the second higher."


def test_a_chart_without_one_says_its_axes() -> None:
    chart = alt.Chart(FRAME).mark_point().encode(x="x:Q", y=alt.Y("y:Q", title="height"))
    assert in_words(chart.to_dict()) == "A chart. Across: x, 1 to 2. Up or down: height, 3 to 4."
