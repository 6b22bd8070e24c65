"""Take the pictures in this folder again: every page, light and dark, for a desk and for a phone.

    python docs/screenshots/take.py [PAGE ...]

Needs Debian's chromium and the development dependencies. The studies are planted from a formula, so that the pictures
change only when the pages do.
"""

import io
import math
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[2]))

from orchestrator.configurations import group
from orchestrator.home import Home
from orchestrator.loop_table import to_csv
from orchestrator.records import TrialRecord
from tests.dashboard.browser.conftest import FLAGS, serving
from tests.dashboard.planting import measured, plant_study
from workers.protocol import LoopValue

_HERE = Path(__file__).parent
_WIDTHS, _HEIGHTS = {"desk": 1280, "phone": 390}, {"desk": 2500, "phone": 3600}
_COLOURS = 128


def diagnosed(trial: TrialRecord) -> dict[str, float]:
    """The formula's results, with loop diagnostics that fall off as loops go on."""
    metrics, loops = measured(trial), int(trial.params["num_loops"])
    for loop in range(1, loops + 1):
        wobble = 0.03 * math.sin(3 * trial.seed + loop)
        metrics |= {
            f"loops/{loop}/step_size": 1.4 / loop + wobble,
            f"loops/{loop}/effective_rank": 21.0 - 3.5 * math.log2(loop) + 5 * wobble,
            f"loops/{loop}/lens_loss": 1.5 - 0.12 * math.log2(loop) + wobble,
        }
    return metrics


def mapped(trial: TrialRecord) -> list[LoopValue]:
    """The gate's share of the full context in every head, which falls with the layer."""
    return [
        LoopValue(
            "global_share", loop, layer, head, None, (0.9 - 0.2 * layer) * (0.6 + 0.4 * math.sin(head + loop) ** 2)
        )
        for loop in range(2, int(trial.params["num_loops"]) + 1)
        for layer in range(3)
        for head in range(4)
    ]


def main(wanted: list[str]) -> None:
    """Plant, serve, look, keep."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium; apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home").create()
        study = plant_study(home, "loop-window-gate", failing={7}, track=True, measure=diagnosed)
        for trial in study.trials:
            path = home.loop_table(study.name, trial.number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(to_csv(mapped(trial)), encoding="utf-8")
        plant_study(home, "half-way", trials=12, failing={4, 9})
        plant_study(home, "not-begun", trials=0)
        ranked = group(study)
        about = "study=loop-window-gate"
        picks = "~".join(ranked[index].fingerprint for index in (0, 1, 5))
        pages = {
            "studies": "",
            "submit": "submit",
            "study": f"study?{about}",
            "trade-offs": f"trade-offs?{about}&picks={picks}&budgets=decode/ms_per_token:6.35",
            "compare": f"compare?{about}&picks={picks}",
            "loops": f"loops?{about}",
            "search": f"search?{about}",
            "trial": f"trial?{about}&trial=7",
            "cluster": "cluster",
        }
        chosen = {name: path for name, path in pages.items() if not wanted or name in wanted}
        with serving(home, Path(folder) / "log") as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
            for scheme in ("light", "dark"):
                for device in _WIDTHS:
                    _take(browser, url, chosen, scheme, device)


def _take(browser: Browser, url: str, pages: dict[str, str], scheme: str, device: str) -> None:
    context = browser.new_context(
        viewport={"width": _WIDTHS[device], "height": 900},
        color_scheme="light" if scheme == "light" else "dark",
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    for name, path in pages.items():
        page.set_viewport_size({"width": _WIDTHS[device], "height": _HEIGHTS[device]})
        page.goto(f"{url}/{path}")
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
        page.wait_for_timeout(3_000)  # tables and charts paint late
        height = int(page.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').offsetHeight"))
        page.set_viewport_size({"width": _WIDTHS[device], "height": max(500, min(height + 20, _HEIGHTS[device]))})
        page.wait_for_timeout(1_500)
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
        page.wait_for_function("!document.querySelector('[data-stale=true]')")
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        target = _HERE / f"{name}-{scheme}-{device}.png"
        picture.quantize(_COLOURS).save(target, optimize=True)
        print(f"{target.name}: {target.stat().st_size // 1024} KiB")
    context.close()


if __name__ == "__main__":
    main(sys.argv[1:])
