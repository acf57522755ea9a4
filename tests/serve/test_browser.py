"""The page in a real browser: Debian's Chromium, driven by Selenium."""

from __future__ import annotations

import base64
import io
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

selenium = pytest.importorskip("selenium", reason="the page's tests in a browser need it: pip install selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402

from dng import LEVEL, noisy, scene, write_test_dng  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or CHROMEDRIVER is None,
    reason="needs a browser: apt-get install chromium chromium-driver",
)
AXE = Path(__file__).with_name("axe.min.js")
ROOMS = ("restore", "neighbours", "match", "selection")
PATIENCE = 60.0


class Page:
    """A browser with the page in it, and what people do with it."""

    def __init__(self, driver: Any, server: Any, downloads: Path) -> None:
        self.driver, self.server, self.downloads = driver, server, downloads

    def open(self, room: str = "restore") -> None:
        self.driver.get("about:blank")
        self.driver.get(self.server.page)
        self.wait(lambda: self.js("return location.hash === '#restore'"))
        self.js(f"location.hash = '{room}'")
        self.wait(lambda: self.js(f"return document.getElementById('{room}').childElementCount > 0"))

    def js(self, script: str, *args: Any) -> Any:
        return self.driver.execute_script(script, *args)

    def one(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition: Callable[[], Any], what: str = "it") -> Any:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if found := condition():
                return found
            time.sleep(0.05)
        raise AssertionError(f"waited for {what} in vain; the page says: {self.one('body').text[:600]}")

    def drop(self, files: dict[str, bytes]) -> None:
        """Drop files on the page, as if they came from the desktop."""
        self.js(
            """const data = new DataTransfer();
            for (const [name, bytes] of Object.entries(arguments[0]))
              data.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name));
            dispatchEvent(new DragEvent("dragenter", { dataTransfer: data }));
            dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));""",
            {name: base64.b64encode(content).decode() for name, content in files.items()},
        )
        self.wait(lambda: not self.all(".photos .arriving:not(.bad)"), "files to arrive")

    def add(self, files: dict[str, bytes]) -> None:
        """Drop files and wait until they are there, under names that the list shows."""
        self.drop(files)
        self.wait(lambda: all(name in self.one(".photos").get_attribute("textContent") for name in files), "files")

    def told(self) -> str:
        return str(self.js("return document.querySelector('.told').dataset.state"))

    def choose(self, group: str, value: str) -> None:
        self.js(f"document.querySelector(`[data-choice='{group}'] input[value='{value}']`).click()")

    def download(self, selector: str) -> Path:
        before = set(self.downloads.iterdir())
        self.js(f"document.querySelector(`{selector}`).click()")
        new = self.wait(
            lambda: [
                p for p in set(self.downloads.iterdir()) - before if p.suffix != ".crdownload" and p.name[0] != "."
            ],
            "a file",
        )
        return Path(new[0])

    def clear(self) -> None:
        """Remove all files from the server."""
        import httpx

        with httpx.Client(
            base_url=self.server.address, headers={"X-N3net-Token": self.server.token}, timeout=60
        ) as web:
            for photo in web.get("/api/state").json()["files"]:
                web.delete(f"/api/files/{photo['id']}")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,850"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    downloads = tmp_path_factory.mktemp("downloads")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    try:
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(CHROMEDRIVER))
    except Exception as error:
        pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
    browser.downloads = downloads
    yield browser
    browser.quit()


@pytest.fixture
def page(driver: Any, server: Any) -> Iterator[Page]:
    found = Page(driver, server, driver.downloads)
    driver.set_window_size(1200, 850)
    found.clear()
    found.open()
    yield found
    severe = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    wrong = [m for m in severe if "Content Security Policy" in m or "Uncaught" in m or "TypeError" in m]
    assert not wrong


