"""The table that is kept up to date against the table made at once."""

import pandas as pd
from hypothesis import given, settings

from dashboard.configuration_rows import ConfigurationRows
from orchestrator.configurations import Grouping, group
from orchestrator.records import StudyRecord
from tests.orchestrator.growing import growing_studies


@settings(max_examples=40, deadline=None)
@given(growing_studies())
def test_rows_of_a_growing_study_are_those_of_a_new_one(moments: list[StudyRecord]) -> None:
    grouping, rows = Grouping(), ConfigurationRows()
    shown = []
    for moment in moments:
        frame = rows.frame(moment, grouping.group(moment))
        pd.testing.assert_frame_equal(frame, ConfigurationRows().frame(moment, group(moment)))
        shown.append((frame, frame.copy(deep=True)))
    for frame, then in shown:
        pd.testing.assert_frame_equal(frame, then)


@settings(max_examples=40, deadline=None)
@given(growing_studies())
def test_rows_say_what_the_configurations_say(moments: list[StudyRecord]) -> None:
    configurations = group(moments[-1])
    frame = ConfigurationRows().frame(moments[-1], configurations)
    assert frame["fingerprint"].tolist() == [one.fingerprint for one in configurations]
    assert frame["trials"].tolist() == [[trial.number for trial in one.trials] for one in configurations]
    assert set(frame.columns) >= {metric for one in configurations for metric in one.metrics}
    for (_, row), one in zip(frame.iterrows(), configurations, strict=True):
        for metric, known in one.metrics.items():
            assert row[metric] == known.mean
            assert (None if pd.isna(row[f"{metric} low"]) else row[f"{metric} low"]) == known.low
            assert (None if pd.isna(row[f"{metric} high"]) else row[f"{metric} high"]) == known.high
