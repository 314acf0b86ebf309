// Interface of the engine for the page. Every method calls the module in the Worker (worker.js) and returns a promise. A
// failed call rejects the promise with an Error that has the message of the program in a terminal.

class Engine {
  // base64: the module; worker: the source of worker.js. The site generator inserts both.
  constructor(base64 = "@MODULE@", worker = @WORKER@) {
    this.waiting = new Map();
    this.calls = 0;
    this.onsteps = this.onwritten = null;
    this.worker = new Worker(URL.createObjectURL(new Blob([worker], {type: "text/javascript"})));
    this.worker.onmessage = ({data}) => this.hear(data);
    this.ready = this.ask("module", Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  }

  ask(method, ...given) {
    const call = ++this.calls;
    return new Promise((done, failed) => {
      this.waiting.set(call, {done, failed});
      this.worker.postMessage({call, method, given});
    });
  }

  hear({call, event, value, error}) {
    if (event === "steps") this.onsteps?.(value);
    if (event === "written") this.onwritten?.(value);
    if (!call) return;
    const {done, failed} = this.waiting.get(call);
    this.waiting.delete(call);
    error === undefined ? done(value) : failed(new Error(error));
  }

  stop() {
    this.worker.postMessage({method: "stop"});
  }
}

for (const method of "open load limit step run evaluate example look answer memory values write score save touch".split(" ")) {
  Engine.prototype[method] = function (...given) {
    return this.ask(method, ...given);
  };
}