def photo(width: int, height: int, seed: int = 0, kind: str = "PNG", **options: Any) -> bytes:
    generator = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    scene = 128 + 60 * np.sin(x / 9 + seed)[..., None] + 40 * np.cos(y / 13)[..., None] * np.array([1, 0.5, -0.5])
    pixels = np.clip(scene + 12 * generator.standard_normal((height, width, 3)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def command(server: Any, *arguments: str) -> None:
    environment = {**os.environ, "N3NET_WEIGHTS": str(server.weights), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-m", "n3net", *arguments], check=True, env=environment, capture_output=True)


# Restore


def test_drop_preview_slider_zoom_and_swap(page: Page) -> None:
    assert "Drop photographs here" in page.one("#restore").text
    page.add({"small.png": photo(300, 200)})
    page.wait(lambda: page.told() == "previewed", "a preview")
    assert "σ" in page.one(".told").text
    canvas = page.one("canvas.viewer")

    def at(x: float) -> list[int]:
        """The colour of the canvas somewhere in its middle row."""
        return page.js(
            """const c = arguments[0], x = Math.round(c.width * arguments[1]);
            return [...c.getContext('2d').getImageData(x, c.height / 3, 1, 1).data]""",
            canvas, x,
        )  # fmt: skip

    page.js(
        "document.querySelector('.split').value = 1; document.querySelector('.split').dispatchEvent(new Event('input'))"
    )
    time.sleep(0.2)
    before = [at(x) for x in np.linspace(0.3, 0.7, 20)]
    page.js(
        "document.querySelector('.split').value = 0; document.querySelector('.split').dispatchEvent(new Event('input'))"
    )
    time.sleep(0.2)
    assert [at(x) for x in np.linspace(0.3, 0.7, 20)] != before

    zoom = float(canvas.get_attribute("data-zoom"))
    canvas.send_keys("+")
    page.wait(lambda: float(canvas.get_attribute("data-zoom")) == pytest.approx(1.5 * zoom, rel=1e-3), "zoom")
    ActionChains(page.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -240).perform()
    page.wait(lambda: float(canvas.get_attribute("data-zoom")) > 1.6 * zoom, "zoom by the wheel")
    x = float(canvas.get_attribute("data-x"))
    canvas.send_keys(Keys.ARROW_RIGHT)
    page.wait(lambda: float(canvas.get_attribute("data-x")) > x, "a move")
    canvas.send_keys("s")
    page.wait(lambda: canvas.get_attribute("data-swapped") == "true", "a swap")
    page.choose("view", "side")
    assert not page.one(".split").is_displayed()
    canvas.send_keys("1")
    page.wait(lambda: float(canvas.get_attribute("data-zoom")) == 1, "single pixels")


def test_two_fingers_zoom_where_they_are(page: Page) -> None:
    page.add({"small.png": photo(300, 200)})
    page.wait(lambda: page.told() == "previewed", "a preview")
    canvas = page.one("canvas.viewer")
    zoom, box = float(canvas.get_attribute("data-zoom")), canvas.rect
    x, y = box["x"] + box["width"] / 4, box["y"] + box["height"] / 2

    def touch(kind: str, *fingers: float) -> None:
        points = [{"x": x + dx, "y": y, "id": i} for i, dx in enumerate(fingers)]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", -20, 20)
    for second in (30, 45, 60, 80):
        touch("touchMove", -20, second)
    touch("touchEnd")
    page.wait(lambda: float(canvas.get_attribute("data-zoom")) == pytest.approx(2.5 * zoom, rel=0.05), "a pinch")


def test_side_by_side_shows_the_same_place_in_both(page: Page) -> None:
    """What was not restored is shown as it is: without a preview, both halves have the same pixels."""
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/preview"]})
    same = """const v = document.querySelector('canvas.viewer'), c = v.getContext('2d');
      const half = Math.round(v.width / 2), middle = Math.round(half / 2);
      const [a, b] = [middle, half + middle].map((x) => c.getImageData(x - 20, v.height / 3, 40, 40).data);
      const alike = a.filter((value, i) => value === b[i]).length / a.length;  // of noise a pixel further, a quarter
      return alike > 0.6 && a.some((value, i) => value !== a[i % 4]);"""
    try:
        page.add({"a.png": photo(900, 700)})
        page.wait(lambda: "does not answer" in page.one(".told").text, "no preview")
        page.choose("view", "side")
        canvas = page.one("canvas.viewer")
        for key in ("1", "+", "+", "-", Keys.ARROW_LEFT, Keys.ARROW_DOWN, "0"):
            canvas.send_keys(key)
            page.wait(lambda: page.js(same), f"both halves to be the same after {key!r}")
    finally:
        page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})


@pytest.mark.parametrize(
    ("name", "settings", "options"),
    [
        ("A photo.JPG", "hand", ["denoise", "--sigma", "25"]),
        ("deep.png", "upscale", ["upscale"]),
        ("b.webp", "automatic", ["denoise"]),
    ],
)
def test_the_download_is_what_the_command_writes(
    page: Page, tmp_path: Path, name: str, settings: str, options: list[str]
) -> None:
    exif = Image.Exif()
    exif[274], exif[315] = 6, "somebody"  # turned
    if name.endswith(".JPG"):
        content = photo(120, 90, kind="JPEG", exif=exif, icc_profile=b"x" * 200)
    elif name.endswith(".png"):
        deep = (np.random.default_rng(0).random((60, 70)) * 65535).astype(np.uint16)
        file = io.BytesIO()
        Image.fromarray(deep).save(file, "PNG")
        content = file.getvalue()
    else:
        content = photo(80, 70, kind="WEBP", lossless=True)
    page.add({name: content})
    if settings == "upscale":
        page.choose("work", "upscale")
    else:
        page.choose("how", settings)
    page.one(".settings .button.main").click()
    page.wait(lambda: page.told() == "done", "the whole")
    found = page.download(".row-actions button[title=Download]")
    source = tmp_path / name
    source.write_bytes(content)
    command(page.server, *options, str(source))
    [target] = [path for path in tmp_path.iterdir() if path != source]
    assert found.name == target.name
    assert found.read_bytes() == target.read_bytes()


def test_a_raw_file_is_previewed_and_becomes_what_the_command_makes(page: Page, tmp_path: Path) -> None:
    pytest.importorskip("rawpy", reason="needs the extra raw")
    pytest.importorskip("tifffile", reason="needs the extra images")
    source = write_test_dng(tmp_path / "night.dng", noisy(scene()), profile=(LEVEL.a, LEVEL.b))
    page.add({"night.dng": source.read_bytes()})
    page.wait(lambda: page.told() == "previewed", "a preview")
    page.one(".settings .button.main").click()
    page.wait(lambda: page.told() == "done", "the whole")
    found = page.download(".row-actions button[title=Download]")
    command(page.server, "denoise", str(source))
    [target] = [path for path in tmp_path.iterdir() if path != source]
    assert found.name == target.name
    assert found.read_bytes() == target.read_bytes()


def test_many_at_once_and_all_in_one_archive(page: Page, tmp_path: Path) -> None:
    files = {f"{i}.png": photo(60, 50, seed=i) for i in range(3)}
    page.add(files)
    page.wait(
        lambda: not page.js("return document.querySelectorAll('.settings .button')[1].hidden"), "a button for all"
    )
    page.js("document.querySelectorAll('.settings .button')[1].click()")
    page.wait(lambda: len(page.all("li[data-state=done]")) == 3, "all of them")
    assert "3 of 3 done" in page.one(".summary").text
    with zipfile.ZipFile(page.download(".summary .button.main")) as archive:
        assert sorted(archive.namelist()) == [f"{i}-denoised.png" for i in range(3)]
        (tmp_path / "0.png").write_bytes(files["0.png"])
        command(page.server, "denoise", str(tmp_path / "0.png"))
        assert archive.read("0-denoised.png") == (tmp_path / "0-denoised.png").read_bytes()


def test_cancel_leaves_nothing_and_a_reload_loses_nothing(page: Page) -> None:
    page.add({"large.png": photo(2600, 2000), "next.png": photo(40, 30)})
    page.js("document.querySelectorAll('.settings .button')[1].click()")
    page.wait(lambda: page.all("li[data-state=running]"), "a job")
    page.driver.refresh()  # the token is kept for the tab, and the server knows the rest
    page.wait(lambda: len(page.all(".photos li[data-file]")) == 2, "the list")
    running = page.wait(lambda: page.all("li[data-state=running], li[data-state=waiting]"), "a job, still")
    assert running
    folders = len(list(page.server.temporary.glob("*/*")))
    for _ in range(2):
        page.js("document.querySelector('.row-actions button[title=Cancel]')?.click()")
        time.sleep(0.2)
    page.wait(lambda: not page.all("li[data-state=running], li[data-state=waiting]"), "the end of it")
    page.wait(lambda: len(list(page.server.temporary.glob("*/*"))) < folders, "nothing of it to be left")
    page.js("document.querySelectorAll('.pick')[1].click()")
    page.wait(lambda: not page.one(".settings .button.main").get_attribute("disabled"), "the button")
    page.one(".settings .button.main").click()
    page.wait(lambda: page.all("li[data-state=done]"), "another job after it")


def test_two_tabs_see_the_same(page: Page) -> None:
    first = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    try:
        page.open()
        page.add({"shared.png": photo(50, 40)})
        page.driver.switch_to.window(first)
        page.wait(lambda: "shared.png" in page.one("#restore").text, "the other tab's file")
    finally:
        for handle in page.driver.window_handles:
            if handle != first:
                page.driver.switch_to.window(handle)
                page.driver.close()
        page.driver.switch_to.window(first)


def test_errors_are_the_commands_words(page: Page) -> None:
    page.drop({"broken.png": b"\x89PNG\r\n\x1a\n nothing", "text.txt": b"words"})
    page.wait(lambda: len(page.all(".photos .bad")) == 2, "two refusals")
    text = page.one(".photos").text
    assert "cannot be read" in text or "damaged" in text or "not an image" in text
    assert ".txt files are not among those" in text


def test_without_the_token_the_page_says_what_is_missing(page: Page) -> None:
    page.js("sessionStorage.clear()")
    page.driver.get("about:blank")
    page.driver.get(f"{page.server.address}/")
    page.wait(lambda: "whole address" in page.one("main").text, "words")


# Neighbours


def test_the_explorer_shows_the_blocks_own_weights(page: Page, tmp_path: Path, server: Any) -> None:
    from n3net.inspection.choices import look
    from n3net.nn import N3Block2d
    from n3net.weights import load

    page.add({"seen.png": photo(130, 110)})
    page.js("location.hash = 'neighbours'")
    page.wait(lambda: page.js("return document.getElementById('neighbours').dataset.state") == "done", "a look")
    sigma = page.js("return explorer.look.head.sigma")
    chosen = page.js("return document.querySelector('#neighbours select[aria-label=Network]').value")
    net: Any = load(server.weights / f"{chosen}.safetensors")
    pixels = np.asarray(Image.open(io.BytesIO(photo(130, 110)))).astype(np.float32) / np.float32(255)
    image = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
    assert net.channels == 3
    blocks = [m for m in net.modules() if isinstance(m, N3Block2d)]
    ask = """const [block, query, form, factor] = arguments;
      return Object.assign(explorer, { block, query, form, factor }).weights().map((row) => [...row])"""
    for form in ("tempered", "untempered"):
        for block in blocks:
            object.__setattr__(block.options, "update", form)
        views = look(net, image, sigma)[1]
        for b, query in ((0, (3, 4)), (1, (0, 0)), (1, (10, 20))):
            shown = np.array(page.js(ask, b, query, form, 1))
            np.testing.assert_allclose(shown, views[b].weights[query], atol=2e-4)
    shown = np.array(page.js(ask, 0, (3, 4), "hard", 1))
    assert sorted(map(tuple, np.argwhere(shown > 0))) == [(j, int(row.argmax())) for j, row in enumerate(shown)]
    sharp = np.array(page.js(ask, 0, (3, 4), "tempered", 1e-9))
    np.testing.assert_allclose(sharp, shown, atol=1e-6)  # the paper's form becomes hard KNN as t falls

    expected = page.js(ask, 0, (3, 4), "untempered", 0.5)
    saved = page.download("#neighbours .bar .button:last-child")
    assert saved.name == "seen-neighbours.html"
    page.driver.get(saved.as_uri())
    page.wait(lambda: page.js("return Boolean(window.explorer)"), "the file")
    assert page.js(ask, 0, (3, 4), "untempered", 0.5) == expected
    assert page.js("return performance.getEntriesByType('resource').length") == 0


def test_the_explorer_follows_mouse_and_keys(page: Page) -> None:
    page.add({"seen.png": photo(130, 110)})
    page.js("location.hash = 'neighbours'")
    page.wait(lambda: page.js("return document.getElementById('neighbours').dataset.state") == "done", "a look")
    canvas = page.one(".explorer-image")
    page.js("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    seen = set()
    for x in (-80, 0, 80):
        ActionChains(page.driver).move_to_element_with_offset(canvas, x, 10).perform()
        seen.add(tuple(page.js("return explorer.query")))
    assert len(seen) == 3
    ActionChains(page.driver).click().perform()
    pinned = page.js("return explorer.query")
    ActionChains(page.driver).move_to_element_with_offset(canvas, -60, -40).perform()
    assert page.js("return explorer.query") == pinned
    canvas.send_keys(Keys.ARROW_LEFT)
    assert page.js("return explorer.query") == [pinned[0], pinned[1] - 1]
    canvas.send_keys(Keys.ESCAPE)
    assert page.js("return explorer.pinned") is False
    for value in ("temperature", "input"):
        page.choose("shown", value)
        assert page.js("return explorer.shown") == value


# Selection


def test_the_page_selects_as_n3net_does(page: Page) -> None:
    from n3net import select

    page.js("location.hash = 'selection'")
    script = """const [d, k, how, done] = arguments;
      import('/page/selection.js').then((m) => done(m.selectWeights(d, k, how).map((row) => [...row])))"""
    generator = torch.Generator().manual_seed(0)
    for t in (1e-6, 1e-3, 0.1, 1.0, 50.0):
        for update in ("tempered", "untempered"):
            d = torch.rand(9, generator=generator, dtype=torch.float64)
            how = {"scale": 1 / t, "strength": 1 / t if update == "tempered" else 1}
            shown = page.driver.execute_async_script(script, d.tolist(), 4, how)
            np.testing.assert_allclose(shown, select(d, 4, t, update=update), atol=1e-9)  # type: ignore[arg-type]
    d = torch.tensor([0.3, 0.1, 0.1, 0.2])
    shown = page.driver.execute_async_script(script, d.tolist(), 3, {"scale": 1, "strength": 1, "rule": "hard"})
    np.testing.assert_array_equal(shown, select(d, 3, rule="hard"))


def test_points_of_the_simplex_move_by_keys(page: Page) -> None:
    page.js("location.hash = 'selection'")
    page.wait(lambda: page.all("#selection .query"), "the picture")
    before = page.one(".weights tbody").text
    page.one("#selection .query").send_keys(Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert page.one(".weights tbody").text != before
    page.choose("simplex-form", "hard")
    assert {cell.text for cell in page.all(".gradient")} == {"0"}


# Match


def views() -> dict[str, bytes]:
    """Two photographs of spots on two walls, which a camera that moves to the right sees."""
    generator = np.random.default_rng(3)
    walls = [(generator.random((40, 60)) * 255).astype(np.uint8) for _ in range(2)]
    large = [np.asarray(Image.fromarray(wall).resize((960, 640), Image.Resampling.BICUBIC)) for wall in walls]
    found = {}
    for name, shift in (("left.png", 0), ("right.png", 24)):
        sheet = large[0][100:500, 100 + shift : 660 + shift].copy()
        sheet[120:300, 150:400] = large[1][120:300, 150 + 2 * shift : 400 + 2 * shift]
        file = io.BytesIO()
        Image.fromarray(sheet).save(file, "PNG")
        found[name] = file.getvalue()
    return found


def test_match_two_photographs(page: Page, tmp_path: Path) -> None:
    pytest.importorskip("cv2", reason="matching needs OpenCV: pip install 'n3net[match]'")
    from n3net import match

    files = views()
    page.add(files)
    page.js("location.hash = 'match'")
    button = page.wait(lambda: next((b for b in page.all("#match .button.main") if b.is_enabled()), None), "a button")
    button.click()
    page.wait(lambda: page.js("return document.getElementById('match').dataset.state") == "done", "matches")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    chosen = [
        page.js(f"return document.querySelectorAll('#match select')[{i}].selectedOptions[0].text") for i in (0, 1)
    ]
    expected = match(tmp_path / chosen[0], tmp_path / chosen[1])
    found = page.js("return pair.found")
    assert found["matches"] == len(expected.kept)
    assert found["kept"] == int(expected.kept.sum())
    kept = page.js("return pair.shown.length")
    threshold = "const r = document.querySelector('#match .two input[type=range]');"
    assert kept == int((expected.scores >= 0).sum())
    page.js(f"{threshold} r.value = r.max; r.dispatchEvent(new Event('input'))")
    assert page.js("return pair.shown.length") < max(kept, 1)
    page.js(f"{threshold} r.value = r.min; r.dispatchEvent(new Event('input'))")
    page.one("canvas.pair").send_keys(Keys.ARROW_RIGHT)
    assert "score" in page.one("#match .told").text
    page.js("document.querySelector('#match .bar input[type=text]').value = 'long'")
    page.one("#match .button.main").click()
    page.wait(lambda: "focal length: expected pixels" in page.one("#match").text, "words")


# For everyone


def test_by_keyboard_alone(page: Page) -> None:
    page.add({"a.png": photo(60, 50)})
    page.js("document.activeElement.blur()")
    reached = []
    for _ in range(40):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        focused = page.js(
            "const e = document.activeElement; return e.textContent.trim() || e.getAttribute('aria-label') || e.value"
        )
        reached.append(focused)
        if focused == "Restore" and page.js("return document.activeElement.tagName") == "BUTTON":
            break
    assert any("Before and after" in str(name) for name in reached)
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    page.wait(lambda: page.told() == "done", "the whole")


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_a_phone_is_wide_enough(page: Page, room: str, theme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    page.add({"a.png": photo(130, 110), "b.png": photo(120, 120, seed=1)})
    page.open(room)
    if room == "neighbours":
        page.wait(lambda: page.js("return document.getElementById('neighbours').dataset.state") == "done", "a look")
    page.js(AXE.read_text(encoding="utf-8"))
    found = page.driver.execute_async_script("axe.run(document).then((r) => arguments[0](r.violations))")
    assert not [f"{v['id']}: {[n['html'][:160] for n in v['nodes']]}" for v in found]
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        time.sleep(0.2)
        wide = """return [...document.querySelectorAll('main *, header *')].filter((e) => e.getClientRects().length
          && !e.closest('.unseen, .rooms, svg') && e.getBoundingClientRect().right > 361)
          .map((e) => e.outerHTML.slice(0, 90))"""
        assert page.js(wide) == []
        assert page.js("return document.documentElement.scrollWidth") <= 360
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_server_that_is_gone_is_told(driver: Any, tmp_path: Path, small_weights: Path, start_server: Any) -> None:
    running = start_server(tmp_path, small_weights)
    page = Page(driver, running, driver.downloads)
    page.open()
    running.stop()
    page.wait(lambda: "does not answer" in page.one("#trouble").text, "words")
