"""What `plt bench` takes its sizes from, and how it shows what it measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from orchestrator.configuration import resolve
from orchestrator.formats import byte_count
from orchestrator.spec import load_spec
from workers.config import ModelConfig
from workers.evaluation.decode_grid import SHAPE, DecodeMeasurement, DecodePoint
from workers.evaluation.train_grid import SHAPES, TrainMeasurement

_BAR = 24
"""Characters of the slowest step of a table."""
_WIDE = 100
"""Columns of a terminal that has room for bars."""
_SIZES = (*SHAPE, "rope_theta", "rms_norm_eps", "tie_word_embeddings")


def decode_shape(study_file: Path | None) -> Mapping[str, Any]:
    """The sizes that a study's benchmark has, else its model, or the default shape; a SpecError as usual."""
    if study_file is None:
        return SHAPE
    found = resolve(load_spec(study_file, files_here=False), {"num_loops": 1})
    return _sizes(found.benchmark_model or found.model)


def train_shape(study_file: Path | None, name: str) -> Mapping[str, Any]:
    """The sizes of a study's model, or those of a named shape; a SpecError as usual."""
    if study_file is None:
        return SHAPES[name]
    return _sizes(resolve(load_spec(study_file, files_here=False), {"num_loops": 1}).model)


def _sizes(config: ModelConfig) -> Mapping[str, Any]:
    return {name: getattr(config, name) for name in _SIZES}


def print_decode(console: Console, measurement: DecodeMeasurement) -> None:
    """A table per batch size and context; where there is room, a bar per setting, the part of the floor bold."""
    machine = measurement.machine
    console.print(
        f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}: reads "
        f"{machine['read_bandwidth'] / 1e9:.1f} GB/s, multiplies {machine['matrix_rate'] / 1e12:.2f} TFLOP/s; "
        f"{measurement.parameters / 1e6:.0f} M parameters, {measurement.precision}, {measurement.steps} steps each",
        highlight=False,
    )
    for batch_size, context in dict.fromkeys((point.batch_size, point.context) for point in measurement.points):
        here = [point for point in measurement.points if (point.batch_size, point.context) == (batch_size, context)]
        console.print(_table(f"batch {batch_size}, context {context}", here, bars=console.width >= _WIDE))


def _table(title: str, points: list[DecodePoint], *, bars: bool) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("setting", no_wrap=True)
    for name in ("ms/step", "p95", "of plain", "floor", "of floor", "prefill ms", "KV/sequence"):
        table.add_column(name, justify="right", no_wrap=True)
    if bars:
        table.add_column("floor ━ measured ─", no_wrap=True)
    slowest = max(point.ms_p50 for point in points)
    for point in points:
        cells = [
            point.setting,
            f"{point.ms_p50:.2f}",
            f"{point.ms_p95:.2f}",
            f"{point.over_plain:.3f}",
            f"{point.floor_ms:.2f}",
            f"{100 * point.floor_fraction:.0f} %",
            f"{point.prefill_ms:.0f}",
            byte_count(point.kv_bytes_per_sequence),
        ]
        table.add_row(*cells, *([_bar(point, slowest)] if bars else []))
    return table


def _bar(point: DecodePoint, slowest: float) -> str:
    whole = max(1, round(_BAR * point.ms_p50 / slowest))
    floor = min(whole, round(_BAR * point.floor_ms / slowest))
    return "━" * floor + "─" * (whole - floor)


def print_train(console: Console, measurement: TrainMeasurement) -> None:
    """A table: MFU counts every loop's products, `kept` is what a step keeps for its backward pass beside weights."""
    machine, grid = measurement.machine, measurement.grid
    console.print(
        f"{machine['device']}, {machine['threads']} threads, torch {machine['torch']}: multiplies "
        f"{machine['matrix_rate'] / 1e12:.2f} TFLOP/s; {measurement.parameters / 1e6:.1f} M parameters, "
        f"{grid['precision']}{', compiled' if grid['compile'] else ''}, {grid['batch_size']} x {grid['seq_len']} "
        f"tokens a step, {grid['steps']} steps each",
        highlight=False,
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("setting", no_wrap=True)
    for name in ("ms/step", "p95", "of plain", "tokens/s", "MFU", "kept"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in measurement.points:
        table.add_row(
            point.setting,
            f"{point.ms_p50:.1f}",
            f"{point.ms_p95:.1f}",
            f"{point.over_plain:.3f}",
            f"{point.tokens_per_second:,.0f}",
            f"{100 * point.flop_utilisation:.0f} %",
            byte_count(point.kept_bytes),
        )
    console.print(table)
