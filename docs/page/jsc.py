"""Runs the lab's scripts in the shell of JavaScriptCore without a browser, in the same way as browser_bits_test.py."""

from __future__ import annotations

import json
import subprocess

# Browser functions that the scripts use, for a shell without events. All requested work runs in promises, and
# drainMicrotasks() runs the promises until none is left. Each line of standard input is a script; its answer is a line
# of output.
PAGE = """
globalThis.window = globalThis;
const later = (f, value) => Promise.resolve(value).then(f);
WebAssembly.compile = async (bytes) => new WebAssembly.Module(bytes);
WebAssembly.instantiate = async (module, imports) => new WebAssembly.Instance(module, imports);
globalThis.setTimeout = (f) => later(f);
const text = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
globalThis.atob = (base64) => text(Uint8Array.fromBase64(base64));
globalThis.btoa = (letters) => Uint8Array.from(letters, (c) => c.charCodeAt(0)).toBase64();
globalThis.TextEncoder = class { encode(t) { return Uint8Array.from(unescape(encodeURIComponent(t)), (c) => c.charCodeAt(0)); } };
globalThis.TextDecoder = class { decode(bytes) { return decodeURIComponent(escape(text(bytes))); } };
globalThis.Blob = class { constructor([source]) { this.source = source; } };
globalThis.URL = {createObjectURL: (blob) => blob.source};
globalThis.Worker = class {
  constructor(source) {
    const answer = (data) => later((data) => this.onmessage({data}), data);
    const hears = new Function("postMessage", `let onmessage; ${source}; return onmessage;`)(answer);
    this.postMessage = (data) => later((data) => hears({data}), data);
  }
};
globalThis.document = {createElement: () => ({}), head: {append: (script) => { load(script.src.slice(7)); script.onload(); }}};
for (let line; (line = readline()); ) {
  const {script, given} = JSON.parse(line);
  let answer;
  later(() => (0, eval)(`(async (...arguments) => { ${script} })`)(...given))
    .then((value) => { answer = [value ?? null]; }, (error) => { answer = [null, String(error)]; });
  drainMicrotasks();
  print(JSON.stringify(answer));
}
"""


class Jsc:
    """The shell process, which stays open between scripts."""

    def __init__(self) -> None:
        command = ["jsc", "-e", PAGE]
        self._shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def open(self, page: str) -> None:
        pass

    def run(self, script: str, *arguments):
        self._shell.stdin.write(json.dumps({"script": script, "given": arguments}) + "\n")
        self._shell.stdin.flush()
        value, *errors = json.loads(self._shell.stdout.readline())
        if errors:
            raise RuntimeError(errors[0])
        return value

    def messages(self) -> list[str]:
        return []

    def close(self) -> None:
        self._shell.stdin.close()
        self._shell.wait()
