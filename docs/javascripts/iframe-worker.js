// Browsers start no worker for a page that is opened from the disk: there the theme's search runs in a hidden frame. The
// theme asks for this name to find out.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...addresses) =>
        addresses.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve())
      this.loaded = this.load(address)
    }

    load(address) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        Object.assign(script, { src: address, onload: resolve, onerror: reject })
        this.frame.contentDocument.body.append(script)
      })
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
