"""The lab's module in a real browser computes the bits of the programs: python3 docs/page/browser_bits_test.py BUILD
[SITE] [--firefox|--jsc].

BUILD holds the programs. SITE (build/site by default) must have been written on a machine with tools for WebAssembly.
Chromium needs what browser_test.py needs. Firefox needs nothing else: the script controls it by Firefox's own protocol,
Marionette. --jsc uses the shell of JavaScriptCore, the engine of Safari. Bits are compared on x86-64, where the
baseline code does not contract a product and a sum into an FMA.
"""

from __future__ import annotations

import base64
import json
import math
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import browser_test
from jsc import Jsc
from lab_module import LARGEST_MODULE, SCRIPT

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
ENGINE = ""
STEPS = 100
TEXT = "docs/architecture.md"
OF_TEXT = ["--data", TEXT, "--layers", "2", "--heads", "3", "--channels", "24", "--context", "32", "--batch", "4"]
# The settings of docs/same_bits.md.
SETTINGS = {
    "additive and convolution": [*OF_TEXT, "--mixer", "additive", "--conv-kernel", "4", "--dropout", "0.1"],
    "dot, rotary positions, with Muon": [*OF_TEXT, "--mixer", "dot", "--positions", "rotary", "--optimizer", "muon"],
    "leap with elu": [*OF_TEXT, "--mixer", "leap", "--normed-values", "1"],
    "metric": ["--task", "sort", "--mixer", "metric", "--batch", "16"],
    "a mix in chunks and shards": [*OF_TEXT, "--mixer", "additive,dot", "--positions", "alibi", "--chunk", "16", "--shards", "2"],
    "reviews, quadratic": ["--task", "reviews", "--mixer", "quadratic", "--batch", "8"],
}
LSH = ["--mixer", "lsh", "--lsh-rounds", "2", "--lsh-buckets", "4", "--lsh-piece", "4"]
RECENT = 50  # steps whose mean is the training loss that a terminal shows
LOAD = """return new Promise((done, failed) => {
  const script = document.createElement('script');
  script.src = arguments[0];
  script.onload = () => { window.engine = new Engine(); engine.ready.then(done, failed); };
  script.onerror = failed;
  document.head.append(script);
})"""
ANSWER = "try { return {value: await (async () => { %s })()}; } catch (error) { return {error: error.message}; }"


