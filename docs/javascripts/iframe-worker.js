// Lets the search work in pages that are opened from a disk (file://): a browser starts no worker from there, so an
// iframe that nobody sees runs the worker's script. Elsewhere this file does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      const script = new URL(address, location.href).href.replaceAll('"', "%22");
      this.target = new Promise((ready) => frame.addEventListener("load", () => ready(frame.contentWindow)));
      // The worker's script answers by its global postMessage; here that is the frame's.
      frame.lend = (inside) => {
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      };
      frame.srcdoc = `<script>frameElement.lend(window)</script><script src="${script}"></script>`;
      frame.hidden = true;
      document.body.append(frame);
    }
    postMessage(data) {
      this.target.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
