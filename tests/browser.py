"""A private JupyterLab on loopback and a real Chromium that reads a notebook in it as a person would."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import sync_playwright

OUT = Path(__file__).parent.parent / "out"
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
}
_CHART = """(() => {
    const graph = document.querySelector('.accel-panel .js-plotly-plot');
    if (!graph?.layout) return null;
    const series = graph.data.map(({name, yaxis, x, y}) => ({name, axis: yaxis ?? 'y', x: Array.from(x ?? []), y: Array.from(y ?? [])}));
    return {title: graph.layout.title?.text, series, points: graph.querySelectorAll('.scatterlayer .point').length};
})"""


def chromium():
    """Where the browser is; the test fails, and says what to install, where there is none."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "There is no Chromium on this machine. Install it (apt-get install chromium), or run pytest -m 'not ui'."
    return found


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def lab(root, home, *, subshells=True):
    """JupyterLab serving ``root``, with settings, kernels and store in ``home``. Gives its address and token.

    Args:
        subshells: JupyterLab's default runs widget callbacks on a kernel subshell's thread beside a running cell; without, they wait for
            the cell on the main thread.
    """
    settings = dict(_SETTINGS)
    if not subshells:
        settings["@jupyterlab/apputils-extension/kernels-settings"] = {"commsOverSubshells": "disabled"}
    for name, values in settings.items():
        path = home / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    variables = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR", "ACCEL_STORE")
    environment = {**os.environ, **{name: str(home / name.lower()) for name in variables}}
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "PYDEVD_DISABLE_FILE_VALIDATION": "1", "TMPDIR": str(home)}
    environment.pop("ACCEL_HEADLESS", None)
    port, token = _free_port(), secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}", "--LabApp.news_url=None"]
    command += ["--LabApp.extension_manager=readonly", "--allow-root"]
    with (home / "jupyterlab.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api/status?token={token}", process, home / "jupyterlab.log")
        yield address, token
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # a session of its own: takes the kernels with it
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(url, process, log):
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except (urllib.error.URLError, OSError):
            assert process.poll() is None, f"JupyterLab ended:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"JupyterLab does not answer:\n{log.read_text()[-2000:]}"
            time.sleep(0.1)


@contextmanager
def reader(address, token, notebook):
    """A :class:`Reader` with the notebook open; leaves a screenshot in ``out/`` when the test fails."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=_FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        one = Reader(page)
        try:
            page.goto(f"{address}/lab/tree/{notebook}?token={token}&reset", wait_until="domcontentloaded")
            one.wait_until_ready()
            yield one
        except BaseException:
            OUT.mkdir(exist_ok=True)
            page.screenshot(path=OUT / f"browser_{Path(notebook).stem}.png")
            raise
        finally:
            browser.close()


class Reader:
    """Someone at the keyboard. ``hosts`` collects every host that the page asked for anything, ``failures`` what broke in its scripts."""

    def __init__(self, page):
        self.page = page
        self.hosts = set()
        self.failures = []
        page.on("pageerror", lambda error: self.failures.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname))
        page.on("websocket", lambda socket: self.hosts.add(urlsplit(socket.url).hostname))

    def wait_until_ready(self):
        """Until the notebook is drawn and its kernel answers: the notebook's own indicator is idle before there is a kernel."""
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        self.page.wait_for_function(
            r"() => /\(ipykernel\) \| Idle/.test(document.querySelector('#jp-main-statusbar')?.innerText)", timeout=60_000
        )

    def run_all(self, timeout=240):
        """Run every cell from the menu and wait for the last; a cell that fails fails the test."""
        self.page.click(".jp-Notebook .jp-Cell >> nth=0")
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.locator("li.lm-Menu-item[data-command='runmenu:run-all']").click()
        self.page.wait_for_function(
            r"""() => document.querySelector('.jp-Notebook').textContent.includes('Traceback (most recent call last)')
                || [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].every(prompt => /\[\d+\]/.test(prompt.textContent))""",
            timeout=timeout * 1000,
        )
        failed = [text for text in self.page.locator(".jp-OutputArea-output pre").all_text_contents() if "Traceback" in text]
        assert not failed, failed[0]

    def save(self):
        """Save the notebook, as the reader's autosave would, and wait until it is written."""
        self.page.get_by_role("menuitem", name="File", exact=True).click()
        with self.page.expect_response(lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url):
            self.page.locator("li.lm-Menu-item[data-command='docmanager:save']").click()

    def panel(self):
        """The panel's element, scrolled into view."""
        found = self.page.locator(".accel-panel")
        found.scroll_into_view_if_needed()
        return found

    def status(self):
        """What the status line says."""
        return self.page.locator(".accel-panel [role=status]").text_content()

    def wait_for_status(self, pattern, timeout=90):
        """Until the status line matches a regular expression."""
        self.page.wait_for_function(
            "pattern => new RegExp(pattern).test(document.querySelector('.accel-panel [role=status]')?.textContent)",
            arg=pattern,
            timeout=timeout * 1000,
        )
        return self.status()

    def chart(self):
        """What plotly really holds in the panel, and how many points it drew."""
        return self.page.evaluate(f"{_CHART}()")

    def wait_for_chart(self, title, name, x, timeout=90):
        """Until the panel's chart has this title, a series of this name at these places, and all its points are drawn."""
        self.page.wait_for_function(
            f"""([title, name, x]) => {{
                const found = {_CHART}();
                return found?.title === title
                    && found.series.some(one => one.name === name && JSON.stringify(one.x) === JSON.stringify(x))
                    && found.points === found.series.reduce((sum, one) => sum + one.y.length, 0);
            }}""",
            arg=[title, name, x],
            timeout=timeout * 1000,
        )
        return self.chart()

    def record(self):
        """Begin to keep every drawing of the panel's chart; :meth:`drawings` gives them."""
        self.page.evaluate(
            f"""() => {{
                window.drawings = [];
                document.querySelector('.accel-panel .js-plotly-plot').on('plotly_afterplot', () => window.drawings.push({_CHART}()));
            }}"""
        )

    def drawings(self):
        """What was drawn since :meth:`record`, in order."""
        return self.page.evaluate("window.drawings")
