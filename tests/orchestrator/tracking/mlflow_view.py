"""What MLflow holds, read back with its own client."""

from mlflow import MlflowClient
from mlflow.entities import Run

from workers.protocol import MetricReport


def children(client: MlflowClient) -> list[Run]:
    """The runs of the trials of the study `loops`."""
    experiment = client.get_experiment_by_name("loops")
    assert experiment is not None
    return [run for run in client.search_runs([experiment.experiment_id]) if "mlflow.parentRunId" in run.data.tags]


def loss(step: int) -> MetricReport:
    """A report of one metric, 1 / step."""
    return MetricReport(step=step, tokens=64 * step, metrics={"train/loss": 1 / step}, seconds=step / 10)
