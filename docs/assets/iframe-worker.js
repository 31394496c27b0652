// Search in a page that was opened from a folder. Browsers start no worker from a file there, so a hidden frame does its work.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.queue = waiting;
      this.isReady = false;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inner.importScripts = (...addresses) => addresses.reduce((done, address) => done.then(() => load(inner, address)), Promise.resolve());
      load(inner, url).then(() => {
        this.isReady = true;
        waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }

    postMessage(data) {
      if (!this.isReady) {
        this.queue.push(data);
        return;
      }
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };

  function load(inner, address) {
    return new Promise((done) => {
      const script = inner.document.createElement("script");
      script.src = new URL(address, location.href).href;
      script.onload = done;
      inner.document.body.appendChild(script);
    });
  }
}
