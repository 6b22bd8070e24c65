"""A GPU machine's own Python is enough: workers run without anything the driver and the dashboard need."""

import subprocess
import sys

SCRIPT = """
import sys

sys.modules.update(dict.fromkeys({absent}))  # importing any of them fails, as where it is not installed
from workers.config import BenchmarkConfig, DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.execution import execute
from workers.protocol import BenchmarkRequest, TrialRequest

model = ModelConfig(vocab_size=4, hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                    num_key_value_heads=1, max_position_embeddings=32, **variant_knobs("plt") | dict(window=4))
data = DataConfig(corpus="phop", seq_len=16, eval_sequences=4)
trial = TrialRequest(attempt_id="t", model=model, data=data,
                     train=TrainConfig(tokens=128, batch_size=2, precision="float32", compile="off"), seed=0,
                     data_folder=sys.argv[1], folder=sys.argv[1] + "/attempt", threads=1)
grid = BenchmarkConfig(context=16, generate=2, repeats=1)
benchmark = BenchmarkRequest(attempt_id="b", model=model, benchmark=grid)
for request, metric in ((trial, "tasks/phop/accuracy"), (benchmark, "decode/ms_per_token")):
    *_, outcome = execute(request)
    assert outcome.failure is None, outcome.failure.traceback
    print(metric in outcome.metrics)
"""
ABSENT = (
    "ray", "optuna", "mlflow", "streamlit", "plotly", "pandas", "pydantic", "ruamel", "click", "rich", "scipy",
    "psutil", "tokenizers", "transformers", "pyarrow", "orchestrator", "dashboard",
)  # fmt: skip


def test_training_decoding_and_the_benchmark_need_torch_numpy_and_safetensors_only(tmp_path: object) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("{absent}", repr(set(ABSENT))), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr == ""
    assert ran.stdout.split() == ["True", "True"]
