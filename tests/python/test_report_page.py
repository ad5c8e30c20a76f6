"""The page of `nvfp4 compare --html`, opened in a headless browser at the widths of a desktop and of
a phone, light and dark."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import nvfp4
from command import COMMAND

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
VOID = {"meta", "wbr"}
HOSTILE = "layers.3.<img src=x onerror=alert(1)>\"'&amp;</th><script>alert(2)</script>.\u202ex.weight"


def write_safetensors(path, tensors):
    """name -> float32 array, by the format's definition."""
    header, data = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def compare(folder, a, b):
    subprocess.run([*COMMAND, "compare", a, b, "--html", "page.html", "-q"], check=True,
                   capture_output=True, cwd=folder)
    return folder / "page.html"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    nvfp4.sample(folder / "a", arch="deepseek-v3", layers=4, scale=1 / 64)
    nvfp4.quantize_checkpoint(folder / "a", folder / "b")
    return compare(folder, "a", "b")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    x = np.ones((4, 16), np.float32)
    write_safetensors(folder / "a.safetensors", {HOSTILE: x, "only<b>": x})
    write_safetensors(folder / "b.safetensors", {HOSTILE: 1.5 * x})
    return compare(folder, "a.safetensors", "b.safetensors")


class Tags(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()


def test_the_page_is_balanced_small_and_loads_nothing(page):
    text = page.read_text(encoding="utf-8")
    seen = Tags(text).seen
    assert not {tag for tag, _ in seen} & {"script", "link", "img", "iframe", "object", "canvas"}
    for tag, attributes in seen:
        assert not {"src", "onload", "onerror", "onclick"} & attributes.keys(), tag
        assert attributes.get("href", "#").startswith("#")
    assert "http:" not in text and "https:" not in text and "url(" not in text
    assert len(text) < 200_000


def test_tables_and_charts_say_what_they_are(page):
    seen = Tags(page.read_text(encoding="utf-8")).seen
    for tag, attributes in seen:
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
        if tag == "svg":
            assert attributes.get("role") != "img" or attributes["aria-label"]
    tags = [tag for tag, _ in seen]
    assert tags.count("table") >= 5 and tags.count("h1") == 1
    assert ("html", {"lang": "en"}) in seen


# A page around the page: what it finds in there, the browser prints as its document.
PROBE = """<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>
<iframe id="page" src="page.html" style="width:{width}px;height:900px;border:0"></iframe>
<script>
window.onload = () => {{
  const page = document.getElementById("page").contentDocument;
  const all = selector => [...page.querySelectorAll(selector)];
  const box = element => element.getBoundingClientRect();
  const plot = page.querySelector(".plot > svg");
  document.getElementById("found").textContent = JSON.stringify({{
    title: page.title,
    wide: page.documentElement.scrollWidth,
    ground: page.defaultView.getComputedStyle(page.body).backgroundColor,
    text: page.defaultView.getComputedStyle(page.body).color,
    smallest: Math.min(...all("td, th, p, span").filter(e => box(e).width > 0)
      .map(e => parseFloat(page.defaultView.getComputedStyle(e).fontSize))),
    headings: all("h2").map(e => e.textContent),
    rows: all("tbody tr").length,
    names: all("tbody th bdi").map(e => e.textContent),
    bars: all(".bars rect").map(e => box(e).height),
    outside: plot ? all(".plot > svg use").filter(e => {{
      const at = box(e), of = box(plot);
      return at.left < of.left - 8 || at.right > of.right + 8 || at.top < of.top - 8 ||
             at.bottom > of.bottom + 8; }}).length : 0,
    markers: all(".plot > svg use").length,
    injected: all("script, img, b > b").length,
    loaded: page.defaultView.performance.getEntriesByType("resource").length,
  }});
}};
</script>
"""


def browse(page, width=1100, dark=False):
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser is installed ({', '.join(BROWSERS)})")
    probe = page.with_name("probe.html")
    probe.write_text(PROBE.format(width=width), encoding="utf-8")
    run = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars", "--allow-file-access-from-files", "--enable-logging=stderr", "--window-size=1200,1000",
         f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=10000",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, check=True, timeout=300)
    assert "CONSOLE" not in run.stderr, run.stderr  # errors of the page, refused loads included
    found = run.stdout.split('<pre id="found">')[1].split("</pre>")[0]
    return json.loads(html.unescape(found))


def brightness(color):
    return sum(int(c) for c in color.strip("rgb()").split(",")) / 765


@pytest.mark.parametrize("width", [360, 1100])
def test_it_fits_its_width_and_draws_everything(page, width):
    found = browse(page, width)
    assert found["title"].startswith("nvfp4 compare: ")
    assert found["wide"] == width
    assert found["headings"] == ["Error by layer", "Codes and block scales of b", "Size",
                                 "Worst tensors"]
    assert found["rows"] > 60 and found["loaded"] == found["injected"] == 0
    assert len(found["bars"]) == 16 + 127 and max(found["bars"]) > 100
    assert found["markers"] > 20 and found["outside"] == 0
    assert found["smallest"] >= 9
    assert "mlp.experts.*.up_proj" in found["names"]


def test_light_and_dark(page):
    light, dark = browse(page), browse(page, dark=True)
    assert brightness(light["ground"]) > 0.9 and brightness(light["text"]) < 0.2
    assert brightness(dark["ground"]) < 0.15 and brightness(dark["text"]) > 0.85


def test_hostile_names_are_text(hostile):
    Tags(hostile.read_text(encoding="utf-8"))
    found = browse(hostile)
    assert found["injected"] == found["loaded"] == 0
    shown = HOSTILE.replace("\u202e", r"\xe2\x80\xae")  # nothing turns the reading direction
    assert shown in found["names"]
    assert "Tensors not compared" in found["headings"]


def test_two_quantizations_side_by_side(tmp_path):
    nvfp4.sample(tmp_path / "a", layers=2, scale=1 / 64)
    nvfp4.quantize_checkpoint(tmp_path / "a", tmp_path / "mse")
    nvfp4.quantize_checkpoint(tmp_path / "a", tmp_path / "max", method="max", format="compressed-tensors")
    subprocess.run([*COMMAND, "compare", "a", "mse", "--against", "max", "--html", "page.html", "-q"],
                   check=True, capture_output=True, cwd=tmp_path)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    Tags(text)
    section = text.split("<h2 id='against'>")[1].split("</section>")[0]
    rows = [re.sub("<[^>]*>", " ", row).split() for row in section.split("<tr>")]
    found = next(row for row in rows if row[:2] == ["all", "kinds"])
    mse, largest = (nvfp4.compare(tmp_path / "a", tmp_path / b)["relative_error"] for b in ("mse", "max"))
    assert found[2::2][:2] == [f"{100 * mse:.3f}", f"{100 * largest:.3f}"]
    assert found[6] == f"{mse / largest:.3f}"
    assert "Lower error in b" in section and "Lower error in c" not in section
    # The other way round: the same numbers, exchanged.
    nvfp4.compare(tmp_path / "a", tmp_path / "max", html=tmp_path / "turned.html", against=tmp_path / "mse")
    turned = (tmp_path / "turned.html").read_text(encoding="utf-8")
    assert f"<td>{largest / mse:.3f}</td>" in turned and "Lower error in c" in turned
    with pytest.raises(nvfp4.InvalidValueError):
        nvfp4.compare(tmp_path / "a", tmp_path / "max", against=tmp_path / "mse")


def test_the_curve_of_bits_is_plotted(tmp_path):
    nvfp4.sample(tmp_path / "a", layers=2, scale=1 / 64)
    report = nvfp4.quantize_checkpoint(tmp_path / "a", tmp_path / "b", bits=6)
    (tmp_path / "run.json").write_text(json.dumps(report))
    nvfp4.compare(tmp_path / "a", tmp_path / "b", html=tmp_path / "page.html", run=tmp_path / "run.json")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    Tags(text)
    section = text.split("<h2 id='bits'>")[1].split("</section>")[0]
    curve = report["curve"]
    points = re.findall(r"<title>([0-9.]+) bits: ([0-9.e-]+) %</title>", section)
    assert [float(bits) for bits, _ in points] == [round(p["bits"], 3) for p in curve if p["error"] > 0]
    assert len(points) < len(curve), "where all is kept no error is left, which has no logarithm"
    for (_, share), point in zip(points, curve):
        assert float(share) == pytest.approx(100 * point["error"] / curve[0]["error"], rel=1e-3)
    places = [float(y) for y in re.findall(r"y2='([0-9.]+)%'><title>", section)]
    assert places[0] == 0 and places == sorted(places) and places[-1] <= 100, "the error falls"
    assert section.count("<tr>") == len(curve) + 1
    shares = {"tensors": [], "curve": [{"w4a16": 100 - 50 * error, "error": error} for error in (2, 1, 0)]}
    (tmp_path / "run.json").write_text(json.dumps(shares))
    nvfp4.compare(tmp_path / "a", tmp_path / "b", html=tmp_path / "shares.html", run=tmp_path / "run.json")
    points = re.findall(r"<title>([0-9.]+) % W4A16: ([0-9.e-]+) %</title>", (tmp_path / "shares.html").read_text("utf-8"))
    assert points == [("0.000", "100"), ("50.000", "50")]
    for broken in ({"tensors": [], "curve": 3}, {"tensors": [], "curve": [{"bits": 5}]},
                   {"tensors": [], "curve": [{"bits": 6, "error": 1}, {"bits": 5, "error": 1}]}):
        (tmp_path / "run.json").write_text(json.dumps(broken))
        with pytest.raises(nvfp4.FormatError):
            nvfp4.compare(tmp_path / "a", tmp_path / "b", html=tmp_path / "no.html", run=tmp_path / "run.json")


def test_the_documented_sample_is_what_commands_print(tmp_path):
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "commands.md").read_text(encoding="utf-8").split("## Two quantizations side by side")[1]
    for line in text.split("```text\n")[1].split("```")[0].splitlines():
        subprocess.run([*COMMAND, *line.split()[1:], "-q"], check=True, capture_output=True, cwd=tmp_path)
    assert (tmp_path / "side-by-side.html").read_bytes() == (docs / "side-by-side.html").read_bytes()