class Firefox:
    """A browser without a window, controlled by Marionette: JSON messages, each preceded by its length."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        Path(self._profile.name, "user.js").write_text(f'user_pref("marionette.port", {port});\n')
        command = [shutil.which("firefox-esr") or "firefox", "--headless", "--marionette", "--profile", self._profile.name]
        self._firefox = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(300):
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), 60)
                break
            except ConnectionError:
                time.sleep(0.1)
        else:
            raise RuntimeError("firefox does not answer")
        self._received = b""
        self._calls = 0
        self._read()
        self._ask("WebDriver:NewSession", {"capabilities": {"alwaysMatch": {}}})

    def _read(self):
        while b":" not in self._received:
            self._received += self._socket.recv(1 << 16)
        size, self._received = self._received.split(b":", 1)
        while len(self._received) < int(size):
            self._received += self._socket.recv(1 << 20)
        message, self._received = self._received[: int(size)], self._received[int(size) :]
        return json.loads(message)

    def _ask(self, command: str, parameters: dict):
        self._calls += 1
        message = json.dumps([0, self._calls, command, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(message), message))
        _, _, error, result = self._read()
        if error:
            raise RuntimeError(f"{command}: {error['message']}")
        return result

    def open(self, page: str) -> None:
        self._ask("WebDriver:Navigate", {"url": (browser_test.SITE / page).as_uri()})

    def run(self, script: str, *arguments):
        """Runs a script in the page: Marionette's own scripts run in another scope, without the page's classes."""
        code = f"""(async (...arguments) => {{ {script} }})(...{json.dumps(arguments)})
            .then((value) => [value ?? null], (error) => [null, String(error)])
            .then((answer) => {{ document.documentElement.dataset.answer = JSON.stringify(answer); }})"""
        insert = """delete document.documentElement.dataset.answer;
            const script = document.createElement("script");
            script.textContent = arguments[0];
            document.documentElement.append(script);
            script.remove();"""
        self._execute(insert, code)
        for _ in range(6000):
            answer = self._execute("return document.documentElement.dataset.answer ?? null")
            if answer is not None:
                value, *errors = json.loads(answer)
                if errors:
                    raise RuntimeError(errors[0])
                return value
            time.sleep(0.05)
        raise RuntimeError("the page does not answer")

    def _execute(self, script: str, *arguments):
        return self._ask("WebDriver:ExecuteScript", {"script": script, "args": list(arguments)})["value"]

    def messages(self) -> list[str]:
        return []

    def close(self) -> None:
        self._firefox.terminate()
        self._firefox.wait()
        self._profile.cleanup()


def terminal(program: str, *words: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(BUILD / program), *words], cwd=folder, capture_output=True, env=os.environ | {"ATTENTION_ISA": "baseline"}
    )


class Lab(unittest.TestCase):
    """Results of the module, compared with the results of the programs."""

    @classmethod
    def setUpClass(cls) -> None:
        if not (browser_test.SITE / SCRIPT).is_file():
            raise unittest.SkipTest(f"the site has no {SCRIPT}: no tools for WebAssembly where it was written")
        if ENGINE == "--firefox" and not (shutil.which("firefox-esr") or shutil.which("firefox")):
            raise unittest.SkipTest("no firefox here")
        cls.browser = {"--firefox": Firefox, "--jsc": Jsc}.get(ENGINE, browser_test.Browser)()
        cls.browser.open("index.html")
        cls.browser.run(LOAD, (browser_test.SITE / SCRIPT).as_uri())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.browser.close()

    def ask(self, script: str, *arguments):
        """Returns the result of an asynchronous script, or the message of its error."""
        answer = self.browser.run(f"return (async (...arguments) => {{ {ANSWER % script} }})(...arguments)", *arguments)
        self.assertIsNotNone(answer)
        return answer

    def open(self, flags: list[str]) -> dict:
        files = {}
        if "--data" in flags:
            name = flags[flags.index("--data") + 1]
            files[name] = base64.b64encode((ROOT / name).read_bytes()).decode()
        opened = self.ask(
            """const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            const files = Object.fromEntries(Object.entries(arguments[1]).map(([name, text]) => [name, bytes(text)]));
            return await engine.open(arguments[0], files);""",
            flags,
            files,
        )
        self.assertNotIn("error", opened)
        return opened["value"]

    def losses(self, steps: int) -> list[float]:
        losses: list[float] = []
        while len(losses) < steps:  # in parts: a driver has a time limit per script
            part = self.ask("return Array.from((await engine.step(arguments[0])).losses);", min(20, steps - len(losses)))
            self.assertNotIn("error", part)
            losses += part["value"]
        return losses

    def test_losses_are_those_of_a_terminal(self) -> None:
        if platform.machine() not in ("x86_64", "AMD64"):
            self.skipTest("not on x86-64")
        for name, flags in SETTINGS.items():
            with self.subTest(setting=name), tempfile.TemporaryDirectory() as folder:
                run = [*flags, "--steps", str(STEPS), "--eval-every", "0"]
                quiet = ["--log-every", "1", "--checkpoint-every", "0", "--out", folder]
                done = terminal("train", *run, *quiet)
                self.assertEqual(done.returncode, 0, done.stderr)
                rows = [line.split(",") for line in Path(folder, "log.csv").read_text().splitlines()]
                at, at_loss = rows[0].index("train_loss"), rows[0].index("loss")
                self.open(run)
                losses = self.losses(STEPS)
                self.assertEqual(len(rows), STEPS + 1)
                for step in range(1, STEPS + 1):
                    mean, recent = 0.0, losses[max(0, step - RECENT) : step]
                    for loss in recent:
                        mean += loss
                    self.assertEqual(mean / len(recent), float(rows[step][at]), f"step {step}")
                    self.assertEqual(recent[-1], float(rows[step][at_loss]), f"step {step}")
        self.assertEqual(self.browser.messages(), [])

    def test_a_saved_network_writes_and_is_scored_as_in_a_terminal(self) -> None:
        self.open([*OF_TEXT, "--mixer", "additive,leap", "--steps", "30"])
        self.losses(30)
        saved = self.ask("return btoa(Array.from(await engine.save(), (byte) => String.fromCharCode(byte)).join(''));")
        written = self.ask("return (await engine.write({prompt: 'The ', tokens: 200, seed: 7})).text;")
        score = self.ask("return (await engine.score(arguments[0])).line;", "What the layers share, and how it lies.")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "saved.safetensors")
            file.write_bytes(base64.b64decode(saved["value"]))
            text = Path(folder, "text.txt")
            text.write_text("What the layers share, and how it lies.")
            done = terminal("generate", "--checkpoint", str(file), "--prompt", "The ", "--tokens", "200", "--seed", "7")
            self.assertEqual(done.stdout.decode(), written["value"] + "\n", done.stderr)
            done = terminal("evaluate", "--checkpoint", str(file), "--data", str(text))
            self.assertEqual(done.stdout.decode().splitlines()[-1:], [score["value"]], done.stderr)
            # And back again: a reader drops the file onto the page.
            loaded = self.ask(
                """await engine.load(Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0)), "saved.safetensors");
                return (await engine.write({prompt: 'The ', tokens: 200, seed: 7})).text;""",
                saved["value"],
            )
            self.assertEqual(loaded, written)

    def test_errors_are_those_of_a_terminal(self) -> None:
        for flags in (
            ["--task", "sort", "--heads", "5"],
            ["--headz", "3"],
            ["--task", "sort", "--learning-rate", "fast"],
            ["--task", "sort", "--length", "6", "--context", "7"],
            ["--mixer", "dots"],
            ["--data", "no/such.txt"],
        ):
            with self.subTest(flags=flags), tempfile.TemporaryDirectory() as folder:
                done = terminal("train", *flags, "--out", str(Path(folder, "run")))
                said = self.ask("return await engine.open(arguments[0], {});", flags)
                self.assertEqual(said.get("error", "") + "\n", done.stderr.decode())
        with tempfile.TemporaryDirectory() as folder:
            self.open(["--task", "sort"])
            saved = self.ask("return btoa(Array.from(await engine.save(), (byte) => String.fromCharCode(byte)).join(''));")
            whole = base64.b64decode(saved["value"])
            changed = bytearray(whole)
            changed[-5] ^= 1
            for broken in (whole[:-4], bytes(changed), whole[:6], b"no file of ours", b""):
                Path(folder, "broken.safetensors").write_bytes(broken)
                done = terminal("generate", "--checkpoint", "broken.safetensors", "--prompt", "1", folder=Path(folder))
                said = self.ask(
                    """return await engine.load(Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0)),
                    "broken.safetensors");""",
                    base64.b64encode(broken).decode(),
                )
                self.assertEqual(said.get("error", "") + "\n", done.stderr.decode())

    def test_the_module_is_small_and_asks_for_nothing(self) -> None:
        (module,) = re.findall(r'"([A-Za-z0-9+/=]{100000,})"', (browser_test.SITE / SCRIPT).read_text(encoding="utf-8"))
        self.assertLessEqual(len(base64.b64decode(module)), LARGEST_MODULE)
        imports = self.ask(
            """const bytes = Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0));
            return WebAssembly.Module.imports(await WebAssembly.compile(bytes));""",
            module,
        )
        self.assertEqual(imports, {"value": []})

    def look(self) -> tuple[float, dict, dict]:
        seen = self.ask(
            """const {loss, arrays, gradients} = await engine.look(await engine.example(2));
            const all = (list) => Object.fromEntries(list.map(({layer, name, extents, values}) =>
              [`${layer}.${name}`, {extents, values: Array.from(values)}]));
            return [loss, all(arrays), all(gradients)];"""
        )
        self.assertNotIn("error", seen)
        return tuple(seen["value"])

    def test_weights_times_values_are_the_output_and_the_way_back_knows_it(self) -> None:
        for mixer, value in (("dot", "value_bch"), ("metric", "p_bch")):
            with self.subTest(mixer=mixer):
                self.open(["--task", "sort", "--layers", "2", "--mixer", mixer, "--batch", "8"])
                self.losses(20)
                _, arrays, gradients = self.look()
                of = "blocks.1.mixer."
                weights, values, out, d_out = (
                    array["values"]
                    for array in (arrays[of + "weight_bncs"], arrays[of + value], arrays[of + "t_bch"], gradients[of + "t_bch"])
                )
                _, N, C, S = arrays[of + "weight_bncs"]["extents"]
                H = arrays[of + "t_bch"]["extents"][2]
                for c in range(C):
                    for h in range(H):
                        n = h * N // H
                        product = sum(weights[(n * C + c) * S + s] * values[s * H + h] for s in range(S))
                        self.assertLessEqual(abs(product - out[c * H + h]), 2e-5)
                if mixer == "dot":  # the values are the array x itself
                    for s in range(S):
                        for h in range(H):
                            n = h * N // H
                            back = sum(weights[(n * C + c) * S + s] * d_out[c * H + h] for c in range(C))
                            self.assertLessEqual(abs(back - gradients[of + value]["values"][s * H + h]), 1e-6)

    def test_a_logit_that_is_changed_moves_the_loss_as_its_gradient_says(self) -> None:
        self.open(["--task", "sort", "--layers", "2", "--mixer", "additive", "--batch", "8"])
        self.losses(20)
        before, arrays, gradients = self.look()
        for name in ("a_bnc", "e_bnc"):
            array, gradient = (of["blocks.1.mixer." + name] for of in (arrays, gradients))
            _, _, C = array["extents"]
            n, c = 1, 5
            change = 0.02
            moved = []
            for by in (-change, change):
                value = array["values"][n * C + c] + by
                self.ask(
                    "await engine.touch([{layer: 'blocks.1.mixer', array: arguments[0], index: arguments[1], value: arguments[2]}]);",
                    name,
                    [0, n, c],
                    value,
                )
                moved.append(self.look()[0])
            self.assertAlmostEqual((moved[1] - moved[0]) / (2 * change), gradient["values"][n * C + c], delta=2e-5)
        for what in ("off", "uniform"):
            self.ask("await engine.touch([{layer: 'blocks.1.mixer', head: 1, what: arguments[0]}]);", what)
            self.assertNotEqual(self.look()[0], before)
        self.ask("await engine.touch([]);")
        self.assertEqual(self.look()[0], before)

    def touch(self, *changes: dict) -> None:
        told = self.ask("return await engine.touch(arguments[0]) ?? 0;", list(changes))
        self.assertNotIn("error", told)

    def test_a_head_is_switched_off_or_made_uniform(self) -> None:
        transformer_xl = ["--mixer", "transformer_xl", "--positions", "none", "--segment", "6", "--memory", "4"]
        others = [["--mixer", mixer] for mixer in ("dot", "metric", "quadratic", "bahdanau")]
        strided = ["--mixer", "dot", "--pattern", "strided", "--stride", "3", "--part", "heads"]
        for flags in (*others, transformer_xl, LSH, strided):
            with self.subTest(flags=flags):
                self.open(["--task", "sort", "--layers", "2", *flags, "--batch", "8"])
                self.losses(10)
                loss, before, _ = self.look()
                layer, head = "blocks.0.mixer", 1
                self.touch({"layer": layer, "head": head, "what": "uniform"})
                uniform_loss, arrays, gradients = self.look()
                self.assertNotEqual(uniform_loss, loss)
                _, N, C, S = arrays[f"{layer}.weight_bncs"]["extents"]
                uneven = 0
                for row in range(N * C):
                    weights, were = (
                        of[f"{layer}.weight_bncs"]["values"][row * S : (row + 1) * S] for of in (arrays, before)
                    )
                    if row // C != head:
                        self.assertEqual(weights, were)
                        continue
                    seen = [s for s in range(S) if were[s] > 0]
                    self.assertEqual([s for s in range(S) if weights[s] > 0], seen)
                    self.assertLessEqual(max((abs(weights[s] - 1 / len(seen)) for s in seen), default=0), 1e-6)
                    uneven += any(abs(were[s] - 1 / len(seen)) > 1e-4 for s in seen)
                self.assertGreater(uneven, 0, "its weights were uniform before")
                made_of_keys = f"{layer}.{'query' if flags == LSH else 'key'}_bch"
                if "--pattern" not in flags and made_of_keys in gradients:
                    _, _, H = gradients[made_of_keys]["extents"]
                    d_keys = gradients[made_of_keys]["values"]
                    of_head = [d for i, d in enumerate(d_keys) if i % H * N // H == head]
                    self.assertEqual(max(map(abs, of_head)), 0, "an array that the head does not use has a gradient")
                    self.assertGreater(max(map(abs, d_keys)), 0)
                self.touch({"layer": layer, "head": head, "what": "off"})
                off_loss, _, _ = self.look()
                self.assertNotIn(off_loss, (loss, uniform_loss))
                # The output equals that of zero weights for the head in the output projection.
                _, _, D = arrays[f"{layer}.out_bcd"]["extents"]
                K = arrays[f"{layer}.t_bch"]["extents"][2] // N
                places = [(d, h) for d in range(D) for h in range(head * K, (head + 1) * K)]
                self.touch(*({"weight": f"{layer}.output_dh", "index": place, "value": 0} for place in places))
                self.assertAlmostEqual(self.look()[0], off_loss, delta=1e-6)
                self.touch(*({"layer": layer, "head": n, "what": "off"} for n in range(N)))
                _, arrays, _ = self.look()
                self.assertEqual(arrays[".x_bcd"], arrays[f"{layer}.out_bcd"], "a layer with all heads off changes the residual stream")
                self.touch()
                self.assertEqual(self.look()[:2], (loss, before))

    def test_a_network_with_an_encoder_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder, "run")
            done = terminal("train", "--task", "dates", "--steps", "1", "--batch", "2", "--out", str(run))
            self.assertEqual(done.returncode, 0, done.stderr)
            file = base64.b64encode((run / "model.safetensors").read_bytes()).decode()
        said = self.ask(
            "return await engine.load(Uint8Array.from(atob(arguments[0]), (c) => c.charCodeAt(0)), 'dates.safetensors');", file
        )
        self.assertRegex(said.get("error", ""), r"^generate: dates\.safetensors: metadata task: expected text, .*, found \"dates\"")

    def test_memory_is_what_a_terminal_counts(self) -> None:
        settings = {
            "sort": ["--task", "sort"],
            "reviews, lsh, recomputed": ["--task", "reviews", *LSH, "--recompute", "1"],
            "shards, an average": [*OF_TEXT, "--mixer", "additive,leap", "--shards", "2", "--weight-average", "10"],
            "reversible": [*OF_TEXT, "--mixer", "dot,additive", "--reversible", "1"],
            "chunks": [*OF_TEXT, "--mixer", "additive", "--chunk", "16"],
            "transformer_xl": [*OF_TEXT, "--mixer", "transformer_xl", "--positions", "none", "--segment", "8", "--memory", "8"],
            "digits, Muon": ["--task", "digits", "--optimizer", "muon"],
        }
        for name, flags in settings.items():
            with self.subTest(setting=name), tempfile.TemporaryDirectory() as folder:
                self.open(flags)
                told = self.ask("return await engine.memory();")
                self.assertNotIn("error", told)
                part = {one["name"]: one["bytes"] for one in told["value"]["parts"]}
                done = terminal("train", *flags, "--steps", "1", "--threads", "1", "--out", str(Path(folder, "run")))
                said = re.search(r"\(weights, gradients and moments .*?, data", done.stdout.decode())
                self.assertIsNotNone(said, done.stderr)
                of_run = part["weights"] + part["gradients"] + part["moments"]
                borders = f", borders of chunks {part['borders of chunks'] / 2**20:.1f}" if "--chunk" in flags else ""
                self.assertEqual(
                    said[0],
                    f"(weights, gradients and moments {of_run / 2**20:.1f}, activations {part['activations'] / 2**20:.1f}"
                    f"{borders}, scratch {part['scratch'] / 2**20:.1f}, data",
                )
                arrays = told["value"]["activations"]
                named = sum(array["bytes"] for array in arrays)
                self.assertLessEqual(named, part["activations"])
                if "--chunk" in flags:
                    self.assertEqual(arrays, [])
                    continue
                self.assertGreater(named, part["activations"] / 2, "the module lists less than half of the activations")
                for array in arrays:
                    size = {"float32": 4, "int32": 4, "int64": 8}[array["type"]] * math.prod(array["extents"])
                    (self.assertLessEqual if name == "reversible" else self.assertEqual)(array["bytes"], size, array)

    def test_sort_is_learned(self) -> None:
        self.open(["--task", "sort", "--mixer", "dot", "--steps", "300"])
        self.losses(300)
        evaluated = self.ask("return await engine.evaluate();")["value"]
        self.assertGreaterEqual(evaluated["accuracy"], 0.9)
        answer = self.ask("return await engine.answer('3 1 2 1 3 2');")["value"]
        self.assertEqual(answer["answer"], "1 1 2 2 3 3")


class Page(unittest.TestCase):
    """The page of the lab in Chromium, compared with a terminal."""

    def setUp(self) -> None:
        if ENGINE or not (browser_test.SITE / SCRIPT).is_file():
            self.skipTest("runs in Chromium only, and if the site has a lab")
        self.browser = browser_test.Browser()
        self.addCleanup(self.browser.close)

    def until(self, script: str) -> None:
        for _ in range(3000):
            if self.browser.run(script):
                return
            time.sleep(0.1)
        self.fail(f"never: {script}")

    def open(self, settings: str) -> None:
        self.browser.open("lab.html", settings)
        self.until("return document.getElementById('how-right').textContent !== ''")

    def test_the_list_of_losses_is_the_log_of_a_terminal(self) -> None:
        if platform.machine() not in ("x86_64", "AMD64"):
            self.skipTest("not on x86-64")
        self.open("task=sort&more=--steps+60")
        self.browser.run("document.getElementById('losses').open = true; document.getElementById('train').click()")
        self.until("return document.getElementById('train').textContent === 'Train again'")
        lines = self.browser.run("return document.querySelector('#losses pre').textContent").split("\n")
        with tempfile.TemporaryDirectory() as folder:
            run = ["--task", "sort", "--steps", "60", "--log-every", "1", "--eval-every", "0", "--checkpoint-every", "0"]
            done = terminal("train", *run, "--out", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [line.split(",") for line in Path(folder, "log.csv").read_text().splitlines()]
        columns = [rows[0].index(name) for name in lines[0].split("\t")]
        logged = [[float(row[column]) for column in columns] for row in rows[1:]]
        self.assertEqual([[float(cell) for cell in line.split("\t")] for line in lines[1:]], logged[::-1])
        said = self.browser.run("return document.getElementById('state').textContent")
        self.assertRegex(done.stdout.decode(), rf"step 60/60, train {said.split()[-1]}\b")

    def test_a_file_that_is_no_text_is_refused_in_the_words_of_a_terminal(self) -> None:
        self.open("")
        for name, content in (
            ("packed.gz", b"\x1f\x8b\x08\0\0\0\0\0\xff"),
            ("wide.txt", "the cat".encode("utf-16")),
            ("latin.txt", "été".encode("latin-1") * 40),
            ("empty.txt", b""),
        ):
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                Path(folder, name).write_bytes(content)
                done = terminal("train", "--data", name, "--out", str(Path(folder, "run")), folder=Path(folder))
                self.browser.run(
                    "const data = new DataTransfer(); data.items.add(new File([new Uint8Array(arguments[1])], arguments[0]));"
                    "dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))",
                    name,
                    list(content),
                )
                self.until(f"return document.getElementById('file-fault').textContent.includes('{name}')")
                self.assertEqual(
                    self.browser.run("return document.getElementById('file-fault').textContent") + "\n", done.stderr.decode()
                )


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    ENGINE = next((word for word in sys.argv[1:] if word.startswith("--")), "")
    if words:
        BUILD = Path(words[0]).resolve()
    if len(words) > 1:
        browser_test.SITE = Path(words[1]).resolve()
    result = unittest.main(argv=sys.argv[:1], exit=False).result
    failed = len(result.failures) + len(result.errors)
    print(f"{max(result.testsRun - failed, 0)} passed, {failed} failed")
    sys.exit(1 if failed else 0)
